"""LAPACK's ?geqrf, ?geqp3, and the routines that use their reflectors: ?orgqr, ?ungqr, ?ormqr, ?unmqr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.householder import reflect_column, unitary
from distxla.ops.custom_calls.lapack_target import BLOCK, LapackTarget, Work, fit, lapack_names, real_type
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer

TABLE = 65 * 64  # elements that ?ormqr and ?gehrd put triangular factors into, besides their work


@target(*lapack_names("geqrf"))
class Geqrf(LapackTarget):
    """QR: R on and above the diagonal, the reflectors' vectors below it, their factors in tau.

    Shapes: T[.., m, n] -> (T[.., m, n], T[.., min(m, n)]).
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        m, n = self.matrix(call)
        return self.result(call, m, n), self.result(call, min(m, n))

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (a,) = operands
        return a, [reflect_column(a, k, k) for k in range(min(a.shape))]

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        factors, tau = results
        m, n = self.matrix(call)
        a = work.loaded(operands[0])
        size = BLOCK * max(1, n)
        work.call(self.routine(call), m, n, a, max(1, m), tau, work.room(size), size, work.room(1, S32))
        work.store(factors, a)


@target(*lapack_names("geqp3"))
class Geqp3(LapackTarget):
    """QR with column exchanges: the longest of the columns left comes next.

    pivots: from 0 columns that may move, others that come first; of the result the column that each one was, from 1.

    Shapes: T[.., m, n], s32[.., n] -> (T[.., m, n], s32[.., n], T[.., min(m, n)]).
    """

    operand_ranks = (2, 1)

    def results(self, call: Call) -> tuple[Shape, ...]:
        (m, n), pivots = self.matrix(call), call.operands[1]
        fit(pivots.dtype is S32 and pivots.dims[-1] == n, f"{pivots} does not fit the columns of {call.operands[0]}")
        return self.result(call, m, n), self.result(call, n, kind=S32), self.result(call, min(m, n))

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        a, wanted = operands
        m, n = a.shape
        columns = np.arange(1, n + 1)
        fixed = 0
        for j in range(n):
            if wanted[j]:
                _exchange(a, columns, fixed, j)
                fixed += 1
        tau = []
        for k in range(min(m, n)):
            if k >= fixed:
                _exchange(a, columns, k, k + int(np.argmax(np.linalg.norm(a[k:, k:], axis=0))))
            tau.append(reflect_column(a, k, k))
        return a, columns, tau

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        factors, pivots, tau = results
        m, n = self.matrix(call)
        a = work.loaded(operands[0])
        work.emit.copy(pivots, operands[1])
        size = 2 * n + (n + 1) * BLOCK
        real = [work.room(2 * n, real_type(work.kind))] if work.kind.is_complex else []
        info = work.room(1, S32)
        work.call(self.routine(call), m, n, a, max(1, m), pivots, tau, work.room(size), size, *real, info)
        work.store(factors, a)


def _exchange(a: Any, columns: Any, first: int, second: int) -> None:
    a[:, [first, second]] = a[:, [second, first]]
    columns[[first, second]] = columns[[second, first]]


@target("lapack_sorgqr_ffi", "lapack_dorgqr_ffi", "lapack_cungqr_ffi", "lapack_zungqr_ffi")
class Orgqr(LapackTarget):
    """The first n columns of the product of k reflectors, given as ?geqrf leaves them.

    Shapes: T[.., m, n], T[.., k] with m >= n >= k -> T[.., m, n].
    """

    operand_ranks = (2, 1)

    def results(self, call: Call) -> tuple[Shape, ...]:
        (m, n), tau = self.matrix(call), call.operands[1]
        fit(tau.dtype is self.kind(call), f"{tau} is no array of {self.kind(call)}")
        fit(m >= n >= tau.dims[-1], f"{tau.dims[-1]} reflectors of {m} elements do not give {n} columns")
        return (self.result(call, m, n),)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        a, tau = operands
        return (unitary(a, tau, a.shape[1]),)

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        m, n = self.matrix(call)
        k = operands[1].shape.dims[0]
        a = work.loaded(operands[0])
        size = BLOCK * max(1, n)
        info = work.room(1, S32)
        work.call(self.routine(call), m, n, k, a, max(1, m), operands[1], work.room(size), size, info)
        work.store(results[0], a)


@target("lapack_sormqr_ffi", "lapack_dormqr_ffi", "lapack_cunmqr_ffi", "lapack_zunmqr_ffi")
class Ormqr(LapackTarget):
    """op(Q) C (left) or C op(Q) for the product Q of k reflectors, given as ?geqrf leaves them.

    Shapes: T[.., r, k], T[.., k], C T[.., m, n] with r = m (left) or r = n, r >= k -> T[.., m, n].
    Configuration: left; transpose: op is the adjoint.
    """

    operand_ranks = (2, 1, 2)

    def results(self, call: Call) -> tuple[Shape, ...]:
        (rows, k), (m, n), tau = self.matrix(call), self.matrix(call, 2), call.operands[1]
        fit(tau.dtype is self.kind(call) and tau.dims[-1] == k, f"{tau} does not fit {call.operands[0]}")
        left, _ = self._flags(call)
        fit(rows == (m if left else n) and rows >= k, f"{call.operands[0]} does not fit {call.operands[2]}")
        return (self.result(call, m, n),)

    def _flags(self, call: Call) -> tuple[bool, bool]:
        """left, transpose."""
        return call.config.get("left", bool), call.config.get("transpose", bool)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        a, tau, c = operands
        left, transpose = self._flags(call)
        q = unitary(a, tau, len(a))
        if transpose:
            q = q.conj().T
        return (q @ c if left else c @ q,)

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        (rows, k), (m, n) = self.matrix(call), self.matrix(call, 2)
        left, transpose = self._flags(call)
        a, c = work.loaded(operands[0]), work.loaded(operands[2])
        adjoint = "C" if work.kind.is_complex else "T"
        size = BLOCK * max(1, n if left else m) + TABLE
        work.call(
            self.routine(call), "L" if left else "R", adjoint if transpose else "N", m, n, k, a, max(1, rows),
            operands[1], c, max(1, m), work.room(size), size, work.room(1, S32),
        )  # fmt: skip
        work.store(results[0], c)
