"""`sort`: every line, several arrays together, any comparator; equal elements keep their order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.structured_case import StructuredCase, assert_compiled_agrees


def _sort(operand: str, dimension: int, comparator: str = "lt", element: str = "f32") -> StructuredCase:
    return StructuredCase(f"{operand} sort(@), dimensions={{{dimension}}}, to_apply={comparator}", (operand,), element)


CASES = [
    *(_sort(f"f32[{n}]", 0) for n in (0, 1, 2, 3, 7, 8, 31, 100, 1009)),
    _sort("f32[3,17]", 1),
    _sort("f32[17,3]", 0),
    _sort("f32[3,17,5]", 1),
    _sort("f32[5,0]", 0),
    _sort("f32[5,0]", 1),
    _sort("s8[65]", 0, "ge", "s8"),
    _sort("u64[65]", 0, "lt", "u64"),
    _sort("bf16[65]", 0, "lt", "bf16"),
    StructuredCase(
        "(s8[3,50], s32[3,50]) sort(@), dimensions={1}, is_stable=true, to_apply=lt_pairs",
        ("s8[3,50]", "s32[3,50]"),
        "s8",
        {1: np.arange(150)},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    assert_compiled_agrees(case)


def test_sorts_like_numpy() -> None:
    case = _sort("f32[1009]", 0)
    np.testing.assert_array_equal(case.compiled()[0], np.sort(case.values()[0]))
