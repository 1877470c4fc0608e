"""What a failed run leaves behind besides its message: JSON, a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distxla.cli.main import main
from tests.deadlock_programs import NAMED

CASE = NAMED["all_reduces_in_different_orders"]


def status_of(*args: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(args)
    return ended.value.code


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "a.hlo"
    path.write_text(CASE.programs[0][1])
    return str(path)


def test_json_of_a_deadlock(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("run", module, "--replicas", "4", "--backend", "reference", "--json") == 3
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["error"]["code"] == "mismatch"
    assert found["error"]["exit_status"] == 3
    assert found["error"]["location"]["line"] == 9
    assert found["diagnosis"]["cycles"] == [[0, 1]]
    assert found["diagnosis"]["behind"] == [2, 3]
    assert "cycle: 0 -> 1 -> 0" in err


def test_check_and_run_hold_the_same_object(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for words in (["check"], ["run", "--backend", "reference"]):
        assert status_of(*words, module, "--replicas", "4", "--json") == 3
        found.append(json.loads(capsys.readouterr().out)["diagnosis"])
    before, during = found
    shared = before.keys() & during.keys()
    assert {"format", "kind", "summary", "blocked", "cycle", "divergence", "hints"} <= shared
    assert {key: before[key] for key in shared} == {key: during[key] for key in shared}
    assert before.keys() - shared == {"undecided", "notes"}
    assert during.keys() - shared == {"devices", "divergences", "network", "injected"}


def test_what_is_refused_has_a_kind_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A send without a recv: the same object from check as from run."""
    path = tmp_path / "s.hlo"
    path.write_text(
        "ENTRY main {\n  x = f32[] parameter(0)\n  t = token[] after-all()\n"
        "  s = (f32[], u32[], token[]) send(x, t), channel_id=1\n  ROOT d = token[] send-done(s), channel_id=1\n}\n"
    )
    found = []
    for words in (["check"], ["run", "--backend", "reference"]):
        assert status_of(*words, str(path), "--replicas", "2", "--json") == 3
        found.append(json.loads(capsys.readouterr().out)["diagnosis"])
    assert found[0] == found[1]
    assert (found[0]["kind"], found[0]["channel"], found[0]["blocked"]) == ("unmatched", 1, [])


def test_the_page_of_a_deadlock(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "deadlock.html"
    assert status_of("run", module, "--replicas", "4", "--backend", "reference", "--report", str(page)) == 3
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert f"the report is in {page}" in capsys.readouterr().err


def test_nothing_is_left_behind_where_nothing_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "fine.hlo", tmp_path / "page.html"
    path.write_text("ENTRY main { x = f32[] parameter(0)\n ROOT r = f32[] negate(x) }")
    assert status_of("run", str(path), "--backend", "reference", "--report", str(page)) == 0
    assert not page.exists()


def test_json_of_other_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("ENTRY main { x = f32[ parameter(0) }")
    assert status_of("run", str(path), "--backend", "reference", "--json") == 2
    found = json.loads(capsys.readouterr().out)
    assert found["error"]["code"] == "syntax"
    assert found["diagnosis"] is None


def test_a_page_that_cannot_be_written_is_an_error_before_the_run(module: str, tmp_path: Path) -> None:
    page = str(tmp_path / "nowhere" / "page.html")
    assert status_of("run", module, "--replicas", "4", "--backend", "reference", "--report", page) == 2


def test_where_nothing_ran_there_is_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "sends.hlo", tmp_path / "page.html"
    path.write_text(
        "ENTRY main {\n  x = f32[] parameter(0)\n  t = token[] after-all()\n"
        "  s = (f32[], u32[], token[]) send(x, t), channel_id=1\n  ROOT d = token[] send-done(s), channel_id=1\n}\n"
    )
    args = ("run", f"{path}@0", "--backend", "reference", "--report", str(page))
    assert status_of(*args) == 3
    assert f"there is no report for {page}: nothing ran\n" in capsys.readouterr().err
    assert not page.exists()
