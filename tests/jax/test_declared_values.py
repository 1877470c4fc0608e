"""Values inside of a program that a `shard_map` without JAX's own check declares the same on several devices."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from distxla.compiler.passes.placements import DeclaredValues, declared_values
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.sharding import DECLARED_SHARDING
from distxla.jax.partitioner.array_placements import placements_of_arrays
from distxla.jax.partitioner.declared_values import with_declared_values
from distxla.jax.partitioner.global_modules import partition_hlo
from distxla.jax.partitioner.partition_worker import described
from distxla.jax.partitioner.partitioning import Partitioned, partition_module
from distxla.runtime.checks.declared_values import SameValues
from distxla.scheduler.replication import UnsureResult, unsure_results
from distxla.text.parser import parse_module
from tests import global_modules
from tests.jax.programs import P, numbers, stablehlo
from tests.jax.sharded_programs import GRID, LINE, PROGRAMS

_MARK = re.compile(rf', frontend_attributes={{{re.escape(DECLARED_SHARDING)}="[^"]*"}}')
W, X = numbers(8, 4), numbers(16, 8)


def within(part: Callable[..., Any], outs: Any, use: Callable[..., Any], on: Any = LINE, **options: Any) -> Partitioned:
    """A jitted function that uses what a `shard_map` gives, of a whole W and an X that is cut."""

    def program(w: Any, x: Any) -> Any:
        mapped = jax.shard_map(part, mesh=on, in_specs=(P(), P("x")), out_specs=outs, check_vma=False, **options)
        return use(mapped, w, x)

    given = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(on, s)) for a, s in ((W, P()), (X, P("x")))]
    lowered = jax.jit(program).trace(*given).lower(lowering_platforms=("cpu",))
    return partition_module(stablehlo(lowered), partitions=on.size)


def values(made: Partitioned) -> DeclaredValues:
    return declared_values(made.module(), made.partitions, placements_of_arrays(made).results)


def unsure(made: Partitioned) -> list[UnsureResult]:
    placed = placements_of_arrays(made)
    counts = Counts(made.replicas, made.partitions)
    return unsure_results(made.module(), counts, placed.parameters, placed.results, values(made))


def local(w: Any, x: Any) -> Any:
    return jnp.sum(x @ w)  # of the device's own rows


def total(w: Any, x: Any, *, axes: Any = "x") -> Any:
    return jax.lax.psum(local(w, x), axes)


def cut_result(mapped: Callable[..., Any], w: Any, x: Any) -> Any:
    """No result has the value on several devices: only inside of the program it is declared the same."""
    return x * mapped(w, x)


def in_loop(mapped: Callable[..., Any], w: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, c: c * jnp.tanh(mapped(w, c)), x)


def in_branch(mapped: Callable[..., Any], w: Any, x: Any) -> Any:
    return jax.lax.cond(w[0, 0] > 0, lambda x: x * mapped(w, x), lambda x: x, x)


def layers(mapped: Callable[..., Any], w: Any, x: Any) -> Any:
    for _ in range(3):
        x = x * mapped(w, x)
    return x


USES = {"straight": cut_result, "loop": in_loop, "branch": in_branch, "layers": layers}


@pytest.mark.parametrize("use", USES)
def test_missing_sum_inside_is_found_with_its_line(use: str) -> None:
    found, *others = unsure(within(local, P(), USES[use]))
    assert not others or use == "layers"
    assert found.result is None
    assert found.value
    assert found.op_name.endswith("shard_map")
    assert found.devices == (0, 1, 2, 3)
    assert f"{found.value} ({found.op_name}) is declared the same on devices 0-3, and isn't surely" in found.text
    assert "a psum of" in found.text
    lines, first = inspect.getsourcelines(local)
    assert found.frame is not None
    assert "jnp.sum" in lines[int(found.frame.split(":")[1]) - first]
    assert found.as_json()["value"] == found.value


@pytest.mark.parametrize("use", USES)
def test_right_twin_is_sure(use: str) -> None:
    made = within(total, P(), USES[use])
    assert values(made)
    assert not unsure(made)


@pytest.mark.parametrize(("axes", "devices"), [("x", ()), ("y", (0, 2, 4, 6)), (("x", "y"), ())])
def test_value_that_is_cut_over_the_other_axis(axes: Any, devices: tuple[int, ...]) -> None:
    """An out_spec that names `y` declares the same along `x` only."""
    made = within(
        lambda w, x: total(w, x, axes=axes)[None] + jax.lax.axis_index("y"),
        P("y"),
        lambda mapped, w, x: x * mapped(w, x).sum(),
        GRID,
    )
    assert [one.devices for one in unsure(made)] == ([devices] if devices else [])


@pytest.mark.parametrize("joins", [True, False])
def test_region_that_makes_one_axis_manual(joins: bool) -> None:
    made = within(total if joins else local, P(), cut_result, GRID, axis_names={"x"})
    assert values(made)
    assert bool(unsure(made)) == (not joins)


def test_result_is_told_as_a_result_only() -> None:
    made = within(local, P(), lambda mapped, w, x: mapped(w, x))
    assert not values(made)
    assert [one.result for one in unsure(made)] == [0]


@pytest.mark.sampled(one_in=4, first=("data parallel",))
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_several_kinds_are_sure(name: str) -> None:
    assert not unsure(of_program(name))


def of_program(name: str) -> Partitioned:
    program = PROGRAMS[name]
    return partition_module(stablehlo(program.lowered()), partitions=program.on.size)


def of_text(text: str) -> Partitioned:
    return partition_hlo(parse_module(text), global_modules.PARTITIONS)


MODULES = {
    "gspmd": partial(of_text, global_modules.GSPMD),
    **{f"use {name}": partial(within, total, P(), use) for name, use in USES.items()},
    **{name: partial(of_program, name) for name in PROGRAMS},
}


@pytest.mark.sampled(one_in=4, first=("gspmd", "use loop", "use layers", "data parallel"))
@pytest.mark.parametrize("name", MODULES)
def test_module_is_as_the_partitioner_makes_it(name: str) -> None:
    """Instructions, collectives among them, are those of XLA's own output, to the letter: the attribute comes after."""
    made = MODULES[name]()
    header, _, text = made.short_text.partition("\n")
    ours, _, xla = described(made.proto).text.partition("\n")
    assert header.startswith(ours)
    assert _MARK.sub("", text) == xla


@pytest.mark.sampled(one_in=6, first=("gspmd", "use loop", "use layers"))
@pytest.mark.parametrize("name", MODULES)
def test_checked_program_has_the_same_collectives(name: str) -> None:
    module = MODULES[name]().module()
    same = SameValues(module, Counts(1, module.num_partitions or 1))
    checked, functions = same.giving()
    assert bool(same) == bool(functions)

    def collectives(module: Module) -> list[Instruction]:
        return [i for c in module.computations for i in c if i.op.is_collective]

    assert collectives(checked) == collectives(module)


BEFORE = """HloModule m

%body (p: f32[4]) -> f32[4] {
  ROOT %n = f32[4]{0} negate(%p)
}

ENTRY %main (x: f32[8]) -> f32[4] {
  %in = f32[4]{0} custom-call(%x), custom_call_target="SPMDFullToShardShape", sharding={manual}, metadata={op_name="f"}
  %r = f32[4]{0} negate(%in), metadata={op_name="n"}
  %out = f32[4]{0} custom-call(%r), custom_call_target="SPMDShardToFullShape", sharding={replicated}, metadata={op_name="f"}
  %into = f32[4]{0} custom-call(%out), custom_call_target="SPMDFullToShardShape", sharding={manual}, metadata={op_name="g"}
  %s = f32[4]{0} sine(%into), metadata={op_name="s"}
  %b = f32[8]{0} custom-call(%s), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]}, metadata={op_name="g"}
  ROOT %t = f32[4]{0} custom-call(%s), custom_call_target="SPMDShardToFullShape", sharding={replicated}, metadata={op_name="g"}
}"""  # noqa: E501
AFTER = """HloModule m

ENTRY %main_spmd (x: f32[8]) -> f32[4] {
  %in = f32[4]{0} copy(%x), metadata={op_name="f"}
  %r = f32[4]{0} negate(%in), metadata={op_name="n"}
  %c = f32[4]{0} copy(%r), metadata={op_name="f"}
  %d = f32[4]{0} copy(%c), metadata={op_name="other"}
  %s = f32[4]{0} sine(%c), metadata={op_name="s"}
  ROOT %t = f32[4]{0} copy(%s), metadata={op_name="g"}
}"""


def test_only_what_can_be_recognised_is_marked() -> None:
    """`g` declares one value in two ways, so neither is taken; `other` is a copy of the program's own."""
    lines = with_declared_values(AFTER, BEFORE).split("\n")
    marked = [line for line in lines if DECLARED_SHARDING in line]
    mark = f'frontend_attributes={{{DECLARED_SHARDING}="{{replicated}}"}}'
    assert marked == [f'  %c = f32[4]{{0}} copy(%r), {mark}, metadata={{op_name="f"}}']


@pytest.mark.parametrize(
    "sharding", ["{manual}", "{unknown}", "{mesh['i'=2], [{}], manual={'i'}}", "{replicated}, a=1"]
)
def test_other_shardings_are_not_taken(sharding: str) -> None:
    assert with_declared_values(AFTER, BEFORE.replace("{replicated}", sharding, 1)) == AFTER
