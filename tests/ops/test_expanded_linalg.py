"""Linear algebra that XLA expands on every backend, by both executors against XLA CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.ir.element_type import element_type
from tests.ops.case import Array
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads
from tests.tolerances import ulps_between

pytest.importorskip("jax")

REAL = {"c64": "f32", "c128": "f64"}


def shape(kind: str, dims: tuple[int, ...]) -> str:
    return f"{kind}[{','.join(map(str, dims))}]"


def drawn(kind: str, dims: tuple[int, ...]) -> Array:
    """Small integers, which every type holds."""
    random = np.random.default_rng([*dims])
    value: Any = random.integers(-2, 3, dims)
    if kind in REAL:
        value = value + 1j * random.integers(-2, 3, dims)
    return np.asarray(value).astype(element_type(kind).dtype)


def wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def tolerance(kind: str) -> float:
    """XLA rounds narrow floats at every step."""
    info = {"f64": 1e-12, "c128": 1e-12, "f32": 1e-5, "c64": 1e-5, "f16": 2e-2, "bf16": 1e-1}
    return info[kind]


def near(got: Array, wanted: Array, kind: str) -> None:
    scale = max(1.0, np.abs(wide(wanted)).max(initial=0))
    np.testing.assert_allclose(wide(got), wide(wanted), rtol=0, atol=tolerance(kind) * scale)


def both_as_xla(call: LibraryCall, kind: str, *arguments: Array) -> None:
    from tests.ops.xla_cpu import run_by_xla

    wanted = run_by_xla(call.text, arguments)
    for results in call.run(*arguments):
        assert [(r.dtype, r.shape) for r in results] == [(w.dtype, w.shape) for w in wanted]
        for got, want in zip(results, wanted, strict=True):
            near(got, want, kind)


def qr(kind: str, dims: tuple[int, ...]) -> LibraryCall:
    factors = (*dims[:-2], min(dims[-2:]))
    return LibraryCall("Qr", [shape(kind, dims), shape(kind, factors)], [shape(kind, dims)])


def product(kind: str, dims: tuple[int, ...], count: int) -> LibraryCall:
    operands = [shape(kind, dims), shape(kind, (*dims[:-2], count))]
    return LibraryCall("ProductOfElementaryHouseholderReflectors", [shape(kind, dims)], operands)


def eigh(kind: str, dims: tuple[int, ...], config: str = "1,1,100,1e-6") -> LibraryCall:
    values = shape(REAL.get(kind, kind), dims[:-1])
    return LibraryCall("Eigh", [shape(kind, dims), values], [shape(kind, dims)], f'"{config}"')


SIZES = [(5, 3), (3, 5), (2, 3, 3), (1, 4), (4, 1), (1, 1), (0, 3), (3, 0), (0, 2, 2)]
KINDS = ["f32", "f64", "c64", "c128", "f16", "bf16"]


@pytest.mark.sampled(one_in=9, first=("dims3-f32", "dims6-c64", "dims2-bf16", "dims1-c128"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", SIZES)
def test_qr_is_xlas(dims: tuple[int, ...], kind: str) -> None:
    both_as_xla(qr(kind, dims), kind, drawn(kind, dims))


@pytest.mark.sampled(one_in=8, first=("dims0-3-f32", "dims2-2-c128", "dims3-0-f16"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dims", "count"), [((5, 3), 3), ((5, 3), 2), ((2, 4, 4), 2), ((3, 2), 0), ((3, 0), 0)])
def test_the_product_of_reflectors_is_xlas(dims: tuple[int, ...], count: int, kind: str) -> None:
    both_as_xla(product(kind, dims, count), kind, drawn(kind, dims), drawn(kind, (*dims[:-2], count)))


def test_q_of_both_is_lapacks() -> None:
    a = drawn("f64", (6, 4))
    q, r = np.linalg.qr(a)
    for k in range(2):  # the executors
        factors, scales = qr("f64", (6, 4)).run(a)[k]
        near(np.triu(factors[:4]), r, "f64")
        near(product("f64", (6, 4), 4).run(factors, scales)[k][0], q, "f64")


@pytest.mark.sampled(one_in=8, first=("0-dims0-f32", "1-dims1-c64", "0-dims2-c128"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [(3, 3), (2, 4, 4), (1, 1), (2, 0, 0)])
@pytest.mark.parametrize("lower", [1, 0])
def test_eigh_is_xlas(lower: int, dims: tuple[int, ...], kind: str) -> None:
    from tests.ops.xla_cpu import run_by_xla

    a = drawn(kind, dims)
    call = eigh(kind, dims, f"{lower},1,100,1e-6")
    _, wanted = run_by_xla(call.text, [a])
    half = wide(np.tril(a, -1) if lower else np.triu(a, 1))
    matrix = half + half.conj().swapaxes(-1, -2) + wide(a).real * np.eye(dims[-1])
    for vectors, values in call.run(a):
        assert (vectors.dtype, values.dtype) == (a.dtype, wanted.dtype)
        near(values, wanted, kind)
        near(wide(vectors) * wide(values)[..., None, :], matrix @ wide(vectors), kind)
        near(np.linalg.norm(wide(vectors), axis=-2), np.ones(values.shape), kind)


@pytest.mark.parametrize("kind", ["f32", "c128"])
def test_negative_zero_is_a_zero_as_for_xla(kind: str) -> None:
    a = np.array([[-0.0, 1], [1, -0.0]]).astype(element_type(kind).dtype)
    both_as_xla(qr(kind, (2, 2)), kind, a)


def test_narrow_floats_are_rounded_once() -> None:
    a = drawn("f16", (4, 3))
    wanted = qr("f32", (4, 3)).run(a.astype(np.float32))[1]
    for results in qr("f16", (4, 3)).run(a):
        for got, want in zip(results, wanted, strict=True):
            assert ulps_between(got, want.astype(np.float16)).max() <= 1


@pytest.mark.parametrize("call", [qr("f32", (2, 3)), product("f32", (3, 2), 2), eigh("c64", (2, 2))])
def test_xla_reads_the_calls(call: LibraryCall) -> None:
    assert_xla_reads(call)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (qr("s32", (2, 2)), "takes matrices of a float or complex type, the operand is s32[2,2]"),
        (LibraryCall("Qr", ["f32[2]", "f32[2]"], ["f32[2]"]), "the operand is f32[2]"),
        (LibraryCall("Qr", ["f32[2,2]", "f32[3]"], ["f32[2,2]"]), "the text says (f32[2,2], f32[3])"),
        (product("f32", (2, 3), 2), "do not give 3 columns"),
        (product("f32", (3, 2), 3), "3 reflectors of 3 elements do not give 2 columns"),
        (LibraryCall("ProductOfElementaryHouseholderReflectors", ["f32[2,2]"], ["f32[2,2]"]), "takes 2 arrays"),
        (
            LibraryCall("ProductOfElementaryHouseholderReflectors", ["f32[2,2]"], ["f32[2,2]", "f64[2]"]),
            "takes arrays of one type",
        ),
        (eigh("f32", (2, 3)), "takes square matrices, the operand is f32[2,3]"),
        (eigh("f32", (2, 2), "1,1,100"), "backend_config is '1,1,100', not lower,sort_eigenvalues,max_iter,tol"),
        (eigh("f32", (2, 2), "true,1,100,1e-6"), "in numbers"),
    ],
)
def test_calls_that_do_not_fit_are_refused(call: LibraryCall, wanted: str) -> None:
    assert_refused(call, wanted)
