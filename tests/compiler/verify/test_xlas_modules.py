"""Kinds of modules that XLA's parser takes, and that compilers do or do not write: docs/limits.md, "Modules that only
XLA's parser takes". XLA's parser compares no shapes; its verifier does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import HloSyntaxError, VerificationError
from distxla.text.parser import parse_module

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
NEGATE = "c { p = f32[2] parameter(0)\n ROOT n = f32[2] negate(p) }"
X, T = "x = f32[2] parameter(0)", "t = token[] after-all()"
SLICED = (
    "x = f32[4,4] parameter(0)", "o = f32[4,4] parameter(1)", "z = s32[] constant(0)", "a = (s32[], s32[]) tuple(z, z)"
)  # fmt: skip
MAXIMAL = "{maximal device=0}"
PINNED = 'b = b(f32[2]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}'


def entry(*lines: str, before: str = "", head: str = "") -> str:
    return f"HloModule m{head}\n{before}ENTRY e {{\n " + "\n ".join(lines) + "\n}\n"


TAKEN = {
    "an outfeed with the shardings of what it sends": entry(
        X, T, f"ROOT o = token[] outfeed(x, t), outfeed_shape=f32[2], sharding={{{MAXIMAL}, {MAXIMAL}}}",
        head=", num_partitions=2",
    ),
    "an outfeed of a tuple with a sharding for each part and the token": entry(
        "x = (f32[2], f32[2]) parameter(0)", T,
        f"ROOT o = token[] outfeed(x, t), outfeed_shape=(f32[2], f32[2]), sharding={{{MAXIMAL}, {MAXIMAL}, {MAXIMAL}}}",
        head=", num_partitions=2",
    ),
    "a tuple of shardings on a send-done": entry(
        X, T, f"s = (f32[2], u32[], token[]) send(x, t), channel_id=1, sharding={{{MAXIMAL}, {MAXIMAL}, {MAXIMAL}}}",
        f"ROOT d = token[] send-done(s), channel_id=1, sharding={{{MAXIMAL}}}", head=", num_partitions=2",
    ),
    "layouts that differ": entry("x = f32[2,3]{1,0} parameter(0)", "ROOT t = (f32[2,3]{0,1}) tuple(x)"),
    "an outfeed_shape of another layout": entry(
        "x = f32[2,3]{1,0} parameter(0)", T, "ROOT o = token[] outfeed(x, t), outfeed_shape=f32[2,3]{0,1}"
    ),
    "an all-gather without groups": entry(
        "x = f32[2,4] parameter(0)", "ROOT g = f32[8,4] all-gather(x), dimensions={0}"
    ),
    "a bitcast of equal bytes": entry(X, "ROOT b = bf16[4] bitcast(x)"),
    "a permute with slice_sizes": entry(
        *SLICED,
        "ROOT p = f32[4,4] collective-permute(x, o, a, a), source_target_pairs={{0,1},{1,0}}, slice_sizes={{2,4}}",
        head=", replica_count=2",
    ),
}  # fmt: skip
REFUSED = {
    "send": (entry(X, T, "s = (f32[2], token[]) send(x, t), channel_id=1"), "send.shape: the result is "),
    "send-done": (
        entry(
            X, T, "s = (f32[2], u32[], token[]) send(x, t), channel_id=1",
            "ROOT d = (token[]) send-done(s), channel_id=1",
        ),
        "send-done.shape: the result is token[]",
    ),
    "recv-done": (
        entry(T, "r = (f32[2], u32[], token[]) recv(t), channel_id=1", "ROOT d = f32[2] recv-done(r), channel_id=1"),
        "recv-done.shape: the result is (f32[2], token[])",
    ),
    "outfeed": (entry(X, T, "ROOT o = (token[]) outfeed(x, t), outfeed_shape=f32[2]"), "outfeed.shape: "),
    "async-done": (
        entry(
            X, "s = ((f32[2]), f32[2], s32[]) async-start(x), calls=c", "ROOT d = f32[3] async-done(s)",
            before='c { p = f32[2] parameter(0)\n ROOT n = f32[2] custom-call(p), custom_call_target="f" }\n',
        ),
        "async-done.shape: ",
    ),
    "all-reduce-start": (
        entry(X, "s = (f32[2], f32[2]) all-reduce-start(x), to_apply=add", "ROOT d = f32[2] all-reduce-done(s)",
              before=ADD),
        "all-reduce-start.shape: ",
    ),
    "all-gather": (
        entry("x = f32[2,4] parameter(0)", "ROOT g = f32[2,8] all-gather(x), dimensions={0}, replica_groups={{0,1}}",
              head=", replica_count=2"),
        "all-gather.shape: the result is f32[4,4]",
    ),
    "dynamic-slice": (
        entry("x = f32[4,4] parameter(0)", "i = s32[] constant(0)",
              "ROOT d = f32[2,2] dynamic-slice(x, i, i), dynamic_slice_sizes={2,3}"),
        "dynamic-slice.shape: the result is f32[2,3]",
    ),
    "fft": (entry("x = c64[4] parameter(0)", "ROOT f = c64[3] fft(x), fft_type=FFT, fft_length={4}"), "fft.shape: "),
    "tuple": (entry(X, "ROOT t = (f32[3]) tuple(x)"), "tuple.shape: "),
    "scalar for an array": (entry("ROOT c = f32[3] constant(1)"), "found the scalar 1, which XLA's parser takes for"),
    "buffers: written by a custom-call that gives none": (
        entry(X, PINNED, 'ROOT u = f32[2] custom-call(b), custom_call_target="write"'), "buffer.C4: "
    ),
    "buffers: two that may write one": (
        entry(
            X, PINNED, 'c = b(f32[2]) custom-call(b), custom_call_target="write", '
            "output_to_operand_aliasing={{}: (0, {})}",
            'ROOT u = f32[2] custom-call(b), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}',
        ),
        "buffer.C5: ",
    ),
    "buffers: a copy of one": (entry(X, PINNED, "ROOT c = b(f32[2]) copy(b)"), "buffer.C6: "),
    "permute with an id in two pairs": (
        entry(X, "ROOT p = f32[2] collective-permute(x), source_target_pairs={{0,1},{0,2}}", head=", replica_count=3"),
        "collective-permute.C1: a source is negative or in two pairs: [0, 0]",
    ),
    "permute with -1": (
        entry(X, "ROOT p = f32[2] collective-permute(x), source_target_pairs={{0,-1}}", head=", replica_count=3"),
        "collective-permute.C1: a target is negative or in two pairs: [-1]",
    ),
    "tuple of shardings on an array": (
        entry("x = f32[4] parameter(0), sharding={{devices=[2]<=[2]}}", "ROOT n = f32[4] negate(x)",
              head=", num_partitions=2"),
        "sharding.C1: {{devices=[2]<=[2]}} has 1 elements for f32[4], which is no tuple",
    ),
    "call of another execution thread": (
        entry(X, "ROOT r = f32[2] call(x), to_apply=c", before=f'{NEGATE}, execution_thread="host"\n'),
        "call.thread: ",
    ),
    "composite without attributes": (
        entry(X, "ROOT r = f32[2] call(x), to_apply=c, is_composite=true", before=f"{NEGATE}\n"),
        "call.composite: a composite needs the frontend attribute composite.name",
    ),
    "permutes whose `slice_sizes` do not fit": (
        entry(
            *SLICED,
            "ROOT p = f32[4,4] collective-permute(x, o, a, a), source_target_pairs={{0,1},{1,0}}, slice_sizes={{8,4}}",
            head=", replica_count=2",
        ),
        "collective-permute.C8: ",
    ),
    "bitcast of other bytes": (
        entry(X, "ROOT b = f32[3] bitcast(x)"), "bitcast.C1: f32[2] has not the bytes of f32[3]"
    ),
    "size beyond an address space": (
        entry("x = f32[4611686018427387904,8] parameter(0)", "ROOT n = f32[4611686018427387904,8] negate(x)"),
        "an array of this shape is larger than 4611686018427387904 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TAKEN)
def test_what_compilers_write_is_taken(kind: str) -> None:
    verify_module(parse_module(TAKEN[kind]))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_contradicts_itself_is_refused(kind: str) -> None:
    text, message = REFUSED[kind]
    with pytest.raises((VerificationError, HloSyntaxError), match=re.escape(message)):
        verify_module(parse_module(text))


@pytest.mark.parametrize("text", [*TAKEN.values(), *(text for text, _ in REFUSED.values())])
def test_xlas_parser_takes_all_of_them(text: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    hlo.hlo_module_from_text(text)


def test_the_page_and_the_table_have_the_same_kinds() -> None:
    rows = PAGE.read_text().partition("| kind | modules |")[2].partition("\n\n")[0].splitlines()[2:]
    listed = {row.split("|")[1].strip() for row in rows}
    named = {kind: [row for row in listed if f"`{kind}`" in row or kind.partition(":")[0] in row] for kind in REFUSED}
    assert [kind for kind, found in named.items() if not found] == []
    assert listed - {row for found in named.values() for row in found} == set()
