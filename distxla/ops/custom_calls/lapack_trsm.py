"""BLAS's ?trsm, which JAX counts among LAPACK's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import LapackTarget, Work, fit, lapack_names
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer
from distxla.ops.support.lapack import call_trsm


@target(*lapack_names("trsm"))
class Trsm(LapackTarget):
    """Solve op(A) X = B (side L) or X op(A) = B (side R); the named triangle of A alone is read.

    Shapes: A T[.., n, n], B T[.., m, k] -> T[.., m, k].
    Configuration: side L or R; uplo L or U; trans_x N, T or C; diag N, or U for ones on the diagonal.
    """

    operand_ranks = (2, 2)

    def results(self, call: Call) -> tuple[Shape, ...]:
        n, (rows, columns) = self.square(call), self.matrix(call, 1)
        side, *_ = self._letters(call)
        fit(n == (rows if side == "L" else columns), f"{call.operands[0]} does not fit {call.operands[1]}")
        return (self.result(call, rows, columns),)

    def _letters(self, call: Call) -> tuple[str, str, str, str]:
        """side, uplo, trans_x, diag."""
        return (
            self.letter(call, "side", "LR"),
            self.letter(call, "uplo", "LU"),
            self.letter(call, "trans_x", "NTC"),
            self.letter(call, "diag", "NU"),
        )

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        a, b = operands
        side, uplo, trans, diag = self._letters(call)
        n = len(a)
        if diag == "U":
            a[np.arange(n), np.arange(n)] = 1
        a = np.where(np.tri(n) if uplo == "L" else np.tri(n).T, a, 0)
        a = {"N": a, "T": a.T, "C": a.conj().T}[trans]
        is_lower = (uplo == "L") == (trans == "N")
        if side == "R":
            a, b, is_lower = a.T, b.T, not is_lower
        x = np.zeros_like(b)
        for i in range(n) if is_lower else reversed(range(n)):
            known = slice(0, i) if is_lower else slice(i + 1, n)
            x[i] = (b[i] - a[i, known] @ x[known]) / a[i, i]
        return (x if side == "L" else x.T,)

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        (result,) = results
        if result.shape.size:
            work.emit.copy(result, operands[1])
            call_trsm(work.emit, *self._letters(call), operands[0], result)
