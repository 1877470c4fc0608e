"""Failed tests are run again alone: whole runs of pytest in other processes, and the bounds (tests/failed_tests.py)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from tests import failed_tests
from tests.failed_tests import CIRCUMSTANCES, FAILED, PASSED, FailedTests

ROOT = Path(__file__).parents[1]
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin,_hypothesis_pytestplugin"}  # quick
SOURCE = """
import os, pytest
from pathlib import Path
from hypothesis import given, strategies

def is_first(name):
    try:
        Path(__file__).with_name(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def test_passes(): pass

def test_by_chance():
    print("its output")
    assert not is_first("by chance"), "disturbed by another test"

def test_wrong(): assert 1 + 1 == 3

@given(strategies.integers())
def test_drawn(number): assert number < 0

@pytest.fixture
def leaky():
    yield
    assert not is_first("leaky"), "left behind"

def test_leaks(leaky): pass

def test_crashes():
    if is_first("crashes"):
        os._exit(3)

def test_skips_then():
    assert not is_first("skips"), "the first time"
    pytest.skip("the second time")
"""


def run(folder: Path, source: str, *options: str) -> tuple[int, str, list[dict[str, str]]]:
    """A run of pytest: its status, what it prints, and the lines of --failures."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.failed_tests"]\n')
    (folder / "test_inner.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--failures", "build/failures.jsonl", *options]
    names = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "CI"))}
    environment = {**names, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", **PLUGINS}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    lines = (folder / "build" / "failures.jsonl").read_text().splitlines()
    return done.returncode, done.stdout + done.stderr, [json.loads(line) for line in lines]


FEW = """
import os
from pathlib import Path

def is_first(name):
    here = Path(__file__).with_name(name)
    return not here.exists() and here.touch() is None

def test_by_chance(): assert not is_first("by chance"), "disturbed by another test"

def test_crashes():
    if is_first("crashes"):
        os._exit(3)
"""


def test_of_a_small_run_with_a_worker(tmp_path: Path) -> None:
    """And with nothing that would take hypothesis."""
    status, output, records = run(tmp_path, FEW, "-n", "1")
    assert (status, [record["alone"] for record in records if "alone" in record]) == (1, [PASSED, PASSED])
    section = output.partition(f"= {PASSED} =")[2].partition("= short test summary")[0]
    for text in ("disturbed by another test", "crashed while running", CIRCUMSTANCES):
        assert text in section
    assert re.match(r"load \d[^\n]*\nPYTHONHASHSEED=7, worker gw\d$", records[0]["circumstances"])
    assert records[1]["circumstances"].startswith("load ")
    assert [record["phase"] for record in records[:2]] == ["call", "its worker's end"]


@pytest.mark.parametrize("given_seed", [None, 12])
@pytest.mark.parametrize("draws_the_same", [False, True])
def test_seeds(given_seed: int | None, draws_the_same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    @settings(derandomize=draws_the_same, database=None, max_examples=1)
    @given(strategies.none())
    def drawn(nothing: None) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        drawn()
    config = SimpleNamespace(getoption=lambda name, default: given_seed if name == "--hypothesis-seed" else default)
    found = failed_tests.seeds(SimpleNamespace(obj=drawn, config=config))
    expected = r"hypothesis draws the same in every run" if draws_the_same else r"--hypothesis-seed="
    assert re.match(rf"PYTHONHASHSEED=7, {expected}", found)
    if not draws_the_same:
        assert re.search(r"=12$" if given_seed else r"seed=\d+$", found)


@pytest.mark.exhaustive
def test_of_a_run_with_workers(tmp_path: Path) -> None:
    status, output, records = run(tmp_path, SOURCE, "-n", "2", "-ra")
    assert status == 1
    alone = {record["test"].partition("::")[2]: record["alone"] for record in records if "alone" in record}
    assert alone == {
        "test_by_chance": PASSED,
        "test_wrong": FAILED,
        "test_drawn": FAILED,
        "test_leaks": PASSED,
        "test_crashes": PASSED,
        "test_skips_then": alone["test_skips_then"],
    }
    assert re.fullmatch(r"ended alone with status 0, 1 skipped in .*s", alone["test_skips_then"])
    # as what they are counted
    assert re.search(r"^=+ 5 failed, 2 passed, 1 error in ", output.splitlines()[-1]), output
    # the first failures in full, after all others
    section = output.partition(f"= {PASSED} =")[2].partition("= short test summary")[0]
    for text in ("disturbed by another test", "its output", "left behind", "crashed while running"):
        assert text in section
    assert "assert 1 + 1 == 3" not in section
    assert f"{FAILED}: test_inner.py::test_wrong" in output
    # what one needs to repeat them
    failures = {record["test"].partition("::")[2]: record for record in records if "text" in record}
    assert failures["test_leaks"]["phase"] == "teardown"
    assert "assert (1 + 1) == 3" in failures["test_wrong"]["text"]
    assert re.match(r"load \d[^\n]*\nPYTHONHASHSEED=7, worker gw\d$", failures["test_wrong"]["circumstances"])
    assert failures["test_crashes"]["circumstances"].startswith("load ")
    assert failures["test_crashes"]["phase"] == "its worker's end"
    assert re.search(r"worker gw\d, --hypothesis-seed=\d+$", failures["test_drawn"]["circumstances"])
    assert output.count(CIRCUMSTANCES) >= 4  # in the log, too


@pytest.mark.exhaustive
def test_of_a_run_in_one_process(tmp_path: Path) -> None:
    status, output, records = run(tmp_path, SOURCE, "-k", "drawn or by_chance or passes", "--hypothesis-seed=12")
    assert (status, [record["alone"] for record in records if "alone" in record]) == (1, [PASSED, FAILED])
    assert records[1]["circumstances"].endswith("PYTHONHASHSEED=7, --hypothesis-seed=12")
    assert re.search(r"^=+ 2 failed, 1 passed, 4 deselected in ", output.splitlines()[-1])


@pytest.mark.sampled(one_in=3, first=("test_inner.py::test_by_chance",))
@pytest.mark.parametrize("options", [["-x"], ["--once"], ["test_inner.py::test_by_chance"]], ids=" ".join)
def test_what_runs_nothing_again(tmp_path: Path, options: list[str]) -> None:
    """The only test of a run was alone already."""
    source = SOURCE.replace("def test_crashes", "def crashes")
    status, output, records = run(tmp_path, source, *options)
    assert (status, [record for record in records if "alone" in record]) == (1, [])
    assert "run again" not in output


@pytest.mark.exhaustive  # it ends with the status of the following one
def test_an_interrupted_run_runs_nothing_again(tmp_path: Path) -> None:
    source = "def test_a(): assert False\ndef test_b(): raise KeyboardInterrupt\n"
    status, output, records = run(tmp_path, source)
    assert (status, len(records)) == (2, 1)
    assert "run again" not in output


def test_a_file_that_cannot_be_imported_is_noted(tmp_path: Path) -> None:
    status, _, records = run(tmp_path, "import no_such_module\n")
    assert (status, [(r["test"], r["phase"]) for r in records]) == (2, [("test_inner.py", "collection")])
    assert "no_such_module" in records[0]["text"]


class Terminal:
    """What a run prints, by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(f"== {title}")

    def write_sep(self, sign: str, title: str) -> None:
        self.lines.append(f"{sign} {title}")

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def outcome_of(count: int, monkeypatch: pytest.MonkeyPatch, limit_s: float, alone: Any) -> list[str]:
    """What is printed after so many failures."""
    monkeypatch.setattr(failed_tests, "run_alone", alone)
    config: Any = SimpleNamespace(getoption=lambda name: None)
    failed = FailedTests(config)
    for number in range(count):
        name = f"t.py::test_{number}"
        failed.pytest_runtest_logreport(
            SimpleNamespace(failed=True, nodeid=name, when="call", longreprtext=f"E {number}", sections=[])
        )
    terminal = Terminal()
    failed._run_again(terminal, limit_s)
    return terminal.lines[1:]


def test_so_many_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = outcome_of(12, monkeypatch, 1e9, lambda *_: FAILED)
    assert lines[:10] == [f"{FAILED}: t.py::test_{k}" for k in range(10)]
    assert lines[10:] == ["not run again, after 10 tests: 2 tests, from t.py::test_10 on"]


def test_so_many_are_no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome_of(200, monkeypatch, 1e9, None) == ["200 tests failed, which is no chance: none was run again"]


def test_the_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome_of(2, monkeypatch, 0.0, None) == ["not run again, after 0 s: 2 tests, from t.py::test_0 on"]


def test_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passed before is still printed."""

    def alone(test: str, *_: object) -> str:
        if test.endswith("1"):
            raise KeyboardInterrupt
        return PASSED

    lines = outcome_of(3, monkeypatch, 1e9, alone)
    assert lines[:2] == [f"{PASSED}: t.py::test_0", "not run again, after Ctrl-C: 2 tests, from t.py::test_1 on"]
    assert lines[2:5] == [f"== {PASSED}", "_ t.py::test_0, call", "E 0"]


def test_a_test_that_does_not_end_is_ended(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.failed_tests"]\n')
    (tmp_path / "test_inner.py").write_text("import time\ndef test_a(): time.sleep(1000)\n")
    config: Any = SimpleNamespace(
        rootpath=tmp_path, pluginmanager=pytestconfig.pluginmanager, getoption=lambda name, default: default
    )
    assert failed_tests.run_alone("test_inner.py::test_a", config, 0.1) == "ran for 0 s alone, and was ended"
