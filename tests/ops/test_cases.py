"""Every case of the tables: verified, evaluated to its stated shape, printed and parsed again."""

from __future__ import annotations

import pytest

from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.ops import cases_data_movement, cases_elementwise
from tests.ops.case import Case

CASES = [*cases_elementwise.CASES, *cases_data_movement.CASES]


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_evaluates_to_its_shape(case: Case) -> None:
    for leaf, got in zip(case.shape.leaves(), case.evaluated(), strict=True):
        assert got is not None
        assert (got.shape, got.dtype) == (leaf.dims, leaf.dtype.dtype)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_survives_its_text(case: Case) -> None:
    module = case.module()
    assert parse_module(print_module(module)).entry_computation.root_instruction.op == case.op
