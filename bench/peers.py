"""Processes that carry out collectives among themselves, asked from outside: MPI's and gloo's side of the table.

`Peers` is the asking side. Each process connects to a socket file in a folder of ours and waits there, asleep, until
it is asked: processes that are not asked must not take time from those that are. One JSON object a line in; the process
of rank 0 answers one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

START_S = 180.0
KINDS = ("mpi", "gloo")


def missing(kind: str) -> str | None:
    """Why a kind of peers can't run here; None if it can."""
    if kind == "mpi":
        if importlib.util.find_spec("mpi4py") is None:
            return "mpi4py is not installed"
        return None if _mpiexec() is not None else "there is no mpiexec beside this Python"
    return None if importlib.util.find_spec("torch") is not None else "torch is not installed"


def _mpiexec() -> str | None:
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent))


class Peers:
    """A context manager around `members` processes of one of KINDS."""

    def __init__(self, kind: str, members: int) -> None:
        self.kind, self.members = kind, members

    def __enter__(self) -> Peers:
        self._folder = tempfile.TemporaryDirectory()
        place = os.path.join(self._folder.name, "s")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(place)
        listener.listen(self.members)
        listener.settimeout(1.0)
        self._processes = [
            subprocess.Popen(command, env=environment, cwd=Path(__file__).parent.parent)
            for command, environment in self._commands(place)
        ]
        self._files: dict[int, TextIO] = {}
        end = time.monotonic() + START_S
        with listener:
            while len(self._files) < self.members:
                if time.monotonic() > end or any(p.poll() is not None for p in self._processes):
                    self.__exit__()
                    raise RuntimeError(f"{self.kind}: {len(self._files)} of {self.members} processes came")
                try:
                    file = listener.accept()[0].makefile("rw")
                except TimeoutError:
                    continue
                self._files[int(json.loads(file.readline())["rank"])] = file
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    def _commands(self, place: str) -> list[tuple[list[str], dict[str, str]]]:
        program = [sys.executable, "-m", f"bench.{self.kind}", place]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        if self.kind == "mpi":
            # MPICH as it comes: giving way sooner, or never (MPIR_CVAR_POLLS_BEFORE_YIELD 0, 1, 10), made 8 processes
            # on 2 cores slower at every size
            return [([_mpiexec() or "mpiexec", "-n", str(self.members), *program], environment)]
        return [([*program, str(rank), str(self.members)], environment) for rank in range(self.members)]

    def steps(self, collective: str, size: int, trips: int, count: int) -> list[float]:
        """Seconds of each of `count` loops of `trips` rounds; RuntimeError where the kind has no such collective.

        size: bytes of the larger of operand and result.
        """
        for file in self._files.values():
            file.write(json.dumps({"collective": collective, "size": size, "trips": trips, "count": count}) + "\n")
            file.flush()
        answer = self._files[0].readline()
        if not answer:
            raise RuntimeError(f"{self.kind}: its processes have ended")
        found = dict(json.loads(answer))
        if "error" in found:
            raise RuntimeError(f"{self.kind}: {found['error']}")
        return [float(s) for s in found["seconds"]]


Rounds = Callable[[], None]


def serve(place: str, rank: int, build: Callable[[str, int], Rounds | None], barrier: Rounds) -> None:
    """The other side, in each process. build: one round of a collective of some size, None where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(place)
    file = connection.makefile("rw")
    file.write(json.dumps({"rank": rank}) + "\n")
    file.flush()
    built: tuple[Any, Rounds | None] = (None, None)
    for line in file:
        request = json.loads(line)
        key = (request["collective"], request["size"])
        if built[0] != key:
            built = (key, build(*key))
        once = built[1]
        answer: dict[str, Any] = {"error": f"no {key[0]}"} if once is None else {"seconds": []}
        for _ in range(request["count"] if once is not None else 0):
            assert once is not None
            barrier()
            begin = time.perf_counter()
            for _ in range(request["trips"]):
                once()
            answer["seconds"].append(time.perf_counter() - begin)
        if rank == 0:
            file.write(json.dumps(answer) + "\n")
            file.flush()


def floats(size: int) -> np.ndarray[Any, Any]:
    """Zeros of `size` bytes in place: every page was written."""
    found = np.empty(max(1, size // 4), np.float32)
    found.fill(0)
    return found
