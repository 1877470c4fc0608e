"""Householder's reflectors H = I - tau v v^H as LAPACK has them, by NumPy: v begins with 1, H^H x = (beta, 0, ..)."""

from __future__ import annotations

from typing import Any

import numpy as np


def reflector(x: Any) -> tuple[Any, Any, float]:
    """v, tau and beta for a vector of one element at least; beta is real."""
    alpha, norm = x[0], np.linalg.norm(x[1:])
    v = np.zeros_like(x)
    v[0] = 1
    if norm == 0 and np.imag(alpha) == 0:
        return v, 0.0, float(np.real(alpha))
    beta = -np.copysign(np.hypot(abs(alpha), norm), np.real(alpha))
    v[1:] = x[1:] / (alpha - beta)
    tau = (beta - alpha) / beta
    return v, tau, float(beta)


def reflected(v: Any, tau: Any, x: Any) -> Any:
    """H x."""
    return x - tau * np.outer(v, v.conj() @ x)


def reflect_column(a: Any, row: int, column: int) -> Any:
    """Turn a[row:, column] into (beta, 0, ..), v[1:] in the zeros' place, and reflect the columns to the right; tau."""
    v, tau, beta = reflector(a[row:, column].copy())
    a[row:, column + 1 :] = reflected(v, np.conj(tau), a[row:, column + 1 :])
    a[row, column] = beta
    a[row + 1 :, column] = v[1:]
    return tau


def unitary(a: Any, tau: Any, columns: int) -> Any:
    """The first columns of H_1 H_2 .. H_k, with their vectors below the diagonal of a."""
    rows = a.shape[0]
    q = np.eye(rows, columns, dtype=a.dtype)
    for k in reversed(range(len(tau))):
        v = np.concatenate([np.ones(1, a.dtype), a[k + 1 :, k]])
        q[k:] = reflected(v, tau[k], q[k:])
    return q
