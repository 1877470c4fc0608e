"""The lock-step evaluator: data flow, collectives, several programs, and runs that cannot end."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from distxla.errors import (
    ArgumentError,
    CollectiveMismatchError,
    DeadlockError,
    ExecutionError,
    TimeLimitError,
    UnsupportedOpError,
)
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs, run_reference
from distxla.text.parser import parse_module

SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""


def all_reduce(groups: str, opcode: str = "all-reduce") -> str:
    return f"""HloModule m
{SUM}
ENTRY main {{
  x = f32[2] parameter(0)
  ROOT y = f32[2] {opcode}(x), replica_groups={groups}, to_apply=sum
}}
"""


def arguments(devices: int) -> list[list[np.ndarray]]:
    return [[np.array([d, 10 * d], np.float32)] for d in range(devices)]


def test_groups_meet_in_their_order() -> None:
    outs = run_reference(parse_module(all_reduce("{{0,2},{1,3}}")), arguments(4), Counts(4, 1))
    assert [leaves[0].tolist() for leaves in outs] == [[2, 20], [4, 40], [2, 20], [4, 40]]


def test_a_loop_runs_on_every_device_with_its_own_trip_count() -> None:
    module = parse_module("""
HloModule loop

body {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], s32[]) tuple(j, n)
}

condition {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT more = pred[] compare(i, n), direction=LT
}

ENTRY main {
  n = s32[] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], s32[]) tuple(zero, n)
  ROOT w = (s32[], s32[]) while(s), condition=condition, body=body
}
""")
    outs = run_reference(module, [[np.int32(3)], [np.int32(0)]], Counts(2, 1))
    assert [[int(leaf) for leaf in leaves] for leaves in outs] == [[3, 3], [0, 0]]


def test_programs_on_disjoint_devices_meet_in_one_group() -> None:
    one = parse_module(all_reduce("{{0,1}}"), "one.hlo")
    other = parse_module(all_reduce("{{0,1}}").replace("HloModule m", "HloModule other"), "other.hlo")
    outs = run_programs({0: one, 1: other}, dict(enumerate(arguments(2))), Counts(2, 1))
    assert outs[0][0].tolist() == outs[1][0].tolist() == [1, 10]


def test_a_group_that_nobody_completes_is_a_deadlock() -> None:
    module = parse_module(all_reduce("{{0,1},{2}}"), "half.hlo")
    with pytest.raises(DeadlockError) as caught:
        run_programs({0: module, 2: module}, dict(enumerate(arguments(3))), Counts(3, 1))
    assert (
        str(caught.value)
        .splitlines()[0]
        .endswith("deadlock: device 0 waits in y (half.hlo:11:8) for device 1, which runs nothing in this call")
    )
    assert caught.value.diagnosis is not None
    assert caught.value.diagnosis.text().splitlines()[:2] == [
        "  device 0 waits in y (half.hlo:11:8) for device 1: all-reduce, group {0,1}, round 1",
        "  device 2 has ended after y (half.hlo:11:8)",
    ]
    assert not [t for t in threading.enumerate() if t.name.startswith("reference device")]


def test_members_with_different_instructions_are_a_mismatch() -> None:
    gather = parse_module("""
ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[4] all-gather(x), replica_groups={{0,1}}, dimensions={0}
}
""")
    with pytest.raises(
        CollectiveMismatchError, match=r"a round of devices 0, 1: device 0 enters with y .*, device 1 with y"
    ):
        run_programs({0: parse_module(all_reduce("{{0,1}}")), 1: gather}, dict(enumerate(arguments(2))), Counts(2, 1))


def test_an_obstacle_is_named_before_anything_runs() -> None:
    module = parse_module("ENTRY main { t = token[] after-all() ROOT i = (f32[<=2], token[]) infeed(t) }", "feed.hlo")
    with pytest.raises(UnsupportedOpError, match=r"cannot execute infeed of f32\[<=2\]") as caught:
        run_reference(module, [[]], Counts(1, 1))
    assert caught.value.location is not None
    assert caught.value.location.file == "feed.hlo"


@pytest.mark.parametrize("literal", ["f32[300] constant({...})", "(s32[], f32[300]) constant((1, {...}))"])
def test_an_elided_constant_is_named_before_anything_runs(literal: str) -> None:
    module = parse_module(f"ENTRY main {{ ROOT c = {literal} }}")
    with pytest.raises(UnsupportedOpError, match="the text elides the constant's value") as caught:
        run_reference(module, [[]], Counts(1, 1))
    assert caught.value.location is not None


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ([], "takes 1 arguments, device 0 got 0"),
        ([np.zeros(3, np.float32)], r"argument 0 on device 0 is float32\[3\], the program takes f32\[2\]"),
        ([np.zeros(2, np.float64)], r"argument 0 on device 0 is float64\[2\]"),
    ],
)
def test_arguments_must_fit(leaves: list[np.ndarray], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        run_reference(parse_module(all_reduce("{}")), [leaves], Counts(1, 1))


def test_the_time_limit_ends_an_endless_loop() -> None:
    module = parse_module("""
HloModule endless
again { ROOT p = s32[] parameter(0) }
always { p = s32[] parameter(0) ROOT yes = pred[] constant(true) }
ENTRY main { p = s32[] parameter(0) ROOT w = s32[] while(p), condition=always, body=again }
""")
    with pytest.raises(TimeLimitError, match=r"0\.2 s"):
        run_reference(module, [[np.int32(0)]], Counts(1, 1), time_limit=0.2)


def test_arrays_beyond_the_memory_are_named() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[] parameter(0)
  b = f32[1000000000,1000000] broadcast(x), dimensions={}
  n = f32[1000000000,1000000] negate(b)
  ROOT y = f32[1,1] slice(n), slice={[0:1], [0:1]}
}
"""
    module = parse_module(text)
    with pytest.raises(ExecutionError, match=r"not enough memory for [bn] \(f32\[1000000000,1000000\]"):
        run_reference(module, [[np.float32(1)]], Counts(1, 1))
