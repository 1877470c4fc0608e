"""The code around a device module: places of threads, fibers that wait, and launching.

One function a kernel is called from outside: it runs all blocks of a launch, one after the other. It switches to a
stack of the emulator's first, so that a fault can leave the kernel wherever it happens: it switches back for good.

A kernel that waits for no other thread runs its threads in a loop, on one stack. Threads of any other are fibers. In
rounds, each fiber that is ready runs until it waits or ends; then `resolve` finds out who can go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from distxla.emit.native_function import I1, I8, I32, I64, POINTER, VOID, memset
from distxla.targets.code import CodeModule, CodeTarget
from distxla.targets.nvptx.emulator import layout
from distxla.targets.nvptx.emulator.emit import counted, element, field, type_of
from distxla.targets.nvptx.emulator.layout import Exchange, Fiber, SharedRange, State, ThreadPlace

SWITCH = "emulator.switch"
GOLDEN = 0x9E3779B97F4A7C15  # splitmix64


class Runtime:
    """Emits into a module of its own, which is linked with the device module."""

    def __init__(self, target: CodeTarget) -> None:
        self.target = target
        self.module = CodeModule("emulator", target)
        state = ir.GlobalVariable(self.module, type_of(State), layout.STATE_SYMBOL)
        state.initializer = ir.Constant(state.value_type, None)
        # as an opaque pointer, which llvmlite's own globals are not
        self.state = ir.FormattedConstant(POINTER, state.get_reference())
        self.switch = ir.Function(self.module, ir.FunctionType(VOID, [POINTER, I64]), SWITCH)
        self._resolvers: list[ir.Function] = []

    # --- functions and fields

    def function(self, name: str, result: ir.Type, *parameters: ir.Type, inline: bool = False) -> ir.IRBuilder:
        """The builder of a new function; an `inline` one is left out of the image where nothing needs it."""
        function = ir.Function(self.module, ir.FunctionType(result, parameters), name)
        function.attributes.add("alwaysinline" if inline else "noinline")
        function.attributes.add("nounwind")
        function.linkage = "linkonce_odr" if inline else "external"
        return ir.IRBuilder(function.append_basic_block())

    def load(self, builder: ir.IRBuilder, name: str, *index: ir.Value | int) -> ir.Value:
        """A field of the state."""
        place = field(builder, State, self.state, name, *index)
        declared = {one[0]: one[1] for one in State._fields_}[name]
        if index:
            return builder.load(place, typ=I32)  # of an array, or of the place
        return builder.load(place, typ=type_of(declared))

    def store(self, builder: ir.IRBuilder, name: str, value: ir.Value, *index: ir.Value | int) -> None:
        builder.store(value, field(builder, State, self.state, name, *index))

    def fiber_of(self, builder: ir.IRBuilder, thread: ir.Value) -> ir.Value:
        return element(builder, Fiber, self.load(builder, "fibers"), builder.zext(thread, I64))

    def exchange_of(self, builder: ir.IRBuilder, thread: ir.Value) -> ir.Value:
        return element(builder, Exchange, self.load(builder, "exchanges"), builder.zext(thread, I64))

    def own_fiber(self, builder: ir.IRBuilder) -> ir.Value:
        return builder.inttoptr(self.load(builder, "fiber"), POINTER)

    # --- waiting and faults, called by threads

    def emit_waiting(self) -> None:
        """`emulator.leave()`: back to the launcher; `emulator.fault(kind, site, address, bytes, access, other)`."""
        builder = self.function("emulator.leave", VOID, inline=True)
        self.leave = builder.function
        place = field(builder, Fiber, self.own_fiber(builder), "stack_pointer")
        builder.call(self.switch, [place, self.load(builder, "caller_stack_pointer")])
        builder.ret_void()

        builder = self.function("emulator.fault", VOID, I32, I32, I64, I64, I32, I32)
        self.fault = builder.function
        self.fault.attributes.add("noreturn")
        names = ("fault", "fault_site", "fault_address", "fault_bytes", "fault_access", "other_thread")
        for name, value in zip(names, builder.function.args):
            self.store(builder, name, value)
        self.store(builder, "fault_thread", self.load(builder, "place", 0))
        builder.call(self.leave, [])
        builder.unreachable()

    def wait(self, builder: ir.IRBuilder, status: int, site: ir.Value, mask: ir.Value) -> None:
        """Emit that this thread waits."""
        fiber = self.own_fiber(builder)
        for name, value in (("status", I32(status)), ("site", site), ("mask", mask)):
            builder.store(value, field(builder, Fiber, fiber, name))
        builder.call(self.leave, [])

    def add_collective(self, resolver: ir.Function) -> int:
        """The status of threads that wait for an operation of their warp.

        resolver(warp's first thread, lane, mask): computes the results of one lane when all have come.
        """
        self._resolvers.append(resolver)
        return layout.COLLECTIVE + len(self._resolvers) - 1

    # --- blocks

    def emit_blocks(self) -> None:
        """`emulator.begin_block(number)`: where it is, shared memory, the order of its threads."""
        self._emit_shuffle()
        builder = self.function("emulator.begin_block", VOID, I64)
        self.begin_block = builder.function
        (number,) = builder.function.args
        self.store(builder, "block", number)
        rest = number
        for axis in range(3):
            extent = builder.zext(self.load(builder, "grid", axis), I64)
            self.store(builder, "block_index", builder.trunc(builder.urem(rest, extent), I32), axis)
            rest = builder.udiv(rest, extent)
        self._next_epoch(builder)
        fill = builder.trunc(self.load(builder, "fill"), I8)
        function = memset(self.module)
        with counted(builder, self.load(builder, "shared_count")) as k:
            shared = element(builder, SharedRange, self.load(builder, "shared"), k)
            start, size = (builder.load(field(builder, SharedRange, shared, n), typ=I64) for n in ("start", "bytes"))
            builder.call(function, [builder.inttoptr(start, POINTER), fill, size, I1(0)])
        builder.call(self.shuffle, [])
        builder.ret_void()

    def _next_epoch(self, builder: ir.IRBuilder) -> None:
        self.store(builder, "epoch", builder.add(self.load(builder, "epoch"), I32(1)))

    def _emit_shuffle(self) -> None:
        """`emulator.shuffle()`: another order of the block's threads, if there is a seed (Fisher and Yates)."""
        builder = self.function("emulator.shuffle", VOID)
        self.shuffle = builder.function
        with builder.if_then(builder.icmp_unsigned("==", self.load(builder, "seed"), I64(0))):
            builder.ret_void()
        threads, table = (builder.zext(self.load(builder, "threads"), I64), self.load(builder, "order"))
        with counted(builder, threads) as k:
            seed = builder.add(self.load(builder, "seed"), I64(GOLDEN))
            # 0 would end the shuffling
            seed = builder.select(builder.icmp_unsigned("==", seed, I64(0)), I64(1), seed)
            self.store(builder, "seed", seed)
            mixed = seed
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = builder.mul(builder.xor(mixed, builder.lshr(mixed, I64(shift))), I64(factor))
            mixed = builder.xor(mixed, builder.lshr(mixed, I64(31)))
            other = element(builder, ThreadPlace, table, builder.urem(mixed, builder.add(k, I64(1))))
            this = element(builder, ThreadPlace, table, k)
            first, second = (builder.load(place, typ=type_of(ThreadPlace)) for place in (this, other))
            builder.store(second, this)
            builder.store(first, other)
        builder.ret_void()

    # --- launching

    def emit_scheduler(self) -> None:
        """`emulator.run(fiber function)`: all blocks of a launch whose threads wait for each other.

        Called by launchers of kernels that wait; a module without such a kernel needs none.
        """
        self._emit_resolve()
        builder = self.function("emulator.run", VOID, POINTER)
        self.run = builder.function
        (entry,) = builder.function.args
        number = builder.alloca(I64)
        builder.store(self.load(builder, "first_block"), number)
        with counted(builder, self.load(builder, "blocks")):
            builder.call(self.begin_block, [builder.load(number, typ=I64)])
            with counted(builder, self.load(builder, "threads")) as thread:
                fiber = self.fiber_of(builder, thread)
                top = builder.load(field(builder, Fiber, fiber, "stack_top"), typ=I64)
                pointer = self.target.emit_fiber(builder, top, entry)
                builder.store(pointer, field(builder, Fiber, fiber, "stack_pointer"))
                builder.store(I32(layout.READY), field(builder, Fiber, fiber, "status"))
                builder.store(I32(0), field(builder, Fiber, fiber, "rounds"))
            rounds, over = builder.append_basic_block("rounds"), builder.append_basic_block("over")
            builder.branch(rounds)
            builder.position_at_end(rounds)
            self._emit_round(builder)
            more = builder.call(self.resolve, [])
            with builder.if_then(builder.icmp_unsigned("!=", self.load(builder, "fault"), I32(0))):
                builder.ret_void()
            builder.cbranch(builder.icmp_unsigned("!=", more, I32(0)), rounds, over)
            builder.position_at_end(over)
            self._next_block(builder, number)
        builder.ret_void()

    def _emit_round(self, builder: ir.IRBuilder) -> None:
        """Run each thread that is ready until it leaves."""
        with counted(builder, builder.zext(self.load(builder, "threads"), I64)) as k:
            place = element(builder, ThreadPlace, self.load(builder, "order"), k)
            thread = builder.load(field(builder, ThreadPlace, place, "number"), typ=I32)
            fiber = self.fiber_of(builder, thread)
            status = builder.load(field(builder, Fiber, fiber, "status"), typ=I32)
            with builder.if_then(builder.icmp_unsigned("==", status, I32(layout.READY))):
                self.store(builder, "place", builder.load(place, typ=type_of(ThreadPlace)))
                self.store(builder, "fiber", builder.ptrtoint(fiber, I64))
                pointer = builder.load(field(builder, Fiber, fiber, "stack_pointer"), typ=I64)
                self._enter(builder, pointer)
                with builder.if_then(builder.icmp_unsigned("!=", self.load(builder, "fault"), I32(0))):
                    builder.ret_void()

    def _enter(self, builder: ir.IRBuilder, pointer: ir.Value) -> None:
        builder.call(self.switch, [field(builder, State, self.state, "caller_stack_pointer"), pointer])

    def _next_block(self, builder: ir.IRBuilder, number: ir.Value) -> None:
        following = builder.add(builder.load(number, typ=I64), self.load(builder, "block_step"))
        blocks = self.load(builder, "blocks")
        past = builder.icmp_unsigned(">=", following, blocks)
        builder.store(builder.select(past, builder.sub(following, blocks), following), number)

    def _emit_resolve(self) -> None:
        """`emulator.resolve()`: 1 if there is another round, 0 if all threads have ended or there is a fault."""
        self._emit_collect()
        builder = self.function("emulator.resolve", I32)
        self.resolve = builder.function
        threads = self.load(builder, "threads")
        moved, waiting = builder.alloca(I32), builder.alloca(I32)
        builder.store(I32(0), moved)
        builder.store(I32(0xFFFFFFFF), waiting)
        with counted(builder, threads) as thread:
            status = self._status(builder, thread)
            with builder.if_then(builder.icmp_unsigned("==", status, I32(layout.BARRIER))):
                builder.store(thread, waiting)
            with builder.if_then(builder.icmp_unsigned(">=", status, I32(layout.COLLECTIVE))):
                builder.call(self.collect, [thread])
                builder.store(I32(1), moved)
                with builder.if_then(builder.icmp_unsigned("!=", self.load(builder, "fault"), I32(0))):
                    builder.ret(I32(0))
        # who waits at a barrier goes on when no thread can do anything else
        with builder.if_then(builder.icmp_unsigned("!=", builder.load(moved, typ=I32), I32(0))):
            builder.ret(I32(1))
        first = builder.load(waiting, typ=I32)
        with builder.if_then(builder.icmp_unsigned("==", first, I32(0xFFFFFFFF))):
            builder.ret(I32(0))
        at = self.fiber_of(builder, first)
        with counted(builder, threads) as thread:
            here = self._together(builder, at, self.fiber_of(builder, thread))
            with builder.if_then(builder.not_(here)):
                self._report(builder, layout.DIVERGENT, first, thread)
                builder.ret(I32(0))
        with counted(builder, threads) as thread:
            builder.store(I32(layout.READY), field(builder, Fiber, self.fiber_of(builder, thread), "status"))
        self._next_epoch(builder)
        builder.call(self.shuffle, [])
        builder.ret(I32(1))

    def _emit_collect(self) -> None:
        """`emulator.collect(thread)`: a lane waits for its warp. The first lane of the mask does the work for all."""
        builder = self.function("emulator.collect", VOID, I32)
        self.collect = builder.function
        (thread,) = builder.function.args
        fiber = self.fiber_of(builder, thread)
        mask = builder.load(field(builder, Fiber, fiber, "mask"), typ=I32)
        lane = builder.and_(thread, I32(layout.WARP - 1))
        base = builder.sub(thread, lane)
        # only the first lane of the mask finds itself waiting: it resolves the others, which have higher numbers
        first = builder.cttz(mask, I1(0))
        with builder.if_then(builder.icmp_unsigned("!=", first, lane)):
            inside = builder.trunc(builder.lshr(mask, lane), I1)
            other = builder.select(inside, builder.add(base, first), thread)
            self._report(builder, layout.MISSING_LANES, thread, other)
            builder.ret_void()
        with self._lanes(builder, base, mask) as (other, _):
            here = builder.icmp_unsigned("<", other, self.load(builder, "threads"))
            here = builder.and_(here, self._together(builder, fiber, self.fiber_of(builder, other)))
            with builder.if_then(builder.not_(here)):
                self._report(builder, layout.MISSING_LANES, thread, other)
                builder.ret_void()
        status = builder.load(field(builder, Fiber, fiber, "status"), typ=I32)
        for number, resolver in enumerate(self._resolvers):
            with (
                builder.if_then(builder.icmp_unsigned("==", status, I32(layout.COLLECTIVE + number))),
                self._lanes(builder, base, mask) as (_, k),
            ):
                builder.call(resolver, [base, k, mask])
        with self._lanes(builder, base, mask) as (other, _):
            builder.store(I32(layout.READY), field(builder, Fiber, self.fiber_of(builder, other), "status"))
        builder.ret_void()

    @contextmanager
    def _lanes(self, builder: ir.IRBuilder, base: ir.Value, mask: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """A loop over the lanes of a mask: (thread, lane)."""
        with counted(builder, I32(layout.WARP)) as lane, builder.if_then(builder.trunc(builder.lshr(mask, lane), I1)):
            yield builder.add(base, lane), lane

    def _status(self, builder: ir.IRBuilder, thread: ir.Value) -> ir.Value:
        return builder.load(field(builder, Fiber, self.fiber_of(builder, thread), "status"), typ=I32)

    def _together(self, builder: ir.IRBuilder, one: ir.Value, other: ir.Value) -> ir.Value:
        """Whether two threads wait for the same."""
        same = I1(1)
        for name in ("status", "site", "mask"):
            values = [builder.load(field(builder, Fiber, fiber, name), typ=I32) for fiber in (one, other)]
            same = builder.and_(same, builder.icmp_unsigned("==", *values))
        return same

    def _report(self, builder: ir.IRBuilder, kind: int, thread: ir.Value, other: ir.Value) -> None:
        """A fault that the launcher finds."""
        site = builder.load(field(builder, Fiber, self.fiber_of(builder, thread), "site"), typ=I32)
        fields = (("fault", I32(kind)), ("fault_site", site), ("fault_thread", thread), ("other_thread", other))
        for name, value in fields:
            self.store(builder, name, value)

    # --- kernels

    def emit_launcher(self, name: str, parameters: Sequence[ir.Type], *, fibers: bool) -> None:
        """The function that runs a launch of a kernel."""
        kernel = ir.Function(self.module, ir.FunctionType(VOID, parameters), name)
        builder = self.function(f"emulator.fiber.{name}", VOID)
        entry = builder.function
        arguments = self._arguments(builder, parameters)
        if fibers:
            builder.call(kernel, arguments)
            builder.store(I32(layout.ENDED), field(builder, Fiber, self.own_fiber(builder), "status"))
        else:
            number = builder.alloca(I64)
            builder.store(self.load(builder, "first_block"), number)
            with counted(builder, self.load(builder, "blocks")):
                builder.call(self.begin_block, [builder.load(number, typ=I64)])
                threads = builder.zext(self.load(builder, "threads"), I64)
                order = self.load(builder, "order")
                with counted(builder, threads) as k:
                    place = builder.load(element(builder, ThreadPlace, order, k), typ=type_of(ThreadPlace))
                    self.store(builder, "place", place)
                    builder.call(kernel, arguments)
                self._next_block(builder, number)
        builder.call(self.leave, [])
        builder.unreachable()

        builder = self.function(layout.LAUNCH_PREFIX + name, VOID)
        if fibers:
            builder.call(self.run, [entry])
        else:
            fiber = self.fiber_of(builder, I32(0))
            self.store(builder, "fiber", builder.ptrtoint(fiber, I64))
            top = builder.load(field(builder, Fiber, fiber, "stack_top"), typ=I64)
            self._enter(builder, self.target.emit_fiber(builder, top, entry))
        builder.ret_void()

    def _arguments(self, builder: ir.IRBuilder, parameters: Sequence[ir.Type]) -> list[ir.Value]:
        """Each from its 8 bytes."""
        base = builder.inttoptr(self.load(builder, "arguments"), POINTER)
        return [
            builder.load(builder.gep(base, [I64(k)], source_etype=I64), typ=parameter)
            for k, parameter in enumerate(parameters)
        ]
