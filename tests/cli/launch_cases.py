"""`distxla launch` as a process of its own, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from distxla import clock
from distxla.machine.processes import command_line, process_ids
from tests.jax.pjrt.scripts import ROOT

LIMIT_S = 120


MARK = f"of_test_launch_{os.getpid()}"  # in the environment of all that a launch starts


def left() -> list[bytes]:
    """Processes of a launch of this file that still run."""
    found = []
    for process in process_ids():
        try:
            if MARK.encode() in Path(f"/proc/{process}/environ").read_bytes():
                found.append(command_line(process))
        except OSError:
            continue
    return found


def await_end() -> None:
    """Nobody is there any more to wait for what is being ended."""
    end = clock.now() + LIMIT_S
    while left() and clock.now() < end:
        clock.sleep(0.05)
    assert left() == []


class Launch:
    """A launch of processes that run the code. script: its file; None: it is given to Python, without site-packages.
    terminal: in place of stdin and stdout."""

    def __init__(
        self,
        code: str,
        *options: str,
        processes: int = 2,
        stdin: bytes | None = None,
        script: Path | None = None,
        terminal: int | None = None,
        **environment: str,
    ) -> None:
        text = "import os, signal, subprocess, sys, time\np = int(os.environ['DISTXLA_PROCESS'])\n"
        command = [sys.executable, "-m", "distxla", "launch", "-n", str(processes), "--devices", "1", *options, "--"]
        code = text + textwrap.dedent(code)
        if script is not None:
            script.write_text(code)
        self.process = subprocess.Popen(
            [*command, sys.executable, *(["-S", "-c", code] if script is None else [str(script)])],
            stdin=terminal or (subprocess.DEVNULL if stdin is None else subprocess.PIPE),
            stdout=terminal or subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "MARK": MARK, **environment},
        )
        if stdin is not None:
            assert self.process.stdin is not None
            self.process.stdin.write(stdin)
            self.process.stdin.close()
            self.process.stdin = None

    def lines(self, count: int) -> list[str]:
        """So many lines of stdout, in any order of the processes."""
        assert self.process.stdout is not None
        return sorted(self.process.stdout.readline().decode().strip() for _ in range(count))

    def end(self) -> tuple[int, str, str]:
        """Exit status, stdout, stderr; nothing is left."""
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        finally:
            self.process.kill()
        assert left() == []
        return self.process.returncode, (out or b"").decode(), err.decode()


def owner_of(launch: Launch) -> int:
    """The process that owns the devices."""
    found = []
    for process in process_ids():
        try:
            words = command_line(process)
        except OSError:
            continue
        if b"owner_process" in words and f'"parent": {launch.process.pid},'.encode() in words.replace(b"}", b","):
            found.append(process)
    assert len(found) == 1
    return found[0]


__all__ = ["LIMIT_S", "MARK", "Launch", "await_end", "left", "owner_of"]
