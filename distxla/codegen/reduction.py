"""Loops that reduce: along the fastest dimension, across it, and variadic ones by any computation.

Always the same order, so always the same bits. Where the computation is one operation (a sum, a product, a maximum),
its
order is the vectoriser's to choose, at compile time; narrow floats are then accumulated in f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from distxla.codegen.arrays import MemoryArray
from distxla.codegen.conversion import convert
from distxla.codegen.elements import is_single_operation
from distxla.codegen.fusion import emit_map
from distxla.codegen.index import IndexExpression
from distxla.codegen.lane import Lane, float_constant
from distxla.codegen.value import ScalarValue, is_narrow_float, register_type
from distxla.ir.element_type import F32, F64, S32, S64, ElementType
from distxla.ir.shape import Shape
from distxla.ops.emit import ArrayRef
from distxla.ops.registry import op_class

if TYPE_CHECKING:
    from distxla.codegen.kernels import BufferEmitter

WRITTEN_OUT = 8  # steps of a reduction that are written out, so that the loop over the kept dimension vectorises
LANES = 16  # runs of a line that are reduced side by side by a computation of which only associativity is known
SHORTEST_RUN = 4
BLOCK = 2048  # elements of the kept dimension whose accumulators stay in the first-level cache


@dataclass(frozen=True)
class Reduction:
    """One reduce: arrays and initial values it combines by `to_apply` into results."""

    to_apply: str
    arrays: tuple[ArrayRef, ...]
    initial: tuple[ArrayRef, ...]
    results: tuple[MemoryArray, ...]


def emit_reductions(emit: BufferEmitter, dimensions: Sequence[int], reductions: Sequence[Reduction]) -> None:
    """Reductions over the same `dimensions` of operands with equal extents, in one pass."""
    dims = reductions[0].arrays[0].shape.dims
    reduced = sorted(dimensions)
    kept = [d for d in range(len(dims)) if d not in reduced]
    walked = [d for d in range(len(dims)) if dims[d] != 1]
    count = prod(dims[d] for d in reduced)
    if 0 in dims:
        _initial_only(emit, reductions)
    elif not walked or walked[-1] in reduced:
        _along(emit, dims, reduced, kept, reductions)
    elif count <= WRITTEN_OUT:
        _written_out(emit, dims, reduced, kept, reductions)
    else:
        _across(emit, dims, reduced, kept, reductions)


class _Accumulation:
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


class _Extreme(_Accumulation):
    """The maximum or minimum of floats: the largest and smallest of integers in their order, one instruction each.

    NaNs of either sign are beyond the infinities, so the two show whether there was one.
    """

    def __init__(self, emit: BufferEmitter, reduction: Reduction, largest: bool) -> None:
        super().__init__(emit, reduction)
        (self.wide,) = self.types
        self.largest = largest
        self.integer = S64 if self.wide is F64 else S32
        self.types = [self.integer, self.integer]

    def initial(self) -> list[ScalarValue]:
        return self._keys(self.reduction.initial[0].load(())) * 2

    def elements(self, index: Any) -> list[ScalarValue]:
        return self._keys(self.reduction.arrays[0].load(index))

    def _keys(self, value: Any) -> list[ScalarValue]:
        lane = self.emit.lane(self._wide(value, self.wide).llvm)
        return [ScalarValue(self.integer, _reflected(lane.bits()).value)]

    def combine(self, total: Sequence[ScalarValue], elements: Sequence[ScalarValue]) -> tuple[ScalarValue, ...]:
        (key,), binary = elements, self.emit.binary
        return binary("maximum", total[0], key), binary("minimum", total[1], key)

    def finish(self, total: Sequence[ScalarValue], index: Sequence[IndexExpression | int]) -> None:
        emit, infinity = self.emit, {32: 0x7F800000, 64: 0x7FF0000000000000}[self.integer.bits]
        high, low = (emit.lane(value.llvm) for value in total)
        is_nan = emit.builder.or_(high.gt(infinity).value, low.lt(-infinity - 1).value)
        number = _reflected(high if self.largest else low).float_of_bits()
        found = emit.lane(is_nan).select(emit.lane(float_constant(number.type, math.nan)), number)
        (result,) = self.reduction.results
        result.store(index, convert(emit.builder, ScalarValue(self.wide, found.value), result.shape.dtype))


def _reflected(bits: Lane) -> Lane:
    """Between a float's bits and an integer that orders floats as -NaN < -inf < … < -0 < 0 < … < inf < NaN."""
    return bits ^ (bits.ashr(bits.width - 1) & ((1 << (bits.width - 1)) - 1))


def _accumulation(emit: BufferEmitter, reduction: Reduction) -> _Accumulation:
    assert emit.module is not None
    computation = emit.module[reduction.to_apply]
    kind = reduction.arrays[0].shape.dtype
    if is_single_operation(computation) and kind.is_float:
        root = computation.root_instruction
        for name in ("maximum", "minimum"):
            if isinstance(root.op, op_class(name)) and len(set(root.operands)) == 2:
                return _Extreme(emit, reduction, name == "maximum")
    return _Accumulation(emit, reduction)


def _initial_only(emit: BufferEmitter, reductions: Sequence[Reduction]) -> None:
    for reduction in reductions:
        for array, result in zip(reduction.initial, reduction.results):
            emit_map(emit, result.shape.dims, lambda index, a=array, r=result: r.store(index, a.load(())))  # type: ignore[misc]


class _Slots:
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
    accumulations = [_accumulation(emit, r) for r in reductions]
    walked = [d for d in reduced if dims[d] != 1]
    if walked and dims[walked[-1]] >= SHORTEST_RUN * LANES and not any(a.free for a in accumulations):
        _by_runs(emit, dims, [d for d in reduced if d != walked[-1]], walked[-1], kept, accumulations)
        return
    slots = [_Slots(emit, a.types) for a in accumulations]
    with emit.loops([dims[d] for d in kept]) as outer:
        for accumulation, slot in zip(accumulations, slots):
            slot.store(accumulation.initial())
        with emit.loops([dims[d] for d in reduced]) as inner:
            index = _merged(len(dims), kept, outer, reduced, inner)
            for accumulation, slot in zip(accumulations, slots):
                slot.store(accumulation.combine(slot.load(), accumulation.elements(index)))
        for accumulation, slot in zip(accumulations, slots):
            accumulation.finish(slot.load(), outer)


def _by_runs(
    emit: BufferEmitter,
    dims: tuple[int, ...],
    rest: list[int],
    last: int,
    kept: list[int],
    accumulations: Sequence[_Accumulation],
) -> None:
    """Any computation along the fastest dimension `last` and the dimensions `rest`: the line is cut into runs that are
    reduced side by side, which vectorises, and then together in their order. It need only be associative."""
    run, left = divmod(dims[last], LANES)
    slots = [_Slots(emit, a.types) for a in accumulations]
    runs = [[emit.scratch(Shape(t, (LANES,))) for t in a.types] for a in accumulations]
    with emit.loops([dims[d] for d in kept]) as outer:
        for accumulation, slot in zip(accumulations, slots):
            slot.store(accumulation.initial())
        with emit.loops([dims[d] for d in rest]) as inner:

            def elements(accumulation: _Accumulation, position: IndexExpression) -> list[ScalarValue]:
                return accumulation.elements(_merged(len(dims), kept, outer, [*rest, last], [*inner, position]))

            with emit.loops([LANES]) as (lane,):
                for accumulation, own in zip(accumulations, runs):
                    for buffer, value in zip(own, elements(accumulation, lane * run)):
                        buffer.store((lane,), value)
            with emit.loops([run - 1]) as (step,), emit.loops([LANES]) as (lane,):
                for accumulation, own in zip(accumulations, runs):
                    total = [buffer.load((lane,)) for buffer in own]
                    combined = accumulation.combine(total, elements(accumulation, lane * run + step + 1))
                    for buffer, value in zip(own, combined):
                        buffer.store((lane,), value)
            with emit.loops([LANES]) as (lane,):
                for accumulation, own, slot in zip(accumulations, runs, slots):
                    slot.store(accumulation.combine(slot.load(), [buffer.load((lane,)) for buffer in own]))
            with emit.loops([left]) as (step,):
                for accumulation, slot in zip(accumulations, slots):
                    slot.store(accumulation.combine(slot.load(), elements(accumulation, step + LANES * run)))
        for accumulation, slot in zip(accumulations, slots):
            accumulation.finish(slot.load(), outer)


def _written_out(
    emit: BufferEmitter, dims: tuple[int, ...], reduced: list[int], kept: list[int], reductions: Sequence[Reduction]
) -> None:
    """Few steps across the fastest dimension: all of them in the body of the loop over the kept ones."""
    accumulations = [_Accumulation(emit, r) for r in reductions]

    def body(outer: tuple[IndexExpression, ...]) -> None:
        for accumulation in accumulations:

            def step(
                inner: Sequence[IndexExpression | int],
                total: tuple[ScalarValue, ...],
                accumulation: _Accumulation = accumulation,
            ) -> tuple[ScalarValue, ...]:
                index = _merged(len(dims), kept, outer, reduced, inner)
                return accumulation.combine(total, accumulation.elements(index))

            total = emit.fold([dims[d] for d in reduced], tuple(accumulation.initial()), step)
            accumulation.finish(total, outer)

    emit_map(emit, [dims[d] for d in kept], body)


def _across(
    emit: BufferEmitter, dims: tuple[int, ...], reduced: list[int], kept: list[int], reductions: Sequence[Reduction]
) -> None:
    """The fastest dimension is kept: accumulators in memory, vectorised along it, in blocks that stay in the cache."""
    accumulations = [_Accumulation(emit, r) for r in reductions]
    before = [d for d in kept if d < reduced[0]]
    behind = [d for d in kept if d > reduced[0]]
    last = dims[behind[-1]]
    rest = prod(dims[d] for d in behind[:-1])
    block = last if last * rest <= 2 * BLOCK else max(64, min(last, BLOCK // rest))
    block = min(block, last)
    extents = [*(dims[d] for d in behind[:-1]), block]
    buffers = [[emit.scratch(Shape(t, tuple(extents))) for t in a.types] for a in accumulations]

    def piece(outer: Sequence[IndexExpression], start: IndexExpression | int, width: int) -> None:
        inside = [*extents[:-1], width]

        def whole(index: Sequence[IndexExpression]) -> list[IndexExpression]:
            return [*index[:-1], index[-1] + start]

        with emit.loops(inside) as index:
            for accumulation, own in zip(accumulations, buffers):
                for buffer, value in zip(own, accumulation.initial()):
                    buffer.store(index, value)
        with emit.loops([dims[d] for d in reduced]) as step, emit.loops(inside) as index:
            place = _merged(len(dims), [*before, *behind], [*outer, *whole(index)], reduced, step)
            for accumulation, own in zip(accumulations, buffers):
                total = [buffer.load(index) for buffer in own]
                combined = accumulation.combine(total, accumulation.elements(place))
                for buffer, value in zip(own, combined):
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


def _merged(
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
