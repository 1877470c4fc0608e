"""A loop nest whose iterations are spread over all threads of a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from llvmlite import ir

from distxla.compiler.lower.index import IndexCode
from distxla.compiler.lower.loops import Nest
from distxla.emit.native_function import I64

BeginGrid = Callable[[], tuple[ir.Value, ir.Value, ir.Value]]


class GridNest(Nest):
    """One loop over all iterations: each thread begins with its number and walks on in steps of all threads.

    begin: emits (whether this launch runs the nest, this thread's number in the grid, number of threads) where the
    loop begins.
    """

    def __init__(
        self,
        code: IndexCode,
        dimension_sizes: Sequence[int],
        ranges: Sequence[tuple[int, int]] | None,
        begin: BeginGrid,
    ) -> None:
        super().__init__(code, dimension_sizes, ranges=ranges, parallel=True)
        self._begin = begin

    @property
    def iterations(self) -> int:
        return prod(end - first for first, end in self.ranges)

    @property
    def walked(self) -> tuple[int, ...]:
        """The dimensions with more than one index."""
        return tuple(self._walked)

    def close(self) -> None:
        builder, (body, end, done) = self.builder, self._leave_body()
        header = builder.append_basic_block("grid")
        runs = self._partition()
        total = ir.Constant(I64, self.iterations)
        is_run, first, step = self._begin()
        builder.cbranch(builder.and_(is_run, builder.icmp_unsigned("<", first, total)), header, done)
        before = builder.block
        builder.position_at_end(header)
        flat = builder.phi(I64, "flat")
        flat.add_incoming(first, before)
        values, rest = {}, flat
        for number in reversed(range(len(runs))):
            low, high = self._bounds(*runs[number])
            length = ir.Constant(I64, high - low)
            value = builder.urem(rest, length) if number else rest
            rest = builder.udiv(rest, length) if number else rest
            values[runs[number][0]] = builder.add(value, ir.Constant(I64, low), flags=("nuw", "nsw")) if low else value
        builder.branch(body)
        self._resolve(runs, values)
        builder.position_at_end(end)
        following = builder.add(flat, step, flags=("nuw", "nsw"))
        flat.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, total), header, done)
        builder.position_at_end(done)


__all__ = ["GridNest"]
