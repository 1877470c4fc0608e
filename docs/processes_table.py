"""What two JAX processes are told that don't do the same: on JAX's CPU devices with gloo, and on distxla's.

    python docs/processes_table.py [--seconds 60] [--platform cpu,distxla] [CASE ...]

prints the table of docs/guide/processes.md. It takes minutes: most cases hang on gloo, up to the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

BEGIN = """
import json, os, sys, time
import numpy as np
import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

port, process = int(sys.argv[1]), int(sys.argv[2])
jax.distributed.initialize(f"localhost:{port}", 2, process)
mesh = Mesh(jax.devices(), "d")

def sharded(values):
    return jax.make_array_from_callback(values.shape, NamedSharding(mesh, P("d")), lambda index: values[index])

def mapped(function):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False))

def told(what):
    print("told", json.dumps([time.monotonic() - begin, what]), flush=True)

def tell(function, x):
    try:
        told(str(np.asarray(function(x).addressable_shards[0].data).ravel().tolist()))
    except Exception as error:
        told(str(error))

x, other = sharded(np.arange(8.0, dtype=np.float32)), sharded(np.arange(16.0, dtype=np.float32))
def f(v):
    return jax.lax.psum(v, "d")

def g(v):
    return jax.lax.psum(100 * v, "d")

def gather(v):
    return jax.lax.all_gather(v, "d", tiled=True)

def scaled(v):
    return jax.lax.psum(v * (2 + process), "d")

f, g, gather, scaled = map(mapped, (f, g, gather, scaled))
for function in (f, g, gather):
    jax.block_until_ready(function(x))
multihost_utils.sync_global_devices("begin")
begin = time.monotonic()
print("begun", flush=True)
"""
STARTS, START_S = 3, 120
MOST = 240  # characters of what is said
CASES = {
    "another constant": """
tell(scaled, x)
""",
    "f, g and g, f": """
for function in (f, g)[:: 1 - 2 * process]:
    tell(function, x)
""",
    "psum, all_gather and all_gather, psum": """
for function in (f, gather)[:: 1 - 2 * process]:
    tell(function, x)
""",
    "another shape": """
tell(f, other if process else x)
""",
    "one leaves, by os._exit(0)": """
if process:
    os._exit(0)
tell(f, x)
""",
    "one raises": """
if process:
    raise ValueError("data loader")
tell(f, x)
""",
    "one skips a call and ends": """
if process == 0:
    tell(f, x)
""",
    "one sleeps for 4 s": """
time.sleep(4 * process)
tell(f, x)
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="after which a case is ended")
    parser.add_argument("--platform", default="cpu,distxla")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    given = parser.parse_args()
    platforms = given.platform.split(",")
    print("| case | " + " | ".join({"cpu": "JAX CPU with gloo"}.get(name, name) for name in platforms) + " |")
    print("|---" * (1 + len(platforms)) + "|")
    for case in given.cases or CASES:
        cells = [cell(outcomes(platform, CASES[case], given.seconds)) for platform in platforms]
        print(f"| {case} | " + " | ".join(cells) + " |", flush=True)


def outcomes(platform: str, case: str, seconds: float) -> list[tuple[list[Any], int | None]]:
    """By process what it was told and when, and its status; None where it was still there after `seconds`."""
    for _ in range(STARTS):  # another program may have taken the port
        with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
            script = os.path.join(folder, "train.py")
            with open(script, "w") as file:
                file.write(BEGIN + case)
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            processes = [Process(platform, script, port, process) for process in range(2)]
            begun = [process.wait_begun() for process in processes]
            have_begun = all(begun)
            end = time.monotonic() + seconds
            while have_begun and any(process.is_running for process in processes) and time.monotonic() < end:
                time.sleep(0.05)
            found = [process.popen.poll() for process in processes]
            told = [list(process.told) if process.is_running else process.told for process in processes]
            for process in processes:
                process.end()
            if have_begun:
                return list(zip(told, found))
    raise TimeoutError(f"the processes have not begun on {platform}: {processes[0].errors or processes[1].errors}")


class Process:
    """One of the two. told: (seconds, what it was told) until now.  errors: what it wrote to stderr last, once it
    has ended."""

    def __init__(self, platform: str, script: str, port: int, process: int) -> None:
        environment = {
            **os.environ,
            "JAX_PLATFORMS": platform,
            "JAX_NUM_CPU_DEVICES": "4",
            "DISTXLA_DEVICES": "4",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        self.errors = ""
        self._begun = threading.Event()
        self.told: list[Any] = []
        self._errors = f"{script}.{process}"
        with open(self._errors, "w") as errors:
            self.popen = subprocess.Popen(
                [sys.executable, script, str(port), str(process)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if line == "begun\n":
                self._begun.set()
            elif line.startswith("told "):
                self.told.append(json.loads(line[5:]))

    def wait_begun(self) -> bool:
        """False where it has not within START_S, or has ended before."""
        end = time.monotonic() + START_S
        while self.is_running and time.monotonic() < end:
            if self._begun.wait(0.1):
                return True
        return self._begun.is_set()

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def end(self) -> None:
        """Kill it, if it runs."""
        self.popen.kill()
        self.popen.wait()
        self._reader.join()
        with open(self._errors, errors="replace") as errors:
            self.errors = errors.read()[-2000:]


def cell(found: list[tuple[list[Any], int | None]]) -> str:
    """Of both processes in words."""
    (one, status), (other, other_status) = found
    if status == other_status and [text for _, text in one] == [text for _, text in other]:
        return f"both: {said([[max(a[0], b[0]), a[1]] for a, b in zip(one, other)], status)}"
    return "<br>".join(f"process {process}: {said(*each)}" for process, each in enumerate(found))


def said(told: list[Any], status: int | None) -> str:
    lines = [f"{seconds:.2g} s: `{shortened(text)}`" for seconds, text in told]
    if not lines and status != 0:
        lines.append("nothing")
    if status is None:
        lines.append("**hangs**")
    elif status < 0:
        lines.append(f"ended by {signal.Signals(-status).name}")
    elif status > 0:
        lines.append(f"status {status}")
    return ", ".join(lines) or "ends"


def shortened(text: str) -> str:
    """The first line, without the status before it."""
    line = text.splitlines()[0].rpartition(": distxla: ")[2].replace("|", "/")
    return line if len(line) <= MOST else line[: MOST - 1] + "…"


if __name__ == "__main__":
    main()
