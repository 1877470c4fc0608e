"""The time limit, Ctrl-C and SIGTERM end a command wherever their exception arrives: one line, one exit status."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from distxla.cli import terminal, time_limits
from distxla.cli.main import main
from distxla.cli.stop_requests import StopRequests, stops
from distxla.cli.time_limits import enforced
from distxla.errors import DistxlaError, TimeLimitError
from distxla.runtime.values.interrupts import deferred_interrupt
from distxla.time_limit import current_limit
from distxla.without_cluster import programs
from tests.conftest import require_ended, started_processes

DISTXLA = str(Path(sys.executable).with_name("distxla"))
MODULE = "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"
ENDLESS_S = 20.0


def endless() -> None:
    """Python code without an end of its own; it is over soon where nothing comes of a signal."""
    end = time.monotonic() + ENDLESS_S
    while time.monotonic() < end:
        sum(range(10_000))
        time.sleep(4e-4)  # a signal arrives in Python code or in a call of C; others may compute meanwhile
    raise AssertionError("nothing has interrupted")


# --- code in which an exception does not arrive as it was raised


def in_a_class_body() -> None:
    """Python 3.11 raises RuntimeError("Error calling __set_name__ …") from it."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            endless()

    type("Made", (), {"field": Field()})


def in_a_destructor() -> None:
    class Slow:
        def __del__(self) -> None:
            endless()

    Slow()
    endless()


def in_a_callback_of_c() -> None:
    ctypes.CFUNCTYPE(None)(endless)()
    endless()


def replaced() -> None:
    try:
        endless()
    except BaseException:
        raise ImportError("some module could not be imported") from None


def dropped() -> None:
    with suppress(BaseException):
        endless()
    endless()


def a_result_instead() -> None:
    try:
        endless()
    except BaseException:
        return


PLACES = [in_a_class_body, in_a_destructor, in_a_callback_of_c, replaced, dropped, a_result_instead]


def ended(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as found:
        main(args)
    return found.value.code, *capsys.readouterr()


@pytest.fixture(scope="module")
def kept_module(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("moments") / "m.hlo"
    file.write_text(MODULE)
    return str(file)


@pytest.fixture(scope="module", autouse=True)
def imported(kept_module: str) -> None:
    """Import the modules of a command, which takes longer than the limits here: a process whose limit runs out amid an
    import ends, and has no other command that would find half of a module."""
    with pytest.raises(SystemExit) as found:
        main(["check", kept_module])
    assert found.value.code == 0


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "m.hlo").write_text(MODULE)
    return str(tmp_path / "m.hlo")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_time_limit_is_told_whatever_arrives(
    place: Callable[[], None], module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []

    def limited(*_: object, **__: object) -> None:
        begun.append(True)
        place()

    monkeypatch.setattr(programs, "verify_world", limited)
    found = ended(capsys, "check", module, "--time-limit", "0.25")
    doing = "checking" if begun else "[^\n]*"  # a machine that is full of other work may not get there
    assert found[:2] == (5, "")
    assert re.fullmatch(rf"error: time-limit: the time limit of 0\.25 s ran out while {doing}\n", found[2])


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place is not a_result_instead], ids=lambda p: p.__name__
)
@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "terminated\n")],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_is_told_whatever_arrives(
    place: Callable[[], None], number: int, status: int, said: str,
    module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def interrupted(*_: object, **__: object) -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        place()

    monkeypatch.setattr(programs, "verify_world", interrupted)
    found, printed, errors = ended(capsys, "check", module)
    assert (found, printed, errors.lstrip("\n")) == (status, "", said)  # a line ends where a terminal shows ^C


def test_handlers_and_hooks_are_put_back(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    def now() -> list[object]:
        return [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)), sys.unraisablehook]

    before = now()
    ended(capsys, "check", module, "--time-limit", "50")
    assert now() == before


def test_a_pending_alarm_of_others_comes_at_its_own_time() -> None:
    rung: list[float] = []
    former = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    begin = time.monotonic()
    before = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeLimitError), enforced(0.05):
            endless()
        assert not rung
        while not rung and time.monotonic() < begin + 30:
            time.sleep(0.01)
        assert rung[0] >= begin + 0.3
    finally:
        signal.signal(signal.SIGALRM, former)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_nothing_disturbs_the_unwinding() -> None:
    """What takes things down may take longer than a look whether the exception was dropped."""
    done: list[str] = []

    def take_down() -> None:
        time.sleep(0.5)
        done.append("taken down")

    class Resource:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            take_down()

    def work() -> None:
        try:
            with Resource():
                try:
                    endless()
                finally:
                    take_down()
        except BaseException as error:
            take_down()
            raise ValueError("instead") from error

    with pytest.raises(TimeLimitError), enforced(0.1):
        work()
    assert done == ["taken down"] * 3


def ended_steps(step: Callable[[], None], *, is_limited: bool = False) -> type[BaseException]:
    """What a deferred step, and Python code without an end behind it, raises."""

    def limited() -> None:
        requests = StopRequests()
        with requests.handled(), requests.limited(0.1, lambda: TimeLimitError("over") if is_limited else None):
            with deferred_interrupt():
                step()
            endless()

    with pytest.raises(BaseException) as found:
        limited()
    return found.type


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGINT])
def test_a_step_that_is_to_be_whole_is_not_interrupted(number: int) -> None:
    done: list[str] = []

    def step() -> None:
        with deferred_interrupt():  # nested ones are part of the outer one
            if number != signal.SIGALRM:
                signal.raise_signal(number)
        time.sleep(0.4)
        done.append("whole")

    raised = {signal.SIGALRM: "Expired", signal.SIGTERM: "SystemExit", signal.SIGINT: "KeyboardInterrupt"}[number]
    assert ended_steps(step, is_limited=number == signal.SIGALRM).__name__ == raised
    assert done == ["whole"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_takes_effect_at_once(number: int) -> None:
    done: list[str] = []

    def step() -> None:
        with deferred_interrupt(), deferred_interrupt():
            signal.raise_signal(number)
            signal.raise_signal(number)
            done.append("whole")

    ended_steps(step)
    assert done == []


def test_a_limit_amid_a_long_step_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor amid what Ctrl-C takes down: the main thread runs Python code."""
    monkeypatch.setattr(time_limits, "STUCK_S", 0.1)
    monkeypatch.setattr(os, "_exit", lambda status: done.append("ended"))
    done: list[str] = []

    def step() -> None:
        with deferred_interrupt():
            time.sleep(0.6)
            done.append("whole")
        endless()

    def take_down() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            time.sleep(0.6)
            done.append("taken down")

    with pytest.raises(TimeLimitError), enforced(0.1):
        step()
    with pytest.raises(KeyboardInterrupt), enforced(0.1):
        take_down()
    assert done == ["whole", "taken down"]


def test_a_command_in_another_thread_ends(module: str) -> None:
    statuses: list[object] = []

    def run() -> None:
        try:
            main(["check", module])
        except SystemExit as found:
            statuses.append(found.code)

    for _ in range(2):
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(60)
    assert statuses == [0, 0]


def test_the_limit_is_told_though_ctrl_c_follows(
    module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_late(*_: object, **__: object) -> None:
        try:
            endless()
        finally:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(programs, "verify_world", interrupted_late)
    assert ended(capsys, "check", module, "--time-limit", "0.1")[0] == 5


def test_ctrl_c_is_told_though_the_limit_follows(
    module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        limit = current_limit()
        assert limit is not None
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            limit.end = time.monotonic()
            signal.raise_signal(signal.SIGALRM)
            limit.left()  # raises, as the next phase does

    monkeypatch.setattr(programs, "verify_world", late)
    assert ended(capsys, "check", module, "--time-limit", "100")[0] == 130


def test_a_signal_amid_the_report_changes_nothing(
    module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    def interrupted(*_: object, **__: object) -> None:
        told.append(signal.getsignal(signal.SIGINT))

    def report(requests: StopRequests) -> None:
        reported(requests)
        if not begun:
            begun.append(True)
            signal.raise_signal(signal.SIGINT)

    told: list[Any] = []
    begun: list[bool] = []
    reported = StopRequests.report
    monkeypatch.setattr(StopRequests, "report", report)
    monkeypatch.setattr(programs, "verify_world", fail)
    monkeypatch.setattr("distxla.cli.main.tell", interrupted)
    assert ended(capsys, "check", module)[0] == 2
    assert told == [signal.SIG_DFL]  # a second one ends a report that nobody reads


def test_a_limit_behind_the_output_adds_no_second_object(
    module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_json(data: Any, *, indent: int | None = None) -> None:
        written(data, indent=indent)
        if "outcome" in data:
            endless()

    written = terminal.write_json
    monkeypatch.setattr(terminal, "write_json", write_json)
    status, printed, errors = ended(capsys, "check", module, "--json", "--time-limit", "0.5")
    assert (status, "ran out" in errors) == (5, True)
    assert isinstance(json.loads(printed), dict)


def test_one_thread_tells_how_a_command_ended(
    module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that ends a process whose main thread is stuck does not, once that one has begun."""
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail("the process was ended"))
    told: list[object] = []

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    def tell(error: DistxlaError, **_: object) -> None:
        told.append(error.exit_status)
        time_limits.end_process(TimeLimitError("over"), as_json=False)

    monkeypatch.setattr(programs, "verify_world", fail)
    monkeypatch.setattr("distxla.cli.main.tell", tell)
    assert ended(capsys, "check", module) == (2, "", "")
    assert told == [2]


def test_the_handler_may_be_interrupted_on_each_of_its_lines() -> None:
    """Nothing there may wait for what an outer call of it holds."""
    rung = 0

    def ring(frame: FrameType, event: str, argument: object) -> Any:  # which is not traced itself
        nonlocal rung
        if event == "line" and rung < 1000:
            rung += 1
            signal.raise_signal(signal.SIGALRM)
        return ring

    def traced() -> None:
        tracer = sys.gettrace()
        sys.settrace(ring)
        try:
            endless()
        finally:
            sys.settrace(tracer)

    with pytest.raises(TimeLimitError), enforced(0.05):
        traced()
    assert rung > 0
    assert stops.first is not None


# --- moments of whole commands

COMMANDS = {
    "check": ("check",),
    "check --json": ("check", "--json"),
    "compile": ("compile", "--emit", "llvm"),
    "run": ("run",),
}
MOMENTS = 100  # of each command, in parts: the alarm comes at k / MOMENTS of the time that it takes
PARTS = 50


@cache
def seconds_of(command: str, module: str) -> float:
    """What the command takes without a limit, on a machine as busy as it is now."""
    seconds = 0.0
    for _ in range(2 if command == "run" else 1):  # the second one finds the program in the cache, as all later ones
        begin = time.monotonic()
        subprocess.run([DISTXLA, *COMMANDS[command], module], capture_output=True, check=True, timeout=120)
        seconds = time.monotonic() - begin
    return seconds


@pytest.mark.sampled(one_in=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("command", ["check", "check --json", "compile"])
def test_the_alarm_may_come_at_any_moment(command: str, part: int, kept_module: str) -> None:
    require_limit_or_end(command, part, kept_module)


@pytest.mark.sampled(one_in=PARTS)
@pytest.mark.cluster
@pytest.mark.parametrize("part", range(PARTS))
def test_the_alarm_may_come_at_any_moment_of_a_run(part: int, kept_module: str) -> None:
    before = started_processes()
    require_limit_or_end("run", part, kept_module)
    require_ended(before)


def require_limit_or_end(command: str, part: int, module: str) -> None:
    """At each moment of the part: exit status 5 and one error, on one line, or a whole run."""
    for moment in range(part + 1, MOMENTS + 1, PARTS):
        seconds = f"{seconds_of(command, module) * moment / MOMENTS:.4f}"
        line = [DISTXLA, *COMMANDS[command], module, "--time-limit", seconds]
        ended = subprocess.run(line, capture_output=True, text=True, timeout=120)
        if "--json" in line:
            assert re.fullmatch(r"\{.*\}\n", ended.stdout, re.DOTALL), (seconds, ended)
            json.loads(ended.stdout)
        if ended.returncode == 0:
            assert (bool(ended.stdout), ended.stderr) == (True, ""), (seconds, ended)
            continue
        report = r"(  .*\n)*" if command == "run" else ""  # of the devices
        error = rf"error: time-limit: the time limit of {float(seconds):g} s ran out( while .*)?\n{report}"
        assert (ended.returncode, bool(re.fullmatch(error, ended.stderr))) == (5, True), (seconds, ended)
