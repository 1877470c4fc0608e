"""Calls of JAX functions by one implementation, in a process of its own: `python -m bench.jax_side SIDE DEVICES`, of
the sides xla, plugin and dxj.

One JSON object a line in, one out: {"program": "psum", "count": 100, "wait": true} gives {"seconds": [...]}: of each
call where its result is waited for, else of all of them together, by their count.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Call = Callable[[Any, Any], Any]
Prepared = tuple[Call, Any, Any]


@contextmanager
def by_jax(devices: int) -> Iterator[Callable[[str], Prepared]]:
    """JAX itself, on the platform that the environment names."""
    import jax
    from jax.sharding import AxisType, NamedSharding

    from bench.jax_programs import PROGRAMS, options

    def prepare(name: str) -> Prepared:
        mesh = jax.make_mesh((devices,), ("i",), axis_types=(AxisType.Auto,))
        program = PROGRAMS[name](mesh)
        given = [
            jax.device_put(value, NamedSharding(mesh, spec))
            for value, spec in zip((program.state, program.batch), program.specs)
        ]
        return jax.jit(program.function, **options(program, mesh)), *given

    yield prepare


@contextmanager
def by_distxla(devices: int) -> Iterator[Callable[[str], Prepared]]:
    """`distxla.jax`."""
    from jax.sharding import NamedSharding

    import distxla as dx
    import distxla.jax as dxj
    from bench.jax_programs import PROGRAMS, options

    with dx.Cluster(partitions=devices) as cluster:

        def prepare(name: str) -> Prepared:
            mesh = dxj.make_mesh((devices,), ("i",))
            program = PROGRAMS[name](mesh)
            given = [
                dxj.device_put(value, NamedSharding(mesh, spec), cluster=cluster)
                for value, spec in zip((program.state, program.batch), program.specs)
            ]
            return dxj.jit(program.function, cluster=cluster, **options(program, mesh)), *given

        cluster.wait_started()
        yield prepare


def serve(prepare: Callable[[str], Prepared]) -> None:
    """Answer the lines of stdin until it ends."""
    prepared: dict[str, list[Any]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["program"]
        if name not in prepared:
            call, state, batch = prepare(name)
            state, value = call(state, batch)
            value.block_until_ready()
            prepared[name] = [call, state, batch]
        found = _calls(prepared[name], asked["count"], wait=asked["wait"])
        print(json.dumps({"seconds": found}), flush=True)


def _calls(prepared: list[Any], count: int, *, wait: bool) -> list[float]:
    call, state, batch = prepared
    found = []
    begin = time.perf_counter()
    for _ in range(count):
        state, value = call(state, batch)
        if wait:
            value.block_until_ready()
            end = time.perf_counter()
            found.append(end - begin)
            begin = end
    if not wait:
        value.block_until_ready()
        found.append((time.perf_counter() - begin) / count)
    prepared[1] = state
    return found


if __name__ == "__main__":
    with {"xla": by_jax, "plugin": by_jax, "dxj": by_distxla}[sys.argv[1]](int(sys.argv[2])) as made:
        serve(made)
