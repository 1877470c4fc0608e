"""`distxla run --check` and the warnings of `distxla check` about results that are declared the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from distxla.cli.main import main
from tests.runtime.checked_programs import programs

OWN_SUM = """HloModule own, num_partitions=2

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main_spmd {
  w = f32[] parameter(0), sharding={replicated}
  x = f32[2] parameter(1), sharding={devices=[2]<=[2]}
  zero = f32[] constant(0)
  total = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  ROOT y = f32[] multiply(total, w), sharding={replicated}
}
"""


def status_of(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def bad(tmp_path: Path) -> list[str]:
    """A program whose third iteration makes a NaN on device 1, and its arguments."""
    program = next(program for program in programs() if program.name == "iteration")
    (tmp_path / "bad.hlo").write_text(program.text)
    np.savez(tmp_path / "args.npz", **{f"arg0@{d}": row[0] for d, row in enumerate(program.rows)})
    return [str(tmp_path / "bad.hlo"), "--args", str(tmp_path / "args.npz")]


@pytest.fixture
def own_sum(tmp_path: Path) -> str:
    path = tmp_path / "own.hlo"
    path.write_text(OWN_SUM)
    return str(path)


@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=pytest.mark.cluster)])
def test_nan_is_named_with_its_place(bad: list[str], backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("run", *bad, "--check", "nan", "--backend", backend, "--json") == 1
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["code"] == "non-finite"
    assert error["message"].startswith("NaN first appears in root (sqrt) on device 1, in iteration 3 of last")
    assert error["location"]["line"] == 19
    assert "  root = f32[2048] sqrt(less)" in err


def test_nan_passes_without_the_check(bad: list[str]) -> None:
    assert status_of("run", *bad, "--backend", "reference") == 0


@pytest.mark.parametrize(
    ("w", "x", "array"), [((1, 2), (0, 0), "arg0"), ((1, 1), (3, 4), "out0"), ((1, 1), (3, 3), "")]
)
def test_declared_arrays_of_the_reference_are_compared(
    own_sum: str,
    tmp_path: Path,
    w: tuple[int, int],
    x: tuple[int, int],
    array: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arrays = {f"arg0@{d}": np.float32(value) for d, value in enumerate(w)}
    arrays |= {f"arg1@{d}": np.full(2, value, np.float32) for d, value in enumerate(x)}
    np.savez(tmp_path / "args.npz", **arrays)
    args = [own_sum, "--args", str(tmp_path / "args.npz"), "--backend", "reference", "--check", "replication"]
    assert status_of("run", *args) == (1 if array else 0)
    told = f"error: replication: {array} is declared the same on devices 0, 1; device 1 has another"
    assert not array or told in capsys.readouterr().err


def test_other_checks_are_refused(bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("run", *bad, "--check", "nans") == 2
    assert "nan" in capsys.readouterr().err


def test_check_warns_of_what_is_not_surely_the_same(own_sum: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("check", own_sum) == 0
    err = capsys.readouterr().err
    assert "own.hlo:9:3: warning: out0 is declared the same on devices 0, 1, and isn't surely" in err
    assert "a psum of total may be missing" in err
    assert status_of("check", own_sum, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["replication"]
    assert (found["result"], found["devices"], found["instruction"]) == (0, [0, 1], "total")
    assert found["location"].endswith("own.hlo:9:3")


def test_check_says_nothing_of_what_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "joined.hlo"
    joined = (
        "local = f32[] reduce(x, zero), dimensions={0}, to_apply=add\n  total = f32[] all-reduce(local), to_apply=add, "
    )
    joined += "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"
    path.write_text(OWN_SUM.replace("total = f32[] reduce(x, zero), dimensions={0}, to_apply=add", joined))
    assert status_of("check", str(path), "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["replication"] == []
    assert "warning" not in err
