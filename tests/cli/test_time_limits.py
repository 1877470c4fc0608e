"""`--time-limit` ends whatever a command does: one line that says in which phase, status 5, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distxla.cli import arguments, time_limits
from distxla.cli import programs as named_programs
from distxla.cli.main import main
from distxla.compiler.verify import verifier
from distxla.errors import ArgumentError, TimeLimitError
from distxla.time_limit import at, current_limit, phase, seconds_left, time_limit
from distxla.without_cluster import check, programs
from tests.conftest import require_ended, started_processes
from tests.large_texts import chained_adds, doubling_calls, wide_tuple
from tests.stopwatch import Stopwatch

DISTXLA = str(Path(sys.executable).with_name("distxla"))
MODULE = "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"
LIMIT_S = 0.4
LATE_S = 5.0  # on a machine full of other work; `forever` takes 60 s


def forever(*_: Any, **__: Any) -> None:
    """Python code that does not end by itself and catches every Exception."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            sum(range(1000))
            time.sleep(0.005)  # others may compute meanwhile
        except Exception:
            raise AssertionError("taken for an error of its own") from None


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import the modules of the commands, which takes longer than the limits here."""
    file = tmp_path_factory.mktemp("first") / "m.hlo"
    file.write_text(MODULE)
    for command in (["check", str(file)], ["run", str(file), "--backend", "reference"]):
        with pytest.raises(SystemExit):
            main(command)


@pytest.fixture(autouse=True)
def never_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may hold this process up for longer than the command allows itself before it ends the process."""
    monkeypatch.setattr(time_limits, "STUCK_S", 60.0)


# command, a function that does not end, the phase that the error names
PHASES = [
    (("check",), named_programs, "load_module", "reading the modules"),
    (("check",), programs, "verify_world", "checking"),
    (("check",), programs, "order_communication", "ordering what devices do together"),
    (("check",), check, "obstacles_of", "checking what can be executed"),
    (("check",), check, "examined", "looking for deadlocks"),
    (("compile",), verifier, "verify_module", "checking"),
    (("run", "--backend", "reference"), programs, "device_program", "partitioning"),
    (("run", "--backend", "reference"), arguments, "read_arguments", "reading arguments"),
]


@pytest.mark.sampled(one_in=2, first=("check-verify_world", "compile-verify_module", "run-read_arguments"))
@pytest.mark.parametrize(("command", "place", "name", "doing"), PHASES, ids=[f"{p[0][0]}-{p[2]}" for p in PHASES])
def test_each_phase_is_interrupted_and_named(
    command: tuple[str, ...], place: object, name: str, doing: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "m.hlo").write_text(MODULE)
    monkeypatch.setattr(place, name, forever)
    watch, alarm = Stopwatch(), signal.getsignal(signal.SIGALRM)
    with pytest.raises(SystemExit) as ended:
        main([command[0], str(tmp_path / "m.hlo"), *command[1:], "--time-limit", str(LIMIT_S)])
    assert watch.seconds < LIMIT_S + LATE_S
    assert ended.value.code == 5
    errors = capsys.readouterr().err
    assert re.fullmatch(rf"error: time-limit: the time limit of 0\.4 s ran out while {doing}(: \S+)?\n", errors), errors
    assert signal.getsignal(signal.SIGALRM) is alarm


def test_the_error_is_json_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(MODULE)
    monkeypatch.setattr(check, "examined", forever)
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path / "m.hlo"), "--json", "--time-limit", str(LIMIT_S)])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["exit_status"]) == ("time-limit", 5)


def test_what_python_cannot_interrupt_ends_with_the_process() -> None:
    """A library's call in the main thread, which no alarm ends."""
    text = (
        "import ctypes\n"
        "from distxla.cli.time_limits import enforced\n"
        "with enforced(0.3):\n"
        "    end = ctypes.CDLL(None)\n"
        "    while True:\n"
        "        end.usleep(50_000_000)\n"
    )
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"  # usleep would end early with EINTR
    watch = Stopwatch()
    run = subprocess.run(
        [sys.executable, "-c", f"import signal\n{block}{text}"], capture_output=True, text=True, timeout=30, check=False
    )
    assert run.returncode == 5
    assert run.stderr == "error: time-limit: the time limit of 0.3 s ran out while getting ready\n"
    assert watch.seconds < 15


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_long_compilation_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(MODULE)
    before = started_processes()
    text = (
        "import sys, time\n"
        "from distxla.compiler.passes import fuse\n"
        "fuse.Fuse.run = lambda self, module: time.sleep(60)\n"
    )  # fmt: skip
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nif 'distxla.compiler.worker' in sys.orig_argv:\n    exec({text!r})\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [DISTXLA, "compile", str(tmp_path / "m.hlo"), "--time-limit", "10"],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert run.returncode == 5, run.stderr
    where = r"(pass fuse|loading LLVM)"  # the latter on a machine full of other work
    assert re.search(rf"the time limit of 10 s ran out while compiling: {where}\n", run.stderr), run.stderr
    assert not started_processes() - before


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.slow
def test_a_start_that_does_not_end_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    """Ray's workers never begin."""
    (tmp_path / "m.hlo").write_text(MODULE)
    subprocess.run([DISTXLA, "run", str(tmp_path / "m.hlo")], capture_output=True, timeout=60, check=True)  # compiled
    before = started_processes()
    text = (
        "import sys\n"
        "from distxla.runtime.ray import commands\n"
        "commands.worker_command = lambda *_: ['/bin/sleep', '60']\n"
        "from distxla.__main__ import main\n"
        "main()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", text, "run", str(tmp_path / "m.hlo"), "--time-limit", "8"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 5, run.stderr
    assert re.search(r"the time limit of 8 s ran out while starting the replicas\n", run.stderr), run.stderr
    require_ended(before)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("text", [chained_adds, wide_tuple])
@pytest.mark.parametrize("command", ["check", "compile"])
def test_large_texts_end_in_time(command: str, text: Callable[[], str], tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(text())
    watch = Stopwatch()
    run = subprocess.run(
        [DISTXLA, command, str(tmp_path / "m.hlo"), "--time-limit", "2"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert watch.seconds < 2 + LATE_S
    assert run.returncode in (0, 5), run.stderr
    if run.returncode:
        assert re.fullmatch(r"error: time-limit: the time limit of 2 s ran out while [^\n]*\n", run.stderr), run.stderr


@pytest.mark.parametrize("levels", [30])
def test_the_reference_keeps_to_it(levels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2**30 additions one by one."""
    (tmp_path / "m.hlo").write_text(doubling_calls(levels))
    watch = Stopwatch()
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "m.hlo"), "--backend", "reference", "--time-limit", "0.6"])
    assert (ended.value.code, watch.seconds < 0.6 + LATE_S) == (5, True)
    assert "the time limit of 0.6 s ran out while evaluating" in capsys.readouterr().err


# --- the library


def test_of_two_limits_the_one_that_ends_first_holds() -> None:
    with time_limit(60) as outer:
        with time_limit(100) as inner:
            assert inner is outer
        with time_limit(None) as inner:
            assert inner is outer
        with time_limit(1) as inner, phase("checking"):
            assert inner is not outer
            assert (seconds_left() or 0) <= 1
        assert current_limit() is outer
    assert current_limit() is None
    assert seconds_left() is None


def test_work_that_says_where_it_is_ends_without_a_signal() -> None:
    """In any thread, which gets no handler of signals."""
    found: list[BaseException] = []

    def work() -> None:
        try:
            with time_limit(0.05), phase("checking"):
                while True:
                    at("f12")
        except TimeLimitError as error:
            found.append(error)

    handler: Callable[..., Any] | int | None = signal.getsignal(signal.SIGALRM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert signal.getsignal(signal.SIGALRM) is handler
    assert str(found[0]) == "time-limit: the time limit of 0.05 s ran out while checking: f12"
    assert getattr(found[0], "phase", None) == "checking"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e10, "5"])
def test_a_limit_is_positive(seconds: Any) -> None:
    with pytest.raises(ArgumentError, match="expected a positive number of seconds, at most"), time_limit(seconds):
        pass


ENDLESS_ROUNDS = """HloModule endless, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
always { x = f32[4] parameter(0)  ROOT yes = pred[] constant(true) }
again { x = f32[4] parameter(0)
  ROOT s = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add }
ENTRY main { x = f32[4] parameter(0)  ROOT w = f32[4] while(x), condition=always, body=again }
"""


def test_a_device_that_the_limit_interrupts_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text(ENDLESS_ROUNDS)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "m.hlo"), "--backend", "reference", "--time-limit", "0.6"])
    errors = capsys.readouterr().err
    assert (ended.value.code, "ran out" in errors, "failed" in errors) == (5, True, False)


def test_an_endless_limit_is_a_wrong_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text(MODULE)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path / "m.hlo"), "--time-limit", "inf"])
    assert (ended.value.code, "--time-limit" in capsys.readouterr().err) == (2, True)


LOOP = """HloModule m
c { p = s32[] parameter(0)
  z = s32[] constant(0)
  ROOT r = pred[] compare(p, z), direction=GE }
b { p = s32[] parameter(0)
  ROOT r = s32[] multiply(p, p) }
ENTRY e { o = s32[] constant(1)
  ROOT w = s32[] while(o), condition=c, body=b }
"""


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_the_diagnosis_names_the_whole_limit(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(LOOP)
    command = [DISTXLA, "run", str(tmp_path / "m.hlo"), "--time-limit", "6", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = json.loads(ended.stdout)["error"]
    assert ended.returncode == 5
    assert "the time limit of 6 s ran out" in found["message"]
    if "diagnosis" in found:  # else the limit ran out before the start
        assert found["diagnosis"]["summary"] in found["message"]
