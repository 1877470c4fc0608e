"""Words of shared memory at byte offsets, and the control flow around them, as LLVM IR.

Memory order: everything written before a `store` with order "release" (or a `fetch_add`) is seen by every thread that
reads that word with order "acquire" (or adds to it afterwards). An access to a declared word (collectives/protocols) is
checked against its declaration when it is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps

from llvmlite import ir

from distxla.collectives.protocols.layout import Word
from distxla.emit.native_function import I8, I32, I64, POINTER, counted, field_of, i32, i64, new_function
from distxla.program.abi import Context, Status


def _bits(kind: ir.Type) -> int:
    """The width of a word of this type."""
    return kind.width if isinstance(kind, ir.IntType) else 64


class AtomicsBuilder:
    """Loads, stores and loops at the builder's position. Offsets are bytes: Python integers or i64 values."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    @staticmethod
    def function(
        llvm_module: ir.Module,
        name: str,
        result: ir.Type,
        arguments: list[ir.Type],
        *,
        internal: bool = True,
        optimised: bool = False,
        common: bool = False,
    ) -> tuple[ir.Function, AtomicsBuilder]:
        """A new function with an entry block, and the writer of its body.

        common: it is the same in all programs that have one of this name.
        optimised: LLVM takes the time to make it fast. Code that posts, waits and hands out copies is no faster for
        it, and in small programs would take longer to compile than all kernels.
        """
        attributes = () if optimised else ("noinline", "optnone")
        function = new_function(llvm_module, name, result, arguments, *attributes, internal=internal, common=common)
        return function, AtomicsBuilder(ir.IRBuilder(function.append_basic_block("entry")))

    # --- addresses and plain memory

    def at(self, base: ir.Value, offset: ir.Value | int) -> ir.Value:
        """base + offset bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = i64(offset)
        return self.builder.gep(base, [offset], source_etype=I8)

    def load(self, kind: ir.Type, base: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        return self._load(kind, base, offset, own=False)

    def load_own(self, kind: ir.Type, base: ir.Value, offset: Word) -> ir.Value:
        """A word that others read with acquire order, read by its only writer, or by one that is alone with it."""
        return self._load(kind, base, offset, own=True)

    def _load(self, kind: ir.Type, base: ir.Value, offset: ir.Value | int, *, own: bool) -> ir.Value:
        if isinstance(offset, Word):
            offset.require_load(_bits(kind), None, own=own)
        return self.builder.load(self.at(base, offset), typ=kind)

    def store(self, value: ir.Value, base: ir.Value, offset: ir.Value | int = 0) -> None:
        if isinstance(offset, Word):
            offset.require_store(_bits(value.type), None)
        self.builder.store(value, self.at(base, offset))

    def context_field(self, context: ir.Value, name: str) -> ir.Value:
        """A field of abi.Context: a pointer, u64 or u32 by its ctypes declaration."""
        kind, offset = field_of(Context, name)
        return self.load(kind, context, offset)

    def device_memory(self, context: ir.Value, device: ir.Value) -> ir.Value:
        """Base of a device's memory in this process; device: u32."""
        table = self.context_field(context, "memory")
        return self.load(POINTER, table, self.builder.mul(self.builder.zext(device, I64), i64(8)))

    def peer_memory(self, context: ir.Value, logical: ir.Value) -> ir.Value:
        """`device_memory` of the device that has this u32 id in the program."""
        table = self.context_field(context, "peers")
        return self.load(POINTER, table, self.builder.mul(self.builder.zext(logical, I64), i64(8)))

    def assigned(self, context: ir.Value, logical: ir.Value) -> ir.Value:
        """The run's device that has this u32 id in the program."""
        table = self.context_field(context, "assignment")
        return self.load(I32, table, self.builder.mul(self.builder.zext(logical, I64), i64(4)))

    def local(self, kind: ir.Type, alignment: int = 8) -> ir.Value:
        """A pointer to uninitialised memory of the function's frame."""
        with self.builder.goto_entry_block():
            place = self.builder.alloca(kind)
            place.align = alignment
        place.type = POINTER  # llvmlite types the pointers of allocas; everything here takes opaque ones
        return place

    # --- shared words (u32 unless something else is said, naturally aligned)

    def acquire(self, base: ir.Value, offset: ir.Value | int = 0, kind: ir.Type = I32) -> ir.Value:
        if isinstance(offset, Word):
            offset.require_load(_bits(kind), "acquire", own=False)
        return self.builder.load_atomic(self.at(base, offset), "acquire", _bits(kind) // 8, typ=kind)

    def sequential_load(self, kind: ir.Type, base: ir.Value, offset: Word) -> ir.Value:
        """Of two sides that each store a word with seq_cst order and then load the other's so, one at least loads what
        the other has stored."""
        offset.require_load(_bits(kind), "seq_cst", own=False)
        return self.builder.load_atomic(self.at(base, offset), "seq_cst", _bits(kind) // 8, typ=kind)

    def release(self, value: ir.Value, base: ir.Value, offset: ir.Value | int = 0) -> None:
        self._store_atomic(value, base, offset, "release")

    def sequential_store(self, value: ir.Value, base: ir.Value, offset: ir.Value | int = 0) -> None:
        self._store_atomic(value, base, offset, "seq_cst")

    def racing_load(self, kind: ir.Type, base: ir.Value, offset: Word) -> ir.Value:
        """A word that several may write at once; orders nothing."""
        offset.require_load(_bits(kind), "monotonic", own=False)
        return self.builder.load_atomic(self.at(base, offset), "monotonic", _bits(kind) // 8, typ=kind)

    def racing_store(self, value: ir.Value, base: ir.Value, offset: Word) -> None:
        """Store a word that several may write at once; orders nothing."""
        self._store_atomic(value, base, offset, "monotonic")

    def _store_atomic(self, value: ir.Value, base: ir.Value, offset: ir.Value | int, order: str) -> None:
        if isinstance(offset, Word):
            offset.require_store(_bits(value.type), order)
        place = self.at(base, offset)
        # IRBuilder.store_atomic asks for the pointee's type, which an opaque pointer does not have
        size = value.type.width // 8
        self.builder._insert(ir.instructions.StoreAtomicInstr(self.builder.block, value, place, order, size))

    def fetch_add(self, amount: int, base: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        """The value before; acquire and release, and a full fence."""
        if isinstance(offset, Word):
            offset.require_update(32)
        return self.builder.atomic_rmw("add", self.at(base, offset), i32(amount), "seq_cst")

    def compare_exchange(self, expected: ir.Value, value: ir.Value, base: ir.Value, offset: Word) -> ir.Value:
        """Set the word to `value` if it is as expected; what it was. Acquire and release, and a full fence."""
        offset.require_exchange(_bits(value.type))
        found = self.builder.cmpxchg(self.at(base, offset), expected, value, "seq_cst")
        return self.builder.extract_value(found, 0)

    # --- control flow

    @contextmanager
    def when(self, condition: ir.Value, *, likely: bool | None = None) -> Iterator[None]:
        with self.builder.if_then(condition, likely=likely):
            yield

    def count(self, start: ir.Value, end: ir.Value, step: ir.Value | int = 1) -> AbstractContextManager[ir.Value]:
        """`for index in range(start, end, step)` on i64s from 0 on."""
        return counted(self.builder, start, end, i64(step) if isinstance(step, int) else step)

    @contextmanager
    def forever(self) -> Iterator[ir.Block]:
        """An endless loop; gives the block behind it: leave by a branch to that or by returning."""
        builder = self.builder
        body, done = builder.append_basic_block("forever"), builder.append_basic_block("after")
        builder.branch(body)
        builder.position_at_end(body)
        yield done
        if not builder.block.is_terminated:
            builder.branch(body)
        builder.position_at_end(done)

    def leave_if(self, condition: ir.Value, target: ir.Block) -> None:
        """Jump to `target` where the condition holds, otherwise go on."""
        onwards = self.builder.append_basic_block("onwards")
        self.builder.cbranch(condition, target, onwards)
        self.builder.position_at_end(onwards)

    def return_if(self, condition: ir.Value, value: ir.Value) -> None:
        with self.builder.if_then(condition, likely=False):
            self.builder.ret(value)

    def require_ok(self, status: ir.Value) -> None:
        """Return a status but OK from the function."""
        self.return_if(self.builder.icmp_unsigned("!=", status, i32(Status.OK)), status)

    def smallest(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Of two i64s, signed."""
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)


def emitted_once(
    name: str, result: ir.Type, arguments: list[ir.Type], *, optimised: bool = False, common: bool = False
) -> Callable[[Callable[[AtomicsBuilder], None]], Callable[[ir.Module], ir.Function]]:
    """Decorates what writes the body of a function, by its builder: it becomes what gives a module's function of this
    name, written at its first use. optimised, common: as for `AtomicsBuilder.function`."""

    def decorated(write_body: Callable[[AtomicsBuilder], None]) -> Callable[[ir.Module], ir.Function]:
        @wraps(write_body)
        def emit(llvm_module: ir.Module) -> ir.Function:
            function = llvm_module.globals.get(name)
            if function is None:
                function, atomics = AtomicsBuilder.function(
                    llvm_module, name, result, arguments, optimised=optimised, common=common
                )
                write_body(atomics)
            return function

        return emit

    return decorated
