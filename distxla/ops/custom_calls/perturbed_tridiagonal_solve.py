"""The solution of a tridiagonal system that may be singular, as JAX on CPU calls it for eigenvectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import PRED, ElementType
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import LapackTarget, Work, fit, real_type
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer, Index, IndexValue, Value
from distxla.ops.support.lapack import LETTERS


@target("tridiagonal_solve_perturbed_ffi")
class PerturbedTridiagonalSolve(LapackTarget):
    """Solve a tridiagonal system by elimination with row exchanges; tiny pivots are moved away from zero.

    The diagonals below and above have the main one's length; the first element of the one below and the last of the
    one above are not read. A pivot by which division would overflow is moved by epsilon times the largest element of U,
    and by twice as much until it does not: so a singular matrix has a finite solution, large along its null space.

    Shapes: T[.., n] three times, B T[.., n, k] -> T[.., n, k]; T f32, f64, c64 or c128.
    Source: LAPACK's ?lagtf and ?lagts.
    """

    operand_ranks = (1, 1, 1, 2)

    def kind(self, call: Call) -> ElementType:
        found = call.operands[0].dtype
        fit(found.name in LETTERS, f"{call.operands[0]} is no array of {', '.join(LETTERS)}")
        return found

    def results(self, call: Call) -> tuple[Shape, ...]:
        n, k = self.tridiagonal_system(call)
        return (self.result(call, n, k),)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        lower, main, upper, x = operands
        n = len(main)
        if not x.size:
            return (x,)
        u = np.zeros((n, 3), main.dtype)
        u[:, 0], u[:-1, 1] = main, upper[:-1]
        largest = scale = np.abs(u[0]).sum()
        largest = np.abs(u[0]).max()
        for k in range(n - 1):
            below, row = lower[k + 1], u[k + 1].copy()
            row_scale = abs(below) + np.abs(row).sum()
            if below == 0 or (u[k, 0] != 0 and abs(below) / row_scale <= abs(u[k, 0]) / scale):
                factor = below / u[k, 0] if below else 0
                scale = row_scale
            else:
                factor = u[k, 0] / below
                u[k + 1, :2], u[k] = (u[k, 1], 0), (below, row[0], row[1])
                x[[k, k + 1]] = x[[k + 1, k]]
                scale = np.abs(u[k + 1, :2] - factor * u[k, 1:]).sum()
            u[k + 1, :2] -= factor * u[k, 1:]
            x[k + 1] -= factor * x[k]
            if k < n - 2:
                largest = max(largest, np.abs(u[k]).max())
        limits = np.finfo(real_type(self.kind(call)).dtype)
        move = float(limits.eps) * max(largest, abs(u[-1, 0]))
        x = np.concatenate([x, np.zeros((2, x.shape[1]), x.dtype)])
        for k in reversed(range(n)):
            row = x[k] - u[k, 1] * x[k + 1] - u[k, 2] * x[k + 2]
            pivot = _moved(u[k, 0], move, np.abs(row).max(), limits)
            x[k] = row * (1 / pivot)
        return (x[:-2],)

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        lower, main, upper, right = operands
        solve = _Solve(work, lower, main, upper, right, results[0])
        if solve.n and solve.width:
            solve.eliminate()
            solve.substitute()


def _moved(pivot: Any, move: float, largest: float, limits: np.finfo[Any]) -> Any:
    """The pivot by which numbers up to `largest` can be divided."""
    tiny = float(limits.tiny)
    move = np.copysign(max(move, tiny), pivot.real)
    while abs(pivot) < 1 and (pivot == 0 or largest * tiny > abs(pivot)):
        pivot, move = pivot + move, move * 2
    return pivot


class _Solve:
    """Code for one system. diagonals: U's three, from the main one up.  x: the right side, then the solution; two rows
    of zeros follow it.  state: scale of the current row, the largest element of U."""

    def __init__(self, work: Work, lower: Buffer, main: Buffer, upper: Buffer, right: Buffer, result: Buffer) -> None:
        self.emit, self.kind, self.real = work.emit, work.kind, real_type(work.kind)
        self.lower, self.main, self.upper, self.right, self.result = lower, main, upper, right, result
        self.n, self.width = right.shape.dims
        self.diagonals = [work.room(self.n) for _ in range(3)]
        self.x = work.emit.scratch(Shape(self.kind, (self.n + 2, max(1, self.width))))
        self.state = work.room(2, self.real)
        self.pivot, self.row = work.room(1), work.room(self.width)

    def _size(self, value: Value) -> Value:
        return self.emit.unary("abs", value)

    def _zero(self, kind: ElementType | None = None) -> Value:
        return self.emit.constant(0, kind or self.kind)

    def _sum(self, *values: Value) -> Value:
        total, *others = values
        for value in others:
            total = self.emit.binary("add", total, value)
        return total

    def _most(self, *values: Value) -> Value:
        found, *others = values
        for value in others:
            found = self.emit.binary("maximum", found, value)
        return found

    def _less(self, a: Value, factor: Value, b: Value) -> Value:
        return self.emit.binary("subtract", a, self.emit.binary("multiply", factor, b))

    def _is_zero(self, value: Value) -> Value:
        return self.emit.compare("EQ", "FLOAT", self._size(value), self._zero(self.real))

    def eliminate(self) -> None:
        """U, its largest element, and the right side of U x."""
        emit, (u, above, _) = self.emit, self.diagonals
        for diagonal in self.diagonals:
            emit.fill(diagonal, self._zero())
        emit.fill(self.x, self._zero())
        u.store((emit.index(0),), self.main.load((emit.index(0),)))
        if self.n > 1:
            above.store((emit.index(0),), self.upper.load((emit.index(0),)))
        sizes = [self._size(diagonal.load((emit.index(0),))) for diagonal in (u, above)]
        self._keep(0, self._sum(*sizes))
        self._keep(1, self._most(*sizes))
        with emit.loops((self.width,)) as (c,):
            self.x.store((emit.index(0), c), self.right.load((emit.index(0), c)))
        if self.n > 1:
            with emit.loops((self.n - 1,)) as (k,):
                self._eliminate_row(k)
                with emit.when(emit.index_compare("LT", k, self.n - 2)):
                    self._keep(1, self._most(self._kept(1), *(self._size(d.load((k,))) for d in self.diagonals)))
        last = (emit.index(self.n - 1),)
        self._keep(1, self._most(self._kept(1), self._size(u.load(last))))
        above.store(last, self._zero())

    def _eliminate_row(self, k: IndexValue) -> None:
        emit, (u, above, second) = self.emit, self.diagonals
        here, following = (k,), (k + 1,)
        below, main = self.lower.load(following), self.main.load(following)
        upper = emit.select(emit.index_compare("LT", k, self.n - 2), self.upper.load(following), self._zero())
        pivot, beside = u.load(here), above.load(here)
        row_scale = self._sum(*map(self._size, (below, main, upper)))
        ratio = emit.binary("divide", self._size(pivot), self._kept(0))
        ratio = emit.select(self._is_zero(pivot), self._zero(self.real), ratio)
        other = emit.binary("divide", self._size(below), row_scale)
        done = self._is_zero(below)
        stays = emit.binary("or", done, emit.compare("LE", "FLOAT", other, ratio))

        def either(on_stay: Value, on_exchange: Value) -> Value:
            return emit.select(stays, on_stay, on_exchange)

        factor = emit.binary("divide", either(below, pivot), either(pivot, below))
        factor = emit.select(done, self._zero(), factor)
        u.store(here, either(pivot, below))
        above.store(here, either(beside, main))
        second.store(here, either(self._zero(), upper))
        u.store(following, self._less(either(main, beside), factor, either(beside, main)))
        above.store(following, either(upper, self._less(self._zero(), factor, upper)))
        exchanged = self._sum(*(self._size(diagonal.load(following)) for diagonal in (u, above)))
        self._keep(0, either(row_scale, exchanged))
        with emit.loops((self.width,)) as (c,):
            mine, following_one = self.x.load((k, c)), self.right.load((k + 1, c))
            kept = either(mine, following_one)
            self.x.store((k + 1, c), self._less(either(following_one, mine), factor, kept))
            self.x.store((k, c), kept)

    def substitute(self) -> None:
        """The solution, from the last row up."""
        emit, row = self.emit, self.row
        with emit.loops((self.n,)) as (number,):
            k = self.n - 1 - number
            above, second = (diagonal.load((k,)) for diagonal in self.diagonals[1:])
            with emit.loops((self.width,)) as (c,):
                value = self._less(self.x.load((k, c)), above, self.x.load((k + 1, c)))
                row.store((c,), self._less(value, second, self.x.load((k + 2, c))))
            self._move_pivot(self.diagonals[0].load((k,)))
            inverse = emit.binary("divide", emit.constant(1, self.kind), self.pivot.load((emit.index(0),)))
            with emit.loops((self.width,)) as (c,):
                value = emit.binary("multiply", row.load((c,)), inverse)
                self.x.store((k, c), value)
                self.result.store((k, c), value)

    def _move_pivot(self, pivot: Value) -> None:
        """`pivot` becomes this one, moved until the row can be divided by it."""
        emit, here = self.emit, (self.emit.index(0),)
        limits = np.finfo(self.real.dtype)
        tiny, one = emit.constant(float(limits.tiny), self.real), emit.constant(1, self.real)

        def most(index: Index, before: tuple[Value, ...]) -> tuple[Value, ...]:
            return (self._most(before[0], self._size(self.row.load(index))),)

        (largest,) = emit.fold((self.width,), (self._zero(self.real),), most)
        bound = emit.binary("multiply", largest, tiny)

        def is_small(pivot: Value) -> Value:
            size = self._size(pivot)
            small = emit.binary(
                "or", emit.compare("GT", "FLOAT", bound, size), emit.compare("EQ", "FLOAT", size, self._zero(self.real))
            )
            return emit.binary("and", small, emit.compare("LT", "FLOAT", size, one))

        def step(index: Index, before: tuple[Value, ...]) -> tuple[Value, ...]:
            pivot, move, is_due = before
            moved = emit.binary("add", pivot, emit.convert(move, self.kind))
            pivot = emit.select(is_due, moved, pivot)
            return pivot, emit.binary("add", move, move), emit.binary("and", is_due, is_small(pivot))

        self.pivot.store(here, pivot)
        with emit.when(is_small(pivot)):
            move = emit.binary("multiply", self._kept(1), emit.constant(float(limits.eps), self.real))
            move = self._most(move, tiny)
            part = emit.unary("real", pivot) if self.kind.is_complex else pivot
            is_negative = emit.compare("LT", "TOTALORDER", part, self._zero(self.real))
            move = emit.select(is_negative, emit.unary("negate", move), move)
            # doubled from the smallest normal number on, it exceeds 1 after so many steps
            count = 2 - int(limits.minexp)
            moved, *_ = emit.fold((count,), (pivot, move, emit.constant(True, PRED)), step)
            self.pivot.store(here, moved)

    def _kept(self, number: int) -> Value:
        return self.state.load((self.emit.index(number),))

    def _keep(self, number: int, value: Value) -> None:
        self.state.store((self.emit.index(number),), value)
