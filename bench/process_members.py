"""Processes of JAX that make calls when they are asked to (process_side.py), and their processor time."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARK = "DISTXLA_BENCH_MARK"  # environment, by which all processes of a side are found
PLATFORMS = ("distxla", "cpu")


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment_of(platform: str, devices: int) -> dict[str, str]:
    """For a process of JAX with so many devices; on the CPU, several processes use gloo."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "JAX_PLATFORMS": platform,
        "JAX_NUM_CPU_DEVICES": str(devices),
        "DISTXLA_DEVICES": str(devices),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": str(ROOT),
    }


class Members:
    """A context manager around `count` processes with so many devices each. They sleep until they are asked."""

    def __init__(self, platform: str, count: int, devices: int) -> None:
        self._platform, self._count, self._devices = platform, count, devices
        self._mark = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[str]] = []
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 gloo says there who is connected

    def __enter__(self) -> Members:
        port = str(free_port())
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.process_side", port, str(self._count), str(process)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=ROOT,
                env=environment_of(self._platform, self._devices) | {MARK: self._mark},
            )
            for process in range(self._count)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            assert process.stdout is not None
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        self._errors.close()

    def calls(self, program: str, count: int, *, wait: bool, by: Sequence[int]) -> list[float]:
        """Seconds of each of so many calls in the first of these processes, which all make them; without `wait` one
        number, of a call in a row of so many. RuntimeError where a process has ended."""
        for process in by:
            pipe = self._processes[process].stdin
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.write(json.dumps({"program": program, "count": count, "wait": wait}) + "\n")
                pipe.flush()
        found = [self._answer(process) for process in by]
        return found[0]

    def _answer(self, process: int) -> list[float]:
        asked = self._processes[process]
        assert asked.stdout is not None
        answer = asked.stdout.readline()
        if not answer:
            status = asked.wait()
            self._errors.seek(0)
            why = f"process {process} of {self._count} on {self._platform} has ended with status {status}"
            raise RuntimeError(f"{why}\n{self._errors.read()[-2000:]}")
        return [float(s) for s in json.loads(answer)["seconds"]]

    def processor_s(self) -> float:
        """Processor time so far of all processes of theirs that run, those of the devices and their owner, too."""
        return sum(map(_processor_s, _marked(self._mark)))


def _marked(mark: str) -> Iterator[Path]:
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield entry


def _processor_s(process: Path) -> float:
    """By the scheduler's clock."""
    found = 0
    with contextlib.suppress(OSError):
        for thread in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                found += int((thread / "schedstat").read_text().split()[0])
    return found / 1e9
