"""cuDNN's convolutions in HLO of XLA's GPU backend, by both executors against sums over the window in f64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.gpu_convolution_cases import (
    ALL,
    FORWARD,
    FUSED,
    GRAPH,
    NCHW,
    OF_INPUT,
    PLAIN,
    config,
    fused,
    graph,
)
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, check, compare


@pytest.mark.sampled(one_in=24, first=("forward, a configuration without fields",))
@pytest.mark.parametrize("name", ALL)
def test_convolutions(name: str) -> None:
    call, answer = ALL[name]
    check(call, answer)


def test_8_bit_floats_saturate() -> None:
    text = "1:[f32]conv();2:[f8e4m3fn]scale(1);3:[f32]amax(1);"
    call = LibraryCall(
        GRAPH,
        ["f8e4m3fn[1,1,2]", "f32[]", "u8[0]"],
        ["f8e4m3fn[1,1,2]", "f8e4m3fn[1,1,1]", "f32[]"],
        config(serialized_graph=text),
        "window={size=1}, dim_labels=bf0_oi0->bf0",
    )
    x, w, _ = call.shapes
    arguments = [np.array([[[2, -300]]], x.dtype.dtype), np.array([[[2]]], w.dtype.dtype), np.float32(1.5)]
    compare(call, arguments, [[[[6, -448]]], np.float32(576), []])


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "an activation that nobody executes": (
        fused("kReluX", np.abs)[0],
        "cudnn_conv_backend_config.activation_mode='kReluX': this version executes only kNone, kSigmoid",
    ),
    "an unknown activation": (fused("kSwish", np.abs)[0], "activation_mode='kSwish', which is not one of kNone"),
    "an unknown field": (
        fused("kNone", np.abs, mystery=1)[0],
        "does not know the field cudnn_conv_backend_config.mystery",
    ),
    "reordered filters": (
        fused("kNone", np.abs, reordered_int8_nchw_vect=True)[0],
        "cudnn_conv_backend_config.reordered_int8_nchw_vect=True: this version executes only false",
    ),
    "an activation of a plain convolution": (
        LibraryCall(
            FORWARD,
            ["f32[2,4,5,3]", "u8[0]"],
            ["f32[2,3,5,4]", "f32[4,3,3,2]"],
            config(activation_mode="kRelu"),
            PLAIN.text(NCHW),
        ),
        "activation_mode='kRelu': this version executes only kNone of __cudnn$convForward",
    ),
    "a side input that is missing": (
        fused("kNone", np.abs, side_input_scale=1)[0],
        "takes input, filter, bias, side_input (side_input_scale is not 0), the operands are",
    ),
    "a bias of other dimension sizes": (
        LibraryCall(
            FUSED,
            ["f32[2,4,5,3]", "u8[0]"],
            ["f32[2,3,5,4]", "f32[4,3,3,2]", "f32[3]"],
            config(),
            PLAIN.text(NCHW),
        ),
        "the bias f32[3] is not one number for each of 4 output features",
    ),
    "no labels": (
        LibraryCall(FORWARD, ["f32[2,4,5,3]", "u8[0]"], ["f32[2,3,5,4]", "f32[4,3,3,2]"], config()),
        "the call has no dim_labels",
    ),
    "a window that doesn't connect input and output": (
        LibraryCall(OF_INPUT, ["f32[2,3,5,5]", "u8[0]"], ["f32[2,4,5,3]", "f32[4,3,3,2]"], config(), PLAIN.text(NCHW)),
        "the window gives 4 places over 5 elements, not 3",
    ),
    "another result": (
        LibraryCall(FORWARD, ["f32[2,4,5,4]", "u8[0]"], ["f32[2,3,5,4]", "f32[4,3,3,2]"], config(), PLAIN.text(NCHW)),
        "convolution.C25",
    ),
    "a node that nobody knows": (graph("1:[f32]conv();2:[f32]tanh(1);"), "scale, invscale, add, relu and amax"),
    "a node of two": (graph("1:[f32]conv();2:[f32]add(1,1);", "f32[]"), "of one earlier node, not add(1,1)"),
    "no graph": (graph("placeholder"), "only nodes like 2:[f32]scale(1);"),
    "an operand too few": (graph("1:[f32]conv();2:[f32]scale(1);"), "takes input, filter and 1 operands of its graph"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", ALL)
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(ALL[name][0])
