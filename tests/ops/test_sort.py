"""`sort`: every line, several arrays together, any comparator; equal elements keep their order."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.errors import UnsupportedOpError
from distxla.ops.sorting.comparator import sort_keys
from distxla.text.parser import parse_module
from tests.compiler.lower.harness import Kernel
from tests.executable import require_executable
from tests.ops.sort_cases import CASES, CORNERS, sort_case, top_k_case
from tests.ops.structured_case import COMPUTATIONS, StructuredCase, assert_compiled_agrees

# NaNs are equal and last, and zeros of both signs are equal: what JAX asks for.
CANONICAL = """HloModule m
before {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  zero = f32[] constant(0)
  nan = f32[] constant(nan)
  a_zero = pred[] compare(a, zero), direction=EQ
  a_nan = pred[] compare(a, a), direction=NE
  a_plain = f32[] select(a_zero, zero, a)
  a_key = f32[] select(a_nan, nan, a_plain)
  b_zero = pred[] compare(b, zero), direction=EQ
  b_nan = pred[] compare(b, b), direction=NE
  b_plain = f32[] select(b_zero, zero, b)
  b_key = f32[] select(b_nan, nan, b_plain)
  ROOT r = pred[] compare(a_key, b_key), direction=LT, type=TOTALORDER
}
ENTRY e {
  x = f32[3,N] parameter(0)
  i = s32[3,N] parameter(1)
  ROOT s = (f32[3,N], s32[3,N]) sort(x, i), dimensions={1}, is_stable=true, to_apply=before
}
"""


@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    assert_compiled_agrees(case)


def test_sorts_like_numpy() -> None:
    case = sort_case("f32[1009]", 0)
    np.testing.assert_array_equal(case.compiled()[0], np.sort(case.values()[0]))


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_is_a_stable_order_with_nans_at_its_ends(largest: bool) -> None:
    case = top_k_case("f32[10]", 10, f", largest={str(largest).lower()}", CORNERS)
    ascending, descending = [4, 8, 5, 2, 0, 9, 3, 7, 6, 1], [1, 6, 3, 7, 0, 9, 2, 5, 8, 4]
    for _, indices in (case.evaluated(), case.compiled()):
        assert np.asarray(indices).tolist() == (descending if largest else ascending)


def test_a_custom_call_that_is_no_top_k_is_an_obstacle() -> None:
    text = 'ENTRY e {\n  a = f32[4] parameter(0)\n  ROOT c = f32[4] custom-call(a), custom_call_target="TopK"\n}'
    with pytest.raises(UnsupportedOpError, match=r'custom-call of "TopK" from .* is no top-k'):
        require_executable(parse_module(text))


@pytest.mark.parametrize("dim_size", [1, 5, 40, 64, 65, 300, 9000])
def test_nans_and_zeros_stand_where_the_comparator_wants_them(dim_size: int) -> None:
    generator = np.random.default_rng(dim_size)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0], np.float32)
    values = np.where(
        generator.random((3, dim_size)) < 0.5,
        generator.choice(special, (3, dim_size)),
        generator.normal(size=(3, dim_size)),
    ).astype(np.float32)
    numbers = np.broadcast_to(np.arange(dim_size, dtype=np.int32), (3, dim_size))
    got, order = Kernel(CANONICAL.replace("N]", f"{dim_size}]"))(values, numbers)
    np.testing.assert_array_equal(order, np.argsort(values, axis=1, kind="stable"))
    assert got.tobytes() == np.take_along_axis(values, order, axis=1).tobytes()


@pytest.mark.parametrize(
    ("computation", "keys"),
    [
        ("lt", [("a", "FLOAT", False)]),
        ("gt", [("a", "FLOAT", True)]),
        ("ge", None),
        ("by_negation", [("y", "FLOAT", False)]),
        ("total", [("a", "TOTALORDER", True)]),
        ("two_keys", [("a", "FLOAT", False), ("c", "SIGNED", True)]),
        ("refined", [("c", "SIGNED", True), ("a", "FLOAT", False)]),
        ("chosen", None),
    ],
)
def test_keys_of_comparators_are_found(computation: str, keys: list[tuple[str, str, bool]] | None) -> None:
    body = COMPUTATIONS[computation].replace("T[", "f32[")
    found = sort_keys(parse_module(f"HloModule m\nENTRY c {{\n {body}\n}}").entry_computation)
    assert (None if found is None else [(k.value, k.comparison, k.descending) for k in found]) == keys


def test_a_comparator_that_contradicts_itself_loses_nothing() -> None:
    # NaNs are before nothing and nothing is before them, so they are equal to all, which differ among themselves.
    case = StructuredCase(
        "(f32[5000], s32[5000]) sort(@), dimensions={0}, to_apply=chosen", ("f32[5000]", "s32[5000]"), "f32"
    )
    values = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    values[::7] = np.nan
    _, order = Kernel(case.module())(values, np.arange(5000))
    assert sorted(order.tolist()) == list(range(5000))
