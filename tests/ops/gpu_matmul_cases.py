"""What test_gpu_matmul.py shares with other tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall

GEMM, MATMUL, MATMUL_F8 = "__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"

Answer = Callable[..., Sequence[Any]]


def config(left: str = "1", right: str = "0", batch: tuple[str, str] = ("", ""), **fields: Any) -> Mapping[str, Any]:
    """As XLA writes it. left, right, batch: the contracting and batch dimensions, a digit each."""
    numbers = {
        "lhs_contracting_dimensions": list(left),
        "rhs_contracting_dimensions": list(right),
        "lhs_batch_dimensions": list(batch[0]),
        "rhs_batch_dimensions": list(batch[1]),
    }
    gemm = {
        "alpha_real": 1,
        "beta": 0,
        "dot_dimension_numbers": numbers,
        "alpha_imag": 0,
        "precision_config": {"operand_precision": ["DEFAULT", "HIGHEST"], "algorithm": "ALG_UNSET"},
        "epilogue": "DEFAULT",
        "lhs_stride": "6",
        "rhs_stride": "8",
        "grad_x": False,
        "grad_y": False,
        "damax_output": False,
    }
    return {
        "operation_queue_id": "0",
        "wait_on_operation_queues": [],
        "gemm_backend_config": gemm | fields,
        "force_earliest_schedule": False,
        "reification_cost": [],
    }


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def epilogue(name: str, wanted: Answer, *results: str, bias: bool = False) -> tuple[LibraryCall, Answer]:
    operands = ["f32[3,4]", "f32[4,5]", *["f32[5]"] * bias]
    return LibraryCall(MATMUL, ["f32[3,5]", *results], operands, config(epilogue=name)), wanted


CASES: dict[str, tuple[LibraryCall, Answer]] = {
    "gemm": (
        LibraryCall(GEMM, ["f32[3,5]", "s8[4194304]"], ["f32[3,4]", "f32[4,5]"], config()),
        lambda a, b: [a @ b, np.zeros(4194304)],
    ),
    "gemm of transposed operands, without workspace": (
        LibraryCall(GEMM, ["f64[3,5]"], ["f64[4,3]", "f64[5,4]"], config("0", "1", alpha_real=-0.5)),
        lambda a, b: [-0.5 * a.T @ b.T],
    ),
    "gemm, fields that stand alone and numbers of epilogues": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(epilogue=0)["gemm_backend_config"]),
        lambda a, b: [a @ b],
    ),
    "gemm that adds C": (
        LibraryCall(
            GEMM,
            ["bf16[3,5]", "s8[0]"],
            ["bf16[3,4]", "bf16[4,5]", "bf16[3,5]"],
            config(alpha_real=2, beta=-3),
            "output_to_operand_aliasing={{0}: (2, {})}",
        ),
        lambda a, b, c: [2 * a @ b - 3 * c, []],
    ),
    "gemm with batches in the middle": (
        LibraryCall(GEMM, ["f32[2,3,5]"], ["f32[3,2,4]", "f32[4,5,2]"], config("2", "0", batch=("1", "2"))),
        lambda a, b: [np.einsum("mbk,knb->bmn", a, b)],
    ),
    "gemm of one left matrix and several right ones": (
        LibraryCall(GEMM, ["f32[2,3,5]"], ["f32[3,4]", "f32[2,4,5]"], config("1", "1", batch=("", "0"), lhs_stride=0)),
        lambda a, b: [a @ b],
    ),
    "gemm of several left matrices and one right one": (
        LibraryCall(GEMM, ["f32[2,3,5]"], ["f32[3,2,4]", "f32[4,5]"], config("2", "0", batch=("1", ""))),
        lambda a, b: [np.einsum("mbk,kn->bmn", a, b)],
    ),
    "gemm of a matrix and a vector, two contracting dimensions": (
        LibraryCall(GEMM, ["f32[3]"], ["f32[3,2,4]", "f32[4,2]"], config("12", "10")),
        lambda a, b: [np.einsum("mjk,kj->m", a, b)],
    ),
    "gemm of complex numbers": (
        LibraryCall(GEMM, ["c64[3,5]"], ["c64[3,4]", "c64[4,5]"], config(alpha_real=2, alpha_imag=-1)),
        lambda a, b: [(2 - 1j) * (a @ b)],
    ),
    "gemm with a factor that f32 does not hold": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,4]", "f32[4,5]"], config(alpha_real=1e300)),
        lambda a, b: [np.sign(a @ b) * np.inf],
    ),
    "gemm of 8-bit integers": (
        LibraryCall(GEMM, ["s32[3,5]"], ["s8[3,4]", "s8[4,5]", "s32[3,5]"], config(alpha_real=2, beta=3)),
        lambda a, b, c: [2 * a @ b + 3 * c],
    ),
    "gemm of nothing": (
        LibraryCall(GEMM, ["f32[3,5]"], ["f32[3,0]", "f32[0,5]"], config()),
        lambda a, b: [np.zeros((3, 5))],
    ),
    "matmul of bf16 to f32": (
        LibraryCall(MATMUL, ["f32[3,5]"], ["bf16[3,4]", "bf16[4,5]"], config()),
        lambda a, b: [a @ b],
    ),
    "BIAS": epilogue("BIAS", lambda a, b, v: [a @ b + v], bias=True),
    "RELU": epilogue("RELU", lambda a, b: [relu(a @ b), np.zeros(9)], "s8[9]"),
    "BIAS_RELU": epilogue("BIAS_RELU", lambda a, b, v: [relu(a @ b + v)], bias=True),
    "GELU": epilogue("GELU", lambda a, b: [gelu(a @ b)]),
    "GELU_AUX": epilogue("GELU_AUX", lambda a, b: [gelu(a @ b), a @ b], "f32[3,5]"),
    "BIAS_GELU": epilogue("BIAS_GELU", lambda a, b, v: [gelu(a @ b + v)], bias=True),
    "BIAS_GELU_AUX": epilogue(
        "BIAS_GELU_AUX", lambda a, b, v: [gelu(a @ b + v), a @ b + v, [0, 0]], "f32[3,5]", "u8[2]", bias=True
    ),
    "SILU": epilogue("SILU", lambda a, b: [silu(a @ b)]),
    "BIAS_SILU": epilogue("BIAS_SILU", lambda a, b, v: [silu(a @ b + v)], bias=True),
    "C, bias and activation are rounded once": (
        LibraryCall(
            MATMUL,
            ["f16[3,5]", "f16[3,5]"],
            ["f16[3,4]", "f16[4,5]", "f16[3,5]", "f16[5]"],
            config(alpha_real=0.5, beta=2, epilogue="BIAS_GELU_AUX"),
        ),
        lambda a, b, c, v: [gelu(0.5 * a @ b + 2 * c + v), 0.5 * a @ b + 2 * c + v],
    ),
    "the bias of a column-major result runs along its rows": (
        LibraryCall(MATMUL, ["f32[3,5]{0,1}"], ["f32[3,4]{0,1}", "f32[4,5]{1,0}", "f32[3]"], config(epilogue="BIAS")),
        lambda a, b, v: [a @ b + v[:, None]],
    ),
    "a bias of two dimensions": (
        LibraryCall(MATMUL, ["f32[3,2,5]"], ["f32[3,4]", "f32[2,5,4]", "f32[2,5]"], config("1", "2", epilogue="BIAS")),
        lambda a, b, v: [np.einsum("mk,jnk->mjn", a, b) + v],
    ),
    "a bias of two dimensions that lie the other way round": (
        LibraryCall(
            MATMUL,
            ["f32[3,2,5]{1,2,0}"],
            ["f32[3,4]", "f32[2,5,4]", "f32[2,5]{0,1}"],
            config("1", "2", epilogue="BIAS"),
        ),
        lambda a, b, v: [np.einsum("mk,jnk->mjn", a, b) + v],
    ),
    "a bias for every matrix of a batch": (
        LibraryCall(
            MATMUL,
            ["f32[2,3,5]"],
            ["f32[2,3,4]", "f32[2,4,5]", "f32[5]"],
            config("2", "1", batch=("0", "0"), epilogue="BIAS"),
        ),
        lambda a, b, v: [a @ b + v],
    ),
    "f8 to bf16": (
        LibraryCall(MATMUL_F8, ["bf16[3,5]", "s8[33]"], ["f8e4m3fn[3,4]", "f8e5m2[4,5]", "f32[]", "f32[]"], config()),
        lambda a, b, s, t: [s * t * (a @ b), np.zeros(33)],
    ),
    "f8 with C, a bias and an activation": (
        LibraryCall(
            MATMUL_F8,
            ["f16[3,5]", "s8[0]"],
            ["f8e4m3fn[3,4]", "f8e4m3fn[4,5]", "f16[3,5]", "f32[]", "f32[]", "f16[5]"],
            config(beta=2, epilogue="BIAS_RELU"),
        ),
        lambda a, b, c, s, t, v: [relu(s * t * (a @ b) + 2 * c + v), []],
    ),
    "f8 to f8 with the largest magnitude": (
        LibraryCall(
            MATMUL_F8,
            ["f8e4m3fn[3,5]", "f32[]", "s8[0]"],
            ["f8e4m3fn[3,4]", "f8e4m3fn[4,5]", "f32[]", "f32[]", "f32[]"],
            config(damax_output=True),
        ),
        lambda a, b, s, t, d: [d * (s * t * (a @ b)), np.abs(s * t * (a @ b)).max(), []],
    ),
    "f8 with scales of C and the result, as older versions write it": (
        LibraryCall(
            MATMUL_F8,
            ["f32[3,5]", "s8[0]"],
            ["f8e4m3fn[3,4]", "f8e4m3fn[4,5]", "f32[3,5]", *["f32[]"] * 4, "f32[5]"],
            config(beta=1, epilogue="BIAS"),
        ),
        lambda a, b, c, s, t, u, d, v: [d * (s * t * (a @ b) + u * c + v), []],
    ),
}
