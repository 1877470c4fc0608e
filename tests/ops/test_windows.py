"""`reduce-window` and `select-and-scatter`."""

from __future__ import annotations

import pytest

from tests.ops.structured_case import StructuredCase, assert_compiled_agrees
from tests.ops.windows_cases import REDUCED, SCATTERED, _reduced

# XLA cuts a long scan into pieces and begins each of them with the initial value, so it is no judge of these.
STARTED = [_reduced("f32[3,40]", ("f32[3,40]", "f32[]"), "window={size=1x40 pad=0_0x39_0}, to_apply=add", 2)]


@pytest.mark.parametrize("case", [*REDUCED, *SCATTERED, *STARTED], ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    assert_compiled_agrees(case)


def test_padding_takes_no_part_in_a_window() -> None:
    """An initial value that is no identity is used once a window, not once a padded place."""
    case = _reduced("s32[4]", ("s32[2]", "s32[]"), "window={size=3 pad=2_2}, to_apply=add", 100, element="s32")
    case = StructuredCase(case.expression, case.operands, "s32", {0: [1, 2], 1: 100})
    assert case.evaluated()[0].tolist() == [101, 103, 103, 102]
    assert_compiled_agrees(case)


def test_ties_select_the_first_element() -> None:
    expression = "f32[4] select-and-scatter(@), window={size=2 stride=2}, select=ge, scatter=add"
    case = StructuredCase(expression, ("f32[4]", "f32[2]", "f32[]"), "f32", {0: [5, 5, 1, 2], 1: [10, 20], 2: 0})
    assert case.evaluated()[0].tolist() == [10, 0, 0, 20]
    assert_compiled_agrees(case)
