"""Memory that nothing has written holds a marker, so that a program that reads it gives something nobody expects."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla
from distxla.compiler.cache_key import program_key
from distxla.compiler.compile import compile_module
from distxla.compiler.plan import plan_program
from distxla.compiler.plan.buffers import Buffer, Copy, Kernel, Loop, MemoryRegion, Plan, PlanStep
from distxla.ir.counts import Counts
from distxla.ir.element_type import ELEMENT_TYPES
from distxla.ir.unwritten import MARKER, VARIABLE, empty, fill, is_filled
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    """Behind a test the environment is the suite's again."""
    yield
    is_filled.cache_clear()


def ask(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    is_filled.cache_clear()


Edit = Callable[[PlanStep], tuple[PlanStep, ...]]

TWO_KERNELS = """ENTRY e {
  x = TYPE[6] parameter(0)
  y = TYPE[6] reverse(x), dimensions={0}
  s = TYPE[6] sort(y), dimensions={0}, to_apply=less
  ROOT r = (TYPE[6], TYPE[6]) tuple(s, x)
}"""
LESS = "less { a = TYPE[] parameter(0)\n b = TYPE[] parameter(1)\n ROOT c = pred[] compare(a, b), direction=LT }\n"
IN_A_LOOP = """body {
  p = (s32[], TYPE[6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = TYPE[6] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = TYPE[6] sort(v), dimensions={0}, to_apply=less
  u = TYPE[6] reverse(w), dimensions={0}
  ROOT q = (s32[], TYPE[6]) tuple(j, u)
}
again {
  p = (s32[], TYPE[6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = TYPE[6] parameter(0)
  zero = s32[] constant(0)
  p = (s32[], TYPE[6]) tuple(zero, x)
  w = (s32[], TYPE[6]) while(p), condition=again, body=body
  v = TYPE[6] get-tuple-element(w), index=1
  ROOT r = (TYPE[6], TYPE[6]) tuple(v, x)
}"""


def kernels(edit: Edit) -> Callable[[Plan], Plan]:
    """A change of a plan's steps, those in loops too."""

    def steps(found: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
        return tuple(new for step in found for new in edit(inside(step)))

    def inside(step: PlanStep) -> PlanStep:
        return dataclasses.replace(step, body=steps(step.body)) if isinstance(step, Loop) else step

    return lambda plan: dataclasses.replace(plan, steps=steps(plan.steps))


def without_reversal(step: PlanStep) -> tuple[PlanStep, ...]:
    """The reversed array is not computed, but read."""
    return () if isinstance(step, Kernel) and step.instruction.opcode != "sort" else (step,)


def from_elsewhere(step: PlanStep) -> tuple[PlanStep, ...]:
    """What is sorted is read from a place that holds no value at that time."""
    if not isinstance(step, Kernel) or step.instruction.opcode != "sort":
        return (step,)
    return (dataclasses.replace(step, operands=tuple(Buffer(o.size, MemoryRegion.ARENA, 1024) for o in step.operands)),)


def without_copy(step: PlanStep) -> tuple[PlanStep, ...]:
    """A result is not delivered."""
    return () if isinstance(step, Copy) and step.target.region is MemoryRegion.RESULT else (step,)


def run(text: str, kind: str, monkeypatch: pytest.MonkeyPatch, change: Callable[[Plan], Plan]) -> list[Any]:
    plan = plan_program.plan

    def changed(*arguments: Any, **named: Any) -> Plan:
        found = change(plan(*arguments, **named))
        return dataclasses.replace(found, arena_bytes=max(found.arena_bytes, 2048))

    monkeypatch.setattr(plan_program, "plan", changed)
    module = parse_module((LESS + text).replace("TYPE", kind))
    x = np.arange(6).astype(ELEMENT_TYPES[kind].dtype)
    return run_single(compile_module(module, Counts(1, 1)), [x])


MUTANTS = {
    "a step is missing": (TWO_KERNELS, without_reversal, 0),
    "a step reads another place": (TWO_KERNELS, from_elsewhere, 0),
    "a result is not copied": (TWO_KERNELS, without_copy, 1),
    "a step reads another place in a loop": (IN_A_LOOP, from_elsewhere, 0),
}


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64", "s32"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_read_of_unwritten_memory_shows(mutant: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, edit, leaf = MUTANTS[mutant]
    ask(monkeypatch, "1")
    outs = run(text, kind, monkeypatch, kernels(edit))
    if kind == "s32":
        assert set(outs[leaf]) == {np.int32(-655371)}
    else:
        assert np.isnan(outs[leaf].astype(np.float64)).all()


@pytest.mark.parametrize("text", [TWO_KERNELS, IN_A_LOOP])
@pytest.mark.parametrize("filled", ["0", "1"])
def test_correct_programs_show_nothing(text: str, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, filled)
    outs = run(text, "f32", monkeypatch, lambda plan: plan)
    assert not np.isnan(outs).any()


def test_it_costs_nothing_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then programs are compiled as if it weren't there, and the cache keeps both kinds apart."""
    module = parse_module((LESS + TWO_KERNELS).replace("TYPE", "f32"))
    imports, keys = [], []
    for value in ("0", "1"):
        ask(monkeypatch, value)
        imports.append("wmemset" in compile_module(module, Counts(1, 1)).image.imports)
        keys.append(program_key(module, Counts(1, 1)))
    assert imports == [False, True]
    assert keys[0] != keys[1]


@pytest.mark.parametrize("kind", ["pred", "s4", "s8", "u16", "s64", "f8e5m2", "f16", "bf16", "f32", "f64", "c64"])
def test_new_arrays_hold_the_marker(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, "1")
    dtype = ELEMENT_TYPES[kind].dtype
    for dims in ((), (3,), (2, 5), (0, 4)):
        array = empty(dims, dtype)
        assert array.shape == dims
        assert array.dtype == dtype
        assert array.tobytes() == (MARKER.to_bytes(2, "little") * array.nbytes)[: array.nbytes]
        if kind in ("f16", "bf16", "f32", "f64", "c64"):
            assert np.isnan(array.astype(np.complex128)).all()
    memory = bytearray(7)
    fill(memory)
    assert memory == b"\xf5\xff\xf5\xff\xf5\xff\xf5"
    ask(monkeypatch, "0")
    untouched = bytearray(4)
    fill(untouched)
    assert untouched == bytes(4)


def test_arrays_without_content_are_made_in_one_place() -> None:
    """Others have no elements."""
    package = Path(distxla.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        if path.name != "unwritten.py"
        for line in path.read_text().split("\n")
        if re.search(r"\b(np|numpy)\.empty(?!\(\(?0\b)", line)
    ]
    assert not found
