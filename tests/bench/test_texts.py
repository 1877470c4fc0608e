"""The texts that the benchmark parses are modules, and both sides parse them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.texts import MeasuredText, long_text, parsed, text_table
from distxla.compiler.verify.verifier import verify_module
from distxla.text.parser import parse_module


def test_a_long_text_is_a_module_of_so_many_instructions() -> None:
    module = parse_module(long_text(200))
    verify_module(module)
    assert len(module.entry_computation.instructions) == 200 + 3


def test_both_sides_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    file = tmp_path / "long.hlo"
    file.write_text(long_text(500))
    row = MeasuredText("500 instructions", 0.1)
    for side in ("distxla", "xla"):
        took, grew = parsed(side, file)
        assert (took >= 0, grew >= 0) == (True, True)
        row.processor_s[side], row.memory_bytes[side] = [took + 1e-6], [grew]
    assert row.ratio() is not None
    assert text_table([row]).row_count == 1
