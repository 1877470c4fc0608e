"""Starts drivers, lets them play cases, and signals their processes as the cases say."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos import process_runner
from tests.chaos.plan import Case
from tests.chaos.story import LEFT_S, ROOT, START_S, Story
from tests.chaos.victims import MARK, of_role, processes, shared_memory

RUN_S, CLOSE_S = 60.0, 60.0  # after which a driver counts as hanging
CLOSING_SOCKETS = 2  # that Ray may still be closing when a case ends
DONE = ("ended", "interrupted", "failed")


class Process:
    """A python -m of this repository, with a mark and a folder of its own for temporary files."""

    def __init__(self, module: str, scratch: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))  # short: sockets have names in it
        self._messages = (scratch / f"{self.mark}.err").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            cwd=ROOT,
            env={
                **os.environ,
                MARK: self.mark,
                "TMPDIR": str(self.folder),
                "DISTXLA_CACHE_DIR": str(scratch / "cache"),
                "RAY_USAGE_STATS_ENABLED": "0",
                "PYTHONPATH": str(ROOT),
            },
            text=True,
        )
        self._first: dict[str, int] | None = None  # descriptors after its first case
        self._cases = 0  # since then
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self, seconds: float) -> str | None:
        """The next line; None at the end. queue.Empty if it does not come."""
        found = self.lines.get(timeout=max(0.0, seconds))
        if found is None:
            self.lines.put(None)
        return found

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()

    def messages(self, since: int = 0) -> str:
        return os.pread(self._messages.fileno(), 20_000, since).decode(errors="replace")

    def grown(self, descriptors: dict[str, int], *, opened: bool) -> dict[str, int]:
        """By kind the descriptors beyond those of the first case in which a cluster was opened, which opens some that
        stay open once a process, and beyond a connection a case, which Ray keeps (tests/runtime/test_descriptors.py).

        opened: whether a cluster was opened in this case.
        """
        if self._first is None:
            self._first = descriptors if opened else None
            return {}
        self._cases += 1
        allowed = Counter(self._first) + Counter(socket=self._cases + CLOSING_SOCKETS)
        return dict(Counter(descriptors) - allowed)

    def said(self) -> int:
        """How many bytes of messages there are."""
        return os.fstat(self._messages.fileno()).st_size

    def end(self, seconds: float = 30.0) -> int:
        """Let it end by itself; by force after so long."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self.process.wait()

    def clean(self) -> None:
        """After the end: kill leftovers, remove the folder."""
        self.end(0)
        for pid in processes(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._messages.close()


class Runner:
    """Plays cases one after another; drivers live as long as they can. scratch: for the cache and messages."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._drivers: dict[int, Process] = {}
        self._nodes: Process | None = None
        self._address = ""
        self._bits = ""

    def bits(self, story: Story) -> str:
        """Of the results without faults, which are the same in all runs; "" where none has got so far."""
        ready = story.event("ready")
        self._bits = self._bits or (ready["bits"] if ready else "")
        return self._bits

    def close(self) -> None:
        """End all drivers and nodes."""
        for process in (*self._drivers.values(), *filter(None, [self._nodes])):
            process.end()
            process.clean()
        self._drivers, self._nodes = {}, None

    def play(self, case: Case) -> Story:
        """Blocks until it is over."""
        if case.processes:
            return process_runner.play(case, self._scratch)
        if case.hosts > 1 and self._nodes is None:
            self._nodes = Process("tests.chaos.nodes", self._scratch)
            self._address = (self._nodes.line(START_S) or "").strip()
        driver = self._drivers.get(case.hosts)
        if driver is None or driver.process.poll() is not None:
            driver = self._drivers[case.hosts] = Process("tests.chaos.driver", self._scratch)
        story, shared, said = Story(case), shared_memory(), driver.said()
        order = {
            "inject": case.inject,
            "address": self._address if case.hosts > 1 else "",
            "devices_per_host": [2, 2],
            "seconds": case.runs,
            "time_limit": case.time_limit,
            "name": f"chaos_{case.number}_{uuid.uuid4().hex}" if case.compiles else "chaos",
        }
        driver.write(json.dumps(order))
        try:
            _Play(case, driver, self._nodes if case.hosts > 1 else None, story).run()
        except TimeoutError as error:
            story.hang = str(error)
            driver.process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
            driver.process.kill()
        if case.expected == "gone" and story.struck is not None:
            driver.process.wait(30)
        story.status = driver.process.poll()
        story.left = self._left(driver, shared, alone=case.hosts == 1)
        story.messages = driver.messages(said)
        if (closed := story.event("closed")) is not None:
            story.grown = driver.grown(closed["descriptors"], opened=story.event("ready") is not None)
        if story.status is not None or story.hang:
            driver.clean()
            del self._drivers[case.hosts]
        return story

    def _left(self, driver: Process, shared: set[str], *, alone: bool) -> list[str]:
        """Leftovers of the driver that do not go within LEFT_S."""
        end = time.monotonic() + LEFT_S
        while left := [*self._left_now(driver, shared, alone=alone)]:
            if time.monotonic() > end:
                return left
            time.sleep(0.1)
        return []

    def _left_now(self, driver: Process, shared: set[str], *, alone: bool) -> Iterator[str]:
        for pid, command in processes(driver.mark).items():
            if pid != driver.process.pid:
                yield f"process {pid} {command[:100]}"
        if self._nodes is not None and not alone:
            marked = processes(self._nodes.mark)
            for pid in (*of_role("replica", marked), *of_role("agent", marked)):
                yield f"process {pid} {marked[pid][:100]}"
        for path in driver.folder.iterdir():
            yield f"folder {path}"
        if alone:
            for name in shared_memory() - shared:
                yield f"/dev/shm/{name}"


class _Play:
    """One case in progress."""

    def __init__(self, case: Case, driver: Process, nodes: Process | None, story: Story) -> None:
        self._case, self._driver, self._nodes, self._story = case, driver, nodes, story

    def run(self) -> None:
        """TimeoutError where the driver hangs."""
        case = self._case
        if case.victim:
            over = ("closed",) if case.phase == "closing" else (*DONE, "closed")
            begun = self._await(case.phase, *over, seconds=START_S)
            if begun is not None and begun["event"] == case.phase:
                self._until(begun["at"] + case.after)
                self._strike()
        else:
            ready = self._await("ready", *DONE, "closed", seconds=START_S)
            with _deaths(ready["replicas"] if ready and ready["event"] == "ready" else []) as death:
                self._await(*DONE, "closed", seconds=RUN_S)
                self._story.struck = death()
        self._await(*DONE, "closed", seconds=RUN_S)
        self._await("closed", seconds=RUN_S + CLOSE_S)

    def _strike(self) -> None:
        case = self._case
        self._hear()
        pid = self._victim()
        if pid is None or self._story.event(*(DONE if case.phase == "running" else ("closed",))):
            return  # too late
        with contextlib.suppress(ProcessLookupError):
            self._story.struck = time.monotonic()
            os.kill(pid, getattr(signal, case.signal))
        if case.resume > 0:
            time.sleep(case.resume)
        elif case.resume < 0:
            self._await("notice", *DONE, "closed", seconds=RUN_S)
        if case.resume:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _hear(self) -> None:
        """Take note of all that the driver has said so far."""
        with contextlib.suppress(queue.Empty):
            while (line := self._driver.line(0)) is not None:
                self._story.events.append(json.loads(line))

    def _victim(self) -> int | None:
        case, ready = self._case, self._story.event("ready")
        if case.victim == "driver":
            return self._driver.process.pid
        if case.victim == "replica":
            return int(ready["replicas"][case.which]) if ready else None
        found = of_role(case.victim, processes((self._nodes or self._driver).mark))
        return found[case.which % len(found)] if found else None

    def _until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - time.monotonic()))

    def _await(self, *names: str, seconds: float) -> dict[str, Any] | None:
        """The first event of these, which may have come already; None where the driver has ended."""
        end = time.monotonic() + seconds
        while (found := self._story.event(*names)) is None:
            try:
                line = self._driver.line(end - time.monotonic())
            except queue.Empty:
                last = self._story.events[-1]["event"] if self._story.events else "nothing"
                raise TimeoutError(f"no {' or '.join(names)} within {seconds:g} s after {last!r}") from None
            if line is None:
                return None
            self._story.events.append(json.loads(line))
        return found


@contextmanager
def _deaths(pids: list[int]) -> Iterator[Any]:
    """Gives a function that says when the first of these processes has died, None if none has."""
    descriptors: list[int] = []
    moments: list[float] = []
    over, poll = threading.Event(), select.poll()
    for pid in pids:
        try:
            descriptors.append(os.pidfd_open(pid))
        except ProcessLookupError:  # it was quicker
            moments.append(time.monotonic())
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)

    def watch() -> None:
        while not over.is_set():
            if poll.poll(20):
                moments.append(time.monotonic())
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: moments[0] if moments else None
    finally:
        over.set()
        thread.join()
        for descriptor in descriptors:
            os.close(descriptor)


__all__ = ["Process", "Runner", "Story"]
