"""Results that are declared the same on all devices: wrong programs are found with their line, right ones never."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from distxla.compiler.passes.placements import declared_values
from distxla.ir.counts import Counts
from distxla.jax.partitioner.partitioning import Partitioned, partition_module
from distxla.scheduler.replication import UnsureResult, unsure_results
from tests.jax.models import PROGRAMS as MODELS
from tests.jax.programs import P, mesh, numbers, stablehlo
from tests.jax.sharded_programs import GRID, LINE, PROGRAMS


def unsure(partitioned: Partitioned) -> list[UnsureResult]:
    module, results = partitioned.module(), [array.shards for array in partitioned.results]
    return unsure_results(
        module,
        Counts(partitioned.replicas, partitioned.partitions),
        [array.shards for array in partitioned.parameters],
        results,
        declared_values(module, partitioned.partitions, results),
    )


def manual(
    function: Callable[..., Any], args: Any, ins: Any, outs: Any, on: Any = LINE
) -> tuple[jax.stages.Lowered, int]:
    """`shard_map` without JAX's own check."""
    mapped = jax.shard_map(function, mesh=on, in_specs=ins, out_specs=outs, check_vma=False)
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(on, s)) for a, s in zip(args, ins)]
    return jax.jit(mapped).trace(*given).lower(lowering_platforms=("cpu",)), on.size


def loss(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)
    return jnp.mean(h * h)  # the sum


def no_sum(w: Any, x: Any) -> Any:
    return jnp.sin(loss(w, x))


def mean(w: Any, x: Any) -> Any:
    return jnp.sin(jax.lax.pmean(loss(w, x), "x"))


def step_without_sum(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(loss)(w, x)


def step(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.lax.pmean(jax.grad(loss)(w, x), "x")


def steps(w: Any, x: Any, *, joins: bool) -> Any:
    def body(k: int, w: Any) -> Any:
        gradient = jax.grad(loss)(w, x)
        return w - 0.1 * (jax.lax.pmean(gradient, "x") if joins else gradient)

    return jax.lax.fori_loop(0, 3, body, w)


def numbered(w: Any, x: Any) -> Any:
    return w + jax.lax.axis_index("x").astype(w.dtype)


def gathered(w: Any, x: Any) -> Any:
    return jax.lax.all_gather(x, "x").sum()


def one_axis(w: Any, x: Any, *, axes: Any) -> Any:
    return jax.lax.psum(jnp.sum(x @ w), axes)


def in_branch(w: Any, x: Any, *, joins: bool) -> Any:
    total = jax.lax.psum(x.sum(), "x") if joins else x.sum()
    return jax.lax.cond(total > 0, lambda w: w * 2, lambda w: w - 1, w)


W, X = numbers(8, 4), numbers(16, 8)
WRONG = {
    "no sum": (no_sum, loss, "jnp.mean"),
    "no sum of gradients": (step_without_sum, loss, ""),
    "no sum in a loop": (partial(steps, joins=False), loss, ""),
    "number of the device": (numbered, numbered, "axis_index"),
    "other branch": (partial(in_branch, joins=False), in_branch, "x.sum()"),
}
RIGHT = {
    "mean": mean,
    "step": step,
    "steps": partial(steps, joins=True),
    "gathered": gathered,
    "branch": partial(in_branch, joins=True),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_program_is_found_with_its_line(name: str) -> None:
    function, at, line = WRONG[name]
    lowered, devices = manual(function, (W, X), (P(), P("x")), P())
    (found,) = unsure(partition_module(stablehlo(lowered), partitions=devices))
    assert found.result == 0
    assert found.devices == (0, 1, 2, 3)
    assert "and isn't surely: it depends on" in found.text
    assert found.frame is not None
    lines, first = inspect.getsourcelines(at)
    number = int(found.frame.split(":")[1])
    assert first <= number < first + len(lines)
    assert line in lines[number - first]


@pytest.mark.parametrize("name", RIGHT)
def test_right_twin_is_sure(name: str) -> None:
    lowered, devices = manual(RIGHT[name], (W, X), (P(), P("x")), P())
    assert not unsure(partition_module(stablehlo(lowered), partitions=devices))


@pytest.mark.parametrize(("axes", "devices"), [("x", (0, 1)), ("y", (0, 2, 4, 6)), (("x", "y"), ())])
def test_sum_over_one_axis_leaves_the_other(axes: Any, devices: tuple[int, ...]) -> None:
    args = W[:4], X
    lowered, count = manual(partial(one_axis, axes=axes), args, (P(), P("x", "y")), P(), GRID)
    found = unsure(partition_module(stablehlo(lowered), partitions=count))
    assert [len(one.devices) for one in found] == ([8] if devices else [])


@pytest.mark.sampled(one_in=4, first=("data parallel",))
@pytest.mark.parametrize("name", PROGRAMS)
def test_partitioned_programs_are_sure(name: str) -> None:
    program = PROGRAMS[name]
    made = partition_module(stablehlo(program.lowered()), partitions=program.on.size)
    assert not unsure(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_are_sure(name: str) -> None:
    """Programs as people write them; a `shard_map` is checked by JAX, too."""
    program = MODELS[name]()
    on = mesh(*program.axes.values(), names=tuple(program.axes))
    function, options = program.step(on)
    lowered = jax.jit(function, **options).trace(program.state, *program.batches[0]).lower(lowering_platforms=("cpu",))
    assert not unsure(partition_module(stablehlo(lowered), partitions=program.devices))
