"""The threads of a block that combine values: each those of its own, then with its warp, then with the block's others.

Where the computation is one operation, the threads take turns along the values, which reads memory side by side; any
other need only be associative, so each thread combines a run of neighbours, and runs are combined with their
neighbours: those of a warp from register to register, then those of the block's warps, through shared memory. The order
depends on the sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.launches import BLOCK
from distxla.compiler.lower.grid.shared_array import SharedArray
from distxla.compiler.lower.grid.warps import WARP, from_lane_behind
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.reduction import Slots
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.emit.native_function import I64
from distxla.ir.element_type import PRED, ElementType
from distxla.ir.shape import Shape
from distxla.targets.grid_module import grid_of

MANY_BLOCKS = 512  # that fill the device
LEAST_PIECE = 64  # elements of a line that are worth a block's part
WARPS = BLOCK // WARP

Values = Sequence[ScalarValue]
Elements = Callable[[IndexExpression], Values]
Take = Callable[[Values], None]


class BlockOfThreads:
    """types: of the values that are combined together.  combine: gives one of two.  free: whether their order is."""

    def __init__(
        self, emit: GridLoops, types: Sequence[ElementType], combine: Callable[[Values, Values], Values], free: bool
    ) -> None:
        self._emit, self._types, self._combine, self._free = emit, types, combine, free

    def combine(self, most: int, elements: Elements, take: Take, count: IndexExpression | None = None) -> None:
        """Combine elements(0), elements(1), … in the threads of a block; one thread calls `take` with the total.

        most: how many there are, or at most are where `count` says it.
        """
        emit, builder, types = self._emit, self._emit.builder, self._types
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
                slots.store(self._combine(slots.load(), elements(emit.wrap_index(follows, 0, most - 1))))
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

    def combine_lines(
        self,
        lines: int,
        count: int,
        elements: Callable[[IndexExpression, IndexExpression], Values],
        take: Callable[[IndexExpression, Values], None],
    ) -> None:
        """Make launches that combine, for each of the lines, elements(line, 0), elements(line, 1), …

        Neighbouring threads read neighbouring lines: the warps of a block a run of elements each of the same lines.
        Several blocks take pieces of the lines where those would be too few, and another launch combines these.
        """
        emit, tiles = self._emit, -(-lines // WARP)
        size = -(-count // max(1, min(MANY_BLOCKS // tiles, count // LEAST_PIECE)))
        pieces = -(-count // size)
        parts = [emit.scratch(Shape(t, (pieces, lines))) for t in self._types] if pieces > 1 else []
        with emit.blocks(tiles * pieces, BLOCK) as number:
            piece, first = number // tiles, number % tiles * WARP
            begin = piece * size

            def store(line: IndexExpression, total: Values) -> None:
                if pieces == 1:
                    take(line, total)
                for part, value in zip(parts, total):
                    part.store((piece, line), value)

            bounds = begin, emit.index_clamp(0, begin + size, count), size
            self._combine_tile(
                first, lines, bounds, lambda line, k: elements(line, emit.wrap_index(k, 0, count - 1)), store
            )
        if pieces == 1:
            return
        with emit.loops((lines,), independent=True) as (line,):

            def step(index: Sequence[IndexExpression | int], carried: tuple[ScalarValue, ...]) -> Any:
                return tuple(self._combine(carried, [part.load((index[0] + 1, line)) for part in parts]))

            take(line, emit.fold((pieces - 1,), tuple(part.load((0, line)) for part in parts), step))

    def _combine_tile(
        self,
        first: IndexExpression,
        lines: int,
        bounds: tuple[IndexExpression, IndexExpression, int],
        elements: Callable[[IndexExpression, ir.Value], Values],
        take: Callable[[IndexExpression, Values], None],
    ) -> None:
        """Combine elements of WARP lines from the first one on. bounds: of the elements, and how many those can be."""
        emit, builder, types = self._emit, self._emit.builder, self._types
        grid = grid_of(builder)
        begin, end, most = bounds
        thread = emit.wrap_index(grid.emit_thread(builder), 0, BLOCK - 1)
        lane, warp = thread % WARP, thread // WARP
        line = emit.index_clamp(0, first + lane, lines - 1)
        length = -(-most // WARPS)
        slots = Slots(emit, types)
        slots.store([emit.constant(0, t) for t in types])
        start, stop = emit.i64(begin + warp * length), emit.i64(begin + warp * length + length)
        limit = emit.i64(end)
        with emit.when(ScalarValue(PRED, builder.icmp_signed("<", start, limit))):
            slots.store(elements(line, start))
            following = builder.add(start, ir.Constant(I64, 1))
            stop = builder.select(builder.icmp_signed("<", stop, limit), stop, limit)
            with emit.counted(builder.sub(stop, following)) as k:
                more = elements(line, builder.add(following, emit.i64(k)))
                slots.store(self._combine(slots.load(), more))
        shared = [SharedArray(emit, t, BLOCK) for t in types]
        for array, value in zip(shared, slots.load(), strict=True):
            array.store(thread, value)
        grid.emit_barrier(builder)
        is_first = emit.index_compare("EQ", warp, 0), emit.index_compare("LT", first + lane, lines)
        with emit.when(emit.binary("and", *is_first)):
            slots.store([array.load(lane) for array in shared])
            for other in range(1, WARPS):
                has_any = builder.icmp_signed("<", emit.i64(begin + other * length), limit)
                with emit.when(ScalarValue(PRED, has_any)):
                    others = [array.load(lane + other * WARP) for array in shared]
                    slots.store(self._combine(slots.load(), others))
            take(line, slots.load())
        grid.emit_barrier(builder)  # the next tile's values go to the same places

    def _combine_in_warp(self, slots: Slots, thread: IndexExpression, limit: ir.Value, most: int) -> None:
        """Combine the slots of neighbouring threads below `limit`; the first of each warp gets the result.

        most: a bound of the limit within a warp.
        """
        emit, builder = self._emit, self._emit.builder
        distance = 1
        while distance < most:
            others = [from_lane_behind(emit, value, distance) for value in slots.load()]
            has_other = builder.icmp_signed("<", emit.i64(thread + distance), limit)
            is_left = emit.index_compare("EQ", thread % (2 * distance), 0)
            with emit.when(ScalarValue(PRED, builder.and_(is_left.llvm, has_other))):
                slots.store(self._combine(slots.load(), others))
            distance *= 2

    def _share(self, thread: ir.Value, count: ir.Value, threads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
        """A thread's elements: the first, how many follow, and the distance between them."""
        builder, size = self._emit.builder, ir.Constant(I64, threads)
        one = ir.Constant(I64, 1)
        if self._free:
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


__all__ = ["BlockOfThreads"]
