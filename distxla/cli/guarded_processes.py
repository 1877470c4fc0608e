"""Processes that launch_guard.py starts and watches, from the side of the process that has started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from distxla.machine.shortages import not_started


class Guarded(NamedTuple):
    """A process of the guard. process: its index."""

    process: int
    environment: dict[str, str]
    has_stdin: bool = False


class GuardedProcesses:
    """report: a descriptor with the guard's lines.  outputs: (process, whether it is stderr, descriptor).

    Whoever has made it closes these descriptors. ClusterError where it can't be started.
    """

    def __init__(self, command: Sequence[str], processes: Sequence[Guarded], folder: str | None = None) -> None:
        control, to_guard = os.pipe()
        self.report, of_guard = os.pipe()
        theirs = [control, of_guard]
        self.outputs: list[tuple[int, bool, int]] = []
        told: list[dict[str, Any]] = []
        for one in processes:
            ends = {}
            for name, is_error in (("out", False), ("err", True)):
                read, ends[name] = os.pipe()
                theirs.append(ends[name])
                self.outputs.append((one.process, is_error, read))
            told.append({**one._asdict(), **ends})
        self._control = os.fdopen(to_guard, "wb", buffering=0)
        paths = [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]
        numbers = map(str, (control, of_guard, os.getpid()))
        try:
            self.guard = subprocess.Popen(
                [sys.executable, "-P", "-m", "distxla.cli.launch_guard", *numbers],
                stdin=None if any(one.has_stdin for one in processes) else subprocess.DEVNULL,
                stdout=2,
                pass_fds=theirs,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        except OSError as error:
            raise not_started("the processes cannot be started", error) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.tell(json.dumps({"command": list(command), "processes": told}))

    def tell(self, line: str) -> None:
        """A line for the guard; nothing happens where it has ended."""
        data = memoryview(line.encode() + b"\n")
        with suppress(OSError, ValueError):
            while data:
                data = data[self._control.write(data) :]

    def close(self) -> int:
        """End all that is left; blocks. The guard's status: not 0 where it could not do so. Twice is fine."""
        with suppress(OSError):
            self._control.close()
        return self.guard.wait()


__all__ = ["Guarded", "GuardedProcesses"]
