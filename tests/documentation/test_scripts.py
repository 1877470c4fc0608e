"""The guide's scripts run as they stand, and print what they say: `# ->` lines, in which `…` is any text."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT

pytestmark = pytest.mark.cluster
SCRIPTS = sorted((ROOT / "docs/guide").glob("*.py"))


def expected(script: Path) -> re.Pattern[str]:
    """What the script prints."""
    lines = re.findall(r"^ *# -> (.*)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    return re.compile("\n".join(".*".join(map(re.escape, line.split("…"))) for line in lines) + "\n")


def test_there_are_three() -> None:
    assert len(SCRIPTS) == 3


@pytest.mark.slow
@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_script(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    printed = capfd.readouterr().out
    assert expected(script).fullmatch(printed), printed
