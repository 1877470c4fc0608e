"""Loops that reduce: along the fastest dimension, across it, and variadic ones by any computation.

Always the same order, so always the same bits. Where the computation is one operation (a sum, a product, a maximum),
its order is the vectoriser's to choose, at compile time; narrow floats are then accumulated in f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any

from distxla.compiler.lower.arrays import ComputedArray, MemoryArray
from distxla.compiler.lower.buffer_emitter import BufferEmitter
from distxla.compiler.lower.conversion import convert
from distxla.compiler.lower.element_computations import is_single_operation
from distxla.compiler.lower.fusion import emit_map
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.row_min_max import emit_row_min_max, has_whole_vectors
from distxla.compiler.lower.scalar_expression import float_constant
from distxla.compiler.lower.scalar_value import ScalarValue, is_narrow_float, register_type
from distxla.ir.element_type import F32, F64, S32, S64, U32, U64, ElementType
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import ArrayRef
from distxla.targets.code import target_of
from distxla.targets.processor import Processor

WRITTEN_OUT = 8  # steps of a reduction that are written out, so that the loop over the kept dimension vectorises
SHORTEST_RUN = 4
LONG_LINE = 2048  # bytes of a line from which on that pays
BLOCK = 2048  # elements of the kept dimension whose accumulators stay in the first-level cache


@dataclass(frozen=True)
class Reduction:
    """One reduce: arrays and initial values it combines by `to_apply` into results."""

    to_apply: str
    arrays: tuple[ArrayRef, ...]
    initial: tuple[ArrayRef, ...]
    results: tuple[MemoryArray, ...]


def emit_reductions(emit: BufferEmitter, dimensions: Sequence[int], reductions: Sequence[Reduction]) -> None:
    """Reductions over the same `dimensions` of operands with equal dimension sizes, in one pass."""
    dims = reductions[0].arrays[0].shape.dims
    reduced = sorted(dimensions)
    kept = [d for d in range(len(dims)) if d not in reduced]
    walked = [d for d in range(len(dims)) if dims[d] != 1]
    count = prod(dims[d] for d in reduced)
    if 0 in dims:
        emit_initial_only(emit, reductions)
    elif not walked or walked[-1] in reduced:
        _along(emit, dims, reduced, kept, reductions)
    elif count <= WRITTEN_OUT:
        emit_written_out(emit, dims, reduced, kept, reductions)
    else:
        _across(emit, dims, reduced, kept, reductions)


class Accumulation:
    """How one reduction accumulates: types, and the combining step."""

    def __init__(self, emit: BufferEmitter, reduction: Reduction) -> None:
        self.emit = emit
        self.reduction = reduction
        assert emit.module is not None
        self.free = is_single_operation(emit.module[reduction.to_apply])
        self.types: list[ElementType] = []
        for array in reduction.arrays:
            kind = array.shape.dtype
            self.types.append(F32 if self.free and is_narrow_float(kind) else kind)

    def initial(self) -> list[ScalarValue]:
        return [self._wide(a.load(()), t) for a, t in zip(self.reduction.initial, self.types)]

    def elements(self, index: Any) -> list[ScalarValue]:
        return [self._wide(a.load(index), t) for a, t in zip(self.reduction.arrays, self.types)]

    def _wide(self, value: Any, kind: ElementType) -> ScalarValue:
        return convert(self.emit.builder, value, kind)

    def combine(self, total: Sequence[ScalarValue], elements: Sequence[ScalarValue]) -> tuple[ScalarValue, ...]:
        emit = self.emit
        before, emit.reassociate = emit.reassociate, self.free
        try:
            return emit.apply(self.reduction.to_apply, *total, *elements)
        finally:
            emit.reassociate = before

    def finish(self, total: Sequence[ScalarValue], index: Sequence[IndexExpression | int]) -> None:
        for value, result in zip(total, self.reduction.results):
            result.store(index, convert(self.emit.builder, value, result.shape.dtype))


class _Extreme(Accumulation):
    """The maximum or minimum of floats: of their bits the largest signed, the largest and the smallest unsigned number,
    one instruction each.

    Bits order the non-negative numbers as they are, the negative ones the other way round and above, and NaNs of either
    sign are beyond the infinities: the first two show whether there was one.
    """

    def __init__(self, emit: BufferEmitter, reduction: Reduction, largest: bool) -> None:
        super().__init__(emit, reduction)
        (self.wide,) = self.types
        self.largest = largest
        signed, unsigned = (S64, U64) if self.wide is F64 else (S32, U32)
        self.types = [signed, unsigned, unsigned]

    def initial(self) -> list[ScalarValue]:
        return self._bits(self.reduction.initial[0].load(()))

    def elements(self, index: Any) -> list[ScalarValue]:
        return self._bits(self.reduction.arrays[0].load(index))

    def _bits(self, value: Any) -> list[ScalarValue]:
        bits = self.emit.expr(self._wide(value, self.wide).llvm).bits()
        return [ScalarValue(t, bits.value) for t in self.types]

    def combine(self, total: Sequence[ScalarValue], elements: Sequence[ScalarValue]) -> tuple[ScalarValue, ...]:
        opcodes = ("maximum", "maximum", "minimum")
        return tuple(self.emit.binary(o, t, e) for o, t, e in zip(opcodes, total, elements))

    def finish(self, total: Sequence[ScalarValue], index: Sequence[IndexExpression | int]) -> None:
        emit, builder = self.emit, self.emit.builder
        signed, above, below = (emit.expr(value.llvm) for value in total)
        infinity = {32: 0x7F800000, 64: 0x7FF0000000000000}[signed.width]
        sign = 1 << (signed.width - 1)
        is_nan = builder.or_(signed.gt(infinity).value, above.ugt(sign | infinity).value)
        # the largest number is negative where all are, the smallest where one is
        number = signed.lt(0).select(below, signed) if self.largest else above.lt(0).select(above, below)
        found = number.float_of_bits()
        found = emit.expr(is_nan).select(emit.expr(float_constant(found.type, math.nan)), found)
        (result,) = self.reduction.results
        result.store(index, convert(builder, ScalarValue(self.wide, found.value), result.shape.dtype))


def accumulation_of(emit: BufferEmitter, reduction: Reduction) -> Accumulation:
    assert emit.module is not None
    computation = emit.module[reduction.to_apply]
    kind = reduction.arrays[0].shape.dtype
    if is_single_operation(computation) and kind.is_float:
        root = computation.root_instruction
        if root.op.elements.keeps_larger is not None and len(set(root.operands)) == 2:
            return _Extreme(emit, reduction, root.op.elements.keeps_larger)
    return Accumulation(emit, reduction)


def emit_initial_only(emit: BufferEmitter, reductions: Sequence[Reduction]) -> None:
    for reduction in reductions:
        for array, result in zip(reduction.initial, reduction.results):
            emit_map(emit, result.shape.dims, lambda index, a=array, r=result: r.store(index, a.load(())))  # type: ignore[misc]


class Slots:
    """Accumulators in stack slots, which become registers."""

    def __init__(self, emit: BufferEmitter, types: Sequence[ElementType]) -> None:
        self.emit = emit
        self.types = types
        self.slots = [[emit.stack_slot(register_type(t)) for _ in range(2 if t.is_complex else 1)] for t in types]

    def load(self) -> list[ScalarValue]:
        builder = self.emit.builder
        return [
            ScalarValue(t, *(builder.load(slot, typ=register_type(t)) for slot in slots))
            for t, slots in zip(self.types, self.slots)
        ]

    def store(self, values: Sequence[ScalarValue]) -> None:
        for value, slots in zip(values, self.slots):
            for register, slot in zip(value.registers(), slots):
                self.emit.builder.store(register, slot)


def _along(
    emit: BufferEmitter, dims: tuple[int, ...], reduced: list[int], kept: list[int], reductions: Sequence[Reduction]
) -> None:
    """The fastest dimension is reduced: accumulators in registers, vectorised along it."""
    accumulations = [accumulation_of(emit, r) for r in reductions]
    walked = [d for d in reduced if dims[d] != 1]
    processor = target_of(emit.builder).processor
    if walked and dims[walked[-1]] >= SHORTEST_RUN * processor.lanes and not any(a.free for a in accumulations):
        _by_runs(emit, dims, [d for d in reduced if d != walked[-1]], walked[-1], kept, accumulations)
        return
    streams = _streams(processor, dims, reduced, kept, reductions)
    slots = [[Slots(emit, a.types) for a in accumulations] for _ in range(streams)]
    dimension_sizes = [dims[d] for d in kept]
    if streams > 1:
        dimension_sizes[-1] = -(-dimension_sizes[-1] // streams)
    with emit.loops(dimension_sizes) as outer:
        lines = [outer]
        if streams > 1:
            # the last lines are reduced again where they don't fill a block: to the same bits
            first = outer[-1] * streams
            if dims[kept[-1]] % streams:
                first = emit.index_clamp(0, first, dims[kept[-1]] - streams)
            lines = [(*outer[:-1], first + k) for k in range(streams)]
        if streams > 1 and (extremes := _row_min_max(emit, dims, reduced, kept, lines, accumulations)):
            for line, found in zip(lines, extremes):
                accumulations[0].finish(found, line)
            return
        for own in slots:
            for accumulation, slot in zip(accumulations, own):
                slot.store(accumulation.initial())
        with emit.loops([dims[d] for d in reduced]) as inner:
            for line, own in zip(lines, slots):
                index = merged_index(len(dims), kept, line, reduced, inner)
                for accumulation, slot in zip(accumulations, own):
                    slot.store(accumulation.combine(slot.load(), accumulation.elements(index)))
        for line, own in zip(lines, slots):
            for accumulation, slot in zip(accumulations, own):
                accumulation.finish(slot.load(), line)


def _row_min_max(
    emit: BufferEmitter,
    dims: tuple[int, ...],
    reduced: Sequence[int],
    kept: Sequence[int],
    lines: Sequence[Sequence[IndexExpression]],
    accumulations: Sequence[Accumulation],
) -> list[list[ScalarValue]] | None:
    """The values that `_Extreme` accumulates for `lines` if these are whole vectors in memory; else None."""
    (accumulation,) = accumulations
    array = _in_memory(accumulation.reduction.arrays[0])
    length = prod(dims[d] for d in reduced)
    if not isinstance(accumulation, _Extreme) or array is None:
        return None
    # one run: dimensions before that are reduced, too, have a size of 1
    if array.shape.dtype is not accumulation.wide or length != dims[max(d for d in reduced if dims[d] != 1)]:
        return None
    if not has_whole_vectors(target_of(emit.builder).processor, array.shape.dtype, length):
        return None
    starts = [array.position(merged_index(len(dims), kept, line, reduced, [0] * len(reduced))) for line in lines]
    return emit_row_min_max(emit, array, starts, length, accumulation.initial(), ("smax", "umax", "umin"))


def _streams(
    processor: Processor,
    dims: tuple[int, ...],
    reduced: Sequence[int],
    kept: Sequence[int],
    reductions: Sequence[Reduction],
) -> int:
    """How many lines along the fastest dimension are reduced side by side: as many as the processor fetches ahead."""
    streams = processor.streams
    line_bytes = prod(dims[d] for d in reduced) * reductions[0].arrays[0].shape.dtype.byte_size
    long = kept and dims[kept[-1]] >= streams and line_bytes >= LONG_LINE
    return streams if long and _is_read_from_memory(reductions) else 1


def _is_read_from_memory(reductions: Sequence[Reduction]) -> bool:
    """Whether it is one array in memory that is reduced: nothing has to be written out for each stream."""
    if len(reductions) > 1 or len(reductions[0].arrays) > 1:
        return False
    return _in_memory(reductions[0].arrays[0]) is not None


def _in_memory(array: ArrayRef) -> MemoryArray | None:
    """The array's address; None if its elements are made when they are asked for."""
    if isinstance(array, ComputedArray):
        return array.memory
    return array if isinstance(array, MemoryArray) else None


def _by_runs(
    emit: BufferEmitter,
    dims: tuple[int, ...],
    rest: list[int],
    last: int,
    kept: list[int],
    accumulations: Sequence[Accumulation],
) -> None:
    """Any computation along the fastest dimension `last` and the dimensions `rest`: the line is cut into runs that are
    reduced side by side, which vectorises, and then together in their order. It need only be associative."""
    lanes = target_of(emit.builder).processor.lanes
    run, left = divmod(dims[last], lanes)
    slots = [Slots(emit, a.types) for a in accumulations]
    runs = [[emit.scratch(Shape(t, (lanes,))) for t in a.types] for a in accumulations]
    with emit.loops([dims[d] for d in kept]) as outer:
        for accumulation, slot in zip(accumulations, slots):
            slot.store(accumulation.initial())
        with emit.loops([dims[d] for d in rest]) as inner:

            def elements(accumulation: Accumulation, position: IndexExpression) -> list[ScalarValue]:
                return accumulation.elements(merged_index(len(dims), kept, outer, [*rest, last], [*inner, position]))

            with emit.loops([lanes]) as (lane,):
                for accumulation, own in zip(accumulations, runs):
                    for buffer, value in zip(own, elements(accumulation, lane * run)):
                        buffer.store((lane,), value)
            with emit.loops([run - 1]) as (step,), emit.loops([lanes]) as (lane,):
                for accumulation, own in zip(accumulations, runs):
                    total = [buffer.load((lane,)) for buffer in own]
                    combined = accumulation.combine(total, elements(accumulation, lane * run + step + 1))
                    for buffer, value in zip(own, combined):
                        buffer.store((lane,), value)
            with emit.loops([lanes]) as (lane,):
                for accumulation, own, slot in zip(accumulations, runs, slots):
                    slot.store(accumulation.combine(slot.load(), [buffer.load((lane,)) for buffer in own]))
            with emit.loops([left]) as (step,):
                for accumulation, slot in zip(accumulations, slots):
                    slot.store(accumulation.combine(slot.load(), elements(accumulation, step + lanes * run)))
        for accumulation, slot in zip(accumulations, slots):
            accumulation.finish(slot.load(), outer)


def emit_written_out(
    emit: BufferEmitter, dims: tuple[int, ...], reduced: list[int], kept: list[int], reductions: Sequence[Reduction]
) -> None:
    """Few steps across the fastest dimension: all of them in the body of the loop over the kept ones."""
    accumulations = [Accumulation(emit, r) for r in reductions]

    def body(outer: tuple[IndexExpression, ...]) -> None:
        for accumulation in accumulations:

            def step(
                inner: Sequence[IndexExpression | int],
                total: tuple[ScalarValue, ...],
                accumulation: Accumulation = accumulation,
            ) -> tuple[ScalarValue, ...]:
                index = merged_index(len(dims), kept, outer, reduced, inner)
                return accumulation.combine(total, accumulation.elements(index))

            total = emit.fold([dims[d] for d in reduced], tuple(accumulation.initial()), step)
            accumulation.finish(total, outer)

    emit_map(emit, [dims[d] for d in kept], body)


def _across(
    emit: BufferEmitter, dims: tuple[int, ...], reduced: list[int], kept: list[int], reductions: Sequence[Reduction]
) -> None:
    """The fastest dimension is kept: accumulators in memory, vectorised along it, in blocks that stay in the cache."""
    accumulations = [Accumulation(emit, r) for r in reductions]
    before = [d for d in kept if d < reduced[0]]
    behind = [d for d in kept if d > reduced[0]]
    last = dims[behind[-1]]
    streams = target_of(emit.builder).processor.streams if _is_read_from_memory(reductions) else 1
    rest = prod(dims[d] for d in behind[:-1])
    block = last if last * rest <= 2 * BLOCK else max(64, min(last, BLOCK // rest))
    block = min(block, last)
    dimension_sizes = [*(dims[d] for d in behind[:-1]), block]
    buffers = [[emit.scratch(Shape(t, tuple(dimension_sizes))) for t in a.types] for a in accumulations]

    def piece(outer: Sequence[IndexExpression], start: IndexExpression | int, width: int) -> None:
        inside = [*dimension_sizes[:-1], width]

        def whole(index: Sequence[IndexExpression]) -> list[IndexExpression]:
            return [*index[:-1], index[-1] + start]

        with emit.loops(inside) as index:
            for accumulation, own in zip(accumulations, buffers):
                for buffer, value in zip(own, accumulation.initial()):
                    buffer.store(index, value)
        with emit.loops([dims[d] for d in reduced[:-1]]) as others:
            for first, count, together in _groups(dims[reduced[-1]], streams):
                with emit.loops([count]) as (group,), emit.loops(inside) as index:
                    for accumulation, own in zip(accumulations, buffers):
                        total: Sequence[ScalarValue] = [buffer.load(index) for buffer in own]
                        for k in range(together):
                            step = [*others, group * together + (first + k)]
                            place = merged_index(len(dims), [*before, *behind], [*outer, *whole(index)], reduced, step)
                            total = accumulation.combine(total, accumulation.elements(place))
                        for buffer, value in zip(own, total):
                            buffer.store(index, value)
        with emit.loops(inside) as index:
            for accumulation, own in zip(accumulations, buffers):
                accumulation.finish([buffer.load(index) for buffer in own], [*outer, *whole(index)])

    with emit.loops([dims[d] for d in before]) if before else nullcontext(()) as outer:
        full, left = divmod(last, block)
        if full > 1:
            with emit.loops([full]) as (number,):
                piece(outer, number * block, block)
        else:
            piece(outer, 0, block)
        if left:
            piece(outer, full * block, left)


def _groups(size: int, together: int) -> Iterator[tuple[int, int, int]]:
    """(first index, groups, indices of a group) of ranges that make up `size` indices: full groups and the others."""
    groups, left = divmod(size, together)
    if groups:
        yield 0, groups, together
    if left:
        yield groups * together, 1, left


def merged_index(
    rank: int,
    kept: Sequence[int],
    outer: Sequence[IndexExpression | int],
    reduced: Sequence[int],
    inner: Sequence[IndexExpression | int],
) -> list[IndexExpression | int]:
    index: list[IndexExpression | int] = [0] * rank
    for d, i in zip(kept, outer):
        index[d] = i
    for d, i in zip(reduced, inner):
        index[d] = i
    return index
