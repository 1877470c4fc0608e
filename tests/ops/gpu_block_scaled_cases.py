"""What test_gpu_block_scaled.py shares with other tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall

Answer = Callable[..., Sequence[Any]]

DOT, CUDNN, QUANTIZE, DEQUANTIZE = "__op$block_scaled_dot", "__cudnn$blockScaledDot", "__op$quantize", "__op$dequantize"


def blocks(size: int) -> Mapping[str, Any]:
    return {"block_scaled_dot_backend_config": {"block_size": size}}


def spread(scale: Array, size: int) -> Array:
    return np.repeat(scale, size, -1)


CASES: dict[str, tuple[LibraryCall, Answer]] = {
    "two dimensions": (
        LibraryCall(DOT, ["f32[3,5]"], ["f8e4m3fn[3,8]", "f8e5m2[5,8]", "f8e5m2[3,4]", "f8e5m2[5,2]"]),
        lambda a, b, s, t: [(a * spread(s, 2)) @ (b * spread(t, 4)).T],
    ),
    "batches, without scales of the right operand": (
        LibraryCall(DOT, ["bf16[2,3,5]"], ["f8e4m3fn[2,3,8]", "bf16[2,5,8]", "f8e5m2[2,3,2]"]),
        lambda a, b, s: [(a * spread(s, 4)) @ b.transpose(0, 2, 1)],
    ),
    "a global scale": (
        LibraryCall(DOT, ["f32[3,5]"], ["f8e4m3fn[3,4]", "f8e4m3fn[5,4]", "f32[3,2]", "f32[5,2]", "f32[]"]),
        lambda a, b, s, t, g: [g * ((a * spread(s, 2)) @ (b * spread(t, 2)).T)],
    ),
    "scales too many, by a block size": (
        LibraryCall(DOT, ["f32[3,5]"], ["f8e4m3fn[3,8]", "f8e4m3fn[5,8]", "f32[4,3]", "f32[6,2]"], blocks(4)),
        lambda a, b, s, t: [(a * spread(s[:3, :2], 4)) @ (b * spread(t[:5], 4)).T],
    ),
    "dequantize": (
        LibraryCall(DEQUANTIZE, ["f32[2,3,8]"], ["f8e4m3fn[2,3,8]", "f8e5m2[2,3,2]"]),
        lambda a, s: [a * spread(s, 4)],
    ),
}
