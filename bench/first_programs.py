"""What a fresh process of JAX computes first: `python -m bench.first_programs NAME` prints its seconds.

JAX runs on the devices that the environment says (first.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def devices() -> None:
    """From the import of JAX to its devices."""
    import jax

    assert len(jax.devices()) == 8


def small_jits() -> Callable[[], Any]:
    """Six functions on one device."""
    import jax
    import jax.numpy as jnp

    x = jax.device_put(np.linspace(0, 1, 128, dtype=np.float32).reshape(8, 16), jax.devices()[0])
    functions: list[Callable[[Any], Any]] = [
        lambda x: jnp.tanh(x) * 2,
        lambda x: x @ x.T,
        lambda x: jax.nn.softmax(x),
        lambda x: jnp.sort(x, axis=1)[:, ::-1],
        lambda x: jax.lax.fori_loop(0, 5, lambda _, y: y * 0.5 + 1, x),
        jax.grad(lambda x: (jnp.sin(x) ** 2).sum()),
    ]
    return lambda: [jax.jit(f)(x).block_until_ready() for f in functions]


def sharded_jits() -> Callable[[], Any]:
    """Four functions on eight devices, which XLA partitions or which communicate themselves."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(np.linspace(0, 1, 512, dtype=np.float32).reshape(16, 32), NamedSharding(mesh, P("i")))
    functions: list[Callable[[Any], Any]] = [
        lambda x: x.sum(),
        lambda x: x @ x.T,
        jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()),
        lambda x: jnp.mean((jnp.tanh(x) - x.mean(0)) ** 2, axis=0),
    ]
    return lambda: [jax.jit(f)(x).block_until_ready() for f in functions]


def eager() -> Callable[[], Any]:
    """120 operations, each a program of its own: twelve functions of ten shapes."""
    import jax.numpy as jnp

    functions: list[Callable[[Any], Any]] = [
        jnp.sin, jnp.exp, jnp.tanh, jnp.abs, lambda x: x + x, lambda x: x * 2, jnp.sum, jnp.max,
        jnp.cumsum, lambda x: x.T, lambda x: x[::-1], jnp.sort,
    ]  # fmt: skip
    arrays = [jnp.asarray(np.linspace(0, 1, 3 * n, dtype=np.float32).reshape(3, n)) for n in range(4, 14)]
    return lambda: [f(x).block_until_ready() for x in arrays for f in functions]


def constant() -> Callable[[], Any]:
    """A function that closes over 8 MiB."""
    import jax
    import jax.numpy as jnp

    table = np.random.default_rng(0).normal(size=(2048, 1024)).astype(np.float32)
    x = jnp.arange(4.0)
    return lambda: jax.jit(lambda x: (table * x[0]).sum())(x).block_until_ready()


def transformer() -> Callable[[], Any]:
    """A training step of twelve layers on 4x2 devices: the batch is cut over 4, matrices over 2."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    layers, width, heads, words, length, batch = 12, 128, 4, 256, 32, 8
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    random = np.random.default_rng(0)

    def weights(*size: int, spec: Any) -> Any:
        value = random.normal(size=size, scale=0.05).astype(np.float32)
        return jax.device_put(value, NamedSharding(mesh, spec))

    def layer() -> dict[str, Any]:
        return {
            "qkv": weights(width, 3 * width, spec=P(None, "model")),
            "out": weights(width, width, spec=P("model", None)),
            "up": weights(width, 4 * width, spec=P(None, "model")),
            "down": weights(4 * width, width, spec=P("model", None)),
        }

    params = {"words": weights(words, width, spec=P()), "layers": [layer() for _ in range(layers)]}
    tokens = jax.device_put(random.integers(0, words, (batch, length + 1)), NamedSharding(mesh, P("data")))

    def normal(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def block(x: Any, w: Any) -> Any:
        q, k, v = jnp.split((normal(x) @ w["qkv"]).reshape(*x.shape[:2], heads, -1), 3, axis=-1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // heads)
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        x += jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(normal(x) @ w["up"]) @ w["down"]

    def loss(params: Any, tokens: Any) -> Any:
        x = params["words"][tokens[:, :-1]]
        for w in params["layers"]:
            x = block(x, w)
        log = jax.nn.log_softmax(normal(x) @ params["words"].T)
        return -jnp.take_along_axis(log, tokens[:, 1:, None], -1).mean()

    def step(params: Any, tokens: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(params, tokens)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), value

    return lambda: float(jax.jit(step)(params, tokens)[1])


def convolutions() -> Callable[[], Any]:
    """A training step of six convolutions on one device."""
    import jax
    import jax.numpy as jnp

    random = np.random.default_rng(0)
    sizes = [(3, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]
    kernels = [jnp.asarray(random.normal(size=(3, 3, *size), scale=0.1).astype(np.float32)) for size in sizes]
    images = jnp.asarray(random.normal(size=(8, 32, 32, 3)).astype(np.float32))

    def loss(kernels: Any) -> Any:
        x = images
        for k, kernel in enumerate(kernels):
            stride = 1 + k % 2
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(
                    x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        return (x.mean((1, 2)) ** 2).mean()

    return lambda: jax.block_until_ready(jax.jit(jax.value_and_grad(loss))(kernels))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "devices": devices,
    "small jits": small_jits,
    "sharded jits": sharded_jits,
    "eager": eager,
    "constant": constant,
    "transformer": transformer,
    "convolutions": convolutions,
}


def main() -> None:
    name = sys.argv[1]
    begin = time.perf_counter()
    work = PROGRAMS[name]()
    if work is not None:
        begin = time.perf_counter()
        work()
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main()
