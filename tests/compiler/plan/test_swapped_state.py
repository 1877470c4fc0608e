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
from tests.compiler.plan.swapped_state_cases import BODIES, BOTH, module
from tests.compiler.runner import run_devices, run_single

Array = np.ndarray[Any, Any]


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
