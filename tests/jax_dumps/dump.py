"""Writes the programs below with the installed JAX: `python dump.py FOLDER`, in a process without another JAX.

Of each: FOLDER/NAME/global.hlo (of shard_map), partitioned.hlo, optimized.hlo, whole.npz, args.npz, expected.npz.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

DEVICES = 4


def main(folder: Path) -> None:
    dumps = folder / "dumps"
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count={DEVICES} --xla_dump_to={dumps} --xla_dump_hlo_as_text "
        "--xla_dump_large_constants=true --xla_dump_hlo_pass_re=spmd-partitioning"
    )
    os.environ["JAX_PLATFORMS"] = "cpu"
    for name, function, arguments, manual in programs():
        write(folder / name, dumps, function, arguments, manual)


def write(folder: Path, dumps: Path, function: Any, arguments: tuple[Any, ...], manual: bool) -> None:
    import jax
    import numpy as np

    folder.mkdir()
    function.__name__ = folder.name
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    compiled = lowered.compile()
    placed = jax.device_put(arguments, compiled.input_shardings[0])
    if manual:
        (folder / "global.hlo").write_text(lowered.as_text(dialect="hlo"))
    after = f"*jit_{folder.name}.*"
    (partitioned,) = dumps.glob(f"{after}after_spmd-partitioning*.txt")
    (optimized,) = dumps.glob(f"{after}cpu_after_optimizations.txt")
    (folder / "partitioned.hlo").write_text(partitioned.read_text())
    (folder / "optimized.hlo").write_text(optimized.read_text())
    np.savez(folder / "whole.npz", **{f"arg{k}": np.asarray(a) for k, a in enumerate(jax.tree.leaves(arguments))})
    np.savez(folder / "args.npz", **shards("arg", placed))
    np.savez(folder / "expected.npz", **shards("out", compiled(*placed)))


def shards(name: str, tree: Any) -> dict[str, Any]:
    """By key; bf16 as its bits."""
    import jax
    import numpy as np

    return {
        f"{name}{k}@{s.device.id}": np.asarray(s.data).view("u2") if s.data.dtype == "bfloat16" else np.asarray(s.data)
        for k, array in enumerate(jax.tree.leaves(tree))
        for s in array.addressable_shards
    }


def programs() -> list[tuple[str, Callable[..., Any], tuple[Any, ...], bool]]:
    """Name, function, arguments, and whether all its computing is done in manual regions."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((DEVICES,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    P, R = PartitionSpec("d"), PartitionSpec()
    manual = partial(jax.shard_map, mesh=mesh, check_vma=False)
    ring = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]

    def ramp(*dims: int, kind: Any = np.float32) -> Any:
        count = int(np.prod(dims))
        return (np.arange(count) * 7 % 11 - 5).reshape(dims).astype(kind)

    @partial(manual, in_specs=(P,), out_specs=(R, P, P, P, P))
    def collectives(x: Any) -> Any:
        return (
            lax.psum(x, "d"),
            lax.ppermute(x, "d", ring),
            lax.psum_scatter(lax.all_gather(x, "d", tiled=True), "d", tiled=True),
            lax.all_to_all(x, "d", split_axis=1, concat_axis=1, tiled=True),
            x + lax.axis_index("d").astype(x.dtype),
        )

    @partial(manual, in_specs=(P, R), out_specs=(P, P))
    def loops(x: Any, w: Any) -> Any:
        """A scan, and a loop until a sum over all devices is large."""
        x, rows = lax.scan(lambda c, k: (jnp.tanh(c @ w) + k, c.sum()), x, jnp.arange(3.0))

        def grown(state: Any) -> Any:
            return lax.psum(state[1].sum(), "d") < 1000.0

        count, x = lax.while_loop(grown, lambda s: (s[0] + 1, lax.ppermute(s[1], "d", ring) * 2 + 1), (0, abs(x)))
        return x + count, rows

    @partial(manual, in_specs=(P,), out_specs=(P, P, P))
    def orders(x: Any) -> Any:
        best, places = lax.top_k(x, 3)
        return jnp.sort(x, axis=-1), best, jnp.argmax(x, axis=-1) + places.sum(-1)

    @partial(manual, in_specs=(P, P), out_specs=(P, P))
    def branches(x: Any, i: Any) -> Any:
        """A branch by device, a gather and a scatter."""
        y = lax.switch(lax.axis_index("d") % 3, [lambda v: v + 1, jnp.negative, jax.nn.gelu], x)
        return y.at[i].add(x[i % 2]), jnp.take_along_axis(x, i[:, None] % x.shape[1], axis=1)

    @partial(manual, in_specs=(R, P), out_specs=(P, P, P))
    def numbers(key: Any, x: Any) -> Any:
        """Random bits, a small float, a factorisation."""
        bits = jax.random.bits(jax.random.fold_in(jax.random.wrap_key_data(key), lax.axis_index("d")), (2, 3))
        half = (x.astype(jnp.bfloat16) * 3).astype(jnp.bfloat16)
        return bits, half, jnp.cumsum(x, axis=1) + jax.scipy.special.logsumexp(x)

    def step(w: Any, x: Any) -> Any:
        """Partitioned by XLA: a batch over the devices, the gradients joined."""

        def loss(w: Any) -> Any:
            return jnp.mean((jax.nn.softmax(jnp.tanh(x @ w)) - 0.25) ** 2)

        value, gradient = jax.value_and_grad(loss)(w)
        return value, w - 0.1 * gradient

    batch = jax.device_put(ramp(8, 6) / 8, NamedSharding(mesh, P))
    return [
        ("collectives", collectives, (ramp(8, 4),), True),
        ("loops", loops, (ramp(4, 3) / 8, ramp(3, 3) / 8), True),
        ("orders", orders, (np.where(ramp(8, 6) == 2, np.nan, ramp(8, 6)).astype(np.float32),), True),
        ("branches", branches, (ramp(8, 5) / 4, np.abs(ramp(8, kind=np.int32)) % 2), True),
        ("numbers", numbers, (np.array([1, 2], np.uint32), ramp(4, 5) / 2), True),
        ("step", step, (ramp(6, 4) / 8, batch), False),
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
