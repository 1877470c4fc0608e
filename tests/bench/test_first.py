"""The programs of first calls run, and the table shows medians and ratios."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

from bench.first import NAMES, ROOT, MeasuredFirst, first_table
from bench.first_programs import PROGRAMS


def test_every_program_is_in_the_table() -> None:
    assert tuple(PROGRAMS) == NAMES


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_its_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    command = [sys.executable, "-m", "bench.first_programs", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0


def test_the_table_shows_medians_and_ratios() -> None:
    rows = [MeasuredFirst(name, {"new": [1, 4, 2], "seen": [0.5], "xla": [2, 1]}) for name in ("eager", "constant")]
    console = Console(file=io.StringIO(), width=130)
    console.print(first_table(rows))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("2 s") == 2
    assert text.count("1.33") == 3
    assert text.count("0.33") == 3
