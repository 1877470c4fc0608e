"""LAPACK's ?geev."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import C64, C128, F32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import BLOCK, NOT_FINITE, LapackTarget, Work, lapack_names, real_type
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target(*lapack_names("geev"))
class Geev(LapackTarget):
    """Eigenvalues, left and right eigenvectors (columns, of length 1, the largest element real) of a square matrix.

    Vectors that are not asked for are zero. A matrix with a NaN or an infinity gives NaN and an info other than 0.

    Shapes: C[.., n, n] -> (C[.., n], C[.., n, n], C[.., n, n], s32[..]); of a real matrix R[.., n, n] the eigenvalues
            are two results, real and imaginary parts R[.., n]; the vectors are complex.
    Configuration: compute_left, compute_right: N or V.
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        n, kind = self.square(call), self.kind(call)
        for key in ("compute_left", "compute_right"):
            self.letter(call, key, "NV")
        vectors = self.result(call, n, n, kind=C64 if real_type(kind) is F32 else C128)
        values = [self.result(call, n)] * (1 if kind.is_complex else 2)
        return (*values, vectors, vectors, self.info(call))

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (matrix,) = operands
        parts = 1 if np.iscomplexobj(matrix) else 2
        if not np.isfinite(matrix).all():
            return (*[np.nan] * parts, np.nan, np.nan, NOT_FINITE)
        values, right = np.linalg.eig(matrix)
        left = _matched(values, *np.linalg.eig(matrix.conj().T))
        vectors = [
            found if call.config.letter(key) == "V" else 0
            for key, found in (("compute_left", left), ("compute_right", right))
        ]
        return (*((values,) if parts == 1 else (values.real, values.imag)), *vectors, 0)

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        *values, left, right, info = results
        (matrix,) = operands
        n = self.square(call)
        letters = [call.config.letter(key) for key in ("compute_left", "compute_right")]
        size = max(1, n * (4 + 2 * BLOCK + 2))
        a = work.columns(n, n)
        vectors = [work.columns(n, n) if letter == "V" else work.columns(1, 1) for letter in letters]
        real = [work.room(2 * n, real_type(work.kind))] if work.kind.is_complex else []
        room = work.room(size)
        leading = max(1, n)
        with work.where_finite(matrix, results[:-1], info):
            work.load_into(a, matrix)
            work.call(
                self.routine(call), *letters, n, a, leading, *values, vectors[0], leading, vectors[1], leading,
                room, size, *real, info,
            )  # fmt: skip
            for letter, result, found in zip(letters, (left, right), vectors):
                if letter == "N":
                    work.zero(result)
                elif work.kind.is_complex:
                    work.store(result, found)
                else:
                    self._unpack(work, result, found, values[1])

    def _unpack(self, work: Work, result: Buffer, packed: Buffer, imaginary: Buffer) -> None:
        """Vectors of a conjugate pair: real and imaginary part are in the columns of the first and of the second."""
        emit = work.emit
        n = result.shape.dims[0]
        zero = emit.constant(0, work.kind)
        with emit.loops((n, n)) as (i, j):
            sign = imaginary.load((j,))
            is_first = emit.compare("GT", "FLOAT", sign, zero)
            is_second = emit.compare("LT", "FLOAT", sign, zero)
            own = packed.load((j, i))
            before = packed.load((emit.index_clamp(0, j - 1, n - 1), i))
            after = packed.load((emit.index_clamp(0, j + 1, n - 1), i))
            other = emit.select(is_first, after, emit.select(is_second, emit.unary("negate", own), zero))
            result.store((i, j), emit.binary("complex", emit.select(is_second, before, own), other))


def _matched(values: Any, others: Any, vectors: Any) -> Any:
    """The adjoint's eigenvectors in the order of the matrix's eigenvalues, whose conjugates its own are."""
    free = list(range(len(others)))
    order = []
    for value in values:
        nearest = min(free, key=lambda k: abs(others[k] - np.conj(value)))
        free.remove(nearest)
        order.append(nearest)
    return vectors[:, order]
