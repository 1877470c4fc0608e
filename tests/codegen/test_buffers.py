"""Places and lifetimes: what may share memory does, what may not doesn't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxla.codegen.buffers import Buffer, Communicate, Copy, Kernel, Loop, Region, place
from distxla.codegen.planner import plan
from distxla.errors import CompileError, UnsupportedOpError
from distxla.ops.fft import Fft
from distxla.ops.op import Lowering
from distxla.runtime.compiler import optimised
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
    assert {b.region for b in (*communicate.operands, *communicate.results)} <= {Region.ARENA, Region.RESULT}


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
