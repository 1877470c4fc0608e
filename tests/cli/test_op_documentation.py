"""The pages and the table that are made from the op classes."""

from __future__ import annotations

import pytest

from distxla.cli.op_documentation import describe, location, markdown_table, table
from distxla.errors import ArgumentError
from distxla.ir.op import Lowering
from distxla.ops.support.registry import op_class, op_classes


@pytest.mark.parametrize("opcode", op_classes())
def test_page_says_everything(opcode: str) -> None:
    op = op_class(opcode)
    text = describe(opcode)
    assert text.startswith(f"{opcode}\n")
    for attribute in op.attributes():
        assert f"  {attribute.text} " in text
    file, _, line = location(op).partition(":")
    assert f"Source:     {file}:{line}" in text
    assert file.startswith("distxla/ops/")


def test_location_is_the_class_or_its_row() -> None:
    from pathlib import Path

    import distxla.cli.op_documentation as documentation

    for opcode, start in (("transpose", "class Transpose(ExecutableOp):"), ("tanh", '_transcendental("tanh"')):
        file, _, line = location(op_class(opcode)).partition(":")
        text = (Path(documentation.ROOT) / file).read_text().splitlines()[int(line) - 1]
        assert start in text


def test_the_error_for_an_unknown_opcode_proposes_one() -> None:
    with pytest.raises(ArgumentError, match="no opcode 'trnspose'") as caught:
        describe("trnspose")
    assert caught.value.__notes__ == ["hint: did you mean transpose?"]


def test_table_has_a_row_for_every_opcode() -> None:
    rows = table()
    assert [row.opcode for row in rows] == list(op_classes())
    for row in rows:
        unsupported = op_class(row.opcode).lowering is Lowering.NONE
        assert (row.support == "parsed and verified only") == unsupported
        assert row.summary.endswith("."), row
    assert len(markdown_table().splitlines()) == len(rows) + 2
