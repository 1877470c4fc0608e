"""LAPACK's ?gtsv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import LapackTarget, Work, lapack_names
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target(*lapack_names("gtsv"))
class Gtsv(LapackTarget):
    """Solve a tridiagonal system by elimination with row exchanges.

    The diagonals below and above have the main one's length; the first element of the one below and the last of the
    one above are not read. Of the results the first three hold U: its second upper diagonal from element 1 on, its main
    and its first upper diagonal. info: the first zero on U's diagonal, from 1; there is no solution then.

    Shapes: T[.., n] three times, B T[.., n, k] -> (T[.., n] three times, T[.., n, k], s32[..]).
    """

    operand_ranks = (1, 1, 1, 2)

    def results(self, call: Call) -> tuple[Shape, ...]:
        n, k = self.tridiagonal_system(call)
        return (*(self.result(call, n) for _ in range(3)), self.result(call, n, k), self.info(call))

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        lower, main, upper, b = operands
        n = len(main)
        for k in range(n - 1):
            below = lower[k + 1]
            if abs(main[k].real) + abs(main[k].imag) >= abs(below.real) + abs(below.imag):
                if main[k] == 0:
                    return lower, main, upper, b, k + 1
                factor = below / main[k]
                main[k + 1] -= factor * upper[k]
                b[k + 1] -= factor * b[k]
                lower[k + 1] = 0 if k < n - 2 else below
                continue
            factor = main[k] / below
            main[k], main[k + 1], upper[k] = below, upper[k] - factor * main[k + 1], main[k + 1]
            b[k], b[k + 1] = b[k + 1].copy(), b[k] - factor * b[k + 1]
            if k < n - 2:
                lower[k + 1], upper[k + 1] = upper[k + 1], -factor * upper[k + 1]
        if n and main[-1] == 0:
            return lower, main, upper, b, n
        for k in reversed(range(n)):
            if k < n - 1:
                b[k] -= upper[k] * b[k + 1]
            if k < n - 2:
                b[k] -= lower[k + 1] * b[k + 2]
            b[k] /= main[k]
        return lower, main, upper, b, 0

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        lower, main, upper, solution, info = results
        n, k = self.matrix(call, 3)
        for result, operand in zip(results[:3], operands):
            work.emit.copy(result, operand)
        b = work.loaded(operands[3])
        below = work.emit.reshaped(lower, Shape(work.kind, (max(0, n - 1),)), min(1, n))
        work.call(self.routine(call), n, k, below, main, upper, b, max(1, n), info)
        work.store(solution, b)
