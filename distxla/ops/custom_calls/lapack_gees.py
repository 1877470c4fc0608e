"""LAPACK's ?gees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import BLOCK, NOT_FINITE, LapackTarget, Work, lapack_names, real_type
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target(*lapack_names("gees"))
class Gees(LapackTarget):
    """Schur's form A = Z T Z^H, the vectors Z, the eigenvalues, how many of them were selected (none), info.

    Of a real matrix T has blocks of two rows for conjugate pairs, and the eigenvalues are two results. mode N: Z is not
    computed and zero. The order of the eigenvalues is the algorithm's. A matrix with a NaN or an infinity gives NaN and
    an info other than 0.

    Shapes: T[.., n, n] -> (T[.., n, n], T[.., n, n], T[.., n] once or twice, s32[..], s32[..]).
    Configuration: mode N or V; sort N.
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        n = self.square(call)
        self.letter(call, "mode", "NV")
        self.letter(call, "sort", "N")
        matrix, values = self.result(call, n, n), self.result(call, n)
        count = 1 if self.kind(call).is_complex else 2
        return (matrix, matrix, *[values] * count, self.info(call), self.info(call))

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (matrix,) = operands
        is_complex = np.iscomplexobj(matrix)
        if not np.isfinite(matrix).all():
            return (*[np.nan] * (3 if is_complex else 4), 0, NOT_FINITE)
        vectors, form = np.eye(len(matrix), dtype=matrix.dtype), matrix
        values: list[complex] = []
        while len(values) < len(matrix):
            done = len(values)
            found, basis = _deflation(form[done:, done:])
            vectors[:, done:] = vectors[:, done:] @ basis
            form[done:, done:] = basis.conj().T @ form[done:, done:] @ basis
            form[:done, done:] = form[:done, done:] @ basis
            form[done + len(found) :, done : done + len(found)] = 0
            values += found
        numbers = np.array(values, complex)
        parts = (numbers,) if is_complex else (numbers.real, numbers.imag)
        return form, vectors if call.config.letter("mode") == "V" else 0, *parts, 0, 0

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        form, vectors, *values, selected, info = results
        (matrix,) = operands
        n = self.square(call)
        mode = call.config.letter("mode")
        size = max(1, n * (3 + BLOCK))
        a, z = work.columns(n, n), work.columns(*((n, n) if mode == "V" else (1, 1)))
        real = [work.room(n, real_type(work.kind))] if work.kind.is_complex else []
        room, flags = work.room(size), work.room(n, S32)
        leading = max(1, n)
        work.zero(selected)
        with work.where_finite(matrix, results[:-2], info):
            work.load_into(a, matrix)
            work.call(
                self.routine(call), mode, "N", None, n, a, leading, selected, *values, z, leading, room, size, *real,
                flags, info,
            )  # fmt: skip
            work.store(form, a)
            if mode == "V":
                work.store(vectors, z)
            else:
                work.zero(vectors)


def _deflation(a: Any) -> tuple[list[complex], Any]:
    """An eigenvalue, or a conjugate pair of a real matrix, and a unitary matrix that begins with its vectors."""
    values, vectors = np.linalg.eig(a)
    value, vector = values[0], vectors[:, 0]
    if np.iscomplexobj(a) or value.imag == 0:
        plane = vector[:, None] if np.iscomplexobj(a) else vector.real[:, None]
        return [complex(value)], np.linalg.qr(plane.astype(a.dtype), mode="complete")[0]
    plane = np.linalg.qr(np.stack([vector.real, vector.imag], axis=1), mode="complete")[0]
    (p, q), (r, s) = plane[:, :2].T @ a @ plane[:, :2]
    # turned so that both elements on the diagonal are the real part
    angle = np.arctan2(s - p, q + r) / 2
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    plane[:, :2] = plane[:, :2] @ turn
    first = complex(value.real, abs(value.imag))
    return [first, first.conjugate()], plane
