"""Reductions on a grid: a thread or a block a line, a block several neighbouring lines, or several blocks and then one.

The order depends on the sizes alone, so the bits are always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from llvmlite import ir

from distxla.compiler.lower.grid.block_of_threads import BlockOfThreads
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.launches import BLOCK
from distxla.compiler.lower.grid.shared_array import SharedArray
from distxla.compiler.lower.grid.warps import WARP
from distxla.compiler.lower.index import I64, IndexExpression
from distxla.compiler.lower.reduction import (
    Accumulation,
    Reduction,
    Slots,
    accumulation_of,
    emit_initial_only,
    emit_written_out,
    merged_index,
)
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.element_type import PRED
from distxla.ir.shape import Shape
from distxla.targets.grid_module import grid_of

SHORT_LINE = 64  # elements at most that one thread reduces
MANY_LINES = 1 << 13  # that keep all threads busy
FEW_LINES = 128  # too few for one block each to fill the device
MANY_BLOCKS = 512  # that fill the device
WARPS = BLOCK // WARP
PIECE = 1 << 13  # elements of a line that are worth a block


def emit_grid_reductions(emit: GridLoops, dimensions: Sequence[int], reductions: Sequence[Reduction]) -> None:
    """Reductions over the same `dimensions` of operands with equal dimension sizes."""
    dims = reductions[0].arrays[0].shape.dims
    reduced = sorted(dimensions)
    kept = [d for d in range(len(dims)) if d not in reduced]
    if 0 in dims:
        emit_initial_only(emit, reductions)
        return
    count, lines = prod(dims[d] for d in reduced), prod(dims[d] for d in kept)
    walked = [d for d in range(len(dims)) if dims[d] != 1]
    is_across = bool(walked) and walked[-1] in kept  # neighbouring threads read neighbouring elements
    if count <= SHORT_LINE or (is_across and lines >= MANY_LINES):
        emit_written_out(emit, dims, reduced, kept, reductions)
        return
    for reduction in reductions:
        found = _Lines(emit, reduction, dims, reduced, kept)
        if is_across and lines >= WARP:
            found.emit_across(lines, count)
        else:
            found.emit(lines, count, min(BLOCK, count // PIECE) if lines < FEW_LINES else 1)


class _Lines:
    """One reduction by blocks."""

    def __init__(
        self, emit: GridLoops, reduction: Reduction, dims: Sequence[int], reduced: list[int], kept: list[int]
    ) -> None:
        self.emit_code = emit
        self.accumulation: Accumulation = accumulation_of(emit, reduction)
        self._block = BlockOfThreads(emit, self.accumulation.types, self.accumulation.combine, self.accumulation.free)
        self.dims, self.reduced, self.kept = dims, reduced, kept
        self.count = prod(dims[d] for d in reduced)

    def emit(self, lines: int, count: int, pieces: int) -> None:
        """pieces: blocks a line; if there are several, another launch combines what they found."""
        emit, types = self.emit_code, self.accumulation.types
        if pieces <= 1:
            with emit.blocks(lines) as line:
                outer = self._apart(line, self.kept)
                self._block.combine(count, lambda i: self._elements(outer, i), lambda total: self._finish(outer, total))
            return
        parts = [emit.scratch(Shape(t, (lines, pieces))) for t in types]
        length = -(-count // pieces)
        full = -(-count // length)  # pieces that have elements
        with emit.blocks(lines * full) as number:
            line, piece = number // full, number % full
            outer = self._apart(line, self.kept)
            start = piece * length
            end = emit.index_clamp(0, start + length, count)

            def store(total: Sequence[ScalarValue]) -> None:
                for part, value in zip(parts, total):
                    part.store((line, piece), value)

            self._block.combine(length, lambda i: self._elements(outer, start + i), store, end - start)
        with emit.blocks(lines) as line:
            outer = self._apart(line, self.kept)
            self._block.combine(
                full, lambda i: [part.load((line, i)) for part in parts], lambda total: self._finish(outer, total)
            )

    def emit_across(self, lines: int, count: int) -> None:
        """Neighbouring threads read neighbouring lines: the warps of a block a run of elements each of the same lines.

        Several blocks take pieces of the lines where those would be too few, and another launch combines these.
        """
        emit, types = self.emit_code, self.accumulation.types
        tiles = -(-lines // WARP)
        pieces = max(1, min(MANY_BLOCKS // tiles, count // SHORT_LINE))
        size = -(-count // pieces)
        pieces = -(-count // size)
        parts = [emit.scratch(Shape(t, (pieces, lines))) for t in types] if pieces > 1 else []
        with emit.blocks(tiles * pieces, BLOCK) as number:
            piece, tile = number // tiles, number % tiles
            begin = piece * size

            def take(line: IndexExpression, outer: Sequence[IndexExpression], total: Sequence[ScalarValue]) -> None:
                if pieces == 1:
                    self._finish(outer, total)
                for part, value in zip(parts, total):
                    part.store((piece, line), value)

            self._tile(tile * WARP, lines, (begin, emit.index_clamp(0, begin + size, count), size), take)
        if pieces == 1:
            return
        with emit.loops((lines,), independent=True) as (line,):

            def step(index: Sequence[IndexExpression | int], carried: tuple[ScalarValue, ...]) -> Any:
                return tuple(self.accumulation.combine(carried, [part.load((index[0], line)) for part in parts]))

            first = tuple(self.accumulation.initial())
            self.accumulation.finish(emit.fold((pieces,), first, step), self._apart(line, self.kept))

    def _tile(
        self,
        first: IndexExpression,
        lines: int,
        bounds: tuple[IndexExpression, IndexExpression, int],
        take: Callable[[IndexExpression, Sequence[IndexExpression], Sequence[ScalarValue]], None],
    ) -> None:
        """Combine elements of WARP lines from the first one on; `take` gets a line's number, index and total.

        bounds: of the elements, and the most that they can be.
        """
        emit, builder, types = self.emit_code, self.emit_code.builder, self.accumulation.types
        grid = grid_of(builder)
        begin, end, most = bounds
        thread = emit.wrap_index(grid.emit_thread(builder), 0, BLOCK - 1)
        lane, warp = thread % WARP, thread // WARP
        line = emit.index_clamp(0, first + lane, lines - 1)
        outer = self._apart(line, self.kept)
        length = -(-most // WARPS)
        slots = Slots(emit, types)
        slots.store([emit.constant(0, t) for t in types])
        start = begin + warp * length
        stop = _least(emit, emit.i64(start + length), emit.i64(end))
        with emit.when(ScalarValue(PRED, builder.icmp_signed("<", emit.i64(start), emit.i64(end)))):
            slots.store(self._elements(outer, emit.wrap_index(emit.i64(start), 0, self.count - 1)))
            following = builder.add(emit.i64(start), ir.Constant(I64, 1))
            with emit.counted(builder.sub(stop, following)) as i:
                position = emit.wrap_index(builder.add(following, emit.i64(i)), 0, self.count - 1)
                slots.store(self.accumulation.combine(slots.load(), self._elements(outer, position)))
        shared = [SharedArray(emit, t, BLOCK) for t in types]
        for array, value in zip(shared, slots.load(), strict=True):
            array.store(thread, value)
        grid.emit_barrier(builder)
        is_first = emit.index_compare("EQ", warp, 0), emit.index_compare("LT", first + lane, lines)
        with emit.when(emit.binary("and", *is_first)):
            slots.store([array.load(lane) for array in shared])
            for other in range(1, WARPS):
                has_any = builder.icmp_signed("<", emit.i64(begin + other * length), emit.i64(end))
                with emit.when(ScalarValue(PRED, has_any)):
                    others = [array.load(lane + other * WARP) for array in shared]
                    slots.store(self.accumulation.combine(slots.load(), others))
            take(line, outer, slots.load())
        grid.emit_barrier(builder)  # the next tile's values go to the same places

    def _elements(self, outer: Sequence[IndexExpression], position: IndexExpression) -> list[ScalarValue]:
        inner = self._apart(position, self.reduced)
        return self.accumulation.elements(merged_index(len(self.dims), self.kept, outer, self.reduced, inner))

    def _finish(self, outer: Sequence[IndexExpression], total: Sequence[ScalarValue]) -> None:
        self.accumulation.finish(self.accumulation.combine(self.accumulation.initial(), total), outer)

    def _apart(self, number: IndexExpression, over: Sequence[int]) -> list[IndexExpression]:
        """A row-major number as an index for each of the dimensions `over`."""
        index: list[IndexExpression] = []
        for d in reversed(over):
            index.append(number % self.dims[d])
            number = number // self.dims[d]
        return index[::-1]


def _least(emit: GridLoops, first: ir.Value, second: ir.Value) -> ir.Value:
    return emit.builder.select(emit.builder.icmp_signed("<", first, second), first, second)


__all__ = ["emit_grid_reductions"]
