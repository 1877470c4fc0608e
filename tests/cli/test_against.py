"""`check --against`: verdicts, exit statuses, JSON, and modules that don't fit each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.called import call
from tests.programs import PROGRAMS

WHOLE = """HloModule whole
ENTRY main {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  ROOT y = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SHARDED = """HloModule sharded, num_partitions=2
sum { l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT s = f32[] add(l, r) }
ENTRY main_spmd {
  x = f32[8,2] parameter(0), sharding={devices=[1,2]<=[2]}
  w = f32[2,4] parameter(1), sharding={devices=[2,1]<=[2]}
  part = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={source_file="step.py" source_line=7}
  ROOT y = f32[8,4] all-reduce(part), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=sum
}
"""
RIGHT = (
    "ROOT y = f32[8,4] all-reduce(part), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=sum"
)
WRONG = "ROOT y = f32[8,4] copy(part)"
OTHER = "e = f32[8,4] exponential(part)\n  ROOT y = f32[8,4] copy(e)"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("whole.hlo").write_text(WHOLE)
    for name, root in (("right", RIGHT), ("wrong", WRONG), ("other", OTHER)):
        Path(f"{name}.hlo").write_text(SHARDED.replace(RIGHT, root))


@pytest.mark.parametrize(
    ("name", "options", "status", "verdict", "at", "source"),
    [
        ("right", [], 0, "equal", None, None),
        ("right", ["--strict"], 0, "equal", None, None),
        ("wrong", [], 1, "differs", "part", "step.py:7"),
        ("other", [], 0, "undecided", "e", None),
        ("other", ["--strict"], 3, "undecided", "e", None),
    ],
)
def test_verdicts(
    name: str,
    options: list[str],
    status: int,
    verdict: str,
    at: str | None,
    source: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["check", f"{name}.hlo", "--against", "whole.hlo", *options]
    code, out, err = call(capsys, *given)
    word = {"equal": "equal for all inputs", "differs": "error: against whole.hlo", "undecided": "warning: against"}
    assert code == status
    assert word[verdict] in (out if verdict == "equal" else err)
    code, out, _ = call(capsys, *given, "--json")
    found = json.loads(out)["against"]
    assert (code, found["verdict"], found["at"], found["source"]) == (status, verdict, at, source)
    assert found["results"] == 1


def test_without_the_option_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "check", "right.hlo", "--json")
    assert "against" not in json.loads(out)


@pytest.mark.parametrize(
    ("whole", "text"),
    [
        (WHOLE.replace("f32[8,4] parameter", "f32[8,3,1] parameter").replace("dot(x", "dot(r").replace(
            "  w =", "  r = f32[8,3] reshape(x)\n  w =").replace("f32[4,4]", "f32[3,4]"), "parameter 0"),
        (WHOLE.replace("HloModule whole", "HloModule whole, num_partitions=3").replace(
            "  ROOT y", "  i = f32[8,4] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}\n  ROOT y"
        ), "a program of 3 devices"),
        (WHOLE.replace("ROOT y", "y").replace("\n}", "\n  ROOT t = (f32[8,4], f32[8,4]) tuple(y, y)\n}"), "1 results"),
    ],
)  # fmt: skip
def test_modules_that_do_not_fit(whole: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("whole.hlo").write_text(whole)
    code, _, err = call(capsys, "check", "right.hlo", "--against", "whole.hlo")
    assert code == 2
    assert text in err


def test_a_parameter_without_a_sharding(capsys: pytest.CaptureFixture[str]) -> None:
    Path("right.hlo").write_text(SHARDED.replace(", sharding={devices=[1,2]<=[2]}", ""))
    code, _, err = call(capsys, "check", "right.hlo", "--against", "whole.hlo")
    assert code == 2
    assert "x is f32[8,2] of f32[8,4], and has no sharding that says how it is cut" in err
    assert "right.hlo:6:" in err


def test_a_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "check", "right.hlo", "--against", "whole.hlo", "--time-limit", "0.001")
    assert code == 5, err


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_what_the_partitioner_made_of_the_programs(program, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    partitioned, whole = (str(program.folder / f"{form}.hlo") for form in ("partitioned", "global"))
    code, out, err = call(capsys, "check", partitioned, "--against", whole)
    assert code == 0, err
    assert "equal for all inputs" in out
