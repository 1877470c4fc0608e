"""What test_mismatch.py shares with other tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from tests.stopwatch import Stopwatch

DEVICES = 4

SECONDS = 2.0  # 0.1 s where nobody else wants the processor

COMPUTATIONS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
maximum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
scaled { a = f32[] parameter(0)
  b = f32[] parameter(1)
  two = f32[] constant(2)
  c = f32[] multiply(b, two)
  ROOT r = f32[] add(a, c) }
twice { a = f32[] parameter(0)
  b = f32[] parameter(1)
  two = f32[] constant(3)
  c = f32[] multiply(b, two)
  ROOT r = f32[] add(a, c) }
"""


def program(instruction: str, name: str = "p") -> Module:
    """One that runs `instruction`, which is called `c`, on f32[8] p and f32[2,8] q.

    In a branch, so that only running it tells that it is reached.
    """
    shape = instruction.split()[0]
    return parse_module(
        f"""HloModule {name}
{COMPUTATIONS}
taken {{ t = (f32[8], f32[2,8]) parameter(0)
  p = f32[8] get-tuple-element(t), index=0
  q = f32[2,8] get-tuple-element(t), index=1
  c = {instruction}
  ROOT r = ({shape}) tuple(c) }}
other {{ t = (f32[8], f32[2,8]) parameter(0)
  zero = f32[] constant(0)
  z = {shape} broadcast(zero), dimensions={{}}
  ROOT r = ({shape}) tuple(z) }}
ENTRY main {{
  p = f32[8] parameter(0)
  q = f32[2,8] parameter(1)
  flag = pred[] parameter(2)
  t = (f32[8], f32[2,8]) tuple(p, q)
  ROOT r = ({shape}) conditional(flag, t, t), true_computation=taken, false_computation=other
}}
""",
        f"{name}.hlo",
    )


def branching(first: str, second: str, shape: str = "f32[8]", below: int = 1) -> Module:
    """The replicas below a number run one instruction, the others run the other one, in branches of one program."""
    return parse_module(
        f"""HloModule branching
{COMPUTATIONS}
one {{ p = f32[8] parameter(0)
  ROOT c1 = {shape} {first} }}
two {{ p = f32[8] parameter(0)
  ROOT c2 = {shape} {second} }}
ENTRY main {{
  p = f32[8] parameter(0)
  q = f32[2,8] parameter(1)
  flag = pred[] parameter(2)
  id = u32[] replica-id()
  border = u32[] constant({below})
  first = pred[] compare(id, border), direction=LT
  ROOT r = {shape} conditional(first, p, p), true_computation=one, false_computation=two
}}
""",
        "branching.hlo",
    )


ARGUMENTS = [np.ones(8, np.float32), np.ones((2, 8), np.float32), np.array(True)]

EVERYBODY = "replica_groups={}"

SUM = f"f32[8] all-reduce(p), to_apply=add, {EVERYBODY}"


def fails(run: Any, expected: type[dx.DistxlaError]) -> str:
    watch = Stopwatch()
    with pytest.raises(expected) as found:
        run()
    assert watch.seconds < SECONDS
    return str(found.value)


def compiled(cluster: dx.Cluster, first: Module, second: Module) -> Any:
    programs = {0: cluster.compile(first, [0]), range(1, 4): cluster.compile(second, range(1, 4))}
    return lambda: cluster.run(programs, dict.fromkeys(range(DEVICES), ARGUMENTS))
