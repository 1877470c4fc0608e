"""Block-scaled and grouped products in HLO of XLA's GPU backend, by both executors against formulas in f64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.case import Array
from tests.ops.gpu_block_scaled_cases import CASES, CUDNN, DOT, QUANTIZE, spread
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, check, compare

GROUPED = "__cublas$lt$groupedMatmul"


def tiled(scale: Array) -> Array:
    """Rows 32 a + b of every tile of 128 rows and 4 columns at place (b, a)."""
    *batch, rows, columns = scale.shape
    out = np.empty(scale.shape, scale.dtype)
    for at in np.ndindex(*batch):
        places = iter(np.ndindex(rows, columns))
        for tile_row in range(rows // 128):
            for tile_column in range(columns // 4):
                for b in range(32):
                    for a in range(4):
                        for column in range(4):
                            out[(*at, *next(places))] = scale[
                                (*at, 128 * tile_row + 32 * a + b, 4 * tile_column + column)
                            ]
    return out


@pytest.mark.parametrize(("element", "scale", "size"), [("f8e4m3fn", "f8e8m0fnu", 32), ("f4e2m1fn", "f8e4m3fn", 16)])
def test_scales_in_tiles(element: str, scale: str, size: int) -> None:
    k = 5 * size
    shapes = [f"{element}[2,128,{k}]", f"{element}[2,256,{k}]", f"{scale}[2,128,8]", f"{scale}[2,256,8]", "f32[]"]
    call = LibraryCall(CUDNN, ["f32[2,128,256]", "u8[0]"], shapes)
    types = [shape.dtype.dtype for shape in call.shapes]
    random = np.random.default_rng(1)
    a, b = (random.choice([-2, -1, 0.5, 1, 3], s.dims).astype(s.dtype.dtype) for s in call.shapes[:2])
    s, t = (random.choice([0.5, 1, 2, 4], s.dims) for s in call.shapes[2:4])
    factor = np.float32(0.25)
    arguments = [a, b, tiled(s).astype(types[2]), tiled(t).astype(types[3]), factor]
    left = a.astype(np.float64) * spread(s[..., :5], size)
    right = b.astype(np.float64) * spread(t[..., :5], size)
    compare(call, arguments, [0.25 * left @ right.transpose(0, 2, 1), []])


def test_quantize() -> None:
    call = LibraryCall(QUANTIZE, ["f8e4m3fn[2,4]", "f8e8m0fnu[2,2]"], ["f32[2,4]"])
    argument = np.array([[512, -1024, 0.5, 0.25], [3, -256, 1e-3, 0]], np.float32)
    scales = np.array([[4, 2.0**-9], [1, 2.0**-18]])
    got = np.array([[128, -256, 256, 128], [3, -256, 1e-3 * 2**18, 0]])
    compare(call, [argument], [got.astype(ml_dtypes.float8_e4m3fn), scales])


def grouped(contracting: tuple[str, str], ragged: str, group: str, **gemm: Any) -> Mapping[str, Any]:
    dims = {
        "lhs_contracting_dimensions": [contracting[0]],
        "rhs_contracting_dimensions": [contracting[1]],
        "lhs_batch_dimensions": [],
        "rhs_batch_dimensions": [],
    }
    return {
        "grouped_gemm_backend_config": {
            "gemm_backend_config": {"alpha_real": 1, "alpha_imag": 0, "beta": 0, "epilogue": "DEFAULT"} | gemm,
            "ragged_dot_dimension_numbers": {
                "dot_dimension_numbers": dims,
                "lhs_ragged_dimensions": [ragged],
                "rhs_group_dimensions": list(group),
            },
        }
    }


def test_groups_of_rows() -> None:
    call = LibraryCall(
        GROUPED,
        ["bf16[5,3]", "s8[8]"],
        ["bf16[5,4]", "bf16[2,4,3]", "s32[2]"],
        grouped(("1", "1"), "0", "0", alpha_real=2),
    )
    random = np.random.default_rng(2)
    a, b = (random.integers(-4, 5, s.dims).astype(s.dtype.dtype) for s in call.shapes[:2])
    left, right = a.astype(np.float64), b.astype(np.float64)
    wanted = 2 * np.concatenate([left[:2] @ right[0], left[2:] @ right[1]])
    compare(call, [a, b, np.array([2, 3], np.int32)], [wanted, np.zeros(8)])


@pytest.mark.parametrize("name", CASES)
def test_block_scales(name: str) -> None:
    call, answer = CASES[name]
    check(call, answer)


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "blocks that don't fit": (
        LibraryCall(DOT, ["f32[3,5]"], ["f8e4m3fn[3,8]", "f8e4m3fn[5,8]", "f32[3,3]", "f32[5,2]"]),
        "scales of dimension sizes [3, 3] do not fit blocks of [3, 8]",
    ),
    "quantized to integers": (
        LibraryCall(QUANTIZE, ["s8[2,4]", "f32[2,2]"], ["f32[2,4]"]),
        "makes floats of few bits, not s8[2,4]",
    ),
    "quantized to floats of many bits": (
        LibraryCall(QUANTIZE, ["f64[2,4]", "f32[2,2]"], ["f32[2,4]"]),
        "makes floats of few bits, not f64[2,4]",
    ),
    "scales too few": (
        LibraryCall(DOT, ["f32[3,5]"], ["f8e4m3fn[3,8]", "f8e4m3fn[5,8]", "f32[2,2]", "f32[5,2]"]),
        "scales f32[2,2] are too few for f8e4m3fn[3,8]",
    ),
    "a field that nobody knows": (
        LibraryCall(
            DOT,
            ["f32[3,5]"],
            ["f8e4m3fn[3,8]", "f8e4m3fn[5,8]", "f32[3,2]"],
            {"block_scaled_dot_backend_config": {"swizzle": 1}},
        ),
        "does not know the field block_scaled_dot_backend_config.swizzle",
    ),
    "scales that lie in no tiles": (
        LibraryCall(CUDNN, ["f32[2,2]", "u8[0]"], ["f8e4m3fn[2,32]", "f8e4m3fn[2,32]", "f32[2,1]", "f32[2,1]"]),
        "scales f32[2,1] are not in tiles of 128 rows and 4 columns",
    ),
    "an epilogue of groups": (
        LibraryCall(
            GROUPED,
            ["f32[5,3]", "s8[8]"],
            ["f32[5,4]", "f32[2,4,3]", "s32[2]"],
            grouped(("1", "1"), "0", "0", epilogue="RELU"),
        ),
        "gemm_backend_config.epilogue='RELU': this version executes only DEFAULT",
    ),
    "no ragged dimension": (
        LibraryCall(
            GROUPED, ["f32[5,3]", "s8[8]"], ["f32[5,4]", "f32[2,4,3]", "s32[2]"], grouped(("1", "1"), "7", "0")
        ),
        "ragged-dot.C14",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", CASES)
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(CASES[name][0])
