"""Kernels on a grid, and their memory: the launches and copies of a plan (targets/grid_calls.py)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from llvmlite import ir

from distxla.collectives.transports.seam import GridSite, LaunchedRound
from distxla.compiler.entry.fill_unwritten import written_anew
from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.entry.sites import Sites
from distxla.compiler.lower.grid.program import GridProgram, place_of
from distxla.compiler.lower.kernels import kernel_key
from distxla.compiler.plan.buffers import Buffer, Communicate, Copy, Kernel, MemoryRegion, PlanStep, Transfer
from distxla.compiler.plan.transfers import ticket_buffer
from distxla.emit.native_function import I32, I64
from distxla.ir.instruction import Instruction
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of
from distxla.program.abi import Status
from distxla.program.artifact import Factor, LaunchedKernel
from distxla.targets.grid_calls import ArrayKind, GridCalls

UNWRITTEN = 0xFF  # in bytes that no kernel has written: a NaN in most float types
KINDS = {
    MemoryRegion.PARAMETER: ArrayKind.PARAMETER,
    MemoryRegion.RESULT: ArrayKind.RESULT,
    MemoryRegion.CONSTANT: ArrayKind.CONSTANT,
}


class GridSteps:
    """Emits steps of arrays in a grid's own memory: copies to it and back, kernels, rounds.

    launched: the kernels so far.  launching: name and opcode of the instruction of each step that launches some.
    waits: until a step's kernels are done, for their own time.  fills: memory before a step writes it, so that a read
    of bytes that it doesn't write shows.
    """

    def __init__(self, calls: GridCalls, grid: GridProgram, sites: Sites, *, waits: bool, fills: bool) -> None:
        self._calls, self._grid, self._sites, self._waits, self._fills = calls, grid, sites, waits, fills
        self.launched: list[LaunchedKernel] = []
        self.launching: list[tuple[str, str]] = []
        self._found: dict[Hashable, tuple[LaunchedKernel, int]] = {}  # and the number of its first launch
        self._launches = 0
        self._constants: dict[int, tuple[int, int]] = {}  # by the plan's number: the program's own, and bytes

    def _kernel(self, key: Hashable) -> tuple[LaunchedKernel, int]:
        """A kernel of the grid, and the number of its first launch."""
        if key not in self._found:
            made = self._grid.kernels[key]
            kernel = LaunchedKernel(made.launches, made.scratch_bytes, made.products)
            self.launched.append(kernel)
            self._found[key] = kernel, self._launches
            self._launches += len(kernel.launches)
        return self._found[key]

    def _step(self, instruction: Instruction) -> int:
        """The number of another step that launches kernels."""
        self.launching.append((instruction.name, instruction.opcode))
        return len(self.launching) - 1

    def emit_entry(self, name: str, body: FunctionBody) -> None:
        """The function that a call begins with, which calls the finished `body`."""
        body.function.linkage = "internal"
        function = ir.Function(body.builder.module, body.function.function_type, name)
        builder, (context,) = ir.IRBuilder(function.append_basic_block("entry")), function.args
        _return_unless_ok(builder, self._calls.emit_begin(builder, context, len(self._constants)))
        for number, (own, size) in self._constants.items():
            place = body.constant(number)
            _return_unless_ok(builder, self._calls.emit_constant(builder, context, own, place, size))
        _return_unless_ok(builder, builder.call(body.function, [context]))
        builder.ret(self._calls.emit_wait(builder, context))

    def has_arrays_of(self, step: PlanStep) -> bool:
        """Whether the step is one for the emitters here."""
        if isinstance(step, Kernel):
            return self._grid.is_on_device(step)
        return step.on_device if isinstance(step, Copy | Communicate) else isinstance(step, Transfer)

    def emit_copy(self, body: FunctionBody, step: Copy) -> None:
        """A copy within the kernels' memory."""
        target, source = self._address(body, step.target), self._address(body, step.source)
        body.fail_unless_zero(self._calls.emit_copy(body.builder, body.context, target, source, step.source.size))

    def emit_transfer(self, body: FunctionBody, step: Transfer) -> None:
        """A copy between the memories."""
        emit = self._calls.emit_upload if step.to_device else self._calls.emit_download
        address, place = self._address(body, step.buffer), body.pointer(step.buffer)
        places = (address, place) if step.to_device else (place, address)
        body.fail_unless_zero(emit(body.builder, body.context, *places, step.buffer.size))

    def emit_kernel(self, body: FunctionBody, step: Kernel) -> None:
        """The launches of a kernel."""
        kernel, first = self._kernel(kernel_key(self._grid.structure, step))
        self._fill(body, written_anew(step), kernel.scratch_bytes)
        builder, context = body.builder, body.context
        buffers = [buffer for buffer in (*step.operands, *step.results) if buffer.region is not MemoryRegion.NONE]
        addresses = [self._address(body, buffer) for buffer in buffers]
        number = self._step(step.instruction)

        def launch(begin: int, end: int) -> None:
            for position, each in enumerate(kernel.launches[begin:end], begin):
                shape = each.blocks, each.threads
                status = self._calls.emit_launch(builder, context, number, first + position, shape, addresses)
                body.fail_unless_zero(status)

        done = 0
        for product in kernel.products:
            launch(done, product.first)
            done = product.first + product.count
            by_library = self._calls.emit_has_products(builder, context, product)
            if by_library is None:
                launch(product.first, done)
                continue
            with builder.if_else(by_library) as (library, kernels):
                with library:
                    places = tuple(self._place(body, factor, addresses) for factor in (product.a, product.b, product.c))
                    body.fail_unless_zero(self._calls.emit_product(builder, context, number, product, places))
                with kernels:
                    launch(product.first, done)
        launch(done, len(kernel.launches))
        if self._waits:
            body.fail_unless_zero(self._calls.emit_wait(builder, context))

    def _place(self, body: FunctionBody, factor: Factor, addresses: Sequence[ir.Value]) -> ir.Value:
        begin = (
            self._calls.emit_scratch(body.builder, body.context) if factor.array is None else addresses[factor.array]
        )
        return body.builder.add(begin, I64(factor.offset))

    def _fill(self, body: FunctionBody, buffers: Iterable[Buffer], scratch_bytes: int) -> None:
        """Fill buffers and the scratch memory, if that is asked for."""
        if not self._fills:
            return
        places = [(self._address(body, buffer), buffer.size) for buffer in buffers if buffer.size]
        if scratch_bytes:
            places.append((self._calls.emit_scratch(body.builder, body.context), scratch_bytes))
        for address, size in places:
            body.fail_unless_zero(self._calls.emit_fill(body.builder, body.context, address, UNWRITTEN, size))

    def emit_communicate(self, body: FunctionBody, step: Communicate) -> None:
        """A round between the kernels' memories, which finds all kernels before it done."""
        number = self._step(step.instruction)
        kernels = map(self._kernel, self._grid.rounds[place_of(step)])
        rounds = tuple(LaunchedRound(number, launch, kernel.launches) for kernel, launch in kernels)
        site = self._sites.add(step, GridSite(self._calls, rounds))
        self._emit_own_places(body, step.results)
        self._fill(body, written_anew(step), 0)
        if async_part_of(step.instruction.op) is not AsyncPart.DONE:  # which posts nothing
            self.emit_wait(body)
        operands, results = (self._exported(body, each, ticket_buffer(step)) for each in (step.operands, step.results))
        self._sites.emit_call(body, step, site, operands, results)

    def _exported(self, body: FunctionBody, buffers: Sequence[Buffer], on_host: Buffer | None) -> ir.Value:
        """A u64 array of what a round posts: the exported addresses of buffers, and of the one `on_host` its offset."""
        table = body.begin.alloca(I64, size=max(1, len(buffers)))
        for k, buffer in enumerate(buffers):
            if buffer is on_host:
                value = body.offset(buffer)
            elif buffer.size and buffer.region is not MemoryRegion.NONE:
                value = self._calls.emit_export(body.builder, body.context, self._address(body, buffer))
            else:
                value = I64(0)
            body.builder.store(value, body.builder.gep(table, [I64(k)], source_etype=I64))
        return table

    def _emit_own_places(self, body: FunctionBody, buffers: Iterable[Buffer]) -> None:
        """Buffers that the next round writes are in this device's arena, not in one of its group's."""
        for buffer in buffers:
            if buffer.region is MemoryRegion.SHARED:
                body.builder.store(body.in_arena(buffer), body.place_of(buffer))

    def emit_wait(self, body: FunctionBody) -> None:
        body.fail_unless_zero(self._calls.emit_wait(body.builder, body.context))

    # --- addresses

    def _address(self, body: FunctionBody, buffer: Buffer) -> ir.Value:
        """Where the kernels have a buffer; 0 of an empty one."""
        if not buffer.size or buffer.region is MemoryRegion.NONE:
            return I64(0)
        if buffer.region is MemoryRegion.SHARED:
            return self._shared(body, buffer)
        if buffer.swaps:  # between places in the arena
            distance = body.builder.sub(body.offset(buffer), body.field("arena"))
            return body.builder.add(self._arena(body), distance)
        if buffer.region is MemoryRegion.ARENA:
            return body.once(
                ("device", buffer.region, buffer.number),
                lambda builder: builder.add(self._arena(body), I64(buffer.number)),
            )
        number = buffer.number
        if buffer.region is MemoryRegion.CONSTANT:
            number, _ = self._constants.setdefault(number, (len(self._constants), buffer.size))
        return self._array(body, KINDS[buffer.region], number)

    def _shared(self, body: FunctionBody, buffer: Buffer) -> ir.Value:
        """In the arena of the group, or the device's own, as the round that wrote the buffer left it."""
        own = body.builder.add(self._arena(body), I64(buffer.number))
        begin = self._array(body, ArrayKind.SHARED, buffer.shared_arena)
        groups = body.builder.add(begin, I64(buffer.shared_number))
        is_own = body.builder.icmp_unsigned("==", body.offset(buffer), body.in_arena(buffer))
        return body.builder.select(is_own, own, groups)

    def _arena(self, body: FunctionBody) -> ir.Value:
        return body.once(("device",), lambda builder: self._calls.emit_arena(builder, body.context))

    def _array(self, body: FunctionBody, kind: ArrayKind, number: int) -> ir.Value:
        return body.once(
            ("device", kind, number), lambda builder: self._calls.emit_address(builder, body.context, kind, number)
        )


def _return_unless_ok(builder: ir.IRBuilder, status: ir.Value) -> None:
    with builder.if_then(builder.icmp_unsigned("!=", status, I32(Status.OK)), likely=False):
        builder.ret(status)


__all__ = ["GridSteps"]
