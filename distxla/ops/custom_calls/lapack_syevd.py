"""LAPACK's ?syevd and ?heevd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import BLOCK, NOT_FINITE, LapackTarget, Work, real_type
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target("lapack_ssyevd_ffi", "lapack_dsyevd_ffi", "lapack_cheevd_ffi", "lapack_zheevd_ffi")
class Syevd(LapackTarget):
    """Eigenvectors (columns) and eigenvalues, ascending, of a Hermitian matrix; the named triangle alone is read.

    mode N: eigenvalues only, the first result is the operand. A triangle with a NaN or an infinity gives NaN and an
    info other than 0.

    Shapes: T[.., n, n] -> (T[.., n, n], R[.., n], s32[..]), R the real type.  Configuration: mode N or V; uplo L or U.
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        n = self.square(call)
        self.letter(call, "mode", "NV")
        self.letter(call, "uplo", "LU")
        return self.result(call, n, n), self.result(call, n, kind=real_type(self.kind(call))), self.info(call)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (matrix,) = operands
        triangle = call.config.letter("uplo")
        read = np.tril(matrix) if triangle == "L" else np.triu(matrix)
        if not np.isfinite(read).all():
            return np.full_like(matrix, np.nan), np.nan, NOT_FINITE
        values, vectors = np.linalg.eigh(
            read + np.triu(read.conj().T, 1) if triangle == "L" else read + np.tril(read.conj().T, -1)
        )
        return vectors if call.config.letter("mode") == "V" else matrix, values, 0

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        vectors, values, info = results
        (matrix,) = operands
        n = self.square(call)
        mode, triangle = call.config.letter("mode"), call.config.letter("uplo")
        with_vectors = mode == "V"
        square = n * n if with_vectors else 0
        whole = max(1, 3 + 5 * n if with_vectors else 1)
        real = real_type(work.kind)
        sizes = [max(2 * n + square, (BLOCK + 2) * n, 1), max(1 + 5 * n + 2 * square, n, 1)]
        if not work.kind.is_complex:
            sizes = [max(1 + 6 * n + 2 * square, (BLOCK + 2) * n + 1)]
        rooms: list[Buffer | int] = []
        for size, kind in zip(sizes, (work.kind, real)):
            rooms += [work.room(size, kind), size]
        a = work.columns(n, n)
        with work.where_finite(matrix, results[:2], info, triangle):
            work.load_into(a, matrix)
            work.call(
                self.routine(call), mode, triangle, n, a, max(1, n), values, *rooms, work.room(whole, S32), whole, info
            )
            if with_vectors:
                work.store(vectors, a)
            else:
                work.emit.copy(vectors, matrix)
