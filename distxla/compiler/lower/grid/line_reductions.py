"""Reductions on a grid: a thread or a block a line, or several blocks a line and then one.

The order depends on the sizes alone, so the bits are always the same. Where the computation is one operation, the
threads of a block take turns along the line, which reads memory side by side; any other need only be associative, so
each thread combines a run of neighbours, and runs are combined with their neighbours: those of a warp from register to
register, then those of the block's warps, through shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from llvmlite import ir

from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.launches import BLOCK
from distxla.compiler.lower.grid.shared_array import SharedArray
from distxla.compiler.lower.grid.warps import WARP, from_lane_behind
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
    pieces = min(BLOCK, count // PIECE) if lines < FEW_LINES else 1
    for reduction in reductions:
        _Lines(emit, reduction, dims, reduced, kept).emit(lines, count, pieces)


class _Lines:
    """One reduction by blocks."""

    def __init__(
        self, emit: GridLoops, reduction: Reduction, dims: Sequence[int], reduced: list[int], kept: list[int]
    ) -> None:
        self.emit_code = emit
        self.accumulation: Accumulation = accumulation_of(emit, reduction)
        self.dims, self.reduced, self.kept = dims, reduced, kept

    def emit(self, lines: int, count: int, pieces: int) -> None:
        """pieces: blocks a line; if there are several, another launch combines what they found."""
        emit, types = self.emit_code, self.accumulation.types
        if pieces <= 1:
            with emit.blocks(lines) as line:
                outer = self._apart(line, self.kept)
                self._block(count, lambda i: self._elements(outer, i), lambda total: self._finish(outer, total))
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

            self._block(length, lambda i: self._elements(outer, start + i), store, end - start)
        with emit.blocks(lines) as line:
            outer = self._apart(line, self.kept)
            self._block(
                full, lambda i: [part.load((line, i)) for part in parts], lambda total: self._finish(outer, total)
            )

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

    def _block(self, most: int, elements: Any, take: Any, count: IndexExpression | None = None) -> None:
        """Combine elements(0), elements(1), … in the threads of a block; one thread calls `take` with the total.

        most: how many there are, or at most are where `count` says it.
        """
        emit, builder, types = self.emit_code, self.emit_code.builder, self.accumulation.types
        grid = grid_of(builder)
        threads = min(BLOCK, 1 << (most.bit_length() - 1))
        thread = emit.wrap_index(grid.emit_thread(builder), 0, BLOCK - 1)
        number = emit.i64(count) if count is not None else ir.Constant(I64, most)
        slots = Slots(emit, types)
        slots.store([emit.constant(0, t) for t in types])  # warps exchange them, whether there are elements or not
        # threads beyond the last element have none
        has_any = ScalarValue(PRED, builder.icmp_signed("<", emit.i64(thread), _least(emit, number, threads)))
        with emit.when(has_any):
            first, steps, stride = self._share(emit.i64(thread), number, threads)
            slots.store(elements(emit.wrap_index(first, 0, most - 1)))
            with emit.counted(steps) as i:
                follows = builder.add(first, builder.mul(builder.add(emit.i64(i), ir.Constant(I64, 1)), stride))
                slots.store(self.accumulation.combine(slots.load(), elements(emit.wrap_index(follows, 0, most - 1))))
        filled = _least(emit, number, threads)
        self._combine_in_warp(slots, thread, filled, min(threads, WARP))
        if threads <= WARP:
            with emit.when(emit.index_compare("EQ", thread, 0)):
                take(slots.load())
            return
        shared = [SharedArray(emit, t, threads // WARP) for t in types]
        is_first = emit.index_compare("EQ", thread % WARP, 0), emit.index_compare("LT", thread, threads)
        with emit.when(emit.binary("and", *is_first)):
            place = emit.index_clamp(0, thread // WARP, threads // WARP - 1)
            for array, value in zip(shared, slots.load(), strict=True):
                array.store(place, value)
        grid.emit_barrier(builder)
        with emit.when(emit.index_compare("LT", thread, WARP)):
            place = emit.index_clamp(0, thread, threads // WARP - 1)
            slots.store([array.load(place) for array in shared])
            warps = builder.udiv(builder.add(filled, ir.Constant(I64, WARP - 1)), ir.Constant(I64, WARP))
            self._combine_in_warp(slots, thread, warps, threads // WARP)
            with emit.when(emit.index_compare("EQ", thread, 0)):
                take(slots.load())
        grid.emit_barrier(builder)  # the next line's values go to the same places

    def _combine_in_warp(self, slots: Slots, thread: IndexExpression, limit: ir.Value, most: int) -> None:
        """Combine the slots of neighbouring threads below `limit`; the first of each warp gets the result.

        most: a bound of the limit within a warp.
        """
        emit, builder = self.emit_code, self.emit_code.builder
        distance = 1
        while distance < most:
            others = [from_lane_behind(emit, value, distance) for value in slots.load()]
            has_other = builder.icmp_signed("<", emit.i64(thread + distance), limit)
            is_left = emit.index_compare("EQ", thread % (2 * distance), 0)
            with emit.when(ScalarValue(PRED, builder.and_(is_left.llvm, has_other))):
                slots.store(self.accumulation.combine(slots.load(), others))
            distance *= 2

    def _share(self, thread: ir.Value, count: ir.Value, threads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
        """A thread's elements: the first, how many follow, and the distance between them."""
        builder, size = self.emit_code.builder, ir.Constant(I64, threads)
        one = ir.Constant(I64, 1)
        if self.accumulation.free:
            behind = builder.sub(builder.sub(count, one), thread)
            return thread, builder.udiv(behind, size), size
        # runs of neighbours, the first ones longer by one where the count does not divide
        least, left = builder.udiv(count, size), builder.urem(count, size)
        has_more = builder.icmp_unsigned("<", thread, left)
        extra = builder.select(has_more, thread, left)
        first = builder.add(builder.mul(thread, least), extra)
        length = builder.add(least, builder.zext(has_more, I64))
        followers = builder.select(
            builder.icmp_unsigned("==", length, ir.Constant(I64, 0)), length, builder.sub(length, one)
        )
        return first, followers, one


def _least(emit: GridLoops, number: ir.Value, limit: int) -> ir.Value:
    builder, most = emit.builder, ir.Constant(I64, limit)
    return builder.select(builder.icmp_signed("<", number, most), number, most)


__all__ = ["emit_grid_reductions"]
