"""`scatter`: index vectors, windows, batching dimensions, several arrays, updates that fall outside."""

from __future__ import annotations

import pytest

from tests.ops.scatter_cases import CASES, ELEMENTS, _scatter
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    assert_compiled_agrees(case)


def test_updates_that_reach_outside_are_dropped_whole() -> None:
    attributes = (
        "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=second"
    )
    case = _scatter(
        ("f32[4]", "s32[3,1]", "f32[3,2]"), attributes, p0=[0, 0, 0, 0], p1=[-1, 3, 1], p2=[1, 2, 3, 4, 5, 6]
    )
    assert case.evaluated()[0].tolist() == [0, 5, 6, 0]
    assert_compiled_agrees(case)


def test_the_last_of_colliding_updates_stays() -> None:
    case = _scatter(
        ("f32[1,2]", "s32[2,2]", "f32[2]"), ELEMENTS + "to_apply=second", p0=[0, 0], p1=[0, 1, 0, 1], p2=[7, 8]
    )
    assert case.evaluated()[0].tolist() == [[0, 8]]
    assert_compiled_agrees(case)
