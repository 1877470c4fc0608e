"""parse(print(m)) == m for every feature of the grammar, for the shipped programs, and XLA reads what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.ops.support.registry import op_classes
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.text.snippets import ALL

PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*/*.hlo"))

# XLA writes the first but can't read it; it takes no names of element types.
NOT_FOR_XLA = ("literal (f32[], s32[2]) {...}", "feature names like keywords")


@pytest.mark.parametrize("name", ALL)
def test_snippet_round_trip(name: str) -> None:
    module = parse_module(ALL[name])
    text = print_module(module)
    again = parse_module(text)
    assert again == module
    assert print_module(again) == text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_program_round_trip(path: Path) -> None:
    module = parse_module(path.read_text(), str(path))
    text = print_module(module)
    assert parse_module(text) == module


def test_every_opcode_stands_in_a_snippet() -> None:
    shown = {i.opcode for text in ALL.values() for c in parse_module(text).computations for i in c}
    assert set(op_classes()) - shown == set()


@pytest.mark.parametrize("name", [name for name in ALL if name not in NOT_FOR_XLA])
def test_xla_reads_what_is_printed(name: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = parse_module(ALL[name])
    theirs = hlo.hlo_module_from_text(print_module(module)).to_string()
    parse_module(theirs)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_xla_reads_programs_as_printed(path: Path) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    theirs = hlo.hlo_module_from_text(print_module(parse_module(path.read_text()))).to_string()
    parse_module(theirs)
