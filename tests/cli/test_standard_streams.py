"""Standard streams that are full, closed, or that nobody reads: one clear line, the right status, nothing left."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.cli.called import call
from tests.conftest import require_ended, started_processes
from tests.deadlock_programs import NAMED
from tests.samples import in_turn

DISTXLA = str(Path(sys.executable).with_name("distxla"))
MODULE = """HloModule m, replica_count=2
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0)
 ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add }
"""
COMMANDS = [
    "ops add",
    "run --help",
    "cache --json",
    "check m.hlo",
    "compile m.hlo --emit object",
    "run m.hlo --backend reference --json",
    "run m.hlo",
]
FULL, CLOSED = "No space left on device", "stdout is closed"


def each_with(*streams: tuple[str, ...]) -> list[Any]:
    """All commands, each with one of the streams, but all with the one that starts a cluster."""
    taken = [*in_turn(COMMANDS[:-1], streams), *product(COMMANDS[-1:], streams)]
    return [
        pytest.param(command, *stream, marks=[pytest.mark.cluster] if command == "run m.hlo" else [])
        for command, stream in taken
    ]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(MODULE)
    (tmp_path / "deadlock.hlo").write_text(NAMED["all_reduces_in_different_orders"].programs[0][1])
    (tmp_path / "private").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "private"))
    return tmp_path


def in_shell(command: str, redirections: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command; nothing of it is left behind."""
    before = started_processes()
    done = subprocess.run(
        ["bash", "-c", f"{DISTXLA} {command} {redirections}"], capture_output=True, check=False, timeout=120
    )
    require_ended(before, Path("private"))
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(("command", "redirection", "why"), each_with((">/dev/full", FULL), ("<&- >&-", CLOSED)))
def test_stdout_that_takes_nothing_is_one_line(command: str, redirection: str, why: str) -> None:
    assert in_shell(command, redirection) == (2, "", f"error: argument: cannot write the output: {why}\n")


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(("command", "redirection"), each_with(("2>&-",), ("2>/dev/full",)))
def test_stderr_that_takes_nothing_does_not_matter(command: str, redirection: str) -> None:
    status, printed, errors = in_shell(command, redirection)
    assert (status, errors) == (0, "")
    assert printed


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("redirection", [">/dev/full 2>/dev/full", ">&- 2>&-"])
@pytest.mark.parametrize("command", ["--help", "check m.hlo --json", "run m.hlo"])
def test_without_any_stream_the_status_tells(command: str, redirection: str) -> None:
    assert in_shell(command, redirection) == (2, "", "")


FAILURES = {
    "check nowhere.hlo --json": (2, "cannot read nowhere.hlo"),
    "check deadlock.hlo --replicas 4": (3, "deadlock"),
}


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "| true"])
@pytest.mark.parametrize("command", FAILURES)
def test_a_failure_is_told_whatever_becomes_of_stdout(command: str, redirection: str) -> None:
    status, said = FAILURES[command]
    found, _, errors = in_shell(command, redirection + "; exit ${PIPESTATUS[0]}")
    assert (found, said in errors) == (status, True)
    assert "Traceback" not in errors
    assert "bug" not in errors


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize("command", FAILURES)
def test_a_failure_has_its_status_whatever_becomes_of_stderr(command: str, redirection: str) -> None:
    found, printed, _ = in_shell(command, redirection)
    assert found == FAILURES[command][0]
    if "--json" in command:
        assert json.loads(printed)["error"]["exit_status"] == found


@pytest.mark.parametrize("command", ["ops", "run --help"])
def test_a_reader_that_has_gone_is_no_failure_to_tell_of(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = subprocess.run([DISTXLA, *command.split()], stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_head_gets_its_lines() -> None:
    status, printed, errors = in_shell("ops", "| head -1")
    assert (status, len(printed.splitlines()), errors) == (0, 1, "")


def test_files_do_not_take_the_place_of_closed_streams() -> None:
    """Output must never be written to a file that got the number of a closed stream."""
    status, _, _ = in_shell("run m.hlo --backend reference --out out.npz --report report.html", "<&- >&- 2>&-")
    assert status == 2
    assert not os.path.exists("out.npz")
    assert in_shell("compile m.hlo --out m.txt", "<&- >&- 2>&-")[0] == 0
    assert Path("m.txt").read_text().startswith("HloModule m")


OUTPUTS = {
    "compile m.hlo --out": "error: argument: cannot write /dev/full: No space left on device",
    "run m.hlo --backend reference --out": "error: argument: cannot write /dev/full: No space left on device",
    "run deadlock.hlo --replicas 4 --backend reference --report": "the report could not be written: cannot write "
    "/dev/full: No space left on device",
    "check deadlock.hlo --replicas 4 --report": "the report could not be written: cannot write /dev/full: No space "
    "left on device",
}


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("command", OUTPUTS)
def test_output_files_on_full_disks(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = call(capsys, *command.split(), "/dev/full")
    assert status == (3 if "deadlock" in command else 2)
    assert OUTPUTS[command] in errors
    assert "Traceback" not in errors
    assert os.listdir("private") == []


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_trace_on_a_full_disk() -> None:
    status, _, errors = in_shell("run m.hlo --trace", "/dev/full")
    assert (status, errors) == (2, "error: argument: cannot write /dev/full: No space left on device\n")


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("command", OUTPUTS)
def test_devices_are_written_to_and_not_replaced(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("/dev/null", "null")
    before = os.stat("/dev/null")
    assert call(capsys, *command.split(), "null")[0] == (3 if "deadlock" in command else 0)
    assert os.listdir("private") == []
    assert os.path.islink("null")
    assert (os.stat("/dev/null").st_ino, os.stat("/dev/null").st_rdev) == (before.st_ino, before.st_rdev)


def test_a_failed_write_leaves_no_view_of_its_content(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cycle with the frames of the error it outlived the content, and CPython 3.12 died of that."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    call(capsys, "run", "m.hlo", "--backend", "reference", "--out", "/dev/full")
    gc.collect()
    assert unraisable == []
