"""LAPACK's ?gesdd and ?gesvd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import (
    BLOCK,
    NOT_FINITE,
    LapackTarget,
    Work,
    fit,
    lapack_names,
    real_type,
)
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target(*lapack_names("gesdd", "gesvd"))
class Gesdd(LapackTarget):
    """Singular values, descending, and vectors: A = U diag(s) V^H.

    The first result, in which LAPACK leaves nothing of use, is the operand. mode A: square U and V^H; S: min(m, n)
    columns of U and rows of V^H; N: values only, both are zero. A matrix with a NaN or an infinity gives NaN and an
    info other than 0.

    Shapes: T[.., m, n] -> (T[.., m, n], R[.., min(m, n)], U, V^H, s32[..]), R the real type.
    Configuration: mode A, S or N.
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        m, n = self.matrix(call)
        mode = self.letter(call, "mode", "ASN")
        stated = call.shape.elements or ()
        fit(len(stated) == 5, f"gives 5 results, the text says {call.shape}")
        left, right = self.result(call, m, m), self.result(call, n, n)
        if mode == "S":
            left, right = self.result(call, m, min(m, n)), self.result(call, min(m, n), n)
        if mode == "N":
            # results that are not computed may have any dimension sizes
            left, right = (s if s.is_array and s.dtype is self.kind(call) else left for s in stated[2:4])
            fit(left.dims[:-2] == right.dims[:-2] == self.batch(call), "vectors without the batch's dimension sizes")
        values = self.result(call, min(m, n), kind=real_type(self.kind(call)))
        return self.result(call, m, n), values, left, right, self.info(call)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (matrix,) = operands
        mode = call.config.letter("mode")
        if not np.isfinite(matrix).all():
            return matrix, np.nan, np.nan, np.nan, NOT_FINITE
        if mode == "N":
            return matrix, np.linalg.svd(matrix, compute_uv=False), 0, 0, 0
        left, values, right = np.linalg.svd(matrix, full_matrices=mode == "A")
        return matrix, values, left, right, 0

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        first, values, left, right, info = results
        (matrix,) = operands
        m, n = self.matrix(call)
        mode = call.config.letter("mode")
        work.emit.copy(first, matrix)
        if not m or not n:
            work.zero(info)
            for vectors in (left, right):
                work.identity(vectors)
            return
        small, large = min(m, n), max(m, n)
        a = work.columns(m, n)
        u, vt = (work.columns(*(vectors.shape.dims if mode != "N" else (1, 1))) for vectors in (left, right))
        rooms = self._rooms(call, work, small, large, mode)
        modes = [mode] if "gesdd" in call.name else [mode, mode]
        with work.where_finite(matrix, results[1:4], info):
            work.load_into(a, matrix)
            leading = max(1, vt.shape.dims[1])
            work.call(self.routine(call), *modes, m, n, a, m, values, u, m, vt, leading, *rooms, info)
            if mode == "N":
                work.zero(left, right)
            else:
                work.store(left, u)
                work.store(right, vt)

    def _rooms(self, call: Call, work: Work, small: int, large: int, mode: str) -> list[Buffer | int]:
        """The least workspace of the routines, and enough for their blocked and their faster variants."""
        square = small * small
        blocks = BLOCK * (small + large)
        kind, real = work.kind, real_type(work.kind)
        if "gesvd" in call.name:
            size = square + 5 * small + 3 * large + blocks
            rooms: list[Buffer | int] = [work.room(size), size]
            return [*rooms, work.room(5 * small, real)] if kind.is_complex else rooms
        size = 4 * square + 7 * small + large + blocks
        rooms = [work.room(size), size]
        if kind.is_complex:
            plain = 7 * small
            wide = max(5 * square + 5 * small, 2 * large * small + 2 * square + small)
            rooms.append(work.room(plain if mode == "N" else wide, real))
        return [*rooms, work.room(8 * small, S32)]
