"""What test_gpu_norm.py shares with other tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall

NORM = "__cudnn$norm"


def config(kind: str, **more: Any) -> Mapping[str, Any]:
    fields = {"epsilon": 0.25, "algorithm": {"algo_id": "0"}, "kind": kind} | more
    return {"operation_queue_id": "0", "cudnn_norm_backend_config": fields}


def statistics(x: Array, axes: Any) -> tuple[Array, Array]:
    return x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + 0.25)


def normalised(x: Array, scale: Array, bias: Array, axes: Any = (1, 2, 3)) -> Array:
    mean, factor = statistics(x, axes)
    return (x - mean) * factor * scale + bias


def gradients(x: Array, scale: Array, grad: Array, mean: Array, factor: Array) -> Sequence[Array]:
    unit, of_unit = (x - mean) * factor, grad * scale
    of_x = factor * (of_unit - of_unit.mean(1, keepdims=True) - unit * (of_unit * unit).mean(1, keepdims=True))
    return [of_x, (grad * unit).sum(0, keepdims=True), grad.sum(0, keepdims=True), []]


CASES: dict[str, tuple[LibraryCall, Callable[..., Sequence[Any]]]] = {
    "inference": (
        LibraryCall(
            NORM,
            ["f32[3,4,2,1]", "u8[7]"],
            ["f32[3,4,2,1]", "f32[1,4,2,1]", "f32[1,4,2,1]"],
            config("LAYER_FWD_INFER"),
        ),
        lambda x, s, b: [normalised(x, s, b), np.zeros(7)],
    ),
    "narrow floats, two dimensions of batches": (
        LibraryCall(
            NORM, ["bf16[3,2,4]", "u8[0]"], ["bf16[3,2,4]", "f32[1,1,4]", "f32[1,1,4]"], config("LAYER_FWD_INFER")
        ),
        lambda x, s, b: [normalised(x, s, b, 2), []],
    ),
    "training": (
        LibraryCall(
            NORM,
            ["f32[3,4,1,1]", "f32[3,1,1,1]", "f32[3,1,1,1]", "u8[0]"],
            ["f32[3,4,1,1]", "f32[1,4,1,1]", "f32[1,4,1,1]"],
            config("LAYER_FWD_TRAIN"),
        ),
        lambda x, s, b: [normalised(x, s, b), *statistics(x, (1, 2, 3)), []],
    ),
    "gradients": (
        LibraryCall(
            NORM,
            ["f32[3,4,1,1]", "f32[1,4,1,1]", "f32[1,4,1,1]", "u8[0]"],
            ["f32[3,4,1,1]", "f32[1,4,1,1]", "f32[3,4,1,1]", "f32[3,1,1,1]", "f32[3,1,1,1]"],
            config("LAYER_BWD"),
        ),
        gradients,
    ),
}
