"""cuDNN's layer normalisation in HLO of XLA's GPU backend, by both executors against formulas in f64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, check

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


@pytest.mark.parametrize("name", CASES)
def test_norms(name: str) -> None:
    call, answer = CASES[name]
    check(call, answer, ulps=16)


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "an unknown kind": (
        LibraryCall(NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,4]", "f32[1,4]"], config("BATCH")),
        "kind='BATCH', which is not one of LAYER_FWD_INFER",
    ),
    "an unknown field": (
        LibraryCall(
            NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,4]", "f32[1,4]"], config("LAYER_FWD_INFER", groups=2)
        ),
        "does not know the field cudnn_norm_backend_config.groups",
    ),
    "a scale that doesn't fit": (
        LibraryCall(NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,3]", "f32[1,3]"], config("LAYER_FWD_INFER")),
        "the scale f32[1,3] does not fit f32[3,4]",
    ),
    "statistics that nobody gives": (
        LibraryCall(NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,4]", "f32[1,4]"], config("LAYER_FWD_TRAIN")),
        "gives 3 arrays, the text says (f32[3,4], u8[0])",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", CASES)
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(CASES[name][0])
