"""Contexts that an async-done ends are values: the data, 0 and a token, wherever they go."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import optimised
from distxla.compiler.verify.world import verify_world
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module
from tests.collectives.async_groups import GROUPS
from tests.collectives.executors import EXECUTORS, run_module

C = "(f32[4], u32[], token[])"
PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}"
XS = [np.arange(4, dtype=np.float32) + 10 * d for d in range(2)]


def program(result: str, outputs: str, behind: str, computations: str = "") -> str:
    """Two devices exchange their arguments; result: of the asynchronous computation, which gives `outputs`."""
    return f"""HloModule exchange, replica_count=2
{computations}
both {{
  x = f32[4] parameter(0)
  t = token[] parameter(1)
  s = {C} send(x, t), channel_id=1, {PAIRS}
  r = {C} recv(t), channel_id=1, {PAIRS}
  {result}
}}
ENTRY main {{
  x = f32[4] parameter(0)
  t = token[] after-all()
  b = ((f32[4], token[]), {outputs}, s32[]) async-start(x, t), calls=both
  e = {outputs} async-done(b)
  {behind}
}}
"""


FIRST = f"c = {C} get-tuple-element(e), index=0\n  "
IN_LOOP = f"""z = s32[] constant(0)
  p = (s32[], {C}) tuple(z, c)
  w = (s32[], {C}) while(p), condition=more, body=body
  q = {C} get-tuple-element(w), index=1
  ROOT v = f32[4] get-tuple-element(q), index=0"""
IN_BRANCH = """p = pred[] constant(true)
  ROOT v = f32[4] conditional(p, c, c), true_computation=yes, false_computation=no"""
OF_TUPLE = """v = (f32[4], s32[2]) get-tuple-element(c), index=0
  ROOT w = s32[2] get-tuple-element(v), index=1"""
DOUBLES = f"""body {{
  p = (s32[], {C}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = {C} get-tuple-element(p), index=1
  v = f32[4] get-tuple-element(c), index=0
  w = f32[4] add(v, v)
  n = u32[] get-tuple-element(c), index=1
  t = token[] get-tuple-element(c), index=2
  d = {C} tuple(w, n, t)
  ROOT q = (s32[], {C}) tuple(j, d)
}}
more {{
  p = (s32[], {C}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT f = pred[] compare(i, n), direction=LT
}}"""
BRANCHES = f"""yes {{
  c = {C} parameter(0)
  ROOT v = f32[4] get-tuple-element(c), index=0
}}
no {{
  c = {C} parameter(0)
  v = f32[4] get-tuple-element(c), index=0
  ROOT n = f32[4] negate(v)
}}"""
OTHER = [XS[1], XS[0]]
# text, and the first leaf of the result on each device
CASES = {
    "a token alone": (
        program("ROOT k = token[] get-tuple-element(r), index=2", "token[]", "ROOT y = f32[4] copy(x)"),
        XS,
    ),
    "a number": (
        program("ROOT k = u32[] get-tuple-element(r), index=1", "u32[]", "ROOT y = u32[] copy(e)"),
        [np.zeros((), np.uint32)] * 2,
    ),
    "nothing": (program("ROOT k = () tuple()", "()", "ROOT y = f32[4] copy(x)"), XS),
    "the recv itself": (
        program("y = f32[4] negate(x)", C, "ROOT v = f32[4] get-tuple-element(e), index=0").replace(
            "  r =", "  ROOT r ="
        ),
        OTHER,
    ),
    "one twice": (
        program(
            f"ROOT k = ({C}, {C}, {C}) tuple(s, r, r)",
            f"({C}, {C}, {C})",
            f"c = {C} get-tuple-element(e), index=2\n  ROOT v = f32[4] get-tuple-element(c), index=0",
        ),
        OTHER,
    ),
    "the program's result": (program(f"ROOT k = ({C}) tuple(r)", f"({C})", "ROOT " + FIRST.strip()), OTHER),
    "in a loop": (
        program(f"ROOT k = ({C}) tuple(r)", f"({C})", FIRST + IN_LOOP, DOUBLES),
        [8 * x for x in OTHER],
    ),
    "in a branch": (program(f"ROOT k = ({C}) tuple(r)", f"({C})", FIRST + IN_BRANCH, BRANCHES), OTHER),
    "of a tuple": (
        program(f"ROOT k = ({C}) tuple(r)", f"({C})", FIRST + OF_TUPLE)
        .replace(C, "((f32[4], s32[2]), u32[], token[])")
        .replace("send(x, t)", "send(two, t)")
        .replace("  s = ", "  z = s32[2] constant({5, 6})\n  two = (f32[4], s32[2]) tuple(x, z)\n  s = "),
        [np.array([5, 6], np.int32)] * 2,
    ),
}


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", CASES)
def test_contexts_are_values(name: str, executor: str) -> None:
    text, wanted = CASES[name]
    module = parse_module(text)
    verify_world([(range(2), module)], Counts(2, 1))
    outs = run_module(executor, module, [[x] for x in XS], 2)
    for device in range(2):
        np.testing.assert_array_equal(outs[device][0], wanted[device])


def positions(computation: Computation, *opcodes: str) -> list[int]:
    return [k for k, i in enumerate(computation) if i.opcode in opcodes]


@pytest.mark.parametrize("scheduled", [False, True])
def test_what_stands_between_is_computed_meanwhile(scheduled: bool) -> None:
    """The compiler keeps what the caller computes between the beginnings and the ends."""
    group = next(group for group in GROUPS if group.size > 10_000)
    entry = optimised(parse_module(group.module_text(scheduled=scheduled))).entry_computation
    begins = positions(entry, "send", "recv")
    work = positions(entry, "negate", "fusion")
    ends = positions(entry, "send-done", "recv-done")
    assert len(begins) == len(ends) == 2
    assert max(begins) < min(work) <= max(work) < min(ends)
