"""Both sides in a process of their own, since a wrong program may end it: seeds come in as lines, answers go out.

`Worker` is the asking side. The other one is this module run as a program.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.fuzz.__main__ import ROOT
from tests.fuzz.xla.program import DEVICES

PROGRAM_S = 120  # on a busy machine, the first one's imports included


@dataclass(frozen=True)
class Answer:
    """wrong: what distxla did wrong.  refused: why XLA gave no results. Neither: both agree."""

    wrong: str | None = None
    refused: str | None = None


class Worker:
    """A context manager around the process, which is started anew when a program has ended it. target: that distxla
    compiles for, this processor by default."""

    def __init__(self, target: str | None = None) -> None:
        self._target = [] if target is None else [target]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def check(self, seed: int) -> Answer:
        """Blocks until both sides have run the program, or PROGRAM_S have passed."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        side = "start"
        poll = select.poll()  # which takes descriptors of any number
        poll.register(process.stdout, select.POLLIN)
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its output tells
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
        while True:
            ready = poll.poll(1e3 * PROGRAM_S)
            line = process.stdout.readline() if ready else ""
            if not line:
                what = f"takes more than {PROGRAM_S} s" if not ready else _ended(process.wait())
                self._end()
                return Answer(refused=what) if side == "XLA" else Answer(wrong=f"{side} {what}")
            found: dict[str, Any] = json.loads(line)
            if "side" not in found:
                return Answer(**found)
            side = found["side"]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.xla.worker", *self._target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # XLA's stacks
                text=True,
                bufsize=1,
                cwd=ROOT,
                env={"DISTXLA_GPU_DRIVER": "emulated"}
                | os.environ
                | {
                    "XLA_FLAGS": f"--xla_force_host_platform_device_count={max(DEVICES)}",
                    "JAX_PLATFORMS": "cpu",
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                },
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def _ended(status: int) -> str:
    return f"ended the process: {signal.Signals(-status).name}" if status < 0 else f"ended the process: status {status}"


def _serve(target: str | None = None) -> None:
    from tests.fuzz.xla.both import XlaRefusal, check

    def tell(**found: str | None) -> None:
        print(json.dumps(found), flush=True)

    for line in sys.stdin:
        try:
            tell(wrong=check(int(line), lambda side: tell(side=side), target))
        except XlaRefusal as error:
            tell(refused=str(error))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
