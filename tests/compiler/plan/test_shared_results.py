"""Results that are the same for all members of a group exist once, and nobody can tell by the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.compiler.compile import compile_module, optimised
from distxla.compiler.plan import plan_program, planner
from distxla.compiler.plan.buffers import Buffer, Communicate, MemoryRegion, place_shared
from distxla.ir import unwritten
from distxla.ir.counts import Counts
from distxla.program.artifact import CompiledProgram
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices

Array = np.ndarray[Any, Any]
N = 64  # elements; every result counts as large here
HEADER = """HloModule m
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
less { s = (f32[64], s32[], s32[]) parameter(0)
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 ROOT l = pred[] compare(i, n), direction=LT }
"""


@pytest.fixture(autouse=True)
def _small_results_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "SHARED_BYTES", 64)


def compiled(body: str, devices: int) -> CompiledProgram:
    return compile_module(parse_module(HEADER + body, "<test>"), Counts(devices, 1))


def regions(body: str, replicas: int = 4) -> dict[str, list[MemoryRegion]]:
    """Where the results of every communicating instruction lie."""
    module = optimised(parse_module(HEADER + body, "<test>"))
    found = plan_program.plan(module, Counts(replicas, 1 if replicas else 0))
    return {
        step.instruction.name: [buffer.region for buffer in step.results]
        for step in found.walk()
        if isinstance(step, Communicate)
    }


def arguments(devices: int) -> list[list[Array]]:
    generator = np.random.default_rng(7)
    return [[generator.standard_normal(N).astype(np.float32)] for _ in range(devices)]


def total(rows: list[Array]) -> Array:
    found = rows[0].copy()
    for row in rows[1:]:
        found += row
    return found


# --- where results are planned to lie

READ = "y = f32[64] all-reduce(x), to_apply=sum\n ROOT r = f32[64] negate(y) }"
PLANNED = {
    "a result that is only read": ("ENTRY e { x = f32[64] parameter(0)\n" + READ, MemoryRegion.SHARED),
    "the program's own result": (
        "ENTRY e { x = f32[64] parameter(0)\n ROOT y = f32[64] all-reduce(x), to_apply=sum }",
        MemoryRegion.RESULT,
    ),
    "one that is updated in place": (
        "ENTRY e { x = f32[64] parameter(0)\n y = f32[64] all-reduce(x), to_apply=sum\n u = f32[1] slice(x), "
        "slice={[0:1]}\n k = s32[] constant(3)\n z = f32[64] dynamic-update-slice(y, u, k)\n"
        " ROOT r = f32[64] negate(z) }",
        MemoryRegion.ARENA,
    ),
    "a loop's initial state": (
        """body { s = (f32[64], s32[], s32[]) parameter(0)
 x = f32[64] get-tuple-element(s), index=0
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 z = f32[64] tanh(x)
 ROOT t = (f32[64], s32[], s32[]) tuple(z, j, n) }
ENTRY e { x = f32[64] parameter(0)
 y = f32[64] all-reduce(x), to_apply=sum
 zero = s32[] constant(0)
 n = s32[] constant(3)
 s = (f32[64], s32[], s32[]) tuple(y, zero, n)
 w = (f32[64], s32[], s32[]) while(s), condition=less, body=body
 g = f32[64] get-tuple-element(w), index=0
 ROOT r = f32[64] negate(g) }""",
        MemoryRegion.ARENA,
    ),
    "one that differs from member to member": (
        "ENTRY e { x = f32[64] parameter(0)\n y = f32[16] reduce-scatter(x), to_apply=sum, dimensions={0}\n"
        " ROOT r = f32[16] negate(y) }",
        MemoryRegion.ARENA,
    ),
}


@pytest.mark.parametrize("name", PLANNED)
def test_what_nobody_overwrites_is_shared(name: str) -> None:
    body, region = PLANNED[name]
    (found,) = regions(body).values()
    assert found == [region]


def test_alone_or_in_a_run_of_unknown_size_nothing_is_shared() -> None:
    body, _ = PLANNED["a result that is only read"]
    for replicas in (0, 1):
        assert not any(MemoryRegion.SHARED in found for found in regions(body, replicas).values())


@settings(suppress_health_check=[HealthCheck.too_slow])  # it looks at the machine's load
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(1, 500), st.integers(0, 2)),
        max_size=8,
    )
)
def test_shared_buffers_that_live_together_do_not_overlap(rows: list[tuple[int, int, int, int]]) -> None:
    buffers = [
        Buffer(size, MemoryRegion.SHARED, start=start, end=start + length, shared_arena=arena)
        for start, length, size, arena in rows
    ]
    arenas = place_shared(buffers, [((0, 1),)] * 3)
    for i, a in enumerate(buffers):
        assert a.shared_number % 64 == 0
        assert a.shared_number + a.size <= arenas[a.shared_arena].bytes
        for b in buffers[:i]:
            together = a.shared_arena == b.shared_arena and a.start <= b.end and b.start <= a.end
            apart = a.shared_number + a.size <= b.shared_number or b.shared_number + b.size <= a.shared_number
            assert apart or not together


# --- the values

LOOP = """body {{ s = (f32[64], s32[], s32[]) parameter(0)
 x = f32[64] get-tuple-element(s), index=0
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
{body}
 ROOT t = (f32[64], s32[], s32[]) tuple(z, j, n) }}
ENTRY e {{ x = f32[64] parameter(0)
 zero = s32[] constant(0)
 n = s32[] constant(200)
 s = (f32[64], s32[], s32[]) tuple(x, zero, n)
 w = (f32[64], s32[], s32[]) while(s), condition=less, body=body
 g = f32[64] get-tuple-element(w), index=0
 ROOT r = f32[64] negate(g) }}"""
# the devices differ in how long they take from one round to the next
DELAY = """spin { s = (f32[], s32[], s32[]) parameter(0)
 v = f32[] get-tuple-element(s), index=0
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 u = f32[] cosine(v)
 ROOT t = (f32[], s32[], s32[]) tuple(u, j, n) }
spins { s = (f32[], s32[], s32[]) parameter(0)
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 ROOT l = pred[] compare(i, n), direction=LT }
"""
WAIT = """ me = u32[] replica-id()
 who = s32[] convert(me)
 turn = s32[] add(who, i)
 four = s32[] constant(4)
 part = s32[] remainder(turn, four)
 each = s32[] constant(300)
 times = s32[] multiply(part, each)
 c0 = s32[] constant(0)
 v0 = f32[] constant(1)
 s0 = (f32[], s32[], s32[]) tuple(v0, c0, times)
 sw = (f32[], s32[], s32[]) while(s0), condition=spins, body=spin
 sv = f32[] get-tuple-element(sw), index=0
 nothing = f32[] constant(0)
 sn = f32[] multiply(sv, nothing)
 late = f32[64] broadcast(sn), dimensions={}
"""
HALF = " h = f32[] constant(0.25)\n hb = f32[64] broadcast(h), dimensions={}\n"
PROGRAMS = {
    "in a loop, read late": DELAY
    + LOOP.format(
        body=" y = f32[64] all-reduce(x), to_apply=sum\n" + WAIT + HALF + " p = f32[64] multiply(y, hb)\n"
        " z = f32[64] add(p, late)"
    ),
    "two in turn that live together": DELAY
    + LOOP.format(
        body=" y = f32[64] all-reduce(x), to_apply=sum\n q = f32[64] tanh(x)\n"
        " y2 = f32[64] all-reduce(q), to_apply=sum\n" + WAIT + HALF + " p = f32[64] multiply(y, hb)\n"
        " p2 = f32[64] subtract(p, y2)\n z = f32[64] add(p2, late)"
    ),
    "gathered and summed again": LOOP.format(
        body=" part = f32[16] slice(x), slice={[0:16]}\n y = f32[64] all-gather(part), dimensions={0}\n"
        " y2 = f32[64] all-reduce(y), to_apply=sum\n" + HALF + " z = f32[64] multiply(y2, hb)"
    ),
    "broadcast in groups": LOOP.format(
        body=" y = f32[64] collective-broadcast(x), replica_groups={{2,0},{1,3}}\n q = f32[64] tanh(y)\n"
        " z = f32[64] add(q, x)"
    ),
    "groups of different sizes": LOOP.format(
        body=" y = f32[64] all-reduce(x), replica_groups={{3,0,1},{2}}, to_apply=sum\n z = f32[64] tanh(y)"
    ),
    "rows and columns": LOOP.format(
        body=" y = f32[64] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=sum\n"
        " y2 = f32[64] all-reduce(y), replica_groups={{0,2},{1,3}}, to_apply=sum\n"
        + HALF
        + " z0 = f32[64] multiply(y2, hb)\n z = f32[64] subtract(z0, y)"
    ),
    "several leaves, one of them kept": """ENTRY e { x = f32[64] parameter(0)
 t = f32[64] tanh(x)
 y = (f32[64], f32[64]) all-reduce(x, t), to_apply=sum
 a = f32[64] get-tuple-element(y), index=0
 b = f32[64] get-tuple-element(y), index=1
 c = f32[64] negate(b)
 ROOT r = (f32[64], f32[64]) tuple(a, c) }""",
    "kept through a loop": """body { s = (f32[64], s32[], s32[], f32[64]) parameter(0)
 x = f32[64] get-tuple-element(s), index=0
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 k = f32[64] get-tuple-element(s), index=3
 one = s32[] constant(1)
 j = s32[] add(i, one)
 q = f32[64] tanh(x)
 y = f32[64] all-reduce(q), to_apply=sum
 z = f32[64] subtract(y, k)
 ROOT t = (f32[64], s32[], s32[], f32[64]) tuple(z, j, n, k) }
cond { s = (f32[64], s32[], s32[], f32[64]) parameter(0)
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 ROOT l = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[64] parameter(0)
 k = f32[64] all-reduce(x), to_apply=sum
 zero = s32[] constant(0)
 n = s32[] constant(50)
 s = (f32[64], s32[], s32[], f32[64]) tuple(x, zero, n, k)
 w = (f32[64], s32[], s32[], f32[64]) while(s), condition=cond, body=body
 g = f32[64] get-tuple-element(w), index=0
 ROOT r = f32[64] add(g, k) }""",
    # devices meet in one round from different branches, with different places: each gets a result of its own
    "from different branches": """first { x = f32[64] parameter(0)
 y = f32[64] all-reduce(x), to_apply=sum
 ROOT z = f32[64] tanh(y) }
second { x = f32[64] parameter(0)
 q = f32[64] sine(x)
 y0 = f32[64] all-reduce(q), to_apply=sum
 ROOT z = f32[64] add(y0, x) }
body { s = (f32[64], s32[], s32[]) parameter(0)
 x = f32[64] get-tuple-element(s), index=0
 i = s32[] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 k = f32[64] all-reduce(x), to_apply=sum
 me = u32[] replica-id()
 who = s32[] convert(me)
 turn = s32[] add(who, i)
 two = s32[] constant(2)
 side = s32[] remainder(turn, two)
 c = f32[64] conditional(side, x, k), branch_computations={first, second}
 z0 = f32[64] subtract(c, k)
 z = f32[64] sine(z0)
 ROOT t = (f32[64], s32[], s32[]) tuple(z, j, n) }
ENTRY e { x = f32[64] parameter(0)
 zero = s32[] constant(0)
 n = s32[] constant(60)
 s = (f32[64], s32[], s32[]) tuple(x, zero, n)
 w = (f32[64], s32[], s32[]) while(s), condition=less, body=body
 ROOT g = f32[64] get-tuple-element(w), index=0 }""",
}


@pytest.fixture(params=PROGRAMS)
def programs(request: pytest.FixtureRequest) -> Iterator[tuple[CompiledProgram, CompiledProgram]]:
    """The same module with shared results and without."""
    with pytest.MonkeyPatch.context() as patch:
        shared = compiled(PROGRAMS[request.param], 4)
        patch.setattr(planner, "SHARED_BYTES", 1 << 40)
        yield shared, compiled(PROGRAMS[request.param], 4)


def outcome(program: CompiledProgram, apart: tuple[int, ...] = ()) -> list[list[bytes]]:
    devices = Devices(program, apart)
    try:
        runs = [[[leaf.tobytes() for leaf in row] for row in devices(arguments(4))] for _ in range(2)]
    finally:
        devices.close()
    assert runs[0] == runs[1]
    return runs[0]


@pytest.mark.sampled(one_in=9)
def test_values_are_the_same_bits_with_shared_results(programs: tuple[CompiledProgram, CompiledProgram]) -> None:
    shared, private = programs
    assert any(site.shares for site in shared.sites)
    assert not private.shared
    wanted = outcome(private)
    assert outcome(shared) == wanted
    assert outcome(shared, apart=(2,)) == wanted, "a device without the arena: everybody gets a copy of his own"
    assert outcome(shared, apart=(0, 1, 2, 3)) == wanted


def is_untouched(memory: Any) -> bool:
    return set(np.frombuffer(memory, np.uint16)) == {unwritten.MARKER if unwritten.is_filled() else 0}


def test_a_shared_result_is_written_once() -> None:
    program = compiled("ENTRY e { x = f32[64] parameter(0)\n" + READ, 4)
    devices = Devices(program)
    wanted = total([row[0] for row in arguments(4)])
    (end,) = devices.offsets[1]
    arena = end + 4 * N
    for row in devices(arguments(4)):
        np.testing.assert_array_equal(row[0], -wanted)
    assert bytes(devices.common[: 4 * N]) == wanted.tobytes()
    for memory in devices.memories:
        assert is_untouched(memory[arena : arena + program.arena_bytes]), "each one's place of its own"
    devices.close()


def test_without_a_common_arena_everybody_has_a_result() -> None:
    devices = Devices(compiled("ENTRY e { x = f32[64] parameter(0)\n" + READ, 4), apart=(1,))
    wanted = total([row[0] for row in arguments(4)])
    for row in devices(arguments(4)):
        np.testing.assert_array_equal(row[0], -wanted)
    assert is_untouched(devices.common)
    devices.close()


def test_large_results_are_shared_too() -> None:
    count = 1 << 19  # work that members do together, with stores that bypass the caches from 32 MiB on
    program = compile_module(
        parse_module(
            HEADER
            + f"ENTRY e {{ x = f32[{count}] parameter(0)\n y = f32[{4 * count}] all-gather(x), dimensions={{0}}\n"
            f" r = f32[{4 * count}] negate(y)\n ROOT s = f32[{4 * count}] add(r, r) }}",
            "<test>",
        ),
        Counts(4, 1),
    )
    rows = [np.random.default_rng(d).standard_normal(count).astype(np.float32) for d in range(4)]
    devices = Devices(program)
    for (found,) in devices([[row] for row in rows]):
        np.testing.assert_array_equal(found, np.concatenate(rows) * np.float32(-2))
    devices.close()
