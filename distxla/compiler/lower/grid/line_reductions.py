"""Reductions on a grid: a thread or a block a line, a block several neighbouring lines, or several blocks and then one.

The order depends on the sizes alone, so the bits are always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from distxla.compiler.lower.grid.block_of_threads import BlockOfThreads
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.launches import BLOCK
from distxla.compiler.lower.grid.warps import WARP
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.reduction import (
    Accumulation,
    Reduction,
    accumulation_of,
    emit_initial_only,
    emit_written_out,
    merged_index,
)
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.shape import Shape

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
        """Neighbouring lines together."""
        self._block.combine_lines(
            lines,
            count,
            lambda line, i: self._elements(self._apart(line, self.kept), i),
            lambda line, total: self._finish(self._apart(line, self.kept), total),
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


__all__ = ["emit_grid_reductions"]
