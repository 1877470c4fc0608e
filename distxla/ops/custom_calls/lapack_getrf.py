"""LAPACK's ?getrf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.lapack_target import LapackTarget, Work, lapack_names
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.emit import Buffer


@target(*lapack_names("getrf"))
class Getrf(LapackTarget):
    """L (its diagonal of ones left out) and U with row exchanges; pivots: with which row each was exchanged, from 1.

    info: the first zero on U's diagonal, from 1.

    Shapes: T[.., m, n] -> (T[.., m, n], s32[.., min(m, n)], s32[..]).
    """

    def results(self, call: Call) -> tuple[Shape, ...]:
        m, n = self.matrix(call)
        return self.result(call, m, n), self.result(call, min(m, n), kind=S32), self.info(call)

    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        (a,) = operands
        steps = min(a.shape)
        pivots, info = np.arange(1, steps + 1), 0
        for k in range(steps):
            sizes = np.abs(a[k:, k].real) + np.abs(a[k:, k].imag)
            chosen = k + int(np.argmax(sizes))
            pivots[k] = chosen + 1
            a[[k, chosen]] = a[[chosen, k]]
            if a[k, k] == 0:
                info = info or k + 1
                continue
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return a, pivots, info

    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        factors, pivots, info = results
        m, n = self.matrix(call)
        a = work.loaded(operands[0])
        work.call(self.routine(call), m, n, a, max(1, m), pivots, info)
        work.store(factors, a)
