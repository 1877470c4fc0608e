"""What decides a loop or a branch: found through tuples, calls and loops, and not behind what all members share."""

from __future__ import annotations

import re

import pytest

from distxla.diagnosis.communicating import Located
from distxla.diagnosis.deciding import decided_by
from distxla.text.parser import parse_module
from tests.deadlock_programs import BY_DEVICE, BY_INFEED, FIVE, INNER, NESTED, STEP, looped

SAME = ", so give it the same values on these devices"
ARGUMENT = "count = s32[] parameter(1)"
SUMMED = "k = s32[] parameter(1)\ncount = s32[] all-reduce(k), to_apply=isum, replica_groups={}"
INTEGERS = "isum { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b) }\n"
CALLED = "k = s32[] parameter(1)\ncount = s32[] call(k), to_apply=twice"
TWICE = "\ntwice { a = s32[] parameter(0)\n  ROOT b = s32[] add(a, a) }"
BRANCHED = """k = pred[] parameter(1)
two = s32[] constant(2)
count = s32[] conditional(k, two, two), true_computation=twice, false_computation=twice"""
BOTH = f"{BY_INFEED.replace('count =', 'fed =')}\nk = s32[] parameter(1)\ncount = s32[] add(fed, k)"


def loop_of(text: str, name: str = "w") -> Located:
    module = parse_module(text)
    computation = next(c for c in module.computations if name in c.by_name)
    return Located(module, computation, 0, computation[name])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (looped(STEP, BY_INFEED), f"; infeed f decides it{SAME}"),
        (looped(STEP, ARGUMENT), f"; parameter count decides it{SAME}"),
        (looped(STEP, BY_DEVICE), "; replica-id id decides it"),
        (looped(STEP, CALLED, TWICE), f"; parameter k decides it{SAME}"),
        (looped(STEP, BRANCHED, TWICE), f"; parameter k decides it{SAME}"),
        (looped(STEP, BOTH), f"; infeed f and parameter k decide it{SAME.replace(' it ', ' them ')}"),
        (looped(STEP, FIVE), "; constant count decides it"),
        (INTEGERS + looped(STEP, SUMMED), ""),
    ],
    ids=["infeed", "parameter", "id", "through a call", "through a branch", "two", "constant", "all-reduce"],
)
def test_what_decides_how_many_iterations_a_loop_runs(text: str, said: str) -> None:
    assert re.sub(r" \(<string>:\d+:\d+\)", "", decided_by(loop_of(text))) == said


def test_a_loop_in_a_loop() -> None:
    assert decided_by(loop_of(looped(NESTED, FIVE, INNER), "inside")).startswith("; replica-id id (")
