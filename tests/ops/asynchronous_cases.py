"""What test_asynchronous.py shares with other tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.ops.program_case import Array

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
