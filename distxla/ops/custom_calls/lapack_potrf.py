"""LAPACK's ?potrf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import LapackTarget, Work, lapack_names
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target(*lapack_names("potrf"))
class Potrf(LapackTarget):
    """Cholesky factor in the named triangle; the other one stays as it is. info: the order of the first minor that is
    not positive; the factor is not complete then.

    Shapes: T[.., n, n] -> (T[.., n, n], s32[..]).  Configuration: uplo L or U.
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        n = self.square(call)
        self.letter(call, "uplo", "LU")
        return self.result(call, n, n), self.info(call)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (matrix,) = operands
        is_lower = call.config.letter("uplo") == "L"
        a = matrix if is_lower else matrix.T.conj()
        failed = 0
        for j in range(len(a)):
            column = a[j:, j] - a[j:, :j] @ a[j, :j].conj()
            pivot = column[0].real
            if not pivot > 0:
                failed = j + 1
                break
            a[j:, j] = column / np.sqrt(pivot)
        return a if is_lower else a.T.conj(), failed

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        """In place: a row-major lower triangle is a column-major upper one, and so are the factors."""
        factor, info = results
        n = factor.shape.dims[0]
        work.emit.copy(factor, operands[0])
        opposite = "U" if call.config.letter("uplo") == "L" else "L"
        work.call(self.routine(call), opposite, n, factor, max(1, n), info)
