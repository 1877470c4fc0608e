"""Where the time of a compilation goes: phases, and the compiler's stages below their phase."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distxla import time_limit as time_limit_module
from distxla.compiler.timings import line, rows
from distxla.time_limit import phase, time_limit, timed_phases
from tests.cli.called import call

STAGES = {"passes": 0.001, "parse_llvm": 0.0204}
MODULE = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still."""
    now = [0.0]
    monkeypatch.setattr(time_limit_module.clock, "now", lambda: now[0])
    return now


@pytest.mark.parametrize("limit", [None, 60.0])
def test_phases_are_timed(clock: list[float], limit: float | None) -> None:
    def fail() -> None:
        clock[0] += 1
        raise KeyError

    with timed_phases() as phases, time_limit(limit):
        for _ in range(2):
            with phase("outer"):
                clock[0] += 1
                with phase("inner"):
                    clock[0] += 10
                clock[0] += 2
        with pytest.raises(KeyError), phase("failing"):
            fail()
    assert phases == {"inner": 20.0, "outer": 26.0, "failing": 1.0}
    with phase("behind"):
        pass
    assert "behind" not in phases


def test_stages_stand_below_compiling() -> None:
    phases = {"checking": 0.5, "compiling": 0.25}
    assert list(rows(phases, STAGES)) == [
        ("checking", 0.5), ("compiling", 0.25), ("  passes", 0.001), ("  reading LLVM IR", 0.0204),
    ]  # fmt: skip
    assert line("f", 0.8, phases, STAGES) == (
        "f: 800.0 ms: checking 500.0, compiling 250.0 (passes 1.0, reading LLVM IR 20.4)"
    )
    assert line("f", 0.8, phases, {}) == "f: 800.0 ms: checking 500.0, compiling 250.0"


def test_the_command_prints_all_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(MODULE)
    status, out, _ = call(capsys, "compile", str(file), "--timings")
    names = [re.fullmatch(r"(.*?) +[\d.]+ ms", found) for found in out.splitlines()]
    assert status == 0
    assert [name and name[1] for name in names] == [
        "reading the modules", "partitioning", "checking", "ordering what devices do together", "compiling",
        "  passes", "  plan of the memory", "  emitting LLVM IR", "  reading LLVM IR", "  optimising LLVM IR",
        "  object code", "  functions that programs share", "  linking",
    ]  # fmt: skip
