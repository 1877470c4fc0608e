"""Large programs, and short texts of large programs: costs grow with the text, not with its square or its copies."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from distxla.compiler.obstacles import obstacles
from distxla.compiler.stages import emit
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from tests.large_texts import chained_adds, doubling_all_reduces, doubling_calls, wide_tuple

SMALL, TIMES = 1000, 4  # a quadratic step takes 16 times as long, a linear one 4 times
MOST = 8.0


def read_and_verified(text: str) -> None:
    module = parse_module(text)
    verify_module(module, 1, 1)
    assert not obstacles(module)


def planned(text: str) -> None:
    emit(parse_module(text), "buffers", Counts(1, 1))


def seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("work", [read_and_verified, planned])
@pytest.mark.parametrize("text", [wide_tuple, chained_adds])
def test_time_grows_with_the_text_and_not_with_its_square(
    text: Callable[[int], str], work: Callable[[str], None]
) -> None:
    few, many = text(SMALL), text(SMALL * TIMES)
    work(few)  # imports
    ratios = []
    for _ in range(3):
        base = seconds(lambda: work(few))
        ratios.append(seconds(lambda: work(many)) / base)
        if ratios[-1] < MOST:
            return
    pytest.fail(f"{TIMES} times the text took {', '.join(f'{ratio:.1f}' for ratio in ratios)} times as long")


# --- calls that double: followed by summary

PIECES = """HloModule doubling, replica_count=2

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

top {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] maximum(a, b)
}

A {
  p = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(p), replica_groups={{0,1}}, to_apply=sum
}

B {
  p = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(p), replica_groups={{0,1}}, to_apply=top
}
"""
ENTRY = """
yes {
  q = f32[4] parameter(0)
  ROOT r = f32[4] YES
}

no {
  q = f32[4] parameter(0)
  ROOT r = f32[4] NO
}

ENTRY e {
  x = f32[4] parameter(0)
  i = u32[] replica-id()
  z = u32[] constant(0)
  c = pred[] compare(i, z), direction=EQ
  ROOT y = f32[4] conditional(c, x, x), true_computation=yes, false_computation=no
}
"""


def doubled(name: str, pieces: str, levels: int) -> str:
    """name0 calls these computations in order, name1 calls name0 twice, and so on."""
    calls = [(f"{name}0", list(pieces)), *((f"{name}{k}", [f"{name}{k - 1}"] * 2) for k in range(1, levels + 1))]
    text = ""
    for called, inner in calls:
        lines = []
        for k, c in enumerate(inner):
            root, given = "ROOT " if k == len(inner) - 1 else "", f"v{k - 1}" if k else "p"
            lines.append(f"  {root}v{k} = f32[4] call({given}), to_apply={c}")
        text += "\n".join([f"\n{called} {{", "  p = f32[4] parameter(0)", *lines, "}\n"])
    return text


def branches(levels: int, yes: str, no: str) -> str:
    """Device 0 and device 1 take different branches: f, g, or `none`. f and g begin like each other."""
    what = {"none": "add(q, q)", **{c: f"call(q), to_apply={c}{levels}" for c in "fg"}}
    text = PIECES + doubled("f", "AABB", levels) + doubled("g", "ABAB", levels)
    return text + ENTRY.replace("YES", what[yes]).replace("NO", what[no])


def outcome(text: str) -> Outcome:
    return examine([((0, 1), parse_module(text))], Counts(2, 1)).outcome


# yes, no: outcome where each copy is followed, outcome where a summary stands for all
CASES = [
    (("f", "f"), Outcome.SAFE, Outcome.SAFE),
    (("f", "g"), Outcome.DEADLOCK, Outcome.UNKNOWN),
    (("f", "none"), Outcome.DEADLOCK, Outcome.UNKNOWN),
]


@pytest.mark.parametrize(("taken", "followed", "summed_up"), CASES)
def test_a_summary_never_says_more_than_following_each_copy(
    taken: tuple[str, str], followed: Outcome, summed_up: Outcome
) -> None:
    assert outcome(branches(3, *taken)) is followed
    assert outcome(branches(30, *taken)) is summed_up


def test_doubling_calls_of_a_collective_are_safe_at_once() -> None:
    """2**30 rounds, the same on all devices."""
    assert outcome(doubling_all_reduces(3)) is Outcome.SAFE
    found: list[Outcome] = []
    assert seconds(lambda: found.append(outcome(doubling_all_reduces()))) < 5
    assert found == [Outcome.SAFE]


def test_a_decision_by_the_result_of_doubling_calls_is_not_worked_out() -> None:
    """A loop runs as long as a value of 2**30 additions says; it holds an all-reduce."""
    text = doubling_calls(replicas=2).partition("ENTRY")[0]
    text += """
go_on {
  p = f32[4] parameter(0)
  q = f32[4] call(p), to_apply=f30
  s = f32[1] slice(q), slice={[0:1]}
  v = f32[] reshape(s)
  z = f32[] constant(0)
  ROOT c = pred[] compare(v, z), direction=GT
}

body {
  p = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(p), replica_groups={{0,1}}, to_apply=sum
}

ENTRY e {
  x = f32[4] parameter(0)
  ROOT w = f32[4] while(x), condition=go_on, body=body
}
"""
    found: list[Outcome] = []
    assert seconds(lambda: found.append(outcome(text))) < 5
    assert found == [Outcome.UNKNOWN]
