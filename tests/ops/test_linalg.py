"""cholesky and triangular-solve: the reference against what defines them, compiled code against it and XLA CPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.errors import UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType, element_type
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.runner import run_single
from tests.executable import require_executable
from tests.ops.case import Array, Case, array, joined
from tests.tolerances import ulps_between

TYPES = ("f32", "f64", "c64", "c128", "f16", "bf16")
# relative to the largest element: for matrices as well conditioned as those below
TOLERANCES = {"f32": 1e-5, "c64": 1e-5, "f64": 1e-13, "c128": 1e-13, "f16": 1e-2, "bf16": 8e-2}
TRANSPOSITIONS = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def normal(element: ElementType, *dims: int) -> Array:
    generator = np.random.default_rng([element.bits, *dims])
    value = generator.normal(size=dims)
    if element.is_complex:
        value = value + 1j * generator.normal(size=dims)
    return np.asarray(value)


def factored(kind: str, dims: tuple[int, ...], lower: bool) -> Case:
    """A positive definite matrix whose triangle that must not be read holds NaN."""
    element = element_type(kind)
    x = normal(element, *dims)
    value = x @ x.conj().swapaxes(-1, -2) + 2 * dims[-1] * np.eye(dims[-1])
    inside = np.tri(dims[-1], dtype=bool) if lower else np.tri(dims[-1], dtype=bool).T
    value = np.where(inside, value, np.nan).astype(element.dtype)
    return Case("cholesky", (array(kind, *dims),), {"lower": lower}, arguments=(value,))


def solved(
    kind: str, batch: tuple[int, ...], n: int, m: int, *, left: bool, lower: bool, unit: bool, transposition: str
) -> Case:
    """A well conditioned triangle; what must not be read is NaN."""
    element = element_type(kind)
    a = normal(element, *batch, n, n) / max(1, n) + 2 * np.eye(n)
    inside = np.tri(n, k=-1 if unit else 0, dtype=bool)
    a = np.where(inside if lower else inside.T, a, np.nan).astype(element.dtype)
    dims = (*batch, n, m) if left else (*batch, m, n)
    b = normal(element, *dims).astype(element.dtype)
    attributes = {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": transposition}
    return Case("triangular-solve", (array(kind, *a.shape), array(kind, *dims)), attributes, arguments=(a, b))


FACTORED = [
    factored(kind, dims, lower)
    for kind, dims, lower in product(TYPES, [(1, 1), (3, 3), (2, 5, 5), (40, 40), (0, 0), (2, 0, 0)], (True, False))
]
SOLVED = [
    *(
        # what is rounded at each step takes long to compile
        solved(kind, (2,), n, m, left=left, lower=lower, unit=unit, transposition=transposition)
        for kind, n, m, transpositions in [
            *((kind, 5, 3, TRANSPOSITIONS) for kind in ("f32", "c64", "c128")),
            *((kind, 3, 2, TRANSPOSITIONS[:2]) for kind in ("f64", "f16", "bf16")),
        ]
        for left, lower, unit in product((True, False), repeat=3)
        for transposition in transpositions
    ),
    *(
        solved("f32", batch, n, m, left=left, lower=True, unit=False, transposition="NO_TRANSPOSE")
        for batch, n, m in [((), 1, 1), ((), 40, 70), ((2, 3), 4, 2), ((), 0, 3), ((), 3, 0), ((0,), 3, 2)]
        for left in (True, False)
    ),
    *(  # larger than what is solved by the inverse
        solved(kind, (), 12, 2, left=True, lower=True, unit=False, transposition="NO_TRANSPOSE") for kind in TYPES
    ),
]


def matrix_of(case: Case) -> Array:
    """The triangular matrix that a triangular-solve reads, op applied."""
    at = case.attributes
    a = case.values()[0].astype(np.complex128 if case.operands[0].dtype.is_complex else np.float64)
    diagonal = 0 if not at["unit_diagonal"] else -1
    a = np.tril(a, diagonal) if at["lower"] else np.triu(a, -diagonal)
    if at["unit_diagonal"]:
        a = a + np.eye(a.shape[-1])
    turned = {"NO_TRANSPOSE": a, "TRANSPOSE": a.swapaxes(-1, -2), "ADJOINT": a.conj().swapaxes(-1, -2)}
    return turned[at["transpose_a"]]


def assert_near(got: Array | None, wanted: Array, kind: str, what: object) -> None:
    assert got is not None
    assert got.shape == wanted.shape, what
    scale = np.abs(wanted).max(initial=1e-30)
    np.testing.assert_allclose(
        got.astype(wanted.dtype), wanted, rtol=0, atol=TOLERANCES[kind] * scale, err_msg=str(what)
    )


def of_type(cases: Sequence[Case], kind: str) -> list[Case]:
    found = [case for case in cases if case.shape.dtype.name == kind]
    assert found
    return found


@pytest.mark.parametrize("kind", TYPES)
def test_cholesky_gives_the_matrix_back(kind: str) -> None:
    for case in of_type(FACTORED, kind):
        check_factor(case)


def check_factor(case: Case) -> None:
    (factor,) = case.evaluated()
    assert factor is not None
    lower = case.attributes["lower"]
    inside = np.tri(factor.shape[-1], dtype=bool) if lower else np.tri(factor.shape[-1], dtype=bool).T
    assert not factor[..., ~inside].any(), case
    wide = factor.astype(np.complex128 if case.shape.dtype.is_complex else np.float64)
    adjoint = wide.conj().swapaxes(-1, -2)
    product_ = wide @ adjoint if lower else adjoint @ wide
    matrix = np.where(inside, case.values()[0], 0).astype(wide.dtype)
    assert_near(np.where(inside, product_, 0), matrix, case.shape.dtype.name, case)


@pytest.mark.parametrize("kind", TYPES)
def test_triangular_solve_solves(kind: str) -> None:
    for case in of_type(SOLVED, kind):
        (x,) = case.evaluated()
        assert x is not None
        matrix = matrix_of(case)
        wide, right = x.astype(matrix.dtype), case.values()[1].astype(matrix.dtype)
        product_ = matrix @ wide if case.attributes["left_side"] else wide @ matrix
        assert_near(product_, right, kind, case)


def compiled(cases: Sequence[Case]) -> list[Array]:
    program = compile_module(joined(cases), Counts(1, 1))
    return run_single(program, [value for case in cases for value in case.values()])


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("cases", [FACTORED, SOLVED], ids=["cholesky", "triangular-solve"])
def test_compiled_code_agrees_with_reference(cases: Sequence[Case]) -> None:
    for case, got in zip(cases, compiled(cases), strict=True):
        (wanted,) = case.evaluated()
        assert wanted is not None
        assert_near(got, wanted, case.shape.dtype.name, case)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cases", [FACTORED, SOLVED], ids=["cholesky", "triangular-solve"])
def test_reference_agrees_with_xla(cases: list[Case]) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    # XLA takes about a second to compile one of these
    cases = [case for case in cases if case.shape.size][::11]
    arguments = [value for case in cases for value in case.values()]
    for case, wanted in zip(cases, run_by_xla(print_module(joined(cases)), arguments), strict=True):
        (got,) = case.evaluated()
        assert_near(got, np.asarray(wanted), case.shape.dtype.name, case)


SMALL = [
    solved(kind, batch, n, m, left=left, lower=lower, unit=not lower, transposition=transposition)
    for kind, batch, n, m in [
        ("f32", (2,), 8, 10),
        ("f32", (), 4, 1),
        ("f32", (), 4, 7),
        ("f32", (), 8, 1),
        ("f64", (), 4, 1),
        ("f64", (3,), 3, 1),
        ("f16", (), 4, 1),
        ("f16", (2,), 8, 3),
        ("bf16", (), 4, 1),
        ("bf16", (2,), 8, 3),
    ]
    for left, lower, transposition in product((True, False), (True, False), TRANSPOSITIONS[:2])
]


@pytest.mark.exhaustive
def test_small_triangles_are_compiled_to_the_bits_of_the_reference() -> None:
    for case, got in zip(SMALL, compiled(SMALL), strict=True):
        (wanted,) = case.evaluated()
        assert wanted is not None
        assert ulps_between(got, wanted).max() <= (1 if case.shape.dtype.name == "f64" else 0), case


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_small_triangles_give_the_bits_of_xla() -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    # f64: each of a few hundred steps may round another way in the reference
    arguments = [value for case in SMALL for value in case.values()]
    for case, wanted in zip(SMALL, run_by_xla(print_module(joined(SMALL)), arguments, optimised=True), strict=True):
        (got,) = case.evaluated()
        assert got is not None
        if case.shape.dtype.name == "f32" and case.shape.size > case.operands[0].size // case.operands[0].dims[-1]:
            # several right-hand sides: XLA's order of addition depends on its version and the processor's vectors
            assert_near(got, np.asarray(wanted), "f32", case)
            continue
        assert ulps_between(got, np.asarray(wanted)).max() <= (1 if case.shape.dtype.name == "f64" else 0), case


def _flawed(kind: str, n: int, flaw: str) -> Array:
    matrix: Array = factored(kind, (n, n), True).values()[0]
    matrix[{"first": 0, "last": n - 1, "nan": n // 2}[flaw],] = np.nan if flaw == "nan" else -1
    return matrix


@pytest.mark.sampled(one_in=4, first=("3-f64",))
@pytest.mark.parametrize("kind", ["f32", "f64", "c64", "c128", "bf16"])
@pytest.mark.parametrize("n", [3, 200])
def test_a_matrix_that_is_not_positive_definite_gives_nan_alone(kind: str, n: int) -> None:
    matrices = [_flawed(kind, n, "first"), _flawed(kind, n, "last"), _flawed(kind, n, "nan")]
    value = np.stack([*matrices, factored(kind, (n, n), True).values()[0]])
    case = Case("cholesky", (array(kind, *value.shape),), {"lower": True}, arguments=(value,))
    for got in (case.evaluated()[0], compiled([case])[0]):
        assert got is not None
        assert np.isnan(got[:3]).all()
        assert not np.isnan(got[3]).any()


def test_a_singular_triangle_gives_no_finite_number() -> None:
    a, b = np.array([[1, 0], [1, 0]], np.float32), np.array([[1], [2]], np.float32)
    attributes: dict[str, Any] = {"left_side": True, "lower": True, "transpose_a": "NO_TRANSPOSE"}
    case = Case("triangular-solve", (array("f32", 2, 2), array("f32", 2, 1)), attributes, arguments=(a, b))
    for got in (case.evaluated()[0], compiled([case])[0]):
        assert got is not None
        assert got[0, 0] == 1
        assert not np.isfinite(got[1, 0])


def test_more_right_sides_than_the_librarys_integers_hold_are_refused() -> None:
    text = "ENTRY e { a = f32[2,2] parameter(0) b = f32[2,2147483648] parameter(1) "
    text += "ROOT x = f32[2,2147483648] triangular-solve(a, b), left_side=true, transpose_a=NO_TRANSPOSE }"
    with pytest.raises(UnsupportedOpError, match="integers have 32 bits"):
        require_executable(parse_module(text))
