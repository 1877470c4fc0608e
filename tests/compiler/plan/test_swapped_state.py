"""A loop's state that is computed anew while the old one is read changes places with it, and nobody can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module, optimised
from distxla.compiler.plan import plan_program, planner
from distxla.compiler.plan.buffers import Copy, Loop, Plan, Swap
from distxla.ir.counts import Counts
from distxla.program.artifact import CompiledProgram
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices, run_single

Array = np.ndarray[Any, Any]

LESS = """less {{ s = ({types}) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=1
 ROOT l = pred[] compare(i, n), direction=LT }}
"""
LEAVES = """ s = ({types}) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 a = f32[8,8] get-tuple-element(s), index=2
 b = f32[8,8] get-tuple-element(s), index=3
"""
TYPES = "s32[], s32[], f32[8,8], f32[8,8]"


def module(body: str, after: str, more: str = "") -> str:
    """A loop of n trips over two arrays. body: computes c and d.  after: uses them, and is the program's result."""
    return (
        "HloModule m\n"
        + LESS.format(types=TYPES)
        + more
        + "body {\n"
        + LEAVES.format(types=TYPES)
        + body
        + f"\n ROOT t = ({TYPES}) tuple(j, n, c, d) }}\n"
        + f"""ENTRY e {{ a0 = f32[8,8] parameter(0)
 b0 = f32[8,8] parameter(1)
 n = s32[] parameter(2)
 zero = s32[] constant(0)
 s = ({TYPES}) tuple(zero, n, a0, b0)
 w = ({TYPES}) while(s), condition=less, body=body
 c = f32[8,8] get-tuple-element(w), index=2
 d = f32[8,8] get-tuple-element(w), index=3
{after} }}
"""
    )


TURN = " c = f32[8,8] transpose(a), dimensions={1,0}\n q = f32[8,8] dot(a, b), lhs_contracting_dims={1}, "
TURN += "rhs_contracting_dims={0}\n r = f32[8,8] tanh(q)\n"
BOTH = " ROOT r = (f32[8,8], f32[8,8]) tuple(c, d)"
INNER = (
    LESS.format(types=TYPES).replace("less", "less2")
    + "inner {\n"
    + LEAVES.format(types=TYPES)
    + TURN
    + f" d = f32[8,8] transpose(r), dimensions={{1,0}}\n ROOT t = ({TYPES}) tuple(j, n, d, c) }}\n"
)
BODIES = {
    "each leaf its own": (TURN + " d = f32[8,8] transpose(r), dimensions={1,0}", ""),
    "one leaf becomes the other": (TURN + " d = f32[8,8] copy(a)", ""),
    "leaves change places": (
        " c = f32[8,8] transpose(b), dimensions={1,0}\n d = f32[8,8] transpose(a), dimensions={1,0}",
        "",
    ),
    "one value in both leaves": (TURN + " d = f32[8,8] reverse(r), dimensions={0}\n e = f32[8,8] add(c, d)", ""),
    "in place beside it": (
        TURN + " u = f32[1,8] slice(r), slice={[0:1],[0:8]}\n zero = s32[] constant(0)\n"
        " d = f32[8,8] dynamic-update-slice(b, u, zero, zero)",
        "",
    ),
    "a loop within": (
        f" zero = s32[] constant(0)\n three = s32[] constant(3)\n s2 = ({TYPES}) tuple(zero, three, a, b)\n"
        f" w2 = ({TYPES}) while(s2), condition=less2, body=inner\n c2 = f32[8,8] get-tuple-element(w2), index=2\n"
        " d = f32[8,8] get-tuple-element(w2), index=3\n c = f32[8,8] transpose(c2), dimensions={1,0}",
        INNER,
    ),
    "branches": (
        " two = s32[] constant(2)\n side = s32[] remainder(i, two)\n p = (f32[8,8], f32[8,8]) tuple(a, b)\n"
        " k = (f32[8,8], f32[8,8]) conditional(side, p, p), branch_computations={left, right}\n"
        " c = f32[8,8] get-tuple-element(k), index=0\n d = f32[8,8] get-tuple-element(k), index=1",
        "left { p = (f32[8,8], f32[8,8]) parameter(0)\n a = f32[8,8] get-tuple-element(p), index=0\n"
        " b = f32[8,8] get-tuple-element(p), index=1\n c = f32[8,8] transpose(b), dimensions={1,0}\n"
        " ROOT t = (f32[8,8], f32[8,8]) tuple(c, a) }\n"
        "right { p = (f32[8,8], f32[8,8]) parameter(0)\n a = f32[8,8] get-tuple-element(p), index=0\n"
        " b = f32[8,8] get-tuple-element(p), index=1\n c = f32[8,8] reverse(a), dimensions={1}\n"
        " d = f32[8,8] add(b, c)\n ROOT t = (f32[8,8], f32[8,8]) tuple(d, c) }\n",
    ),
}
AFTER = {
    "both are results": BOTH,
    "read afterwards": " q = f32[8,8] dot(c, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    " ROOT r = (f32[8,8], f32[8,8]) tuple(q, c)",
    "updated afterwards": " u = f32[1,8] slice(c), slice={[3:4],[0:8]}\n k = s32[] constant(1)\n"
    " v = f32[8,8] dynamic-update-slice(d, u, k, k)\n q = f32[8,8] transpose(v), dimensions={1,0}\n"
    " ROOT r = (f32[8,8], f32[8,8]) tuple(q, c)",
}


def compiled(text: str, devices: int = 1) -> CompiledProgram:
    return compile_module(parse_module(text, "<test>"), Counts(devices, 1))


def planned(text: str) -> Plan:
    return plan_program.plan(optimised(parse_module(text, "<test>")), Counts(1, 1))


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("body", BODIES)
def test_values_are_the_same_bits(body: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = module(BODIES[body][0], AFTER[after], BODIES[body][1])
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal((8, 8)).astype(np.float32) for _ in range(2)]
    monkeypatch.setattr(planner, "SWAPPED_BYTES", 1 << 40)
    copying = compiled(text)
    monkeypatch.setattr(planner, "SWAPPED_BYTES", 0)
    swapping = compiled(text)
    for trips in (0, 1, 2, 5):
        wanted = run_single(copying, [*arrays, np.int32(trips)])
        for found, expected in zip(run_single(swapping, [*arrays, np.int32(trips)]), wanted, strict=True):
            assert found.tobytes() == expected.tobytes(), f"{trips} trips"


def test_nothing_is_copied_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "SWAPPED_BYTES", 64)
    found = planned(module(BODIES["each leaf its own"][0], BOTH))
    (loop,) = (step for step in found.steps if isinstance(step, Loop))
    assert not any(isinstance(step, Copy) and step.source.size > 4 for step in loop.body)
    swaps = [step for step in loop.body if isinstance(step, Swap)]
    assert swaps
    for step in swaps:
        assert (step.first.start, step.first.end) == (step.second.start, step.second.end)


PERMUTE = """HloModule m
less { s = (s32[], s32[], f32[1024]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=1
 ROOT l = pred[] compare(i, n), direction=LT }
body { s = (s32[], s32[], f32[1024]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=1
 x = f32[1024] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[1024] collective-permute(x), source_target_pairs={{0,1},{1,2},{2,0}}
 ROOT t = (s32[], s32[], f32[1024]) tuple(j, n, y) }
ENTRY e { x = f32[1024] parameter(0)
 n = s32[] parameter(1)
 zero = s32[] constant(0)
 s = (s32[], s32[], f32[1024]) tuple(zero, n, x)
 w = (s32[], s32[], f32[1024]) while(s), condition=less, body=body
 ROOT r = f32[1024] get-tuple-element(w), index=2 }
"""


@pytest.mark.parametrize("trips", [(7, 7, 7), (0, 0, 0)])
def test_what_goes_round_a_ring_changes_places(trips: tuple[int, ...]) -> None:
    rows = [np.full(1024, d, np.float32) for d in range(3)]
    found = run_devices(compiled(PERMUTE, 3), [[row, np.int32(n)] for row, n in zip(rows, trips)])
    for d, (got,) in enumerate(found):
        np.testing.assert_array_equal(got, rows[(d - trips[d]) % 3])
