"""A Llama-like model over 256 abstract devices, and axes that their devices don't divide."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

import distxla as dx
import distxla.jax as dxj
from distxla.ir.counts import Counts
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from tests.jax.programs import P, assert_as_jax, lowered, mesh, numbers, stablehlo
from tests.stopwatch import Stopwatch

LAYERS, WIDTH, HEADS, HIDDEN, WORDS, BATCH, LENGTH = 32, 4096, 32, 11008, 32000, 32, 2048
SHAPES: dict[str, tuple[tuple[int, ...], PartitionSpec]] = {
    "words": ((WORDS, WIDTH), P("y")),
    "norm": ((WIDTH,), P()),
}
LAYER: dict[str, tuple[tuple[int, ...], PartitionSpec]] = {
    **{name: ((LAYERS, WIDTH, WIDTH), P(None, None, "y")) for name in ("q", "k", "v")},
    "o": ((LAYERS, WIDTH, WIDTH), P(None, "y")),
    **{name: ((LAYERS, WIDTH, HIDDEN), P(None, None, "y")) for name in ("gate", "up")},
    "down": ((LAYERS, HIDDEN, WIDTH), P(None, "y")),
    **{name: ((LAYERS, WIDTH), P()) for name in ("norm1", "norm2")},
}


def normed(x: Any, weight: Any) -> Any:
    scale = jax.lax.rsqrt(jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True) + 1e-5)
    return (x * scale).astype(x.dtype) * weight


def layer(x: Any, w: dict[str, Any]) -> tuple[Any, None]:
    h = normed(x, w["norm1"])
    q, k, v = ((h @ w[name]).reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS) for name in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
    seen = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(BATCH, LENGTH, WIDTH)
    x = x + seen @ w["o"]
    h = normed(x, w["norm2"])
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"], None


def step(parameters: dict[str, Any], tokens: Any) -> Any:
    def loss(p: dict[str, Any]) -> Any:
        x, _ = jax.lax.scan(jax.checkpoint(layer), p["words"][tokens], p["layers"])
        logits = (normed(x, p["norm"]) @ p["words"].T).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], -1))

    value, gradient = jax.value_and_grad(loss)(parameters)
    return value, jax.tree.map(lambda p, g: p - 1e-3 * g, parameters, gradient)


@pytest.mark.slow
def test_a_large_model_is_partitioned_and_checked_for_256_devices() -> None:
    on = mesh(16, 16)

    def given(shapes: dict[str, Any]) -> dict[str, Any]:
        return {
            name: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(on, spec))
            for name, (shape, spec) in shapes.items()
        }

    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32, sharding=NamedSharding(on, P("x")))
    parameters = {**given(SHAPES), "layers": given(LAYER)}
    whole = jax.jit(step, donate_argnums=0).trace(parameters, tokens).lower(lowering_platforms=("cpu",))
    watch = Stopwatch()
    module = dxj.partition(whole)
    assert module.num_partitions == 256
    instructions = [i for c in module.computations for i in c]
    assert len(instructions) < 2000
    assert sum(i.opcode == "while" for i in instructions) >= 2
    assert examine([(tuple(range(256)), module)], Counts(1, 256)).outcome is Outcome.SAFE
    assert watch.seconds < 30


def test_intermediate_values_may_be_cut_unevenly() -> None:
    """10 rows over 4 devices: the partitioner pads them."""
    on = mesh(4)

    def f(x: Any) -> Any:
        y = jax.lax.with_sharding_constraint(jnp.tanh(x).reshape(10, 4), NamedSharding(on, P("x")))
        return jnp.cumsum(y, axis=0)[::-1].sum(1)

    x = numbers(40)
    made = dxj.partition_module(stablehlo(lowered(f, on, (x,), (P("x"),))), partitions=4)
    assert "[3,4]" in made.text
    assert_as_jax(lambda x: jnp.cumsum(jnp.tanh(x).reshape(10, 4), axis=0)[::-1].sum(1), made, (x,))


def test_a_parameter_with_an_uneven_sharding_is_made_whole() -> None:
    """XLA replicates it; where the sharding is fixed, the error says so."""
    text = "ENTRY e {\n x = f32[10] parameter(0), sharding={devices=[4]<=[4]}\n ROOT y = f32[10] add(x, x)\n}"
    made = dxj.partition_module(f"HloModule m, num_partitions=4\n{text}", partitions=4)
    assert made.parameter_shardings == ("{replicated}",)
    fixed = dxj.partition_module(text, partitions=4, propagate_to_parameters=False)
    with pytest.raises(dx.UnsupportedOpError, match=r"f32\[10\] cannot be cut evenly into 4 parts"):
        _ = fixed.parameters
