"""Run as a program, by group.py: one of several JAX processes, which runs scripts.

Arguments: the process, how many there are, the port of JAX's coordinator, "late" where a script initialises JAX. Stdin
has a script a line, as JSON; stdout has a line of JSON for each: what it printed, and its error, "" for none.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import traceback
from typing import Any, Final

BEGIN: Final = """
import os, signal, sys, threading, time
import numpy as np
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
"""
HELPERS: Final = """
PROCESS, PROCESSES = jax.process_index(), jax.process_count()
MESH = Mesh(jax.devices(), "d")

def sharded(values, mesh=MESH, spec=P("d")):  # of which every process has all
    values = np.asarray(values)
    sharding = NamedSharding(mesh, spec)
    dtype = jax.dtypes.canonicalize_dtype(values.dtype)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index], dtype=dtype)

def mapped(function, out=P(), mesh=MESH):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("d"), out_specs=out))

def here(array):  # the values that this process has
    return [shard.data.tolist() for shard in sorted(array.addressable_shards, key=lambda s: s.device.id)]

def caught(function):
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

total = mapped(lambda v: jax.lax.psum(v, "d"))

def barrier(name):  # by JAX's coordination service, which needs no device
    from jax._src.distributed import global_state
    global_state.client.wait_at_barrier(name, 60_000)

def has_calls():  # of this process under way
    from distxla.jax.pjrt import handles
    from distxla.jax.pjrt.client import Client
    (client,) = [owner for owner, _ in list(handles.objects.values()) if isinstance(owner, Client)]
    return client.cluster.queue.is_busy

def require_right_total():
    n = jax.device_count()
    assert here(total(sharded(np.arange(float(n))))) == [[n * (n - 1) / 2]] * jax.local_device_count()
"""


def main() -> None:
    """Run scripts until stdin ends; they share nothing but what they put into `shared`."""
    process, processes, port = map(int, sys.argv[1:4])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    begin = ""
    if "late" not in sys.argv:
        begin = f"jax.distributed.initialize('localhost:{port}', {processes}, {process})\n"
    names: dict[str, Any] = {"shared": {}, "PORT": port, "__name__": "__main__"}
    exec(compile(BEGIN + begin + (HELPERS if begin else ""), "begin.py", "exec"), names)
    for line in sys.stdin:
        told, error, printed = json.loads(line), "", io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(told, "script.py", "exec"), dict(names))
        except Exception:
            error = traceback.format_exc()
        gc.collect()  # the script's arrays
        answers.write(json.dumps({"printed": printed.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
