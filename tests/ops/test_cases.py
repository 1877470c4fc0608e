"""Every case of the tables: verified, evaluated to its stated shape, printed and parsed again; an opcode at a time."""

from __future__ import annotations

from collections import defaultdict

import pytest

from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.ops import cases_data_movement, cases_elementwise
from tests.ops.case import Case


def _by_opcode() -> dict[str, list[Case]]:
    found = defaultdict(list)
    for case in [*cases_elementwise.CASES, *cases_data_movement.CASES]:
        found[case.opcode].append(case)
    return found


BY_OPCODE = _by_opcode()


@pytest.mark.parametrize("opcode", BY_OPCODE)
def test_each_evaluates_to_its_shape(opcode: str) -> None:
    wrong = []
    for case in BY_OPCODE[opcode]:
        for leaf, got in zip(case.shape.leaves(), case.evaluated(), strict=True):
            if got is None or (got.shape, got.dtype) != (leaf.dims, leaf.dtype.dtype):
                wrong.append(f"{case}: {leaf} is {got}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("opcode", BY_OPCODE)
def test_each_survives_its_text(opcode: str) -> None:
    wrong = []
    for case in BY_OPCODE[opcode]:
        read = parse_module(print_module(case.module())).entry_computation.root_instruction.op
        if read != case.op:
            wrong.append(f"{case}: read as {read}")
    assert not wrong, "\n".join(wrong)
