"""The start of several processes of JAX, once: `python -m bench.process_start SIDE COUNT DEVICES`.

The sides: `gloo`, JAX's CPU backend; `distxla`, the plugin, started by hand; `launch`, by `distxla launch`. Prints a
JSON object: {"wall_s", "import_s", "processor_s", "phases"}. wall_s: from the command until the first psum is done in
all processes.  import_s: the same from the first import on.  processor_s: of all processes, to their ends.  phases:
seconds of the slowest process, one after the other.

`python -m bench.process_start` is one of the processes. The environment has its place, not its arguments: what a script
needs is kept by its arguments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

SIDES = ("distxla", "launch", "gloo")
PHASES = ("import", "initialize", "devices", "arrays", "psum")
LIMIT_S = 300
FOLDER, PLACE = "DISTXLA_BENCH_FOLDER", "DISTXLA_BENCH_PLACE"  # environment: where times go; port, count, process


def member() -> None:
    """A psum of ones over all devices, and when each phase ended, by CLOCK_MONOTONIC, which all processes share."""
    times = [time.monotonic()]
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    times.append(time.monotonic())
    if place := os.environ.get(PLACE, "").split():
        jax.distributed.initialize(f"localhost:{place[0]}", int(place[1]), int(place[2]))
    else:
        jax.distributed.initialize()
    times.append(time.monotonic())
    mesh = Mesh(np.array(jax.devices()), ("i",))
    times.append(time.monotonic())
    whole = np.ones(4 * mesh.size, np.float32)
    x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("i")), lambda index: whole[index])
    total = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
    times.append(time.monotonic())
    found = np.asarray(total(x).addressable_data(0))
    times.append(time.monotonic())
    if not (found == mesh.size).all():
        raise ArithmeticError(f"expected {mesh.size}, found {found}")
    Path(os.environ[FOLDER], f"{jax.process_index()}.json").write_text(json.dumps(times))


def start(side: str, count: int, devices: int) -> dict[str, Any]:
    """Start the processes, and wait until nothing of theirs is left."""
    from bench.process_members import ROOT, environment_of, free_port
    from distxla.machine.processes import adopt_orphans

    adopt_orphans()  # their processor time is added to that of this process's children
    environment = environment_of("cpu" if side == "gloo" else "distxla", devices)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        environment[FOLDER] = folder
        command = [sys.executable, "-m", "bench.process_start"]
        environments = [environment]
        if side == "launch":
            launch = [sys.executable, "-m", "distxla", "launch", "-n", str(count), "--devices-per-process"]
            command = [*launch, str(devices), "--", *command]
        else:
            port = free_port()
            environments = [environment | {PLACE: f"{port} {count} {process}"} for process in range(count)]
        begin = time.monotonic()
        processes = [
            subprocess.Popen(command, stdout=errors, stderr=errors, env=each, cwd=ROOT) for each in environments
        ]
        statuses = [process.wait(LIMIT_S) for process in processes]
        _wait_for_orphans()
        if any(statuses):
            errors.seek(0)
            raise RuntimeError(f"{side}: statuses {statuses}\n{errors.read()[-4000:]}")
        found = [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]
    spent = getrusage(RUSAGE_CHILDREN)
    end = max(times[-1] for times in found)
    slowest = max(found, key=lambda times: times[-1])
    return {
        "wall_s": end - begin,
        "import_s": end - min(times[0] for times in found),
        "processor_s": spent.ru_utime + spent.ru_stime,
        "phases": {name: b - a for name, a, b in zip(PHASES, slowest, slowest[1:])},
    }


def _wait_for_orphans() -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            time.sleep(0.01)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(start(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
    else:
        member()
