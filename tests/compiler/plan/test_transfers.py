"""Where arrays are copied between the host's memory and the kernels' own: followed step by step, without their values.

A value is the number of the step that made it. Whatever a step reads has to be, in the memory that it reads, the value
that the program means.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from distxla.compiler.compile import planned
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.plan import planner
from distxla.compiler.plan.buffers import (
    Branch,
    Buffer,
    Communicate,
    Copy,
    Invoke,
    Kernel,
    Loop,
    MemoryRegion,
    Plan,
    PlanStep,
    Swap,
    Transfer,
)
from distxla.compiler.plan.transfers import place_transfers, ticket_buffer
from distxla.ir.counts import Counts
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of
from distxla.text.parser import parse_module
from tests.compiler.plan.outlined_calls_cases import PROGRAMS as CALLS
from tests.compiler.plan.outlined_calls_cases import small_budget  # noqa: F401  a fixture
from tests.compiler.plan.swapped_state_cases import BODIES, BOTH, module
from tests.programs import PROGRAMS, ShardedProgram

CONTROL_FLOW = """
HloModule control_flow
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
inner_condition { s = (s32[], f32[64]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT }
inner_body { s = (s32[], f32[64]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  x = f32[64] get-tuple-element(s), index=1  y = f32[64] sine(x)  j = s32[] add(i, one)
  ROOT r = (s32[], f32[64]) tuple(j, y) }
left { t = (f32[64], f32[64]) parameter(0)  x = f32[64] get-tuple-element(t), index=0  zero = s32[] constant(0)
  s = (s32[], f32[64]) tuple(zero, x)
  l = (s32[], f32[64]) while(s), condition=inner_condition, body=inner_body
  ROOT r = f32[64] get-tuple-element(l), index=1 }
right { t = (f32[64], f32[64]) parameter(0)  y = f32[64] get-tuple-element(t), index=1  ROOT r = f32[64] negate(y) }
condition { s = (s32[], f32[64], f32[64]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[64], f32[64]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  x = f32[64] get-tuple-element(s), index=1  w = f32[64] get-tuple-element(s), index=2
  sum = f32[64] all-reduce(x), to_apply=add  t = (f32[64], f32[64]) tuple(sum, w)  zero = f32[] constant(0)
  total = f32[] reduce(sum, zero), dimensions={0}, to_apply=add  is_large = pred[] compare(total, zero), direction=GT
  c = f32[64] conditional(is_large, t, t), true_computation=left, false_computation=right
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[64], f32[64]) tuple(j, c, w) }
ENTRY main { x = f32[64] parameter(0)  w = f32[64] parameter(1)  zero = s32[] constant(0)
  s = (s32[], f32[64], f32[64]) tuple(zero, x, w)
  l = (s32[], f32[64], f32[64]) while(s), condition=condition, body=body
  y = f32[64] get-tuple-element(l), index=1
  ROOT r = (f32[64], f32[64]) tuple(y, x) }
"""


class Execution:
    """One way through a plan, in which `choose` decides about predicates. wrong: what read something else than meant.

    needless: transfers of what was there already.
    """

    def __init__(self, plan: Plan, on_device: Callable[[Kernel | Communicate], bool], choose: random.Random) -> None:
        self.plan, self.on_device, self.choose = plan, on_device, choose
        self.meant: dict[Buffer, int] = {}
        self.host: dict[Buffer, int] = {}
        self.device: dict[Buffer, int] = {}
        self.made = 0
        self.wrong: list[str] = []
        self.needless: list[Transfer] = []
        self.steps(plan.steps)
        for buffer in [b for b in self.meant if b.region is MemoryRegion.RESULT]:
            self.read(buffer, self.host, "the caller")

    def read(self, buffer: Buffer, memory: dict[Buffer, int], reader: str) -> None:
        if buffer.region in (MemoryRegion.NONE, MemoryRegion.CONSTANT):
            return
        if buffer not in self.meant and buffer.region is MemoryRegion.PARAMETER:
            self.write(buffer, self.host)
        if buffer in self.meant and memory.get(buffer) != self.meant[buffer]:
            self.wrong.append(f"{reader} reads {buffer} of {buffer.owner}")

    def write(self, buffer: Buffer, memory: dict[Buffer, int]) -> None:
        self.made += 1
        self.meant[buffer] = memory[buffer] = self.made

    def steps(self, steps: tuple[PlanStep, ...]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: PlanStep) -> None:
        name = step.instruction.name
        if isinstance(step, Kernel | Communicate):
            memory = self.device if self.on_device(step) else self.host
            on_host = ticket_buffer(step) if isinstance(step, Communicate) else None
            for operand in step.operands:
                self.read(operand, self.host if operand is on_host else memory, name)
            for result in step.results:
                self.write(result, self.host if result is on_host else memory)
        elif isinstance(step, Copy):
            memory = self.device if step.on_device else self.host
            self.read(step.source, memory, name)
            self.write(step.target, memory)
        elif isinstance(step, Transfer):
            source, target = (self.host, self.device) if step.to_device else (self.device, self.host)
            self.read(step.buffer, source, "a transfer")
            if target.get(step.buffer) == source.get(step.buffer):
                self.needless.append(step)
            target[step.buffer] = source.get(step.buffer, 0)
        elif isinstance(step, Swap):
            for memory in (self.host, self.device, self.meant):
                one, other = memory.pop(step.first, None), memory.pop(step.second, None)
                memory.update((b, v) for b, v in ((step.first, other), (step.second, one)) if v is not None)
        elif isinstance(step, Loop):
            for again in (*[True] * self.choose.choice([0, 1, 2, 3]), False):
                self.steps(step.condition)
                self.read(step.predicate, self.host, name)
                if again:
                    self.steps(step.body)
        elif isinstance(step, Branch):
            self.read(step.selector, self.host, name)
            self.steps(self.choose.choice(step.branches))
        elif isinstance(step, Invoke):
            self.steps(self.plan.routines[step.routine].steps)


def plan_of(text: str, devices: int = 1) -> Plan:
    return planned(Pipeline(), parse_module(text), Counts(1, devices)).plan


def some_steps(plan: Plan, choose: random.Random, share: float) -> Callable[[Kernel | Communicate], bool]:
    """Of an async pair both or none."""
    steps = [step for step in plan.walk() if isinstance(step, Kernel | Communicate)]
    chosen = {place(step) for step in steps if choose.random() < share}
    return lambda step: place(step) in chosen


def place(step: Kernel | Communicate) -> tuple[str, str]:
    """Where the step, or the start that it completes, is."""
    instruction = step.instruction
    name = instruction.operands[0] if async_part_of(instruction.op) is AsyncPart.DONE else instruction.name
    return step.computation.name, name


TEXTS = {
    "control flow": CONTROL_FLOW,
    **{f"swaps: {name}": module(body, BOTH, more) for name, (body, more) in BODIES.items()},
    **{f"calls: {name}": text for name, (text, _) in CALLS.items()},
}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Plan]:
    """The plan of one of TEXTS, in which arrays change places and calls stay calls wherever they can."""
    monkeypatch.setattr(planner, "SWAPPED_BYTES", 0)
    return lambda name: plan_of(TEXTS[name])


def require_right(plan: Plan, seed: int) -> None:
    choose = random.Random(seed)
    on_device = some_steps(plan, choose, share=choose.choice([0.3, 0.7, 1.0]))
    placed = place_transfers(plan, on_device)
    for _ in range(4):
        assert Execution(placed, on_device, choose).wrong == []


@pytest.mark.usefixtures("small_budget")
@pytest.mark.parametrize("name", TEXTS)
def test_every_step_reads_what_is_meant(name: str, plans: Callable[[str], Plan]) -> None:
    plan = plans(name)
    for seed in range(30):
        require_right(plan, seed)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("form", ["partitioned", "optimized"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_every_step_of_programs_reads_what_is_meant(program: ShardedProgram, form: str) -> None:
    """And nothing is copied that is there already, where all steps have a memory of their own."""
    plan = plan_of(program.text(form), program.devices)
    for seed in range(3):
        require_right(plan, seed)
    execution = Execution(place_transfers(plan, lambda step: True), lambda step: True, random.Random(1))
    assert execution.wrong == execution.needless == []


@pytest.mark.usefixtures("small_budget")
def test_a_lost_transfer_is_noticed(plans: Callable[[str], Plan]) -> None:
    """Of each transfer of a program there is a way through it on which the result needs it."""
    plan = plans("control flow")
    on_device = some_steps(plan, random.Random(1), share=0.7)
    placed = place_transfers(plan, on_device)
    lost = [step for step in placed.walk() if isinstance(step, Transfer)]
    assert len(lost) > 5
    for step in lost:
        executions = [Execution(without(placed, step), on_device, random.Random(seed)) for seed in range(40)]
        assert any(execution.wrong for execution in executions), str(step)


def without(plan: Plan, lost: PlanStep) -> Plan:
    def kept(steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
        return tuple(map(inner, (step for step in steps if step is not lost)))

    def inner(step: PlanStep) -> PlanStep:
        if isinstance(step, Loop):
            return replace(step, condition=kept(step.condition), body=kept(step.body))
        return replace(step, branches=tuple(map(kept, step.branches))) if isinstance(step, Branch) else step

    return replace(plan, steps=kept(plan.steps))
