"""The bytes that timelines tell, of programs as they are compiled."""

from __future__ import annotations

import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.runtime.calls.site_bytes import site_bytes
from distxla.text.parser import parse_module

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
HEAD = f"HloModule m, replica_count=2\n{ADD}ENTRY e {{ x = f32[8] parameter(0) y = bf16[3] parameter(1)\n"
PAIRS = 'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
PROGRAMS = {
    "one operand": ("ROOT r = f32[8] all-reduce(x), to_apply=add }", {32}),
    "merged by the compiler": (
        "a = f32[8] all-reduce(x), to_apply=add\n b = f32[8] negate(x)\n c = f32[8] all-reduce(b), to_apply=add\n"
        "ROOT r = (f32[8], f32[8]) tuple(a, c) }",
        {64},
    ),
    "both halves of a pair": (
        "s = (bf16[3], bf16[3]) collective-permute-start(y), source_target_pairs={{0,1},{1,0}}\n"
        "ROOT d = bf16[3] collective-permute-done(s) }",
        {6},
    ),
    "a transfer": (
        f"t = token[] after-all()\n s = (f32[8], u32[], token[]) send(x, t), {PAIRS}\n sd = token[] send-done(s), "
        f"channel_id=1\n r = (f32[8], u32[], token[]) recv(t), {PAIRS}\n"
        "rd = (f32[8], token[]) recv-done(r), channel_id=1\n ROOT v = f32[8] get-tuple-element(rd), index=0 }",
        {32},
    ),
}


@pytest.mark.parametrize(("text", "sizes"), PROGRAMS.values(), ids=PROGRAMS)
def test_of_each_site(text: str, sizes: set[int]) -> None:
    module = parse_module(HEAD + text)
    program = compile_module(module, Counts(2, 1))
    assert {site_bytes(site, module) for site in program.sites} == sizes
    assert len(program.sites) >= 1
