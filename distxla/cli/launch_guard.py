"""The parent of the processes that `distxla launch` starts: ends them, and all that they have started, when the
launcher has ended, however it ended.

Run as `python -m distxla.cli.launch_guard CONTROL REPORT LAUNCHER`: two descriptors and a process. On CONTROL comes a
line of JSON, {"command", "processes": [{"process", "environment", "has_stdin", "out", "err"}]}, then lines: `signal 2`
sends a signal to all, `kill` ends them. At its end all are ended. On REPORT go lines of JSON:
{"started": [pids]} or {"error", "errno"}, {"ended": process, "status": wait status}, and what processes say themselves
(in_process/sitecustomize.py); it is closed when nothing is left.

It is the subreaper of its descendants, so none of them can leave it by outliving its own parent, and the leader of a
session: Ctrl-C in a terminal reaches the launcher alone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, Final

from distxla import clock
from distxla.cli.in_process.sitecustomize import LAUNCHER
from distxla.machine.memory_files import path_of
from distxla.machine.processes import adopt_orphans, descriptor_of, end_with_parent
from distxla.runtime.ray.supervisor import kill_descendants

REAP_S: Final = 0.3  # an ended process keeps its status for the owner to read, which is not its parent
_LAUNCHERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)  # its to handle
_MOST: Final = 1 << 16


class _Guard:
    """control, report: descriptors, as above.  parent: the launcher's."""

    def __init__(self, control: int, report: int, parent: int) -> None:
        self._control, self._report, self._parent = control, report, parent
        self._children: dict[int, int] = {}  # pid -> process, of those that have not ended
        self._ended: dict[int, float] = {}  # pid -> when it is to be reaped
        self._pending = b""
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)

    def run(self) -> None:
        """Until all processes have ended, or are to."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        for descriptor in (self._control, self._parent, self._wake):
            poll.register(descriptor, select.POLLIN)
        told = self._line(poll)
        if told is None:
            return
        start = json.loads(told)
        if not self._start(start):
            return
        while self._reap():
            wait = min(self._ended.values(), default=None)
            milliseconds = None if wait is None else max(0.0, wait - clock.now()) * 1000
            ready = {descriptor for descriptor, _ in poll.poll(milliseconds)}
            if self._parent in ready:
                return
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, _MOST)
            self._look()
            if self._control in ready and not self._obeys(poll):
                return

    def _start(self, told: dict[str, Any]) -> bool:
        """Start all processes, or none. Whether that was possible."""
        processes = told["processes"]
        guard = os.getpid()

        def ready() -> None:
            for number in (*_LAUNCHERS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            end_with_parent()
            if os.getppid() != guard:
                os._exit(1)

        started = []
        for one in processes:
            try:
                child = subprocess.Popen(
                    told["command"],
                    stdin=0 if one["has_stdin"] else subprocess.DEVNULL,
                    stdout=one["out"],
                    stderr=one["err"],
                    env={**one["environment"], LAUNCHER: f"{guard}:{path_of(self._report)}"},
                    preexec_fn=ready,
                )
            except OSError as error:
                self._tell({"error": error.strerror, "errno": error.errno})
                return False
            child.returncode = 0  # its status is asked for here
            self._children[child.pid] = one["process"]
            started.append(child.pid)
        for one in processes:
            os.close(one["out"])
            os.close(one["err"])
        self._tell({"started": started})
        return True

    def _look(self) -> None:
        """Tell of those that have ended."""
        for pid in list(self._children):
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                continue
            has_exited = found.si_code == os.CLD_EXITED
            status = found.si_status << 8 if has_exited else found.si_status
            self._ended[pid] = clock.now() + REAP_S
            self._tell({"ended": self._children.pop(pid), "status": status})

    def _reap(self) -> bool:
        """Whether there are processes still."""
        now = clock.now()
        for pid in [pid for pid, at in self._ended.items() if at <= now]:
            del self._ended[pid]
            os.waitpid(pid, 0)
        while not self._ended:  # orphans of theirs
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) if self._children else None
            if found is None or found.si_pid in self._children:
                break
            os.waitpid(found.si_pid, 0)
        return bool(self._children or self._ended)

    def _obeys(self, poll: select.poll) -> bool:
        """Do what the launcher says; False where all are to end."""
        line = self._line(poll)
        if line is None or line == b"kill":
            return False
        word, _, number = line.partition(b" ")
        if word == b"signal":
            with suppress(ProcessLookupError):
                os.killpg(os.getpgrp(), int(number))
        return True

    def _line(self, poll: select.poll) -> bytes | None:
        """The next line of the launcher's; None at its end. Blocks."""
        while b"\n" not in self._pending:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._parent in ready:
                return None
            if self._control in ready:
                found = os.read(self._control, _MOST)
                if not found:
                    return None
                self._pending += found
            elif self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, _MOST)
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _tell(self, told: dict[str, Any]) -> None:
        with suppress(OSError):
            os.write(self._report, json.dumps(told).encode() + b"\n")

    def end(self) -> None:
        """End all that is left. Those that had not ended are told as killed."""
        self._look()
        kill_descendants()
        for process in self._children.values():
            self._tell({"ended": process, "status": int(signal.SIGKILL)})


def main(control: int, report: int, launcher: int) -> None:
    adopt_orphans()
    for number in _LAUNCHERS:
        signal.signal(number, signal.SIG_IGN)
    guard = _Guard(control, report, descriptor_of(launcher))
    try:
        if os.getppid() == launcher:
            guard.run()
    finally:
        guard.end()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
    os._exit(0)
