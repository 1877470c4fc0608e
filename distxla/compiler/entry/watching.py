"""Code that notes where NaN and Inf come from, emitted only in programs that are compiled for `--check nan`.

Behind each step that writes floats a scan of its results says whether they have any, while they are in the cache. If so
its operands' origins become theirs, or the step's own number where the operands have none (watch_report.py).

    i32 distxla_scan_<type>(ptr elements, i64 count)         NAN and INF, as the array has them
    i64 distxla_blame(ptr report, ptr table, i32 kinds)      the origins of a step's results that have these
    void distxla_sent(ptr report, ptr table, i64 origins)    notes that operands of a collective have origins

A table describes a step: offsets in the report, in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from llvmlite import ir

from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.lower.float_codes import CODES, FloatCode, emit_above, emit_code
from distxla.compiler.lower.kernels import WATCHED
from distxla.compiler.plan.buffers import Buffer, Communicate, Copy, Kernel, Loop, MemoryRegion, PlanStep, Swap
from distxla.compiler.plan.watch_plan import WatchedLeaf, WatchPlan, aligned
from distxla.emit.native_function import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    counted,
    emit_zero,
    memcpy,
    new_function,
)
from distxla.ir.element_type import ElementType
from distxla.ir.op import Lowering
from distxla.program.abi import ALIGNMENT
from distxla.program.watch_report import (
    E_CAUSE,
    E_COUNT,
    E_ITERATIONS,
    E_SENT,
    E_SENT_ITERATIONS,
    ENTRY_WORDS,
    HEADER_WORDS,
    INF,
    LOOP_DEPTHS,
    NAN,
    UNKNOWN,
    W_FRESH,
    W_NOTED,
    W_SNAPSHOT,
)

_ATTRIBUTES = ("noinline", "nounwind")
T_STEP, T_ENTRY, T_LOOPS, T_COUNTERS, T_OPERANDS = 0, 1, 2, 3, 3 + LOOP_DEPTHS  # words of a table


class Watching:
    """Emits into functions that execute steps."""

    def __init__(self, llvm_module: ir.Module, plan: WatchPlan) -> None:
        self._llvm_module, self._plan = llvm_module, plan
        self._returned: dict[int, ir.Value] = {}

    def looks_at(self, step: Kernel) -> bool:
        """Whether the step's kernel is to look at what it stores."""
        return not self._plan.passes_on(step) or self._plan.shows_parameters(step)

    def begin(self, body: FunctionBody, *, is_filled: bool) -> None:
        """The entry begins. is_filled: the memory was filled with a marker."""
        plan = self._plan
        builder, report = body.builder, self._report(body)
        if is_filled:  # over the zeros of the driver
            emit_zero(builder, report, I64(4 * plan.report.words))
        first = len(plan.report.steps) + 1
        for shadow, number in plan.parameters.items():
            unknown = first + number | UNKNOWN
            self._store(body, shadow, I64(unknown | unknown << 32))
        noted = 0
        for shadow, (constant, has) in plan.constants.items():
            origin = first + plan.report.parameters + constant
            self._store(body, shadow, I64(origin * bool(has & NAN) | origin * bool(has & INF) << 32))
            noted |= has
        if noted:
            builder.store(I32(1), self._word(body, W_NOTED))

    def end(self, body: FunctionBody) -> None:
        """The entry ends: look through results that are copies of parameters."""
        for leaf in self._plan.results.values():
            self._look(body, leaf)

    def kernel_returns(self, watched: frozenset[int] | None, returned: ir.Value) -> None:
        """Of the step that has just been emitted. watched: KernelFunction.watched."""
        self._returned = {} if watched is None else dict.fromkeys(watched, returned)

    @contextmanager
    def around(self, body: FunctionBody, step: PlanStep) -> Iterator[None]:
        """Note what a step sends, and give the arrays that it has written their origins."""
        self._before(body, step)
        yield
        self._after(body, step)

    def _before(self, body: FunctionBody, step: PlanStep) -> None:
        """What the other members of a collective get from this device."""
        if not isinstance(step, Communicate) or step.instruction.op.lowering is Lowering.HOST:
            return
        builder, origins = body.builder, I64(0)
        for leaf in self._plan.read(step):
            origins = builder.or_(origins, builder.load(self._shadow(body, leaf.buffer), typ=I64))
        if not isinstance(origins, ir.Constant):
            with builder.if_then(builder.icmp_unsigned("!=", origins, I64(0)), likely=False):
                builder.call(_sent(self._llvm_module), [self._report(body), self._table(step), origins])

    def _after(self, body: FunctionBody, step: PlanStep) -> None:
        if isinstance(step, Copy):
            origins = body.builder.load(self._shadow(body, step.source), typ=I64)
            body.builder.store(origins, self._shadow(body, step.target))
        elif isinstance(step, Swap):
            places = self._shadow(body, step.first), self._shadow(body, step.second)
            for value, place in zip([body.builder.load(p, typ=I64) for p in places], reversed(places)):
                body.builder.store(value, place)
        elif isinstance(step, Kernel | Communicate):
            self._computed(body, step)

    # --- a step

    def _computed(self, body: FunctionBody, step: Kernel | Communicate) -> None:
        plan, returned = self._plan, self._returned
        self._returned = {}
        written = plan.written(step)
        watched = {id(leaf.buffer) for leaf in written}
        for buffer in step.results:
            is_stale = id(buffer) in plan.shadows and id(buffer) not in watched
            if is_stale and not (isinstance(step, Communicate) and step.instruction.op.start_done.starts_pair):
                self._store(body, plan.shadows[id(buffer)], I64(0))
        if not written:
            return
        if plan.passes_on(step) and not set(self._numbers(step, written)) <= set(returned):
            self._pass_on(body, plan.read(step), written)
        elif step.instruction.op.in_place.writes_only_a_part and isinstance(step, Kernel):
            kept = plan.read(step)[: len(written)]  # the operands of which the results have the rest
            has_any = self._has_any(body, step, written, returned)
            seen = [returned.get(number, I32(-1)) for number in self._numbers(step, written)]
            self._note(body, step, written, has_any, list(zip(kept, seen)))
        else:
            self._note(body, step, written, self._has_any(body, step, written, returned), [])

    def _has_any(
        self,
        body: FunctionBody,
        step: Kernel | Communicate,
        written: Sequence[WatchedLeaf],
        returned: dict[int, ir.Value],
    ) -> ir.Value:
        """Whether one of the results has NaN or Inf: by the kernel itself where that has looked, else by a scan."""
        builder, found = body.builder, I32(0)
        bits = 0
        for leaf, number in zip(written, self._numbers(step, written)):
            if number in returned:
                bits |= 1 << number
            else:
                found = builder.or_(found, self._scan(body, leaf))
        if bits:
            found = builder.or_(found, builder.and_(next(iter(returned.values())), I32(bits)))
        return builder.icmp_unsigned("!=", found, I32(0))

    def _numbers(self, step: Kernel | Communicate, written: Sequence[WatchedLeaf]) -> list[int]:
        """Of leaves of a step's result, among those with data."""
        with_data = [id(buffer) for buffer in step.results if buffer.region is not MemoryRegion.NONE]
        return [with_data.index(id(leaf.buffer)) for leaf in written]

    def _note(
        self,
        body: FunctionBody,
        step: Kernel | Communicate,
        written: Sequence[WatchedLeaf],
        has_any: ir.Value,
        kept: Sequence[tuple[WatchedLeaf, ir.Value]],
    ) -> None:
        """kept: operands that the results without any have their origins from, unless the kernel has looked at all of a
        result, as what it has returned says."""
        plan, builder = self._plan, body.builder
        with builder.if_else(has_any, likely=False) as (bad, good):
            with bad:
                for leaf in plan.read(step):
                    self._look(body, leaf)
                found = [self._scan(body, leaf) for leaf in written]
                every = reduce(builder.or_, found)
                origins = builder.call(_blame(self._llvm_module), [self._report(body), self._table(step), every])
                self._keep_operands(body, step)
                for leaf, kinds in zip(written, found):
                    mask = builder.mul(_spread(builder, kinds), I64(0xFFFFFFFF))
                    builder.store(builder.and_(origins, mask), self._shadow(body, leaf.buffer))
            with good:
                before = []
                for number, (leaf, seen) in zip(self._numbers(step, written), kept):
                    origins = builder.load(self._shadow(body, leaf.buffer), typ=I64)
                    is_whole = builder.trunc(builder.lshr(seen, I32(number + WATCHED)), I1)
                    before.append(builder.select(is_whole, I64(0), origins))
                for leaf, origins in zip(written, before or [I64(0)] * len(written)):
                    builder.store(origins, self._shadow(body, leaf.buffer))

    def _look(self, body: FunctionBody, leaf: WatchedLeaf) -> None:
        """Scan an array of which nobody knows whether it has any: a parameter, or a copy of one."""
        builder, place = body.builder, self._shadow(body, leaf.buffer)
        origins = builder.load(place, typ=I64)
        unknown = builder.icmp_unsigned("!=", builder.and_(origins, I64(UNKNOWN | UNKNOWN << 32)), I64(0))
        with builder.if_then(unknown, likely=False):
            kinds = self._scan(body, leaf)
            halves = []
            for half in range(2):
                origin = builder.trunc(builder.lshr(origins, I64(32 * half)), I32)
                has = builder.icmp_unsigned("!=", builder.and_(kinds, I32((NAN, INF)[half])), I32(0))
                known = builder.select(has, builder.and_(origin, I32(UNKNOWN - 1)), I32(0))
                halves.append(builder.select(builder.icmp_signed("<", origin, I32(0)), known, origin))
            low, high = (builder.zext(half, I64) for half in halves)
            builder.store(builder.or_(low, builder.shl(high, I64(32))), place)
            noted = self._word(body, W_NOTED)
            builder.store(builder.or_(builder.load(noted, typ=I32), kinds), noted)

    def _pass_on(self, body: FunctionBody, read: Sequence[WatchedLeaf], written: Sequence[WatchedLeaf]) -> None:
        """Arrays that only have elements of others have their origins, too; they aren't looked through."""
        builder = body.builder
        nan, inf = I64(0), I64(0)
        for leaf in read:
            origins = builder.load(self._shadow(body, leaf.buffer), typ=I64)
            low, high = builder.and_(origins, I64(0xFFFFFFFF)), builder.lshr(origins, I64(32))
            nan, inf = _earlier(builder, nan, low), _earlier(builder, inf, high)
        for leaf in written:
            builder.store(builder.or_(nan, builder.shl(inf, I64(32))), self._shadow(body, leaf.buffer))

    def _keep_operands(self, body: FunctionBody, step: Kernel | Communicate) -> None:
        """Copy the operands of a fusion that has just made the first NaN or Inf of its own."""
        plan, builder = self._plan, body.builder
        number = plan.numbers[id(step)]
        watched = plan.report.steps[number]
        if watched.snapshot < 0:
            return
        fresh = self._word(body, W_FRESH)
        with builder.if_then(builder.icmp_unsigned("!=", builder.load(fresh, typ=I32), I32(0)), likely=False):
            builder.store(I32(0), fresh)
            place = watched.snapshot
            for buffer, shape in zip(step.operands, watched.operands, strict=True):
                if shape.is_array and buffer.region is not MemoryRegion.NONE:
                    target = body.pointer(Buffer(buffer.size, MemoryRegion.ARENA, place))
                    builder.call(memcpy(self._llvm_module), [target, body.pointer(buffer), I64(buffer.size), I1(0)])
                place += aligned(shape)
            if watched.shares_snapshot:
                builder.store(I32(number + 1), self._word(body, W_SNAPSHOT))

    def _table(self, step: Kernel | Communicate) -> ir.Value:
        """The constant that describes a step to the common functions."""
        plan = self._plan
        number = plan.numbers[id(step)]
        name = f"watched_{number}"
        found = self._llvm_module.globals.get(name)
        if found is None:
            report = plan.report
            loops = report.steps[number].loops[:LOOP_DEPTHS]
            counters = [4 * (HEADER_WORDS + loop) for loop in loops] + [0] * (LOOP_DEPTHS - len(loops))
            operands = [self._shadow_offset(leaf.buffer) for leaf in plan.read(step)]
            entry = 4 * (report.entries + ENTRY_WORDS * number)
            words = [number + 1, entry, len(loops), *counters, len(operands), *operands]
            kind = ir.ArrayType(I32, len(words))
            found = ir.GlobalVariable(self._llvm_module, kind, name)
            found.linkage, found.global_constant = "internal", True
            found.initializer = kind(words)
        return found

    # --- places

    def _report(self, body: FunctionBody) -> ir.Value:
        return body.pointer(Buffer(ALIGNMENT, MemoryRegion.ARENA, self._plan.report.offset))

    def _at(self, body: FunctionBody, offset: int) -> ir.Value:
        report = self._report(body)
        return body.once(("watched", offset), lambda begin: begin.gep(report, [I64(offset)], source_etype=I8))

    def _word(self, body: FunctionBody, word: int) -> ir.Value:
        return self._at(body, 4 * word)

    def counter(self, body: FunctionBody, step: Loop) -> ir.Value:
        """Where a loop's iterations are counted, i32."""
        return self._word(body, HEADER_WORDS + self._plan.loops[id(step)])

    def _shadow_offset(self, buffer: Buffer) -> int:
        return 4 * self._plan.report.shadows + 8 * self._plan.shadows[id(buffer)]

    def _shadow(self, body: FunctionBody, buffer: Buffer) -> ir.Value:
        return self._at(body, self._shadow_offset(buffer))

    def _store(self, body: FunctionBody, shadow: int, origins: ir.Value) -> None:
        body.builder.store(origins, self._at(body, 4 * self._plan.report.shadows + 8 * shadow))

    def _scan(self, body: FunctionBody, leaf: WatchedLeaf) -> ir.Value:
        """NAN and INF, as the array has them, i32."""
        count = leaf.shape.size * (2 if leaf.shape.dtype.is_complex else 1)
        scan = _scanner(self._llvm_module, leaf.shape.dtype)
        return body.builder.call(scan, [body.pointer(leaf.buffer), I64(count)])


# --- functions that are the same in all programs


def _spread(builder: ir.IRBuilder, kinds: ir.Value) -> ir.Value:
    """i64 with a 1 in the half of each kind that is there."""
    nan, inf = builder.and_(kinds, I32(NAN)), builder.lshr(builder.and_(kinds, I32(INF)), I32(1))
    return builder.or_(builder.zext(nan, I64), builder.shl(builder.zext(inf, I64), I64(32)))


def _scanner(llvm_module: ir.Module, element_type: ElementType) -> ir.Function:
    """Finds the largest code of an array's elements, by vectors; it is above all others where one is NaN."""
    code = CODES[element_type.name]
    name = f"distxla_scan_{code.bits}_{code.mask:x}_{code.flip:x}_{code.limit:x}"
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    kind = ir.IntType(code.bits)
    function = new_function(llvm_module, name, I32, (POINTER, I64), *_ATTRIBUTES, common=True)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    elements, count = function.args
    largest = _reduced(builder, elements, count, code, kind, lambda value: value)
    nan = emit_above(builder, code, largest, kind(code.limit))
    if not code.has_inf:
        builder.ret(builder.zext(nan, I32))
        return function
    inf = builder.icmp_unsigned("==", largest, kind(code.limit))
    both, one = builder.append_basic_block("both"), builder.append_basic_block("one")
    builder.cbranch(nan, both, one)
    builder.position_at_end(one)
    builder.ret(builder.shl(builder.zext(inf, I32), I32(1)))
    builder.position_at_end(both)  # seldom: once more, without the NaN

    def without_nan(value: ir.Value) -> ir.Value:
        return builder.select(emit_above(builder, code, value, kind(code.limit)), kind(0), value)

    finite = _reduced(builder, elements, count, code, kind, without_nan)
    inf = builder.icmp_unsigned("==", finite, kind(code.limit))
    builder.ret(builder.or_(I32(NAN), builder.shl(builder.zext(inf, I32), I32(1))))
    return function


def _reduced(
    builder: ir.IRBuilder,
    elements: ir.Value,
    count: ir.Value,
    code: FloatCode,
    kind: ir.IntType,
    of: Callable[[ir.Value], ir.Value],
) -> ir.Value:
    """The largest of all elements' codes."""
    before = builder.block
    with counted(builder, I64(0), count) as index:
        largest = builder.phi(kind, "largest")
        place = builder.gep(elements, [index], source_etype=kind)
        value = of(emit_code(builder, code, builder.load(place, typ=kind)))
        larger = builder.select(emit_above(builder, code, value, largest), value, largest)
        largest.add_incoming(kind(0), before)
        largest.add_incoming(larger, builder.block)
        last = builder.block
    result = builder.phi(kind, "result")
    result.add_incoming(kind(0), before)
    result.add_incoming(larger, last)
    return result


def _blame(llvm_module: ir.Module) -> ir.Function:
    found = llvm_module.globals.get("distxla_blame")
    if found is not None:
        return found
    function = new_function(llvm_module, "distxla_blame", I64, (POINTER, POINTER, I32), *_ATTRIBUTES, common=True)
    report, table, kinds = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.store(I32(1), _place(builder, report, I32(4 * W_NOTED)))
    origins = [builder.alloca(I32), builder.alloca(I32)]
    for origin in origins:
        builder.store(I32(0), origin)
    count = builder.zext(_entry(builder, table, T_OPERANDS), I64)
    with counted(builder, I64(0), count) as index:
        shadow = _place(builder, report, _entry(builder, table, builder.add(index, I64(T_OPERANDS + 1))))
        for half, origin in enumerate(origins):
            known = builder.load(origin, typ=I32)
            operand = builder.load(builder.gep(shadow, [I64(half)], source_etype=I32), typ=I32)
            builder.store(_earlier(builder, known, operand), origin)
    cause = builder.load(origins[1], typ=I32)
    for half, (kind, origin) in enumerate(zip((NAN, INF), origins)):
        has = builder.icmp_unsigned("!=", builder.and_(kinds, I32(kind)), I32(0))
        unknown = builder.icmp_unsigned("==", builder.load(origin, typ=I32), I32(0))
        with builder.if_then(builder.and_(has, unknown)):
            builder.store(_entry(builder, table, T_STEP), origin)
            _note(
                builder, report, table, E_COUNT + half, E_ITERATIONS + half * LOOP_DEPTHS, cause if not half else None
            )
    low, high = (builder.zext(builder.load(origin, typ=I32), I64) for origin in origins)
    builder.ret(builder.or_(low, builder.shl(high, I64(32))))
    return function


def _earlier(builder: ir.IRBuilder, one: ir.Value, other: ir.Value) -> ir.Value:
    """The lower of two origins of which one may be 0, for none: steps precede parameters, and these constants."""
    one_less, other_less = (builder.sub(value, value.type(1)) for value in (one, other))
    return builder.select(builder.icmp_unsigned("<", one_less, other_less), one, other)


def _note(
    builder: ir.IRBuilder, report: ir.Value, table: ir.Value, count: int, iterations: int, cause: ir.Value | None
) -> None:
    """Count a new origin, and keep when the first one was."""
    entry = _place(builder, report, _entry(builder, table, T_ENTRY))
    place = builder.gep(entry, [I64(count)], source_etype=I32)
    so_far = builder.load(place, typ=I32)
    with builder.if_then(builder.icmp_unsigned("==", so_far, I32(0))):
        _keep_iterations(builder, report, table, builder.gep(entry, [I64(iterations)], source_etype=I32))
        builder.store(I32(1), _place(builder, report, I32(4 * W_FRESH)))
        if cause is not None:
            builder.store(cause, builder.gep(entry, [I64(E_CAUSE)], source_etype=I32))
    full = builder.icmp_unsigned("==", so_far, I32(0xFFFFFFFF))
    builder.store(builder.select(full, so_far, builder.add(so_far, I32(1))), place)


def _keep_iterations(builder: ir.IRBuilder, report: ir.Value, table: ir.Value, target: ir.Value) -> None:
    with counted(builder, I64(0), builder.zext(_entry(builder, table, T_LOOPS), I64)) as index:
        counter = _place(builder, report, _entry(builder, table, builder.add(index, I64(T_COUNTERS))))
        builder.store(builder.load(counter, typ=I32), builder.gep(target, [index], source_etype=I32))


def _sent(llvm_module: ir.Module) -> ir.Function:
    found = llvm_module.globals.get("distxla_sent")
    if found is not None:
        return found
    function = new_function(llvm_module, "distxla_sent", VOID, (POINTER, POINTER, I64), *_ATTRIBUTES, common=True)
    report, table, origins = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    entry = _place(builder, report, _entry(builder, table, T_ENTRY))
    for half in range(2):
        place = builder.gep(entry, [I64(E_SENT + half)], source_etype=I32)
        origin = builder.trunc(builder.lshr(origins, I64(32 * half)), I32)
        known = builder.load(place, typ=I32)
        is_first = builder.and_(builder.icmp_unsigned("==", known, I32(0)), builder.icmp_unsigned("!=", origin, I32(0)))
        with builder.if_then(is_first):
            builder.store(origin, place)
            if not half:
                target = builder.gep(entry, [I64(E_SENT_ITERATIONS)], source_etype=I32)
                _keep_iterations(builder, report, table, target)
    builder.ret_void()
    return function


def _entry(builder: ir.IRBuilder, table: ir.Value, word: int | ir.Value) -> ir.Value:
    """A word of a step's table, i32."""
    index = I64(word) if isinstance(word, int) else word
    return builder.load(builder.gep(table, [index], source_etype=I32), typ=I32)


def _place(builder: ir.IRBuilder, report: ir.Value, offset: ir.Value) -> ir.Value:
    return builder.gep(report, [builder.zext(offset, I64)], source_etype=I8)


__all__ = ["Watching"]
