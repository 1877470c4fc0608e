"""One of several processes of JAX that make calls: `python -m bench.process_side PORT COUNT PROCESS`, on the platform
that the environment names. With a COUNT of 1 it is an ordinary process of JAX.

One JSON object a line in, one out: {"program": "psum", "count": 100, "wait": true} gives {"seconds": [...]}: of each
call where its result is waited for, else of all of them together, by their count. Each call takes the result of the
one before. A first call, which isn't timed, lets the processes begin together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

FLOATS = 64  # a device
Prepared = tuple[Callable[[Any], Any], Any]  # a function from an array of ones to the same


def _psum(devices: list[Any]) -> Prepared:
    mesh = Mesh(np.array(devices), ("i",))
    count = len(devices)
    function = jax.shard_map(
        lambda x: jax.lax.psum(x, "i") / count, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False
    )
    whole = np.ones(FLOATS * count, np.float32)
    x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("i")), lambda index: whole[index])
    return jax.jit(function), x


def psum() -> Prepared:
    """An all-reduce of 64 floats a device, over the devices of all processes."""
    return _psum(jax.devices())


def local_psum() -> Prepared:
    """The same over the devices of this process."""
    return _psum(jax.local_devices())


def local() -> Prepared:
    """Arithmetic of 64 floats on one device of this process."""
    place = SingleDeviceSharding(jax.local_devices()[0])
    return jax.jit(lambda x: x * 0.5 + 0.5), jax.device_put(np.ones(FLOATS, np.float32), place)


PROGRAMS: dict[str, Callable[[], Prepared]] = {"psum": psum, "local": local, "local psum": local_psum}


def calls(prepared: Prepared, count: int, *, wait: bool) -> list[float]:
    """Seconds, as above. ArithmeticError where the last result is wrong."""
    call, x = prepared
    x = call(x).block_until_ready()
    found = []
    begin = time.perf_counter()
    for _ in range(count):
        x = call(x)
        if wait:
            x.block_until_ready()
            end = time.perf_counter()
            found.append(end - begin)
            begin = end
    if not wait:
        x.block_until_ready()
        found.append((time.perf_counter() - begin) / count)
    for shard in x.addressable_shards:
        if not (np.asarray(shard.data) == 1).all():
            raise ArithmeticError(f"expected ones, found {np.asarray(shard.data)}")
    return found


def main(port: int, count: int, process: int) -> None:
    """Answer the lines of stdin until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, process)
    prepared: dict[str, Prepared] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["program"]
        if name not in prepared:
            prepared[name] = PROGRAMS[name]()
        found = calls(prepared[name], asked["count"], wait=asked["wait"])
        print(json.dumps({"seconds": found}), file=answers, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
