"""What test_kernels.py shares with other tests."""

from __future__ import annotations

import numpy as np

from distxla.targets.nvptx.emulator.launch import Memory


def memory(*arrays: np.ndarray) -> list[Memory]:
    return [Memory(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def sum_in_order(x: np.ndarray, threads: int) -> np.ndarray:
    """As kernels.REDUCE adds."""
    rows, n = x.shape
    partial = np.zeros((rows, threads), np.float32)
    for start in range(0, n, threads):
        part = x[:, start : start + threads]
        partial[:, : part.shape[1]] += part
    lanes = partial.reshape(rows, threads // 32, 32)
    for distance in (16, 8, 4, 2, 1):
        other = lanes.copy()
        other[:, :, :-distance] = lanes[:, :, distance:]
        lanes = lanes + other
    total = np.zeros(rows, np.float32)
    for warp in range(threads // 32):
        total = total + lanes[:, warp, 0]
    return total
