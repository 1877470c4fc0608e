"""Custom-calls of AWS Neuron, by both executors against formulas in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf
from typing import Any

import numpy as np
import pytest

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall, assert_refused, check, compare

UNSPECIFIED = "api_version=API_VERSION_UNSPECIFIED"  # what torch_xla writes
below = np.vectorize(lambda x: (1 + erf(x / np.sqrt(2))) / 2, otypes=[np.float64])


def softmax(x: Array, axis: int) -> Array:
    power = np.exp(x - x.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


def rms_norm(x: Array, weight: Array, epsilon: Array, axis: int) -> Array:
    scale = weight.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return x / np.sqrt((x * x).mean(axis, keepdims=True) + epsilon) * scale


CASES: dict[str, tuple[LibraryCall, Callable[..., Sequence[Any]]]] = {
    "transfer": (
        LibraryCall("AwsNeuronTransferWithStaticRing", ["f32[2,3]"], ["f32[2,3]"], "", UNSPECIFIED),
        lambda x: [x],
    ),
    "transfer of integers": (
        LibraryCall("AwsNeuronTransferWithStaticRing", ["u64[1]"], ["u64[1]"], "", UNSPECIFIED),
        lambda x: [x],
    ),
    "gelu": (
        LibraryCall("AwsNeuronGelu", ["f32[3,4]"], ["f32[3,4]"], "", UNSPECIFIED),
        lambda x: [x * below(x)],
    ),
    "gelu's derivative": (
        LibraryCall("AwsNeuronGeluBackward", ["bf16[3,4]"], ["bf16[3,4]"], "", UNSPECIFIED),
        lambda x: [below(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)],
    ),
    "softmax": (
        LibraryCall("AwsNeuronSoftmax", ["f32[3,4,2]"], ["f32[3,4,2]"], '"1"', UNSPECIFIED),
        lambda x: [softmax(x, 1)],
    ),
    "softmax of narrow floats": (
        LibraryCall("AwsNeuronSoftmax", ["f16[3,4]"], ["f16[3,4]"], '"1"', UNSPECIFIED),
        lambda x: [softmax(x, 1)],
    ),
    "softmax's gradient": (
        LibraryCall("AwsNeuronSoftmaxBackward", ["f32[3,4]"], ["f32[3,4]"] * 2, '"0"', UNSPECIFIED),
        lambda g, y: [y * (g - (g * y).sum(0))],
    ),
    "norm": (
        LibraryCall("AwsNeuronRmsNorm", ["f32[5,1,2]"], ["f32[5,1,2]", "f32[5]", "f32[1]"], '"0"', UNSPECIFIED),
        lambda x, w, e: [rms_norm(x, w, e, 0)],
    ),
    "norm that is narrowed": (
        LibraryCall("AwsNeuronRmsNorm", ["bf16[2,5]"], ["f32[2,5]", "bf16[5]", "f32[]"], '"1"', UNSPECIFIED),
        lambda x, w, e: [rms_norm(x, w, e, 1)],
    ),
    "norm of nothing": (
        LibraryCall("AwsNeuronRmsNorm", ["f32[2,0]"], ["f32[2,0]", "f32[0]", "f32[]"], '"1"', UNSPECIFIED),
        lambda x, w, e: [x],
    ),
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", CASES)
def test_calls_are_computed(name: str) -> None:
    call, answer = CASES[name]
    if call.target == "AwsNeuronRmsNorm":
        random = np.random.default_rng(0)
        arguments = [random.uniform(0.5, 2, s.dims).astype(s.dtype.dtype) for s in call.shapes]
        compare(call, arguments, answer(*(a.astype(np.float64) for a in arguments)))
    else:
        check(call, answer)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (LibraryCall("AwsNeuronTransferWithStaticRing", ["f32[2]"], ["f32[3]"]), "from f32[3] to f32[2]"),
        (LibraryCall("AwsNeuronGelu", ["f32[2]"], ["f32[2]"] * 2), "takes one array, the operands are"),
        (LibraryCall("AwsNeuronGelu", ["s32[2]"], ["s32[2]"]), "takes arrays of floats, the operands are (s32[2])"),
        (LibraryCall("AwsNeuronGelu", ["s32[2]"], ["f32[2]"]), "gives floats, the text says s32[2]"),
        (LibraryCall("AwsNeuronGelu", ["f32[3]"], ["f32[2]"]), "the result is f32[2], the text says f32[3]"),
        (LibraryCall("AwsNeuronSoftmax", ["f32[2]"], ["f32[2]"]), "backend_config is '', not the number of a dim"),
        (LibraryCall("AwsNeuronSoftmax", ["f32[2]"], ["f32[2]"], '"-1"'), "backend_config is '-1'"),
        (LibraryCall("AwsNeuronSoftmax", ["f32[2]"], ["f32[2]"], '"1"'), "not the number of a dimension of f32[2]"),
        (
            LibraryCall("AwsNeuronSoftmaxBackward", ["f32[2]"], ["f32[2]", "f32[3]"], '"0"'),
            "the operands differ in their dimension sizes: f32[2], f32[3]",
        ),
        (
            LibraryCall("AwsNeuronRmsNorm", ["f32[2,3]"], ["f32[2,3]", "f32[2]", "f32[]"], '"1"'),
            "the weight f32[2] or the epsilon f32[] does not fit dimension 1 of f32[2,3]",
        ),
        (
            LibraryCall("AwsNeuronRmsNorm", ["f32[2,3]"], ["f32[2,3]", "f32[3]", "f32[2]"], '"1"'),
            "the epsilon f32[2] does not fit",
        ),
    ],
)
def test_calls_that_do_not_fit_are_refused(call: LibraryCall, wanted: str) -> None:
    assert_refused(call, wanted)
