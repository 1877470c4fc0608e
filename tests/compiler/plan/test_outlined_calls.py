"""Outlined calls have the results of inlined ones: in loops, branches, with collectives, tuples."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import optimised
from distxla.compiler.passes import inlining_budget
from distxla.compiler.passes.inline_calls import InlineCalls
from distxla.compiler.passes.inlining_budget import within_budget
from distxla.compiler.plan.plan_program import plan
from distxla.compiler.stages import emit
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.ops.call import OutlinedCall
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.collectives.executors import run_module
from tests.compiler.plan.outlined_calls_cases import LOOPS, PROGRAMS, small_budget  # noqa: F401 - a fixture
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture
from tests.large_texts import doubling_all_reduces, doubling_branches, doubling_calls


@pytest.mark.sampled(one_in=6, first=("interpreted-fusions", "interpreted-loops"))
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("executor", ["compiled", "interpreted", "nvptx"])
@pytest.mark.usefixtures("small_budget")
def test_outlined_calls_give_the_same(executor: str, name: str) -> None:
    text, replicas = PROGRAMS[name]
    module = parse_module(text)
    outlined = within_budget(module)
    assert any(isinstance(i.op, OutlinedCall) for c in outlined.computations for i in c)
    verify_module(outlined)
    random = np.random.default_rng(0)
    rows = [
        [random.uniform(-1, 1, p.shape.dims).astype(np.float32) for p in module.entry_computation.parameters]
        for _ in range(replicas)
    ]
    wanted = run_reference(module, rows, Counts(replicas, 1))
    for got, want in zip(run_module(executor, module, rows, replicas, 1), wanted, strict=True):
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small_budget")
def test_each_computation_is_planned_once_and_has_its_own_memory() -> None:
    planned = plan(optimised(parse_module(LOOPS)))
    names = [routine.name for routine in planned.routines]
    assert len(names) == len(set(names)) >= 2
    for routine in planned.routines:
        assert routine.base + routine.arena_bytes <= planned.arena_bytes
        for number in routine.calls:  # the caller's memory is in use meanwhile
            assert planned.routines[number].base >= routine.base + routine.arena_bytes


@pytest.mark.parametrize("text", [doubling_calls(), doubling_all_reduces(), doubling_branches()])
def test_what_doubles_is_compiled_within_the_budget(text: str) -> None:
    module = parse_module(text)
    inlined = InlineCalls().run(module)
    assert sum(len(c.instructions) for c in inlined.computations) <= 2 * inlining_budget.COPIED
    assert "routine 0" in str(emit(module, "buffers", Counts(2, 1)))


def test_programs_within_the_budget_keep_no_call() -> None:
    module = parse_module(doubling_calls(8))
    assert within_budget(module) is module


APPLIED = """HloModule applied

{doubling}
apply {{
  a = f32[] parameter(0)
  ROOT r = f32[] call(a), to_apply=f30
}}

ENTRY e {{
  x = f32[4] parameter(0)
  ROOT y = f32[4] map(x), dimensions={{0}}, to_apply=apply
}}
"""


def test_what_can_neither_be_copied_nor_kept_is_refused_with_its_place() -> None:
    computations = doubling_calls().partition("f0 {")[2].partition("ENTRY")[0]
    scalar = ("f0 {" + computations).replace("f32[4]", "f32[]")
    module = parse_module(APPLIED.format(doubling=scalar), "a.hlo")
    with pytest.raises(
        UnsupportedOpError,
        match=r"about 10\^9 instructions with copies of what it calls, more than the 400000 that are compiled; "
        r"calls of f\d+ can't be kept as calls: it is applied to elements",
    ) as caught:
        InlineCalls().run(module)
    assert caught.value.location is not None
    start = "c = (f32[4], f32[4], u32[]) copy-start(p)\n  ROOT r = "
    start = doubling_calls(innermost="copy-done(c)").replace("ROOT r = ", start)
    with pytest.raises(UnsupportedOpError, match="it holds only the start or the done of an asynchronous operation, c"):
        InlineCalls().run(parse_module(start))
