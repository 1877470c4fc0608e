"""What .ci/run ends with (.ci/closing_report.py), and what it is made of (.ci/leg.py)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ci.scripts import FOLDER, script

CLOSING = script("closing_report")
SUMMARY = "=========== {} in 400.12s (0:06:40) ==========="


def leg(folder: Path, name: str, output: str, status: int = 0, failures: list[dict[str, str]] | None = None) -> None:
    """As .ci/leg.py and tests/failed_tests.py leave it."""
    noted = {
        "name": name,
        "command": f"make {name}",
        "status": status,
        "seconds": 61.23,
        "processor_seconds": 100.0,
        "circumstances": "load 1.00 1.00 1.00 at its end",
    }
    with open(folder / "legs.jsonl", "a") as lines:
        lines.write(json.dumps(noted) + "\n")
    (folder / f"{name}.log").write_text(output)
    if failures is not None:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in failures))


def failure(test: str, text: str) -> dict[str, str]:
    circumstances = "load 7.50 3.00 2.00; cpu 60 % of the last 10 s waited for\nPYTHONHASHSEED=7, worker gw1"
    return {"test": test, "phase": "call", "text": text, "circumstances": circumstances}


def test_where_all_passed_it_ends_with_the_summary_of_the_main_leg(tmp_path: Path) -> None:
    leg(tmp_path, "check", "All checks passed!")
    leg(tmp_path, "quick-3.12", SUMMARY.format("900 passed"))
    leg(tmp_path, "test", "..\n" + SUMMARY.format("9000 passed, 3 skipped") + "\n")
    leg(tmp_path, "more-1-fuzz", "no finding")
    lines = CLOSING.report(tmp_path, "test").splitlines()
    assert lines[-1] == SUMMARY.format("9000 passed, 3 skipped")
    assert [line.split() for line in lines[:2]] == [
        ["leg", "status", "seconds", "of", "processors"],
        ["check", "0", "61.2", "100.0"],
    ]


def test_a_failed_test_is_told(tmp_path: Path) -> None:
    text = "\n".join(f"line {k}" for k in range(100))
    failures = [failure("tests/a.py::test_b", text), {"test": "tests/a.py::test_b", "alone": "passed only alone"}]
    leg(tmp_path, "quick-3.12", SUMMARY.format("1 failed, 900 passed"), 1, failures)
    leg(tmp_path, "test", SUMMARY.format("9000 passed, 2 errors"), 1, [failure("tests/c.py::test_d", "E left behind")])
    report = CLOSING.report(tmp_path, "test")
    told = "\n".join(f"line {k}" for k in range(70, 100))
    assert report.startswith(
        "---- quick-3.12: tests/a.py::test_b, call; passed only alone\n"
        "load 7.50 3.00 2.00; cpu 60 % of the last 10 s waited for\nPYTHONHASHSEED=7, worker gw1\n"
        f"{told}\n\n---- test: tests/c.py::test_d, call; not run again alone\n"
    )
    assert report.splitlines()[-1] == "9900 passed, 3 failed"


def test_a_failed_leg_without_tests_is_told(tmp_path: Path) -> None:
    """A linter, or a run of pytest that crashed before its end."""
    leg(tmp_path, "check", "\n".join(f"error {k}" for k in range(50)), 2)
    leg(tmp_path, "test", "Killed\n", 137, [])
    report = CLOSING.report(tmp_path, "test")
    begin, _, rest = report.partition("error 20\n")
    assert begin == "---- check: status 2 of make check\nload 1.00 1.00 1.00 at its end\n"
    assert rest.partition("error 49\n\n")[2].startswith("---- test: status 137 of make test\n")
    assert report.splitlines()[-1] == "0 passed, 2 failed"


def test_nothing_is_no_success(tmp_path: Path) -> None:
    assert CLOSING.report(tmp_path, "test").splitlines()[-1] == "0 passed, 1 failed"


@pytest.mark.parametrize("count", [1, 5, 17, 400])
@pytest.mark.parametrize("length", [3, 300, 90_000])
def test_its_length_is_bounded(tmp_path: Path, count: int, length: int) -> None:
    """Short failures are told in full, and what is left out is counted."""
    failures = [failure(f"tests/a.py::test_{k}[{'x' * (length // 30)}]", f"E {k} {'y' * length}") for k in range(count)]
    leg(tmp_path, "check", "E: bad style", 1)
    leg(tmp_path, "test", SUMMARY.format(f"{count} failed"), 1, [*failures, failure("tests/a.py::test_short", "E 5")])
    report = CLOSING.report(tmp_path, "test")
    assert len(report) <= CLOSING.MOST_CHARACTERS
    assert len(report) > CLOSING.MOST_CHARACTERS * 0.8 or length * count < 6000
    shown = report.count("\n---- ") + 1
    left_out = re.search(r"^(\d+) more failures are left out here", report, re.MULTILINE)
    assert shown + (int(left_out[1]) if left_out else 0) == count + 2
    assert "E: bad style" in report
    assert report.splitlines()[-1] == f"0 passed, {count + 1} failed"


def test_shares_are_fair() -> None:
    assert CLOSING.shares([5, 100, 20, 100], 145) == [5, 60, 20, 60]
    assert CLOSING.shares([5, 6], 100) == [5, 6]


def run_leg(folder: Path, *command: str) -> tuple[int, str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, FOLDER / "leg.py", *command], cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert done.stderr == ""
    return done.returncode, done.stdout, json.loads((folder / "legs.jsonl").read_text().splitlines()[-1])


def test_a_leg_is_noted(tmp_path: Path) -> None:
    status, output, noted = run_leg(tmp_path, ".", "a", "sh", "-c", "echo out; echo err >&2; kill -9 $$")
    assert (status, output) == (137, "out\nerr\n")
    assert (tmp_path / "a.log").read_text() == output
    assert (noted["name"], noted["status"], noted["circumstances"][:5]) == ("a", -9, "load ")
    status, output, noted = run_leg(tmp_path, "--quiet", ".", "b", "sh", "-c", "echo out; exit 3")
    assert (status, output, noted["status"]) == (3, "", 3)
    assert (tmp_path / "b.log").read_text() == "out\n"


def test_a_leg_counts_processes_whose_parents_have_ended(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    command = f"mkfifo over; (sh -c \"{sys.executable} -c '{busy}'; echo >over\" &); read line <over"
    _, _, noted = run_leg(tmp_path, ".", "a", "sh", "-c", command)
    assert noted["processor_seconds"] >= 0.2


def test_a_process_that_a_leg_leaves_behind_holds_nothing_up(tmp_path: Path) -> None:
    """Its output is still open."""
    command = "sleep 1000 & echo $! >pid; echo done"
    program = f"""
import runpy
main = runpy.run_path({str(FOLDER / "leg.py")!r})["main"]
main.__globals__["LATE_S"] = main.__globals__["ORPHANS_S"] = 0.1
assert main([".", "a", "sh", "-c", {command!r}]) == 0
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=100)
    assert (tmp_path / "a.log").read_text() == "done\n"
    subprocess.run(["kill", (tmp_path / "pid").read_text().strip()], check=True)
