"""Tiles change nothing but bitcasts, and both commands say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from distxla.cli.main import commands

TEXT = """HloModule tiled
ENTRY main {
  p = f32[8,128]{1,0:T(8,128)} parameter(0)
  q = f32[8,128]{0,1:T(8,128)} negate(p)
  ROOT r = f32[8,128]{1,0:T(8,128)} negate(q)
}
"""


@pytest.mark.parametrize("command", [["check"], ["run", "--backend", "reference"]])
def test_tiles_are_named(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "tiled.hlo"
    path.write_text(TEXT)
    result = CliRunner().invoke(commands, [*command, str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "the tiles of f32[8,128]{1,0:T(8,128)} and 1 more count in bitcasts only" in result.output
    path.write_text(TEXT.replace(":T(8,128)", ""))
    assert "count in bitcasts" not in CliRunner().invoke(commands, [*command, str(path)], catch_exceptions=False).output
