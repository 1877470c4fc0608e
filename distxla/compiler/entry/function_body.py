"""One LLVM function that executes steps of a plan: addresses of buffers, and returns on failure.

    i32 function(Context* context)

Addresses are computed once a call, in the block `begin`; a status other than OK returns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from llvmlite import ir

from distxla.collectives.protocols.control_block import H_ABORT, R_BUSY, R_STEP
from distxla.compiler.plan.buffers import Buffer, MemoryRegion, shares
from distxla.emit.native_function import I8, I32, I64, POINTER, field_of, new_function
from distxla.errors import CompileError
from distxla.program.abi import Context, Status


def has_runtime_offset(buffer: Buffer) -> bool:
    """Whether the buffer's offset is known at run time only."""
    return buffer.swaps or buffer.region is MemoryRegion.SHARED


class FunctionBody:
    """A function that executes steps, while it is emitted.

    constant: the variable of a constant by its number.  builder: at the place of the next step.  chosen: by
    id() of a buffer whose place changes where its offset is kept."""

    def __init__(self, llvm_module: ir.Module, name: str, constant: Callable[[int], ir.GlobalVariable]) -> None:
        self.constant = constant
        # It only calls functions worth optimising, and it can be the longest function of all.
        self.function = new_function(llvm_module, name, I32, (POINTER,), "noinline", "optnone", internal=False)
        self.context = self.function.args[0]
        # `begin` holds values computed once a call: places and the offset tables of the communicating sites.
        self.begin = ir.IRBuilder(self.function.append_basic_block("begin"))
        self.builder = ir.IRBuilder(self.function.append_basic_block("steps"))
        self._first = self.builder.block
        self._failed = self.function.append_basic_block("failed")
        self._failures: list[tuple[ir.Value, ir.Block]] = []
        self._offsets: dict[tuple[MemoryRegion, int], ir.Value] = {}
        self._pointers: dict[tuple[MemoryRegion, int], ir.Value] = {}
        self.chosen: dict[int, ir.Value] = {}
        self._fields: dict[str, ir.Value] = {}
        self._once: dict[Hashable, ir.Value] = {}
        self.own_memory = self.begin.load(
            self.begin.gep(
                self.field("memory"),
                [self.begin.zext(self.field("device"), I64)],
                source_etype=POINTER,
            ),
            typ=POINTER,
            name="own_memory",
        )
        self.abort_flag = self.begin.gep(self.field("call"), [I64(H_ABORT)], source_etype=I8)
        self.breadcrumb = self.begin.gep(self.field("record"), [I64(R_STEP)], source_etype=I8)
        self.busy_word = self.begin.gep(self.field("record"), [I64(R_BUSY)], source_etype=I8)

    def finish(self) -> None:
        """Complete the function after the last step."""
        self.builder.ret(I32(Status.OK))
        self.begin.branch(self._first)
        self._emit_failure()

    def field(self, name: str) -> ir.Value:
        """A field of the context, loaded once."""
        if name not in self._fields:
            kind, offset = field_of(Context, name)
            address = self.begin.gep(self.context, [I64(offset)], source_etype=I8)
            self._fields[name] = self.begin.load(address, typ=kind, name=name)
        return self._fields[name]

    def once(self, key: Hashable, emit: Callable[[ir.IRBuilder], ir.Value]) -> ir.Value:
        """A value that is computed once a call."""
        if key not in self._once:
            self._once[key] = emit(self.begin)
        return self._once[key]

    def offset(self, buffer: Buffer) -> ir.Value:
        """The buffer's offset in the device's own memory, i64."""
        if has_runtime_offset(buffer):
            return self.builder.load(self.place_of(buffer), typ=I64)
        key = (buffer.region, buffer.number)
        found = self._offsets.get(key)
        if found is None:
            if buffer.region is MemoryRegion.ARENA:
                found = self.in_arena(buffer)
            elif buffer.region in (MemoryRegion.PARAMETER, MemoryRegion.RESULT):
                table = self.field("parameters" if buffer.region is MemoryRegion.PARAMETER else "results")
                address = self.begin.gep(table, [I64(buffer.number)], source_etype=I64)
                found = self.begin.load(address, typ=I64, name=f"{buffer.region.value}_{buffer.number}")
            elif buffer.region is MemoryRegion.NONE:
                found = I64(0)
            else:
                raise CompileError(f"a {buffer.region.value} has no place in device memory")
            self._offsets[key] = found
        return found

    def in_arena(self, buffer: Buffer) -> ir.Value:
        return self.begin.add(self.field("arena"), I64(buffer.number))

    def in_shared_arena(self, buffer: Buffer) -> ir.Value:
        """The offset of a buffer of MemoryRegion.SHARED in its group's arena; 0 where this device has no such arena."""
        address = self.begin.gep(self.field("shared"), [I64(buffer.shared_arena)], source_etype=I64)
        base = self.begin.load(address, typ=I64, name=f"shared_{buffer.shared_arena}")
        offset = self.begin.add(base, I64(buffer.shared_number))
        return self.begin.select(self.begin.icmp_unsigned("==", base, I64(0)), I64(0), offset)

    def place_of(self, buffer: Buffer) -> ir.Value:
        """The address of a buffer's offset; for MemoryRegion.SHARED valid after the round that writes the buffer."""
        place = self.chosen.get(id(buffer))
        if place is None:
            place = self.chosen[id(buffer)] = self.begin.alloca(I64)
            if buffer.swaps:
                self.begin.store(self.in_arena(buffer), place)
        return place

    def pointer(self, buffer: Buffer) -> ir.Value:
        """The buffer's address in this process."""
        if has_runtime_offset(buffer):
            return self.builder.gep(self.own_memory, [self.offset(buffer)], source_etype=I8)
        key = (buffer.region, buffer.number)
        found = self._pointers.get(key)
        if found is None:
            if buffer.region is MemoryRegion.CONSTANT:
                found = self.constant(buffer.number)
            elif buffer.region is MemoryRegion.NONE:
                found = self.own_memory  # a token: never dereferenced
            else:
                found = self.begin.gep(self.own_memory, [self.offset(buffer)], source_etype=I8)
            self._pointers[key] = found
        return found

    def offset_table(self, buffers: tuple[Buffer, ...]) -> ir.Value:
        """A u64 array of offsets on the stack; constant ones are filled in once a call."""
        table = self.begin.alloca(I64, size=max(1, len(buffers)))
        for k, buffer in enumerate(buffers):
            place = self.begin.gep(table, [I64(k)], source_etype=I64)
            builder = self.builder if has_runtime_offset(buffer) else self.begin
            builder.store(self.offset(buffer), place)
        return table

    def result_table(self, buffers: tuple[Buffer, ...]) -> ir.Value:
        """The offset table of a site's results; it has a second half where one of them may be shared."""
        if not shares(buffers):
            return self.offset_table(buffers)
        table = self.begin.alloca(I64, size=2 * len(buffers))
        for k, buffer in enumerate(buffers):
            place = self.begin.gep(table, [I64(k)], source_etype=I64)
            elsewhere = self.begin.gep(table, [I64(len(buffers) + k)], source_etype=I64)
            if buffer.region is MemoryRegion.SHARED:
                self.chosen[id(buffer)] = place
                self.builder.store(self.in_arena(buffer), place)  # every time: the routine writes there, too
                self.begin.store(self.in_shared_arena(buffer), elsewhere)
            else:
                builder = self.builder if has_runtime_offset(buffer) else self.begin
                builder.store(self.offset(buffer), place)
                self.begin.store(I64(0), elsewhere)
        return table

    def call(self, function: ir.Function) -> None:
        """Call another function that executes steps."""
        self.fail_unless_zero(self.builder.call(function, [self.context]))

    def fail_unless_zero(self, status: ir.Value) -> None:
        go_on = self.function.append_basic_block("go_on")
        bad = self.builder.icmp_unsigned("!=", status, I32(Status.OK))
        self._failures.append((status, self.builder.block))
        self.builder.cbranch(bad, self._failed, go_on)
        self.builder.position_at_end(go_on)

    def _emit_failure(self) -> None:
        builder = ir.IRBuilder(self._failed)
        if not self._failures:
            builder.unreachable()
            return
        status = builder.phi(I32)
        for value, block in self._failures:
            status.add_incoming(value, block)
        builder.ret(status)

    def stop_if_aborted(self) -> None:
        """Emit a return if the call was aborted, by a failed device or a time limit."""
        flag = self.builder.load_atomic(self.abort_flag, "monotonic", 4, typ=I32)  # another process writes it
        is_aborted = self.builder.icmp_unsigned("!=", flag, I32(0))
        self.fail_unless_zero(self.builder.select(is_aborted, I32(Status.ABORTED), I32(Status.OK)))
