"""The list of steps begins, behind those of the driver, with the rewrites that the reference and `check` apply, in the
same order."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.compiler.pipeline import STEPS
from distxla.ir.module import Module
from distxla.rewrites.driver_steps import driver_steps
from distxla.rewrites.executed_form import REWRITES, executed_form
from distxla.rewrites.step import Pass
from distxla.text.parser import parse_module
from distxla.text.printer import print_module

ONLY_COMPILED = {"one-thread", "sorts-as-written"}  # forget what changes no result, and note what the text decides
SCHEDULES = Path(__file__).parents[1] / "tpu_schedules"
HOST_CALL = """HloModule m
work { x = f32[2,3] parameter(0)
  ROOT y = f32[2,3] tanh(x) }
ENTRY e { x = f32[2,3] parameter(0)
  ROOT y = f32[2,3] custom-call(x), custom_call_target="HostExecute", to_apply=work }
"""
ASYNC = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
both { a = f32[4] parameter(0)
  r = f32[4] all-reduce(a), replica_groups={{0,1}}, to_apply=sum
  p = f32[4] collective-permute(a), source_target_pairs={{0,1},{1,0}}
  ROOT t = (f32[4], f32[4]) tuple(r, p) }
ENTRY e { x = f32[4] parameter(0)
  s = ((f32[4]), (f32[4], f32[4]), u32[]) async-start(x), calls=both
  ROOT d = (f32[4], f32[4]) async-done(s) }
"""
CHANGED = {  # by each rewrite
    "call-host-computations": HOST_CALL,
    "explicit-precision": (SCHEDULES / "mixed_types.hlo").read_text(),
    "join-spread-collectives": (SCHEDULES / "spread_collective.hlo").read_text(),
    "inline-async": ASYNC,
}


def prefix() -> list[Pass]:
    """The steps from those of the driver up to the last of the rewrites."""
    names = [step.name for step in STEPS]
    first, last = len(driver_steps()), names.index("inline-async")
    steps = [step for step in STEPS[first : last + 1] if step.name not in ONLY_COMPILED]
    assert all(isinstance(step, Pass) for step in steps)
    return [step for step in steps if isinstance(step, Pass)]


def test_the_list_of_steps_begins_with_the_rewrites() -> None:
    assert prefix() == [*REWRITES]
    assert [rewrite.name for rewrite in REWRITES] == [*CHANGED]


@pytest.mark.parametrize("name", CHANGED)
def test_a_module_is_known_for_each_rewrite(name: str) -> None:
    module, changed_by = parse_module(CHANGED[name]), []
    for rewrite in REWRITES:
        changed_by += [rewrite.name] * ((changed := rewrite.run(module)) is not module)
        module = changed
    assert name in changed_by


@pytest.mark.parametrize("name", CHANGED)
def test_what_only_the_compiler_does_before_makes_no_difference(name: str) -> None:
    """The whole prefix gives the executed form, after the steps that belong to the compiler alone."""
    module = parse_module(CHANGED[name])
    alone = only_compiled(module)
    for step in prefix():
        alone = step.run(alone)
    assert print_module(alone) == print_module(only_compiled(executed_form(module)))


def only_compiled(module: Module) -> Module:
    for step in STEPS:
        if step.name in ONLY_COMPILED and isinstance(step, Pass):
            module = step.run(module)
    return module
