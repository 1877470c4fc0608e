"""What devices of the lock step wait for: rounds that are begun and ended apart, computations beside a program."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from distxla.errors import CollectiveMismatchError, DeadlockError, TimeLimitError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ops.all_reduce import AllReduceDone, AllReduceStart
from distxla.ops.copy import Copy
from distxla.ops.support.evaluation import Evaluation
from distxla.oracle.lockstep import run_programs
from distxla.oracle.waits import Wait
from distxla.text.parser import parse_module

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """all-reduce-start reaches its group, all-reduce-done waits for it."""
    monkeypatch.setattr(AllReduceStart, "evaluate", lambda self, run, *operands: run.exchange.begin(operands))
    monkeypatch.setattr(AllReduceDone, "evaluate", lambda self, run, pending: run.exchange.finish(pending))


def program(*lines: str) -> Module:
    return parse_module(f"{SUM}\nENTRY main {{\n  x = f32[] parameter(0)\n  " + "\n  ".join(lines) + "\n}\n", "m.hlo")


def start(name: str, operand: str, groups: str = "{{0,1}}") -> str:
    return f"{name} = f32[] all-reduce-start({operand}), replica_groups={groups}, to_apply=sum"


def done(name: str, operand: str) -> str:
    return f"{name} = f32[] all-reduce-done({operand})"


def run(*programs: Module, **limits: Any) -> list[list[float]]:
    count = len(programs)
    arguments = {d: [np.float32(d + 1)] for d in range(count)}
    outs = run_programs(dict(enumerate(programs)), arguments, Counts(count, 1), **limits)
    return [[float(leaf) for leaf in outs[d]] for d in range(count)]  # type: ignore[arg-type]


def test_two_rounds_of_a_group_may_be_in_flight(halves: None) -> None:
    both = program(start("s", "x"), "y = f32[] negate(x)", start("t", "y"), done("e", "t"), done("d", "s"),
                   "ROOT r = (f32[], f32[]) tuple(d, e)")  # fmt: skip
    assert run(both, both) == [[3, -3], [3, -3]]


def test_groups_are_entered_in_different_orders_where_starts_do_not_wait(halves: None) -> None:
    one = program(start("s", "x"), start("t", "x", "{{1,0}}"), done("d", "s"), done("e", "t"),
                  "ROOT r = (f32[], f32[]) tuple(d, e)")  # fmt: skip
    other = program(start("t", "x", "{{1,0}}"), start("s", "x"), done("d", "s"), done("e", "t"),
                    "ROOT r = (f32[], f32[]) tuple(d, e)")  # fmt: skip
    assert run(one, other) == [[3, 3], [3, 3]]


def test_the_instruction_that_waits_is_named(halves: None) -> None:
    one = program(start("s", "x"), "ROOT " + done("d", "s"))
    with pytest.raises(DeadlockError) as caught:
        run(one, program("ROOT y = f32[] negate(x)"))
    assert caught.value.message == "device 0 waits in d (m.hlo:5:8) for device 1, whose program has ended"
    assert not [t for t in threading.enumerate() if t.name.startswith("reference device")]


def test_the_last_to_come_finds_the_mismatch(halves: None) -> None:
    gather = program("g = f32[1] reshape(x)", "ROOT y = f32[2] all-gather(g), replica_groups={{0,1}}, dimensions={0}")
    with pytest.raises(CollectiveMismatchError, match=r"device 0 enters with s .*, device 1 with y"):
        run(program(start("s", "x"), "ROOT " + done("d", "s")), gather)


def test_computations_run_beside_their_devices_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Device 0 starts a computation that meets device 1, which comes only after it has met device 0 in the other."""
    monkeypatch.setattr(AllReduceStart, "evaluate", lambda self, run, x: run.exchange.start("beside", x))
    monkeypatch.setattr(AllReduceDone, "evaluate", lambda self, run, pending: run.exchange.finish(pending))
    beside = """beside { x = f32[] parameter(0)
      ROOT y = f32[] all-reduce(x), replica_groups={{0,1}}, to_apply=sum }"""
    text = f"""{SUM}
    {beside}
    ENTRY main {{
      x = f32[] parameter(0)
      s = f32[] all-reduce-start(x), to_apply=sum
      y = f32[] all-reduce(x), replica_groups={{{{1,0}}}}, to_apply=sum
      d = f32[] all-reduce-done(s)
      ROOT r = (f32[], f32[]) tuple(y, d)
    }}"""
    other = program("y = f32[] all-reduce(x), replica_groups={{1,0}}, to_apply=sum",
                    "z = f32[] all-reduce(y), replica_groups={{0,1}}, to_apply=sum",
                    "ROOT r = (f32[], f32[]) tuple(y, z)")  # fmt: skip
    assert run(parse_module(text, "beside.hlo"), other) == [[3, 4], [3, 4]]
    with pytest.raises(DeadlockError) as caught:
        run(parse_module(text, "beside.hlo"), program("ROOT r = f32[] negate(x)"))
    assert caught.value.message == "device 0 waits in y (beside.hlo:7:7) for device 1, whose program has ended"


@dataclass(frozen=True)
class _Outside(Wait):
    happened: threading.Event
    from_outside = True

    def ready(self) -> bool:
        return self.happened.is_set()


def test_what_comes_from_outside_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = threading.Event()

    def evaluate(self: Copy, run: Evaluation, operand: Any) -> Any:
        run.exchange.world.wait(_Outside(happened))  # type: ignore[attr-defined]
        return operand

    monkeypatch.setattr(Copy, "evaluate", evaluate)
    waits = program("ROOT c = f32[] copy(x)")
    with pytest.raises(TimeLimitError):
        run(waits, time_limit=0.1)
    timer = threading.Timer(0.1, happened.set)
    timer.start()
    assert run(waits) == [[1]]
    timer.join()
