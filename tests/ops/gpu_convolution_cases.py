"""What test_gpu_convolution.py shares with other tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall

Answer = Callable[..., Sequence[Any]]

FORWARD, OF_INPUT, OF_FILTER = "__cudnn$convForward", "__cudnn$convBackwardInput", "__cudnn$convBackwardFilter"

FUSED, GRAPH = "__cudnn$convBiasActivationForward", "__cudnn$convForwardGraph"


def config(**fields: Any) -> Mapping[str, Any]:
    conv = {
        "algorithm": {"algo_id": "1", "math_type": "DEFAULT_MATH", "tuning_knobs": {}, "workspace_size": "0"},
        "activation_mode": "kNone",
        "conv_result_scale": 1,
        "side_input_scale": 0,
        "leakyrelu_alpha": 0,
    }
    return {"operation_queue_id": "0", "cudnn_conv_backend_config": conv | fields, "force_earliest_schedule": False}


@dataclass(frozen=True)
class Windows:
    """A forward convolution of [b, i, ..] with [o, i / groups, ..] to [b, o, ..]; each tuple is one spatial dimension:
    (size, stride, padding low, padding high, dilation, reversed)."""

    dims: tuple[tuple[int, int, int, int, int, int], ...]
    groups: int = 1

    def text(self, labels: str) -> str:
        sizes, strides, lows, highs, dilations, reversals = zip(*self.dims)
        pads = "x".join(f"{low}_{high}" for low, high in zip(lows, highs))
        window = [f"size={_joined(sizes)} stride={_joined(strides)} pad={pads} rhs_dilate={_joined(dilations)}"]
        window += [f"rhs_reversal={_joined(reversals)}"] * any(reversals)
        groups = f", feature_group_count={self.groups}" * (self.groups > 1)
        return f"window={{{' '.join(window)}}}, dim_labels={labels}{groups}"

    def products(self, dim_sizes: Sequence[int], out: Sequence[int]) -> Iterator[tuple[Any, Any, Any]]:
        """(place in the input, place in the filter, place in the output) of all products."""
        for y in np.ndindex(*out):
            for t in np.ndindex(*(d[0] for d in self.dims)):
                x = [
                    place * stride + (size - 1 - tap if reverse else tap) * dilation - low
                    for place, tap, (size, stride, low, _, dilation, reverse) in zip(y, t, self.dims)
                ]
                if all(0 <= p < dim_size for p, dim_size in zip(x, dim_sizes)):
                    yield tuple(x), t, y

    def each(self, x: Array, w: Array, y: Array) -> Iterator[tuple[Array, Array, Array]]:
        """[b, i], [o, i], [b, o] as views, of all products and groups."""
        inputs, outputs = w.shape[1], w.shape[0] // self.groups
        for at_x, at_w, at_y in self.products(x.shape[2:], y.shape[2:]):
            for g in range(self.groups):
                i, o = slice(g * inputs, (g + 1) * inputs), slice(g * outputs, (g + 1) * outputs)
                yield x[(slice(None), i, *at_x)], w[(o, slice(None), *at_w)], y[(slice(None), o, *at_y)]

    def out(self, x: Array, w: Array) -> Array:
        places = [
            (dim_size + low + high - (size - 1) * dilation - 1) // stride + 1
            for dim_size, (size, stride, low, high, dilation, _) in zip(x.shape[2:], self.dims)
        ]
        y = np.zeros((x.shape[0], w.shape[0], *places), x.dtype)
        for a, b, c in self.each(x, w, y):
            c += a @ b.T
        return y

    def of_input(self, y: Array, w: Array, dims: Sequence[int]) -> Array:
        x = np.zeros(dims, y.dtype)
        for a, b, c in self.each(x, w, y):
            a += c @ b
        return x

    def of_filter(self, x: Array, y: Array, dims: Sequence[int]) -> Array:
        w = np.zeros(dims, y.dtype)
        for a, b, c in self.each(x, w, y):
            b += c.T @ a
        return w


def _joined(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))


PLAIN = Windows(((3, 1, 1, 1, 1, 0), (2, 1, 0, 0, 1, 0)))  # 5x4 -> 5x3

STRIDED = Windows(((3, 2, 1, 0, 1, 0), (2, 3, 0, 1, 2, 0)))  # 6x5 -> 3x2

REVERSED = Windows(((3, 2, 1, 1, 1, 1), (2, 1, 0, 0, 1, 1)))  # 5x4 -> 3x3

GROUPED = Windows(((2, 1, 0, 0, 1, 0), (2, 2, 1, 0, 1, 0)), groups=2)  # 3x3 -> 2x2

LINE = Windows(((3, 2, 0, 0, 1, 0),))  # 7 -> 3

CUBE = Windows(((2, 1, 0, 0, 1, 0), (1, 1, 0, 0, 1, 0), (2, 1, 1, 0, 1, 0)))  # 2x2x2 -> 1x2x2

NCHW = "bf01_oi01->bf01"

CASES: dict[str, tuple[LibraryCall, Answer]] = {
    "forward": (
        LibraryCall(FORWARD, ["f32[2,4,5,3]", "u8[16]"], ["f32[2,3,5,4]", "f32[4,3,3,2]"], config(), PLAIN.text(NCHW)),
        lambda x, w: [PLAIN.out(x, w), np.zeros(16)],
    ),
    "forward, features last, scaled": (
        LibraryCall(
            FORWARD,
            ["bf16[2,3,2,4]{3,2,1,0}", "u8[0]"],
            ["bf16[2,6,5,3]{3,2,1,0}", "bf16[4,3,2,3]{3,2,1,0}"],
            config(conv_result_scale=0.5),
            STRIDED.text("b01f_o01i->b01f"),
        ),
        lambda x, w: [
            np.moveaxis(0.5 * STRIDED.out(np.moveaxis(x, 3, 1), np.moveaxis(w, 3, 1)), 1, 3),
            [],
        ],
    ),
    "forward, a configuration without fields": (
        LibraryCall(FORWARD, ["f64[1,2,3]", "u8[0]"], ["f64[1,2,7]", "f64[2,2,3]"], {}, LINE.text("bf0_oi0->bf0")),
        lambda x, w: [LINE.out(x, w), []],
    ),
    "forward of integers": (
        LibraryCall(FORWARD, ["s32[2,4,5,3]", "u8[0]"], ["s8[2,3,5,4]", "s8[4,3,3,2]"], config(), PLAIN.text(NCHW)),
        lambda x, w: [PLAIN.out(x, w), []],
    ),
    "forward of integers to floats": (
        LibraryCall(
            FORWARD,
            ["f32[2,4,5,3]", "u8[0]"],
            ["s8[2,3,5,4]", "s8[4,3,3,2]"],
            config(conv_result_scale=0.25),
            PLAIN.text(NCHW),
        ),
        lambda x, w: [0.25 * PLAIN.out(x, w), []],
    ),
    "forward of integers of 8 bits, which saturate": (
        LibraryCall(FORWARD, ["s8[2,4,5,3]", "u8[0]"], ["s8[2,3,5,4]", "s8[4,3,3,2]"], config(), PLAIN.text(NCHW)),
        lambda x, w: [np.clip(PLAIN.out(x, w), -128, 127), []],
    ),
    "forward of integers to those of 4 bits, which saturate": (
        LibraryCall(FORWARD, ["s4[2,4,5,3]", "u8[0]"], ["s8[2,3,5,4]", "s8[4,3,3,2]"], config(), PLAIN.text(NCHW)),
        lambda x, w: [np.clip(PLAIN.out(x, w), -8, 7), []],
    ),
    "forward in groups": (
        LibraryCall(FORWARD, ["f32[2,6,2,2]", "u8[0]"], ["f32[2,4,3,3]", "f32[6,2,2,2]"], config(), GROUPED.text(NCHW)),
        lambda x, w: [GROUPED.out(x, w), []],
    ),
    "input": (
        LibraryCall(OF_INPUT, ["f32[2,3,5,4]", "u8[0]"], ["f32[2,4,5,3]", "f32[4,3,3,2]"], config(), PLAIN.text(NCHW)),
        lambda y, w: [PLAIN.of_input(y, w, (2, 3, 5, 4)), []],
    ),
    "input, strides and dilations": (
        LibraryCall(
            OF_INPUT, ["f16[2,3,6,5]", "u8[0]"], ["f16[2,4,3,2]", "f16[4,3,3,2]"], config(), STRIDED.text(NCHW)
        ),
        lambda y, w: [STRIDED.of_input(y, w, (2, 3, 6, 5)), []],
    ),
    "input, features last": (
        LibraryCall(
            OF_INPUT,
            ["f32[2,6,5,3]", "u8[0]"],
            ["f32[2,3,2,4]", "f32[3,2,3,4]"],
            config(),
            STRIDED.text("b01f_01io->b01f"),
        ),
        lambda y, w: [
            np.moveaxis(STRIDED.of_input(np.moveaxis(y, 3, 1), w.transpose(3, 2, 0, 1), (2, 3, 6, 5)), 1, 3),
            [],
        ],
    ),
    "input, reversed window": (
        LibraryCall(
            OF_INPUT, ["f32[2,3,5,4]", "u8[0]"], ["f32[2,4,3,3]", "f32[4,3,3,2]"], config(), REVERSED.text(NCHW)
        ),
        lambda y, w: [REVERSED.of_input(y, w, (2, 3, 5, 4)), []],
    ),
    "input, groups": (
        LibraryCall(
            OF_INPUT, ["f32[2,4,3,3]", "u8[0]"], ["f32[2,6,2,2]", "f32[6,2,2,2]"], config(), GROUPED.text(NCHW)
        ),
        lambda y, w: [GROUPED.of_input(y, w, (2, 4, 3, 3)), []],
    ),
    "filter": (
        LibraryCall(OF_FILTER, ["f32[4,3,3,2]", "u8[0]"], ["f32[2,3,5,4]", "f32[2,4,5,3]"], config(), PLAIN.text(NCHW)),
        lambda x, y: [PLAIN.of_filter(x, y, (4, 3, 3, 2)), []],
    ),
    "filter, strides and dilations": (
        LibraryCall(
            OF_FILTER, ["f32[4,3,3,2]", "u8[0]"], ["f32[2,3,6,5]", "f32[2,4,3,2]"], config(), STRIDED.text(NCHW)
        ),
        lambda x, y: [STRIDED.of_filter(x, y, (4, 3, 3, 2)), []],
    ),
    "filter, reversed window": (
        LibraryCall(
            OF_FILTER, ["f32[4,3,3,2]", "u8[0]"], ["f32[2,3,5,4]", "f32[2,4,3,3]"], config(), REVERSED.text(NCHW)
        ),
        lambda x, y: [REVERSED.of_filter(x, y, (4, 3, 3, 2)), []],
    ),
    "filter, groups": (
        LibraryCall(
            OF_FILTER, ["f32[6,2,2,2]", "u8[0]"], ["f32[2,4,3,3]", "f32[2,6,2,2]"], config(), GROUPED.text(NCHW)
        ),
        lambda x, y: [GROUPED.of_filter(x, y, (6, 2, 2, 2)), []],
    ),
    "filter, three spatial dimensions": (
        LibraryCall(
            OF_FILTER,
            ["f32[2,3,2,1,2]", "u8[0]"],
            ["f32[1,3,2,2,2]", "f32[1,2,1,2,2]"],
            config(),
            CUBE.text("bf012_oi012->bf012"),
        ),
        lambda x, y: [CUBE.of_filter(x, y, (2, 3, 2, 1, 2)), []],
    ),
    "filter, one spatial dimension": (
        LibraryCall(
            OF_FILTER, ["f32[2,2,3]", "u8[0]"], ["f32[1,2,7]", "f32[1,2,3]"], config(), LINE.text("bf0_oi0->bf0")
        ),
        lambda x, y: [LINE.of_filter(x, y, (2, 2, 3)), []],
    ),
}


def vectors(x: Array, features: int, along: int) -> Array:
    """Features that are vectors along another dimension, as one dimension."""
    x = np.moveaxis(x, along, features + 1)
    return x.reshape(*x.shape[:features], -1, *x.shape[features + 2 :])


MORE_CASES: dict[str, tuple[LibraryCall, Answer]] = {
    "no spatial dimension": (
        LibraryCall(
            FORWARD, ["f32[3,2]", "u8[0]"], ["f32[3,4]", "f32[4,2]"], config(), "window={}, dim_labels=bf_io->bf"
        ),
        lambda x, w: [x @ w, []],
    ),
    "keys without quotes": (
        LibraryCall(
            FORWARD,
            ["f32[1,2,3]", "u8[0]"],
            ["f32[1,2,7]", "f32[2,2,3]"],
            '"{conv_result_scale:1}"',
            LINE.text("bf0_oi0->bf0"),
        ),
        lambda x, w: [LINE.out(x, w), []],
    ),
    "vectors of features": (
        LibraryCall(
            FORWARD,
            ["s32[2,2,5,3,2]", "u8[0]"],
            ["s8[2,3,5,4,4]", "s8[4,3,3,2,4]"],
            config(),
            PLAIN.text("bf01?_oi01?->bf01?"),
        ),
        lambda x, w: [np.moveaxis(PLAIN.out(vectors(x, 1, 4), vectors(w, 1, 4)).reshape(2, 2, 2, 5, 3), 2, 4), []],
    ),
}


def _by_vector(y: Array) -> Array:
    """[batch, feature, place, place] as [batch, vector of 2, place, place, feature]."""
    return np.rint(y).reshape(2, 2, 2, 5, 3).transpose(0, 2, 3, 4, 1)


def fused(mode: str | int, activation: Callable[[Array], Array], **fields: Any) -> tuple[LibraryCall, Answer]:
    call = LibraryCall(
        FUSED,
        ["f32[2,4,5,3]", "u8[0]"],
        ["f32[2,3,5,4]", "f32[4,3,3,2]", "f32[4]"],
        config(activation_mode=mode, conv_result_scale=0.5, **fields),
        PLAIN.text(NCHW),
    )
    return call, lambda x, w, v: [activation(0.5 * PLAIN.out(x, w) + v[:, None, None]), []]


FUSED_CASES: dict[str, tuple[LibraryCall, Answer]] = {
    "none": fused("kNone", lambda x: x),
    "sigmoid": fused("kSigmoid", lambda x: 1 / (1 + np.exp(-x))),
    "relu, by its number": fused("2", lambda x: np.maximum(x, 0)),
    "relu6": fused("kRelu6", lambda x: np.clip(x, 0, 6)),
    "tanh": fused("kTanh", np.tanh),
    "elu": fused("kElu", lambda x: np.where(x > 0, x, np.expm1(x))),
    "leaky relu": fused("kLeakyRelu", lambda x: np.where(x > 0, x, 0.1 * x), leakyrelu_alpha=0.1),
    "gelu": fused("kGeluExact", lambda x: x / 2 * (1 + np.vectorize(erf)(x / np.sqrt(2)))),
    "side input": (
        LibraryCall(
            FUSED,
            ["f16[2,5,3,4]", "u8[0]"],
            ["f16[2,5,4,3]", "f16[4,3,2,3]", "f16[4]", "f16[2,5,3,4]"],
            config(activation_mode="kRelu", side_input_scale=2),
            PLAIN.text("b01f_o01i->b01f"),
        ),
        lambda x, w, v, z: [
            np.maximum(np.moveaxis(PLAIN.out(np.moveaxis(x, 3, 1), np.moveaxis(w, 3, 1)), 1, 3) + 2 * z + v, 0),
            [],
        ],
    ),
    "a side input that is scaled by 0": (
        LibraryCall(
            FUSED,
            ["f32[2,4,5,3]", "u8[0]"],
            ["f32[2,3,5,4]", "f32[4,3,3,2]", "f32[4]", "f32[2,4,5,3]"],
            config(),
            PLAIN.text(NCHW),
        ),
        lambda x, w, v, z: [PLAIN.out(x, w) + v[:, None, None], []],
    ),
    "keys in camel case": (
        LibraryCall(
            FUSED,
            ["f32[2,4,5,3]", "u8[0]"],
            ["f32[2,3,5,4]", "f32[4,3,3,2]", "f32[4]", "f32[2,4,5,3]"],
            {"activationMode": "2", "convResultScale": 1, "sideInputScale": 0.5},
            PLAIN.text(NCHW),
        ),
        lambda x, w, v, z: [np.maximum(PLAIN.out(x, w) + v[:, None, None] + 0.5 * z, 0), []],
    ),
    "vectors of features in front, with a side input": (
        LibraryCall(
            FUSED,
            ["s8[2,2,5,3,2]", "u8[0]"],
            ["s8[4,2,5,4,1]", "s8[4,4,1,3,2]", "f32[4]", "s8[2,2,5,3,2]"],
            config(side_input_scale=1),
            PLAIN.text("?b01f_?oi01->b?01f"),
        ),
        # the result is [batch, vector, place, place, feature]
        lambda x, w, v, z: [
            _by_vector(
                np.clip(
                    PLAIN.out(
                        np.moveaxis(x, (1, 4, 0, 2, 3), (0, 1, 2, 3, 4)).reshape(2, 4, 5, 4),
                        w.transpose(1, 2, 0, 3, 4).reshape(4, 4, 3, 2),
                    )
                    + v[:, None, None]
                    + z.transpose(0, 4, 1, 2, 3).reshape(2, 4, 5, 3),
                    -128,
                    127,
                )
            ),
            [],
        ],
    ),
    "integers of 8 bits, rounded to even and saturated": (
        LibraryCall(
            FUSED,
            ["s8[2,4,5,3]", "u8[0]"],
            ["s8[2,3,5,4]", "s8[4,3,3,2]", "f32[4]", "s8[2,4,5,3]"],
            config(conv_result_scale=0.5, side_input_scale=0.5),
            PLAIN.text(NCHW),
        ),
        lambda x, w, v, z: [
            np.clip(np.rint(np.float32(0.5) * (PLAIN.out(x, w) + z) + v[:, None, None]), -128, 127),
            [],
        ],
    ),
}


def graph(text: str, *operands: str, result: str = "f32", more: Sequence[str] = ()) -> LibraryCall:
    return LibraryCall(
        GRAPH,
        [f"{result}[2,4,5,3]", *more, "u8[0]"],
        ["f16[2,3,5,4]", "f16[4,3,3,2]", *operands],
        config(serialized_graph=text),
        PLAIN.text(NCHW),
    )


GRAPH_CASES: dict[str, tuple[LibraryCall, Answer]] = {
    "alone": (graph("7:[f32]conv();"), lambda x, w: [PLAIN.out(x, w), []]),
    "operations with operands": (
        graph(
            "7:[f32]conv();8:[f32]scale(7);9:[f32]add(8);10:[f32]relu(9);11:[f32]invscale(10);",
            "f32[]",
            "f16[2,4,5,3]",
            "f32[1]",
        ),
        lambda x, w, s, z, t: [np.maximum(s * PLAIN.out(x, w) + z, 0) / t, []],
    ),
    "the largest magnitude of a node in the middle": (
        graph(
            "7:[f32]conv();8:[f32]scale(7);9:[f16]scale(8);10:[f32]amax(8);",
            "f32[]",
            "f32[]",
            result="f16",
            more=["f32[]"],
        ),
        lambda x, w, s, t: [s * t * PLAIN.out(x, w), np.abs(s * PLAIN.out(x, w)).max(), []],
    ),
}

ALL = {
    **CASES,
    **MORE_CASES,
    **{f"fused: {name}": case for name, case in FUSED_CASES.items()},
    **{f"graph: {name}": case for name, case in GRAPH_CASES.items()},
}
