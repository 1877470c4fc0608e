"""LAPACK's ?gehrd, ?sytrd and ?hetrd: similar matrices with less in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.shape import Shape
from distxla.ops.custom_calls.householder import reflected, reflector
from distxla.ops.custom_calls.lapack_geqrf import TABLE
from distxla.ops.custom_calls.lapack_target import BLOCK, LapackTarget, Work, fit, lapack_names, real_type
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target(*lapack_names("gehrd"))
class Gehrd(LapackTarget):
    """Upper Hessenberg form; the reflectors' vectors are below its subdiagonal, their factors in tau.

    Shapes: T[.., n, n] -> (T[.., n, n], T[.., n-1], s32[..]).
    Configuration: low, high: from 1, the rows and columns that are not triangular already.
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        n = self.square(call)
        low, high = self._range(call)
        fit(1 <= low <= max(1, n) and min(low, n) <= high <= n, f"low = {low} and high = {high} of {n} rows")
        return self.result(call, n, n), self.result(call, max(0, n - 1)), self.info(call)

    def _range(self, call: Call) -> tuple[int, int]:
        return call.config.get("low", int), call.config.get("high", int)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (a,) = operands
        low, high = self._range(call)
        tau = np.zeros(max(0, len(a) - 1), a.dtype)
        for k in range(low - 1, high - 1):
            rows = slice(k + 1, high)
            v, tau[k], beta = reflector(a[rows, k].copy())
            a[:high, rows] = reflected(v, np.conj(tau[k]), a[:high, rows].conj().T).conj().T
            a[rows, k + 1 :] = reflected(v, np.conj(tau[k]), a[rows, k + 1 :])
            a[k + 1, k], a[k + 2 : high, k] = beta, v[1:]
        return a, tau, 0

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        form, tau, info = results
        n = self.square(call)
        low, high = self._range(call)
        a = work.loaded(operands[0])
        size = BLOCK * max(1, n) + TABLE
        work.call(self.routine(call), n, low, high, a, max(1, n), tau, work.room(size), size, info)
        work.store(form, a)


@target("lapack_ssytrd_ffi", "lapack_dsytrd_ffi", "lapack_chetrd_ffi", "lapack_zhetrd_ffi")
class Sytrd(LapackTarget):
    """Tridiagonal form of a Hermitian matrix, of which the named triangle alone is read and overwritten.

    Results: the triangle with the reflectors' vectors, the main diagonal, the one beside it, the factors tau, info.

    Shapes: T[.., n, n] -> (T[.., n, n], R[.., n], R[.., n-1], T[.., n-1], s32[..]), R the real type.
    Configuration: uplo L or U.
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        n, real = self.square(call), real_type(self.kind(call))
        self.letter(call, "uplo", "LU")
        beside = max(0, n - 1)
        return (
            self.result(call, n, n),
            self.result(call, n, kind=real),
            self.result(call, beside, kind=real),
            self.result(call, beside),
            self.info(call),
        )

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (stored,) = operands
        n, is_lower = len(stored), call.config.letter("uplo") == "L"
        inside = np.tri(n, dtype=bool) if is_lower else np.tri(n, dtype=bool).T
        a = np.where(inside, stored, 0)
        a = a + np.where(np.eye(n), 0, a).conj().T
        tau, beside = np.zeros(max(0, n - 1), a.dtype), np.zeros(max(0, n - 1))
        if not is_lower:
            a = a[::-1, ::-1]  # upper is lower, seen from the other end
        for k in range(n - 1):
            v, tau[k], beside[k] = reflector(a[k + 1 :, k].copy())
            block = reflected(v, np.conj(tau[k]), a[k + 1 :, k + 1 :])
            a[k + 1 :, k + 1 :] = reflected(v, np.conj(tau[k]), block.conj().T).conj().T
            a[k + 1, k], a[k + 2 :, k] = beside[k], v[1:]
        if not is_lower:
            a, tau, beside = a[::-1, ::-1], tau[::-1], beside[::-1]
        a = a + 0 * stored if np.isnan(np.where(inside, stored, 0)).any() else a
        a[np.arange(n), np.arange(n)] = a.diagonal().real
        return np.where(inside, a, stored), a.diagonal().real, beside, tau, 0

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        form, main, beside, tau, info = results
        n = self.square(call)
        a = work.loaded(operands[0])
        size = BLOCK * max(1, n)
        uplo = call.config.letter("uplo")
        work.call(self.routine(call), uplo, n, a, max(1, n), main, beside, tau, work.room(size), size, info)
        work.store(form, a)
