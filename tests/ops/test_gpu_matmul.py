"""cuBLAS's products in HLO of XLA's GPU backend, by both executors against formulas in f64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.gpu_matmul_cases import CASES, GEMM, MATMUL, MATMUL_F8, config
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, check, compare


@pytest.mark.sampled(one_in=6, first=("gemm of one left matrix and several right ones",))
@pytest.mark.parametrize("name", CASES)
def test_products(name: str) -> None:
    call, answer = CASES[name]
    check(call, answer)


def test_results_of_8_bits_saturate() -> None:
    call = LibraryCall(
        MATMUL_F8,
        ["f8e4m3fn[2,2]", "s8[0]"],
        ["f8e4m3fn[2,1]", "f8e4m3fn[1,2]", "f32[]", "f32[]", "f32[]"],
        config(),
    )
    a, b = (np.array(x, ml_dtypes.float8_e4m3fn) for x in ([[448], [np.nan]], [[448, -448]]))
    one = np.float32(1)
    wanted = np.array([[448, -448], [np.nan, np.nan]], ml_dtypes.float8_e4m3fn)
    compare(call, [a, b, one, one, one], [wanted, np.zeros(0, np.int8)])


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "an epilogue that nobody knows": (
        LibraryCall(MATMUL, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(epilogue="SWISH")),
        "gemm_backend_config.epilogue='SWISH', which is not one of DEFAULT",
    ),
    "an epilogue of gemm": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(epilogue="RELU")),
        "gemm_backend_config.epilogue='RELU': this version executes only DEFAULT",
    ),
    "an activation of integers": (
        LibraryCall(MATMUL, ["s32[3,5]"], ["s8[3,4]", "s8[4,5]"], config(epilogue="RELU")),
        "gemm_backend_config.epilogue='RELU': this version executes activations of floats",
    ),
    "an unknown field": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(gamma=1)),
        "does not know the field gemm_backend_config.gamma",
    ),
    "an unknown message": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], dict(config(), sparsity={})),
        "does not know the field sparsity",
    ),
    "no alpha": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], {"gemm_backend_config": {"beta": 0}}),
        "backend_config has no 'gemm_backend_config.alpha_real'",
    ),
    "the configuration of something else": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], {"cudnn_conv_backend_config": {}}),
        "backend_config has no 'gemm_backend_config'",
    ),
    "no dictionary": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], '"fast"'),
        "backend_config is no dictionary: 'fast'",
    ),
    "a number that is none": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(beta="much")),
        "gemm_backend_config.beta='much', which is not a number",
    ),
    "an imaginary factor of real numbers": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(alpha_imag=1)),
        "gemm_backend_config.alpha_imag=1: this version executes only 0",
    ),
    "a factor of integers that is none": (
        LibraryCall(GEMM, ["s32[3,5]"], ["s8[3,4]", "s8[4,5]"], config(alpha_real="NaN")),
        "gemm_backend_config.alpha_real='NaN': this version executes numbers that s32 has",
    ),
    "a factor of integers that is too large": (
        LibraryCall(GEMM, ["s32[3,5]"], ["s8[3,4]", "s8[4,5]", "s32[3,5]"], config(beta=2.0**31)),
        "gemm_backend_config.beta=2147483648.0: this version executes numbers that s32 has",
    ),
    "a factor that no float holds": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(alpha_real=10**400)),
        ", which is not a number of 64 bits",
    ),
    "C is missing": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(beta=1)),
        "takes lhs, rhs, C (beta is not 0), the operands are (f32[3,4], f32[4,5])",
    ),
    "C that nobody asks for": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]", "f32[3,5]"], config()),
        "takes lhs, rhs, the operands are",
    ),
    "floats that become integers": (
        LibraryCall(GEMM, ["s32[3,5]"], ["f32[3,4]", "f32[4,5]"], config()),
        "multiplies numbers of one kind, not f32 and f32 to s32",
    ),
    "a float and an integer": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "s8[4,5]"], config()),
        "multiplies numbers of one kind, not f32 and s8 to f32",
    ),
    "sizes that differ": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[5,4]"], config()),
        "dot.C10: contracting dimension 1 of f32[3,4] goes with dimension 0 of f32[5,4]",
    ),
    "a dimension that doesn't exist": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config("2", "0")),
        "the left operand f32[3,4] has no dimensions [2]",
    ),
    "another result": (
        LibraryCall(GEMM, ["f32[5,3]"], ["f32[3,4]", "f32[4,5]"], config()),
        "the result is f32[3,5], the text says f32[5,3]",
    ),
    "a second result that is no workspace": (
        LibraryCall(GEMM, ["f32[3,5]", "f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config()),
        "the call gives 1 values (and a workspace), the text says (f32[3,5], f32[3,5])",
    ),
    "a bias that doesn't fit": (
        LibraryCall(MATMUL, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]", "f32[3]"], config(epilogue="BIAS")),
        "the bias f32[3] does not fit the 1 fastest dimensions of f32[3,5]",
    ),
    "f8 without scales": (
        LibraryCall(MATMUL_F8, ["f32[3,5]", "s8[0]"], ["f8e4m3fn[3,4]", "f8e4m3fn[4,5]"], config()),
        "takes lhs, rhs, the scale of lhs, the scale of rhs, the operands are",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", CASES)
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(CASES[name][0])


def test_nan_and_infinity_pass_through_activations() -> None:
    call = LibraryCall(MATMUL, ["f32[1,4]"], ["f32[1,1]", "f32[1,4]"], config(epilogue="RELU"))
    values = np.array([[np.nan, np.inf, -np.inf, -0.5]], np.float32)
    compare(call, [np.ones((1, 1), np.float32), values], [np.array([[np.nan, np.inf, 0, 0]])])
