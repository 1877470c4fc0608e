"""Workers of Ray nodes that are forks of one process a node, as those of the embedded Ray are (runtime/ray/zygote.py).

A worker that Ray starts itself takes a second of processor time, since it imports Ray twice, and the tests of several
hosts need some hundreds. What such a worker is to a run is tested with the nodes that tests add, and in tests/chaos.

    python -P forks.py RAYLET REQUESTS READY

RAYLET: a process id.  REQUESTS: a FIFO.  READY: its name from when workers can be asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from distxla.runtime.ray import zygote

START_LIMIT_S = 60.0


def main() -> None:
    raylet, requests, ready = sys.argv[1:]

    def be_ready() -> None:
        import distxla.runtime.hosts.agent  # noqa: F401  # as the modules of a replica, which `serve` imports

        os.rename(requests, ready)

    zygote.serve(int(raylet), requests, os.devnull, with_all=be_ready)


@contextmanager
def forking(fifos: Mapping[int, str]) -> Iterator[None]:
    """Within, workers of these raylets are forks. fifos: by the raylets' process ids, the names of FIFOs that will be
    there. Blocks until the processes serve; raises RuntimeError if one doesn't."""
    descriptors, processes = [], []
    try:
        for raylet, fifo in fifos.items():
            ready = Path(fifo)
            requests = ready.with_suffix(".new")
            os.mkfifo(requests)
            descriptors.append(os.open(requests, os.O_RDWR | os.O_CLOEXEC))  # its process ends when this is closed
            environment = dict(
                word.split("=", 1) for word in Path(f"/proc/{raylet}/environ").read_text().split("\0") if word
            )
            command = [sys.executable, "-P", __file__, str(raylet), str(requests), str(ready)]
            processes.append((ready, subprocess.Popen(command, env=environment)))
        end = time.monotonic() + START_LIMIT_S
        for ready, process in processes:
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"no worker can be forked: {process.args!r}, exit status {process.returncode}")
                time.sleep(0.01)
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        for _, process in processes:
            process.wait(10)


if __name__ == "__main__":
    main()
