"""Places and lifetimes: what may share memory does, what may not doesn't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxla.compiler.compile import optimised
from distxla.compiler.plan.buffers import Buffer, Communicate, Copy, Kernel, Loop, MemoryRegion, place
from distxla.compiler.plan.plan_program import plan
from distxla.errors import CompileError, UnsupportedOpError
from distxla.ir.op import Lowering
from distxla.ops.fft import Fft
from distxla.text.parser import parse_module


def planned(text: str):
    return plan(optimised(parse_module("HloModule m\n" + text, "<test>")))


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 1000)),
        max_size=40,
    )
)
def test_buffers_that_live_together_do_not_overlap(rows):
    buffers = [Buffer(size, start=start, end=start + length) for start, length, size in rows]
    total = place(buffers)
    assert total % 64 == 0
    for i, a in enumerate(buffers):
        assert a.number % 64 == 0
        assert a.number + a.size <= total
        for b in buffers[:i]:
            together = a.start <= b.end and b.start <= a.end
            overlap = a.number < b.number + b.size and b.number < a.number + a.size
            assert not (together and overlap and a.size and b.size)


def test_the_largest_come_first_where_the_order_of_time_leaves_holes():
    rows = [(64, 0, 1), (64, 0, 3), (64, 0, 1), (128, 2, 3)]  # two holes of 64 bytes, on both sides of a buffer
    assert place([Buffer(size, start=start, end=end) for size, start, end in rows]) == 192


def test_a_chain_of_kernels_needs_two_buffers():
    steps = "\n".join(
        f" v{k + 1} = f32[16,16] dot(v{k}, v{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for k in range(8)
    )
    result = planned(f"ENTRY e {{ v0 = f32[16,16] parameter(0)\n{steps}\n ROOT r = f32[16,16] negate(v8) }}")
    assert result.arena_bytes == 2 * 16 * 16 * 4


def test_roots_are_computed_straight_into_the_results():
    result = planned("ENTRY e { x = f32[4] parameter(0)\n a = f32[4] tanh(x)\n ROOT r = (f32[4], f32[4]) tuple(a, x) }")
    kernel, copy = result.steps
    assert isinstance(kernel, Kernel)
    assert str(kernel.results[0]) == "result[0]"
    assert isinstance(copy, Copy)
    assert (str(copy.target), str(copy.source)) == ("result[1]", "parameter[0]")


def test_state_of_a_loop_is_updated_in_place():
    result = planned(
        """body { s = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 one = s32[] constant(1)
 j = s32[] add(i, one)
 x = f32[8] get-tuple-element(s), index=1
 u = f32[1] slice(x), slice={[0:1]}
 v = f32[8] dynamic-update-slice(x, u, i)
 ROOT t = (s32[], f32[8]) tuple(j, v) }
cond { s = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT l = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[8] parameter(0)
 z = s32[] constant(0)
 i = (s32[], f32[8]) tuple(z, x)
 ROOT w = (s32[], f32[8]) while(i), condition=cond, body=body }"""
    )
    loop = next(step for step in result.steps if isinstance(step, Loop))
    update = next(s for s in loop.body if isinstance(s, Kernel) and s.instruction.opcode == "dynamic-update-slice")
    assert update.operands[0] is update.results[0]
    assert str(update.results[0]) == "result[1]"
    assert not [s for s in loop.body if isinstance(s, Copy) and s.target.size > 4]


def test_what_other_devices_read_lies_in_device_memory():
    result = planned(
        """add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { k = f32[4] constant({1, 2, 3, 4})
 ROOT a = f32[4] all-reduce(k), replica_groups={}, to_apply=add }"""
    )
    communicate = next(step for step in result.steps if isinstance(step, Communicate))
    assert {b.region for b in (*communicate.operands, *communicate.results)} <= {
        MemoryRegion.ARENA,
        MemoryRegion.RESULT,
    }


def test_what_others_read_and_write_stays_until_the_done():
    """The operand, a copy of a constant, the result and the round's number; a loop between may use none of them."""
    values = ", ".join(str(k) for k in range(300))
    result = planned(
        f"""add {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[300] parameter(0)
 y = f32[300] sine(x)
 k = f32[300] constant({{{values}}})
 s = (f32[300], f32[300]) all-reduce-start(y, k), to_apply=add
 p = f32[300] cosine(x)
 q = f32[300] sort(p), dimensions={{0}}, to_apply=less
 o = f32[300] sort(q), dimensions={{0}}, to_apply=less
 d = (f32[300], f32[300]) all-reduce-done(s)
 e = f32[300] get-tuple-element(d), index=0
 f = f32[300] get-tuple-element(d), index=1
 g = f32[300] sort(e), dimensions={{0}}, to_apply=less
 ROOT r = (f32[300], f32[300], f32[300]) tuple(g, f, o) }}
""".replace(
            "ENTRY",
            """less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=LT }
ENTRY""",
        )
    )
    start, done = (step for step in result.steps if isinstance(step, Communicate))
    assert (start.instruction.name, done.instruction.name) == ("s", "d")
    assert start.results[:2] == done.results
    assert done.operands == start.results  # the third one has the round's number
    arena = [b for b in (*start.operands, *start.results) if b.region is MemoryRegion.ARENA]
    assert len(arena) >= 4
    begun, ended = result.steps.index(start), result.steps.index(done)
    assert all(buffer.end >= start.results[2].end for buffer in arena)
    for step in result.steps[begun + 1 : ended]:
        for written in (step.target,) if isinstance(step, Copy) else step.results:
            assert not any(
                written.number < kept.number + kept.size and kept.number < written.number + written.size
                for kept in arena
                if written.region is MemoryRegion.ARENA
            )


def test_dump_names_places_and_steps():
    text = planned("ENTRY e { x = f32[4] parameter(0)\n ROOT a = f32[4] tanh(x) }").dump()
    assert "kernel a (fusion): result[0] <- parameter[0]" in text
    assert text.startswith("arena: 0 bytes")


def test_elided_constants_are_refused_with_their_place():
    with pytest.raises(CompileError, match=r"left out of the text") as caught:
        planned("ENTRY e { ROOT k = f32[512] constant({...}) }")
    assert caught.value.location is not None
    assert caught.value.location.line == 2


def test_what_cannot_be_executed_is_named(monkeypatch):
    monkeypatch.setattr(Fft, "lowering", Lowering.NONE)
    with pytest.raises(UnsupportedOpError, match="fft") as caught:
        planned("ENTRY e { x = c64[8] parameter(0)\n ROOT f = c64[8] fft(x), fft_type=FFT, fft_length={8} }")
    assert caught.value.location is not None
