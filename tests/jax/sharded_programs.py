"""Sharded JAX programs of the kinds that people write, each small; see test_sharded_programs.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import AbstractMesh, NamedSharding

from tests.jax.programs import P, mesh, numbers

LINE, GRID = mesh(4), mesh(4, 2)


@dataclass(frozen=True)
class Program:
    """A function of arrays that are cut by `specs` over a mesh.  options: of jax.jit.  plain: the same of whole arrays
    on one device, where `function` has manual parts, which need their devices."""

    function: Callable[..., Any]
    on: AbstractMesh
    args: tuple[Any, ...]
    specs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    plain: Callable[..., Any] | None = None

    def lowered(self) -> jax.stages.Lowered:
        """A global module, of which JAX has no device."""

        def given(array: Any, spec: Any) -> Any:
            return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(self.on, spec))

        args = [jax.tree.map(given, a, s) for a, s in zip(self.args, self.specs, strict=True)]
        return jax.jit(self.function, keep_unused=True, **self.options).trace(*args).lower(lowering_platforms=("cpu",))

    def expected(self) -> list[Any]:
        """The leaves of the results, by JAX on one device."""
        return jax.tree.leaves(jax.jit(self.plain or self.function)(*self.args))


def on_grid(*spec: Any) -> NamedSharding:
    return NamedSharding(GRID, P(*spec))


def shard_map(f: Any, on: AbstractMesh, ins: Any, outs: Any, axes: tuple[str, ...] | None = None) -> Any:
    """axes: along which f is manual; all by default."""
    chosen = {} if axes is None else {"axis_names": frozenset(axes)}
    return jax.shard_map(f, mesh=on, in_specs=ins, out_specs=outs, check_vma=False, **chosen)


def two_layers(w: dict[str, Any], x: Any) -> Any:
    return jnp.tanh(x @ w["a"]) @ w["b"]


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def train_step(w: dict[str, Any], x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((two_layers(w, x) - y) ** 2))(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), loss


def constraint_in_branch(x: Any, p: Any) -> Any:
    y = jax.lax.cond(p, lambda x: constrain(x * 2, on_grid("x", "y")), lambda x: x - 1, x)
    return y, jnp.max(y)


def constraint_in_loop(x: Any, w: Any) -> Any:
    def body(h: Any, w: Any) -> Any:
        h = constrain(jnp.tanh(h @ w), on_grid("x", "y"))
        return h, h.sum()

    return jax.lax.scan(body, x, w)


def loop_while(x: Any) -> Any:
    return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, constrain(s[1] * 2 + 1, on_grid("x"))), (0, x))


def halo(x: Any) -> Any:
    ring = [(k, (k + 1) % 4) for k in range(4)]
    left = jax.lax.ppermute(x[-1:], "x", ring)
    return jnp.concatenate([left, x[:-1]]) + x


def halo_plain(x: Any) -> Any:
    return jnp.roll(x, 1, axis=0) + x


def partly_manual_sum(x: Any) -> Any:
    return shard_map(lambda x: jax.lax.psum(x, "x"), GRID, P("x"), P(), ("x",))(x * 3) * 10


def partly_manual_loop(x: Any, w: Any) -> Any:
    """A pipeline along x, whose matrix products are cut along y."""

    def stage(x: Any, w: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            h = jnp.tanh(h @ w[0])
            return jax.lax.ppermute(h, "x", [(k, (k + 1) % 4) for k in range(4)]), None

        return jax.lax.scan(step, x, None, length=4)[0]

    return shard_map(stage, GRID, (P("x"), P("x")), P("x"), ("x",))(x, w)


def pipeline_plain(x: Any, w: Any) -> Any:
    parts = list(x.reshape(4, 2, 8))
    for step in range(4):
        parts = [jnp.tanh(part @ w[(k + step) % 4]) for k, part in enumerate(parts)]
    return jnp.concatenate(parts)


def manual_within_partly_manual(x: Any) -> Any:
    def inner(x: Any) -> Any:
        return jax.lax.psum(x, "y")

    def outer(x: Any) -> Any:
        return jax.shard_map(inner, in_specs=P(None, "y"), out_specs=P(), axis_names={"y"}, check_vma=False)(x) + 1

    return shard_map(outer, GRID, P("x"), P("x"), ("x",))(x)


def gradient_of_manual(w: Any, x: Any) -> Any:
    def loss(w: Any, x: Any) -> Any:
        return jax.lax.psum(jnp.sum(jnp.sin(x @ w)), ("x", "y"))

    return jax.grad(lambda w: shard_map(loss, GRID, (P(), P(("x", "y"))), P())(w, x))(w)


def all_to_all(x: Any) -> Any:
    return shard_map(lambda x: jax.lax.all_to_all(x, "x", 1, 0, tiled=True), LINE, P("x"), P(None, "x"))(x) * 2


def experts(x: Any, gate: Any, w: Any) -> Any:
    chosen = jax.nn.one_hot(jnp.argmax(x @ gate, -1), 4)
    return jnp.einsum("te,td,edf->tf", chosen, x, w)


def embedding(table: Any, ids: Any) -> Any:
    return jnp.take(table, ids, axis=0).sum(1)


@partial(jax.custom_vjp)
def clipped(x: Any) -> Any:
    return x * x


clipped.defvjp(lambda x: (x * x, x), lambda x, g: (jnp.clip(g * 2 * x, -0.5, 0.5),))


def convolution(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def random_mask(x: Any) -> Any:
    keep = jax.random.bernoulli(jax.random.key(3), 0.5, x.shape)
    return constrain(jnp.where(keep, x, 0), on_grid("x", "y"))


def checkpointed(w: dict[str, Any], x: Any) -> Any:
    return jax.grad(lambda w: jnp.sum(jax.checkpoint(two_layers)(w, x) ** 2))(w)


def update(x: Any, y: Any) -> Any:
    return jax.lax.dynamic_update_slice(x, y, (3, 1)), x.at[5].add(y[0, 0])


LAYERS: Final = ({"a": numbers(8, 16), "b": numbers(16, 4)},)
CUT_LAYERS: Final = ({"a": P(None, "y"), "b": P("y")},)
SYMMETRIC: Final = np.eye(8, dtype=np.float32) * 4 + numbers(8, 8) @ numbers(8, 8).T

PROGRAMS: Final = {
    "data parallel": Program(
        train_step, LINE, (*LAYERS, numbers(16, 8), numbers(16, 4)), ({"a": P(), "b": P()}, P("x"), P("x"))
    ),
    "fully sharded": Program(
        train_step, LINE, (*LAYERS, numbers(16, 8), numbers(16, 4)), ({"a": P("x"), "b": P("x")}, P("x"), P("x"))
    ),
    "tensor parallel": Program(two_layers, GRID, (*LAYERS, numbers(8, 8)), (*CUT_LAYERS, P("x"))),
    "stated results": Program(
        lambda x: (x * 2, x @ x.T, x.sum()),
        GRID,
        (numbers(8, 8),),
        (P("x"),),
        {"out_shardings": (on_grid("x", "y"), on_grid(None, "x"), on_grid())},
    ),
    "attention over heads": Program(attention, GRID, (numbers(4, 8, 2, 4),) * 3, (P("x", None, "y"),) * 3),
    "attention over the sequence": Program(attention, LINE, (numbers(1, 8, 2, 4),) * 3, (P(None, "x"), P(), P())),
    "constraint in a branch": Program(constraint_in_branch, GRID, (numbers(16, 8), np.bool_(True)), (P("x"), P())),
    "constraint in a scan": Program(constraint_in_loop, GRID, (numbers(8, 8), numbers(3, 8, 8)), (P("x"), P())),
    "constraint in a while": Program(loop_while, GRID, (numbers(8, 4),), (P("x", "y"),)),
    "halo exchange": Program(
        shard_map(halo, LINE, P("x"), P("x")), LINE, (numbers(16, 4),), (P("x"),), plain=halo_plain
    ),
    "partly manual sum": Program(
        partly_manual_sum,
        GRID,
        (numbers(8, 4),),
        (P("x", "y"),),
        plain=lambda x: x.reshape(4, 2, 4).sum(0) * 30,
    ),
    "partly manual pipeline": Program(
        partly_manual_loop, GRID, (numbers(8, 8), numbers(4, 8, 8)), (P("x"), P("x")), plain=pipeline_plain
    ),
    "manual within partly manual": Program(
        manual_within_partly_manual,
        GRID,
        (numbers(8, 4),),
        (P("x", "y"),),
        plain=lambda x: x.reshape(8, 2, 2).sum(1) + 1,
    ),
    "gradient of a manual part": Program(
        gradient_of_manual,
        GRID,
        (numbers(8, 4), numbers(16, 8)),
        (P(), P("x")),
        plain=jax.grad(lambda w, x: jnp.sum(jnp.sin(x @ w))),
    ),
    "all to all": Program(all_to_all, LINE, (numbers(8, 8),), (P("x"),), plain=lambda x: x * 2),
    "experts": Program(experts, LINE, (numbers(16, 8), numbers(8, 4), numbers(4, 8, 8)), (P("x"), P(), P("x"))),
    "embedding cut by rows": Program(
        embedding, GRID, (numbers(16, 8), np.arange(12, dtype=np.int32).reshape(6, 2)), (P("y"), P())
    ),
    "custom gradient": Program(jax.grad(lambda x: clipped(x).sum()), LINE, (numbers(8, 4),), (P("x"),)),
    "convolution": Program(convolution, GRID, (numbers(4, 8, 8, 2), numbers(3, 3, 2, 4)), (P("x", "y"), P())),
    "random numbers": Program(random_mask, GRID, (numbers(8, 8),), (P("x"),)),
    "recomputation": Program(checkpointed, GRID, (*LAYERS, numbers(8, 8)), (*CUT_LAYERS, P("x"))),
    "sort along the cut": Program(lambda x: jnp.sort(x, axis=0), LINE, (numbers(16, 4),), (P("x"),)),
    "cumulative sum along the cut": Program(lambda x: jnp.cumsum(x, 0), LINE, (numbers(16, 4),), (P("x"),)),
    "updates across the cut": Program(update, LINE, (numbers(16, 4), numbers(6, 2)), (P("x"), P())),
    "linear algebra": Program(
        lambda a, b: (jnp.linalg.cholesky(a) @ b, jnp.linalg.eigvalsh(a)),
        LINE,
        (SYMMETRIC, numbers(8, 8)),
        (P(), P("x")),
    ),
}
