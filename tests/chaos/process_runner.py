"""Plays cases of several JAX processes (process_member.py): each starts them anew, by hand or by `distxla launch`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.chaos.plan import Case
from tests.chaos.process_member import HANGS
from tests.chaos.story import LEFT_S, ROOT, START_S, Story
from tests.chaos.victims import MARK, of_role, processes, shared_memory

LOOK_S = 0.01
TOLD_S, LAUNCHER_S = 6.0, 30.0  # for all others to be told, and for the launcher to end them
DEVICES = {2: 2, 3: 1}  # of each process, by their number


def play(case: Case, scratch: Path) -> Story:
    """Blocks until it is over, and nothing is left, or what is left has been ended."""
    group = _Group(case, scratch)
    try:
        return group.play()
    finally:
        group.clean()


class _Group:
    """The processes of a case."""

    def __init__(self, case: Case, scratch: Path) -> None:
        self._case, self._story = case, Story(case)
        self._mark = uuid.uuid4().hex
        self._folder = Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))  # short: sockets have names in it
        self._events = scratch / f"{self._mark}.events"
        self._events.touch()
        self._taken = 0  # bytes of the events
        self._lines: list[dict[str, Any]] = []  # of stderr
        self._readers: list[threading.Thread] = []
        self._shared = shared_memory()
        self._environment = {
            **os.environ,
            MARK: self._mark,
            "TMPDIR": str(self._folder),
            "DISTXLA_CACHE_DIR": str(scratch / "cache"),
            "DISTXLA_DEVICES": str(DEVICES[case.processes]),
            "JAX_PLATFORMS": "distxla",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(ROOT),
            **({HANGS: "1"} if case.expected == "terminated" else {}),  # whether or not it hangs, all must end
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def play(self) -> Story:
        """See the function."""
        case, story = self._case, self._story
        self._start()
        begun = time.monotonic()
        try:
            if case.phase == "running":
                self._until(lambda: self._running() == case.processes, START_S, "all processes to step")
                begun = max(event["at"] for event in story.events if event["event"] == "running")
            time.sleep(max(0.0, begun + case.after - time.monotonic()))
            self._strike()
            seconds = LAUNCHER_S if case.launched else TOLD_S
            self._until(self._is_over, seconds * story.scale, "the end")
        except TimeoutError as error:
            if story.struck is None or case.launched:
                story.hang = str(error)
        self._take_events()
        if case.launched:
            story.status = self._started[0].poll()
        if not case.launched or story.hang:
            for process in self._started:  # those that JAX keeps until it has heard from all others
                process.kill()
        for process in self._started:
            process.wait()
        story.left = self._left()
        for reader in self._readers:
            reader.join(1.0)
        story.events = sorted([*story.events, *self._lines], key=lambda event: float(event["at"]))
        story.messages = "\n".join(line["text"] for line in self._lines)
        return story

    def clean(self) -> None:
        """End what is left, remove the folder."""
        for pid in processes(self._mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._events.unlink()

    def _start(self) -> None:
        case, member = self._case, [sys.executable, "-m", "tests.chaos.process_member", str(self._events)]
        if case.launched:
            options = ["-n", str(case.processes), "--devices-per-process", str(DEVICES[case.processes])]
            commands = [[sys.executable, "-m", "distxla", "launch", *options, "--", *member]]
        else:
            port = str(_free_port())
            commands = [[*member, port, str(case.processes), str(k)] for k in range(case.processes)]
        for command in commands:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                env=self._environment,
            )
            self._started.append(process)
            self._readers.append(threading.Thread(target=self._read, args=(process,), daemon=True))
            self._readers[-1].start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            text = line.decode(errors="replace").rstrip()
            self._lines.append({"event": "line", "at": time.monotonic(), "text": text})

    # --- events

    def _take_events(self) -> None:
        """Whole lines that are new."""
        with self._events.open("rb") as file:
            file.seek(self._taken)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._taken += len(whole)
        self._story.events += [json.loads(line) for line in whole.splitlines()]

    def _running(self) -> int:
        if any(process.poll() is not None for process in self._started):
            raise TimeoutError(f"a process has ended with {[process.poll() for process in self._started]}")
        return sum(event["event"] == "running" for event in self._story.events)

    def _is_over(self) -> bool:
        """Whether the launcher has ended; by hand, whether all processes have been told, or have ended."""
        if self._case.launched:
            return self._started[0].poll() is not None
        told = {event["process"] for event in self._story.events if event["event"] == "ended"}
        return all(k in told or process.poll() is not None for k, process in enumerate(self._started))

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        self._take_events()
        while not condition():
            if time.monotonic() > end:
                last = self._story.events[-1]["event"] if self._story.events else "nothing"
                raise TimeoutError(f"waited {seconds:g} s for {what}, after {last!r}")
            time.sleep(LOOK_S)
            self._take_events()

    # --- the fault

    def _strike(self) -> None:
        found: list[int] = []

        def is_there() -> bool:
            found[:] = self._victims()
            return bool(found)

        self._until(is_there, START_S, f"the {self._case.victim}")
        self._story.running = sum(event["event"] == "running" for event in self._story.events)
        self._story.scale = max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
        pid = found[self._case.which % len(found)] if self._case.victim != "process" else found[0]
        self._story.struck = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, getattr(signal, self._case.signal))

    def _victims(self) -> list[int]:
        case = self._case
        if case.victim == "launcher":
            return [self._started[0].pid]
        if case.victim == "process" and not case.launched:
            return [self._started[case.which].pid]
        if case.victim == "process":
            told = (event for event in self._story.events if event["process"] == case.which)
            return [event["pid"] for event in told][:1]
        return of_role(case.victim, processes(self._mark))

    def _left(self) -> list[str]:
        """Leftovers that do not go within LEFT_S."""
        end = time.monotonic() + LEFT_S * self._story.scale
        while left := [*self._left_now()]:
            if time.monotonic() > end:
                return left
            time.sleep(0.05)
        return []

    def _left_now(self) -> Iterator[str]:
        for pid, command in processes(self._mark).items():
            yield f"process {pid} {command[:100]}"
        for path in self._folder.iterdir():
            yield f"folder {path}"
        for name in shared_memory() - self._shared:
            yield f"/dev/shm/{name}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


__all__ = ["play"]
