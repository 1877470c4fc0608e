"""Asynchronous pairs, spelled out and in their short forms, native ones of collectives and of copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from distxla.compiler.compile import compile_module, optimised
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import VerificationError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs, run_reference
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.runner import run_devices
from tests.ops.program_case import Array, parsed

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"
X = np.arange(8, dtype=np.float32)
SHIFT = "source_target_pairs={{0,1},{1,2},{2,3}}"
GROUP = "replica_groups={{0,1,2,3}}"


def _entry(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in ("x = f32[8] parameter(0)", *lines))
    return f"HloModule pairs\n{before}ENTRY main {{\n{body}\n}}\n"


def _sum(values: Sequence[Array]) -> Array:
    return np.sum(values, axis=0, dtype=np.float32)


# text, and what each of four replicas gets of x + its number
NATIVE = {
    "all-reduce": (
        _entry(
            "s = f32[8] all-reduce-start(x), replica_groups={}, to_apply=add",
            "y = f32[8] negate(x)",
            "d = f32[8] all-reduce-done(s)",
            "ROOT r = (f32[8], f32[8]) tuple(d, y)",
            before=ADD,
        ),
        lambda xs, i: [_sum(xs), -xs[i]],
    ),
    "all-reduce of two": (
        _entry(
            "y = f32[8] negate(x)",
            "s = (f32[8], f32[8]) all-reduce-start(x, y), replica_groups={}, to_apply=add",
            "ROOT d = (f32[8], f32[8]) all-reduce-done(s)",
            before=ADD,
        ),
        lambda xs, i: [_sum(xs), -_sum(xs)],
    ),
    "all-gather": (
        _entry(
            f"s = (f32[8], f32[32]) all-gather-start(x), {GROUP}, dimensions={{0}}",
            "ROOT d = f32[32] all-gather-done(s)",
        ),
        lambda xs, i: [np.concatenate(xs)],
    ),
    "all-gather of two": (
        _entry(
            "y = f32[8] negate(x)",
            f"s = ((f32[8], f32[8]), (f32[32], f32[32])) all-gather-start(x, y), {GROUP}, dimensions={{0}}",
            "ROOT d = (f32[32], f32[32]) all-gather-done(s)",
        ),
        lambda xs, i: [np.concatenate(xs), -np.concatenate(xs)],
    ),
    "collective-permute": (
        _entry(
            f"s = (f32[8], f32[8], u32[], u32[]) collective-permute-start(x), {SHIFT}",
            "n = f32[8] negate(x), control-predecessors={s}",
            "d = f32[8] collective-permute-done(s), control-predecessors={n}",
            "ROOT r = (f32[8], f32[8]) tuple(d, n)",
        ),
        lambda xs, i: [xs[i - 1] if i else np.zeros_like(X), -xs[i]],
    ),
    "collective-permute without a context": (
        _entry(
            f"s = (f32[8], f32[8]) collective-permute-start(x), {SHIFT}",
            "ROOT d = f32[8] collective-permute-done(s)",
        ),
        lambda xs, i: [xs[i - 1] if i else np.zeros_like(X)],
    ),
    "collective-permute of two": (
        _entry(
            "y = f32[8] negate(x)",
            f"s = ((f32[8], f32[8]), (f32[8], f32[8])) collective-permute-start(x, y), {SHIFT}",
            "ROOT d = (f32[8], f32[8]) collective-permute-done(s)",
        ),
        lambda xs, i: [xs[i - 1], -xs[i - 1]] if i else [np.zeros_like(X)] * 2,
    ),
    "reduce-scatter": (
        _entry(
            f"s = ((f32[8]), f32[2], u32[]) reduce-scatter-start(x), {GROUP}, dimensions={{0}}, to_apply=add",
            "u = ((f32[8]), f32[2], u32[]) reduce-scatter-update(s)",
            "ROOT d = f32[2] reduce-scatter-done(u)",
            before=ADD,
        ),
        lambda xs, i: [_sum(xs)[2 * i : 2 * i + 2]],
    ),
    "collective-broadcast": (
        _entry(
            "s = ((f32[8]), f32[8], u32[]) collective-broadcast-start(x), replica_groups={{2,1,0,3}}",
            "y = f32[8] negate(x)",
            "d = f32[8] collective-broadcast-done(s)",
            "ROOT r = (f32[8], f32[8]) tuple(d, y)",
        ),
        lambda xs, i: [xs[2], -xs[i]],
    ),
    "collective-broadcast to some": (
        _entry(
            "s = ((f32[8]), f32[8]) collective-broadcast-start(x), replica_groups={{3,1}}",
            "ROOT d = f32[8] collective-broadcast-done(s)",
        ),
        lambda xs, i: [xs[3] if i % 2 else np.zeros_like(X)],
    ),
    "all-to-all of four": (
        _entry(
            *(f"x{k} = f32[2] slice(x), slice={{[{2 * k}:{2 * k + 2}]}}" for k in range(4)),
            f"s = ((f32[2], f32[2], f32[2], f32[2]), (f32[2], f32[2], f32[2], f32[2])) "
            f"all-to-all-start(x0, x1, x2, x3), {GROUP}",
            "y = f32[8] negate(x)",
            "ROOT d = (f32[2], f32[2], f32[2], f32[2]) all-to-all-done(s)",
        ),
        lambda xs, i: [x[2 * i : 2 * i + 2] for x in xs],
    ),
    "ragged-all-to-all": (
        _entry(
            "n = s32[4] constant({1, 1, 1, 1})",
            "at = s32[4] constant({0, 2, 4, 6})",
            "me = u32[] replica-id()",
            "row = s32[] convert(me)",
            "there = s32[4] broadcast(row), dimensions={}",
            "kept = f32[8] negate(x)",
            "s = ((f32[8], f32[8], s32[4], s32[4], s32[4], s32[4]), f32[8], u32[]) "
            f"ragged-all-to-all-start(x, kept, at, n, there, n), {GROUP}",
            "y = f32[8] add(x, x)",
            "d = f32[8] ragged-all-to-all-done(s)",
            "ROOT r = (f32[8], f32[8], f32[8]) tuple(d, y, kept)",
        ),
        lambda xs, i: [np.concatenate([[x[2 * i] for x in xs], -xs[i][4:]]), 2 * xs[i], -xs[i]],
    ),
    "all-reduce of more than a slot holds": (
        _entry(
            *(f"x{k} = f32[8] {'negate' if k % 2 else 'copy'}(x)" for k in range(400)),
            f"s = ({', '.join(['f32[8]'] * 400)}) "
            f"all-reduce-start({', '.join(f'x{k}' for k in range(400))}), to_apply=add",
            "y = f32[8] negate(x)",
            f"d = ({', '.join(['f32[8]'] * 400)}) all-reduce-done(s)",
            "e = f32[8] get-tuple-element(d), index=0",
            "f = f32[8] get-tuple-element(d), index=399",
            "ROOT r = (f32[8], f32[8], f32[8]) tuple(e, f, y)",
            before=ADD,
        ),
        lambda xs, i: [_sum(xs), -_sum(xs), -xs[i]],
    ),
    "collective-permute of more than a post holds": (
        _entry(
            *(f"x{k} = f32[8] {'negate' if k % 2 else 'copy'}(x)" for k in range(600)),
            f"s = (({', '.join(['f32[8]'] * 600)}), ({', '.join(['f32[8]'] * 600)})) "
            f"collective-permute-start({', '.join(f'x{k}' for k in range(600))}), {SHIFT}",
            f"d = ({', '.join(['f32[8]'] * 600)}) collective-permute-done(s)",
            "e = f32[8] get-tuple-element(d), index=0",
            "f = f32[8] get-tuple-element(d), index=599",
            "ROOT r = (f32[8], f32[8]) tuple(e, f)",
        ),
        lambda xs, i: [xs[i - 1], -xs[i - 1]] if i else [np.zeros_like(X)] * 2,
    ),
    "all-reduce in async-start in a loop": (
        """HloModule nested
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
inner {
  p = f32[8] parameter(0)
  s = f32[8] all-reduce-start(p), replica_groups={}, to_apply=add
  ROOT d = f32[8] all-reduce-done(s)
}
more {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[8] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  s = ((f32[8]), f32[8], u32[]) async-start(x), calls=inner
  u = ((f32[8]), f32[8], u32[]) async-update(s)
  v = ((f32[8]), f32[8], u32[]) async-update(u)
  d = f32[8] async-done(v)
  ROOT r = (s32[], f32[8]) tuple(j, d)
}
ENTRY main {
  x = f32[8] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8]) tuple(z, x)
  w = (s32[], f32[8]) while(t), condition=more, body=body
  ROOT r = f32[8] get-tuple-element(w), index=1
}
""",
        lambda xs, i: [_sum(xs) * 16],
    ),
}


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("name", NATIVE)
def test_collectives(name: str) -> None:
    text, expected = NATIVE[name]
    xs = [X + i for i in range(4)]
    module = parse_module(text)
    verify_module(module, 4, 1)
    arguments = [[x] for x in xs]
    by_reference = run_reference(module, arguments, Counts(4, 1))
    by_code = run_devices(compile_module(module, Counts(4, 1)), arguments)
    for outs in (by_reference, by_code):
        for i, leaves in enumerate(outs):
            for got, wanted in zip(leaves, expected(xs, i), strict=True):
                np.testing.assert_array_equal(got, wanted)  # type: ignore[arg-type]


SORTED = (
    "compare {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=GT\n}\n"
)
ALONE = {
    "sort": (
        _entry(
            "s = ((f32[8]), f32[8], s32[], token[], (u32[], f32[2])) sort-start(x), dimensions={0}, to_apply=compare",
            "ROOT d = f32[8] sort-done(s)",
            before=SORTED,
        ),
        [X[::-1]],
    ),
    "custom-call": (
        _entry(
            's = ((f32[8]), (f32[3], s32[3]), u32[]) custom-call-start(x), custom_call_target="TopK"',
            "ROOT d = (f32[3], s32[3]) custom-call-done(s)",
        ),
        [[7, 6, 5], [7, 6, 5]],
    ),
    "copy": (
        _entry("s = (f32[8], f32[8], u32[]) copy-start(x)", "ROOT d = f32[8] copy-done(s)"),
        [X],
    ),
    "another thread": (
        _entry(
            's = ((f32[8]), f32[8], u32[]) async-start(x), async_execution_thread="host", calls=work',
            'ROOT d = f32[8] async-done(s), async_execution_thread="host", calls=work',
            before='work {\n  p = f32[8] parameter(0)\n  ROOT q = f32[8] negate(p)\n}, execution_thread="host"\n',
        ),
        [-X],
    ),
    "no operand": (
        _entry(
            "s = ((), f32[], u32[]) async-start(), calls=three",
            "ROOT d = f32[] async-done(s)",
            before="three {\n  ROOT c = f32[] constant(3)\n}\n",
        ),
        [3],
    ),
    "a parameter as the result": (
        _entry(
            "s = ((f32[8]), f32[8], u32[]) async-start(x), calls=same",
            "ROOT d = f32[8] async-done(s)",
            before="same {\n  ROOT p = f32[8] parameter(0)\n}\n",
        ),
        [X],
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_on_one_device(name: str) -> None:
    text, wanted = ALONE[name]
    module = parsed(text)
    by_reference = run_reference(module, [[X]], Counts(1, 1))[0]
    by_code = run_devices(compile_module(module, Counts(1, 1)), [[X]])[0]
    for outs in (by_reference, by_code):
        for got, want in zip(outs, wanted, strict=True):
            np.testing.assert_array_equal(got, want)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*NATIVE, *ALONE])
def test_pairs_survive_their_text(name: str) -> None:
    module = parse_module({**NATIVE, **ALONE}[name][0])
    assert parse_module(print_module(module)) == module


def test_reports_name_the_start() -> None:
    """The halves of the collective have the names and the places of the instructions in the text."""
    module = parse_module(NATIVE["all-gather"][0], "pairs.hlo")
    sites = compile_module(module, Counts(4, 1)).sites
    found = [(site.instruction, site.opcode, str(site.location).split(": ")[0]) for site in sites]
    assert found == [("s", "all-gather-start", "pairs.hlo:4:3"), ("d", "all-gather-done", "pairs.hlo:5:8")]


def test_programs_meet_in_synchronous_and_asynchronous_forms() -> None:
    """Some devices begin an all-reduce, the others have it in one instruction."""
    pair = parse_module(
        _entry(
            "s = f32[8] all-reduce-start(x), replica_groups={}, to_apply=add",
            "ROOT d = f32[8] all-reduce-done(s)",
            before=ADD,
        )
    )
    single = parse_module(_entry("ROOT s = f32[8] all-reduce(x), replica_groups={}, to_apply=add", before=ADD))
    outs = run_programs({0: pair, 1: single}, {0: [X], 1: [X]}, Counts(2, 1))
    np.testing.assert_array_equal(outs[0][0], 2 * X)  # type: ignore[arg-type]
    np.testing.assert_array_equal(outs[1][0], 2 * X)  # type: ignore[arg-type]


def test_pairs_stay_pairs() -> None:
    """Members may have the synchronous form, and those of different modules are not combined alike."""
    text = _entry(
        "y = f32[8] negate(x)",
        "s = f32[8] all-reduce-start(x), replica_groups={}, to_apply=add",
        "t = f32[8] all-reduce-start(y), replica_groups={}, to_apply=add",
        "d = f32[8] all-reduce-done(s)",
        "e = f32[8] all-reduce-done(t)",
        "ROOT r = (f32[8], f32[8]) tuple(d, e)",
        before=ADD,
    )
    assert [i.opcode for i in optimised(parse_module(text)).entry_computation].count("all-reduce-start") == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        ("another thread", "((f32[8]), f32[8], u32[]) async", "((f32[8]), f32[4], u32[]) async", "async-start.C2"),
        ("another thread", "p = f32[8]", "p = f32[4]", "negate|async-start.C1"),
        ("a parameter as the result", "calls=same", "output_to_operand_aliasing={{}: (1, {})}, calls=same", "aliasing"),
        ("a parameter as the result", "async-done(s)", "async-done(x)", "async-done.(pair|C1)"),
        ("all-gather", "all-gather-done(s)", "negate(x)", "all-gather-start.pair|negate"),
    ],
)
def test_rules(name: str, old: str, new: str, rule: str) -> None:
    with pytest.raises(VerificationError, match=rule):
        verify_module(parse_module({**NATIVE, **ALONE}[name][0].replace(old, new)))


def test_members_of_a_pair_agree_on_run_time_sizes() -> None:
    """The smallest one is everybody's; a start that must know it is carried out as a whole."""
    text = f"""HloModule dynamic, replica_count=2
{ADD}ENTRY e {{
  x = f32[<=8] parameter(0)
  s = f32[<=8] all-reduce-start(x), replica_groups={{}}, to_apply=add
  y = f32[<=8] negate(x)
  d = f32[<=8] all-reduce-done(s)
  a = ((f32[<=8]), f32[<=8], u32[]) async-start(x), calls=whole
  b = f32[<=8] async-done(a)
  ROOT r = (f32[<=8], f32[<=8], f32[<=8]) tuple(d, y, b)
}}
""".replace(
        "ENTRY",
        """whole {
  p = f32[<=8] parameter(0)
  ROOT q = f32[<=8] all-reduce(p), replica_groups={}, to_apply=add
}
ENTRY""",
    )
    module = parse_module(text)
    verify_module(module, 2, 1)
    arguments = [[X[:6]], [X[:4]]]
    by_code = run_devices(compile_module(module, Counts(2, 1)), arguments)
    by_reference = run_reference(module, arguments, Counts(2, 1))
    for code, reference, x in zip(by_code, by_reference, arguments, strict=True):
        for got, expected, wanted in zip(code, reference, (2 * X[:4], -x[0], 2 * X[:4]), strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)
            np.testing.assert_array_equal(np.asarray(expected), wanted)
