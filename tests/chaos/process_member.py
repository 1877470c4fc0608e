"""One of several JAX processes for process_runner.py, which steps until it is stopped: run as a script, with or without
`distxla launch`.

    python -m tests.chaos.process_member EVENTS [PORT COUNT PROCESS]

EVENTS is a file, to which all processes append lines of JSON; times are of CLOCK_MONOTONIC. In a case of a hung run
process 1 stops stepping once all have stepped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

HANGS = "DISTXLA_CHAOS_HANGS"  # environment
LOCAL_S = 0.002  # in which a process is in no call, between two steps


def main(events: str, *place: str) -> None:
    """Step for ever; what a step raises ends it."""
    process = int(place[2]) if place else int(os.environ["DISTXLA_PROCESS"])

    def say(event: str, **values: Any) -> None:
        told = {"event": event, "process": process, "pid": os.getpid(), "at": time.monotonic(), **values}
        with open(events, "a") as file:
            file.write(json.dumps(told) + "\n")

    say("starting")
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    if place:
        jax.distributed.initialize(f"127.0.0.1:{place[0]}", int(place[1]), process)
    else:
        jax.distributed.initialize()
    try:
        mesh = Mesh(np.array(jax.devices()), ("d",))
        whole = np.arange(4.0 * mesh.size, dtype=np.float32)
        x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("d")), lambda index: whole[index])

        def step(v: Any) -> Any:
            return jax.lax.psum(v, "d")

        total = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P("d"), out_specs=P()))
        expected = whole.reshape(mesh.size, 4).sum(0)
        number = 0
        while True:
            found = np.asarray(total(x).addressable_data(0))
            if not np.array_equal(found, expected):
                say("wrong", text=f"step {number}: expected {expected}, found {found}")
            if not number:
                say("running")
                if process and os.environ.get(HANGS):
                    time.sleep(1e6)
            number += 1
            time.sleep(LOCAL_S * (number % 2))
    except Exception as error:
        say("ended", error=type(error).__name__, text=str(error))
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
