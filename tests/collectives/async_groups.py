"""Programs with several transfers and collectives in one asynchronous computation, and what they must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

DEVICES = 4
RIGHT = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
LEFT = "source_target_pairs={{1,0},{2,1},{3,2},{0,3}}"
TO_RIGHT = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2},{2,3},{3,0}}}"
TO_LEFT = "frontend_attributes={_xla_send_recv_source_target_pairs={{1,0},{2,1},{3,2},{0,3}}}"
CHAIN = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2},{2,3}}}"
ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"


@dataclass(frozen=True)
class Group:
    """A program of four replicas, each with one argument.

    text: SHAPE stands for the argument's shape, CONTEXT for that of a transfer of it.  expected: from the arguments of
    all devices, the result leaves of one.
    """

    name: str
    text: str
    expected: Callable[[list[Array], int], list[Array]]
    size: int = 4

    def module_text(self, *, scheduled: bool = False) -> str:
        shape = f"f32[{self.size}]"
        header = f"HloModule group, replica_count={DEVICES}" + ", is_scheduled=true" * scheduled
        text = self.text.replace("CONTEXT", f"({shape}, u32[], token[])").replace("SHAPE", shape)
        return f"{header}\n\n{ADD}\n{text}"

    def arguments(self) -> list[Array]:
        return [np.arange(self.size, dtype=np.float32) + 10 * d for d in range(DEVICES)]


def left(xs: list[Array], d: int) -> Array:
    """What the device before it has."""
    return xs[(d - 1) % DEVICES]


def right(xs: list[Array], d: int) -> Array:
    return xs[(d + 1) % DEVICES]


def total(xs: list[Array]) -> Array:
    return np.sum(xs, axis=0, dtype=np.float32)


# A ring in which everybody sends to the right, ended by the async-done.
RING = f"""
exchange {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=0, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=0, {TO_RIGHT}
  ROOT both = (CONTEXT, CONTEXT) tuple(s, r)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), (CONTEXT, CONTEXT), s32[]) async-start(x, t), calls=exchange
  y = SHAPE negate(x)
  e = (CONTEXT, CONTEXT) async-done(b)
  sent = CONTEXT get-tuple-element(e), index=0
  received = CONTEXT get-tuple-element(e), index=1
  v = SHAPE get-tuple-element(received), index=0
  n = u32[] get-tuple-element(received), index=1
  w = SHAPE get-tuple-element(sent), index=0
  ROOT r = (SHAPE, u32[], SHAPE, SHAPE) tuple(v, n, w, y)
}}
"""


def _ring(xs: list[Array], d: int) -> list[Array]:
    return [left(xs, d), np.zeros((), np.uint32), xs[d], -xs[d]]


GROUPS = [
    Group("sends and recvs that async-done ends", RING, _ring),
    Group("the same of zero-copy values", RING, _ring, size=20_000),
    Group(
        "nobody sends to the first one",
        RING.replace(TO_RIGHT, CHAIN),
        lambda xs, d: [xs[d - 1] if d else 0 * xs[d], np.zeros((), np.uint32), xs[d], -xs[d]],
    ),
    Group(
        "two rings of permutes that begin and end one after the other in the text",
        f"""
both_ways {{
  a = SHAPE parameter(0)
  go1 = (SHAPE, SHAPE) collective-permute-start(a), {RIGHT}
  d1 = SHAPE collective-permute-done(go1)
  go2 = (SHAPE, SHAPE) collective-permute-start(a), {LEFT}
  d2 = SHAPE collective-permute-done(go2)
  ROOT r = (SHAPE, SHAPE) tuple(d1, d2)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  b = ((SHAPE), (SHAPE, SHAPE)) async-start(x), calls=both_ways, frontend_attributes={{_collectives_group=""}}
  ROOT e = (SHAPE, SHAPE) async-done(b)
}}
""",
        lambda xs, d: [left(xs, d), right(xs, d)],
    ),
    Group(
        "collectives of all kinds and a transfer, with what is computed for them and of them",
        f"""
work {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  two = f32[] constant(2)
  twos = SHAPE broadcast(two), dimensions={{}}
  double = SHAPE multiply(x, twos)
  sum = SHAPE all-reduce(double), to_apply=add
  near = SHAPE collective-permute(x), {RIGHT}
  all = f32[16] all-gather(x), dimensions={{0}}, replica_groups={{{{0,1,2,3}}}}
  part = f32[1] reduce-scatter(double), dimensions={{0}}, replica_groups={{{{0,1,2,3}}}}, to_apply=add
  split = SHAPE all-to-all(x), dimensions={{0}}, replica_groups={{{{0,1,2,3}}}}
  first = SHAPE collective-broadcast(x), replica_groups={{{{2,0,1,3}}}}
  s = CONTEXT send(double, t), channel_id=7, {TO_LEFT}
  sd = token[] send-done(s), channel_id=7
  r = CONTEXT recv(t), channel_id=7, {TO_LEFT}
  rd = (SHAPE, token[]) recv-done(r), channel_id=7
  far = SHAPE get-tuple-element(rd), index=0
  more = SHAPE add(sum, near)
  ROOT r0 = (SHAPE, SHAPE, f32[16], f32[1], SHAPE, SHAPE, SHAPE) tuple(sum, more, all, part, split, first, far)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), (SHAPE, SHAPE, f32[16], f32[1], SHAPE, SHAPE, SHAPE), s32[]) async-start(x, t), calls=work
  u = ((SHAPE, token[]), (SHAPE, SHAPE, f32[16], f32[1], SHAPE, SHAPE, SHAPE), s32[]) async-update(b), calls=work
  ROOT e = (SHAPE, SHAPE, f32[16], f32[1], SHAPE, SHAPE, SHAPE) async-done(u), calls=work
}}
""",
        lambda xs, d: [
            2 * total(xs),
            2 * total(xs) + left(xs, d),
            np.concatenate(xs),
            2 * total(xs)[d : d + 1],
            np.array([x[d] for x in xs]),
            xs[2],
            2 * right(xs, d),
        ],
    ),
    Group(
        "a collective of another one's result",
        f"""
chain {{
  a = SHAPE parameter(0)
  sum = SHAPE all-reduce(a), to_apply=add
  i = u32[] replica-id()
  f = f32[] convert(i)
  fs = SHAPE broadcast(f), dimensions={{}}
  mine = SHAPE add(sum, fs)
  near = SHAPE collective-permute(mine), {RIGHT}
  other = SHAPE collective-permute(a), {LEFT}
  ROOT r = (SHAPE, SHAPE) tuple(near, other)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  b = ((SHAPE), (SHAPE, SHAPE), s32[]) async-start(x), calls=chain
  y = SHAPE all-reduce(x), to_apply=add
  e = (SHAPE, SHAPE) async-done(b)
  n = SHAPE get-tuple-element(e), index=0
  o = SHAPE get-tuple-element(e), index=1
  ROOT r = (SHAPE, SHAPE, SHAPE) tuple(n, o, y)
}}
""",
        lambda xs, d: [total(xs) + np.float32((d - 1) % DEVICES), right(xs, d), total(xs)],
    ),
    Group(
        "through calls, with other collectives and another group in between",
        f"""
inner {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=3, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=3, {TO_RIGHT}
  v = SHAPE get-tuple-element(r), index=0
  sum = SHAPE all-reduce(x), to_apply=add
  ROOT o = (SHAPE, SHAPE) tuple(v, sum)
}}
outer {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  n = SHAPE negate(x)
  c = (SHAPE, SHAPE) call(n, t), to_apply=inner
  v = SHAPE get-tuple-element(c), index=0
  sum = SHAPE get-tuple-element(c), index=1
  ROOT d = (SHAPE, SHAPE) tuple(sum, v)
}}
second {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  sum = SHAPE all-reduce(x), to_apply=add
  s = CONTEXT send(x, t), channel_id=3, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=3, {TO_RIGHT}
  ROOT o = (SHAPE, CONTEXT) tuple(sum, r)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b1 = ((SHAPE, token[]), (SHAPE, SHAPE), s32[]) async-start(x, t), calls=outer
  sum = SHAPE all-reduce(x), to_apply=add
  b2 = ((SHAPE, token[]), (SHAPE, CONTEXT), s32[]) async-start(sum, t), calls=second
  near = SHAPE collective-permute(x), {RIGHT}
  e1 = (SHAPE, SHAPE) async-done(b1)
  e2 = (SHAPE, CONTEXT) async-done(b2)
  p = SHAPE get-tuple-element(e1), index=0
  q = SHAPE get-tuple-element(e1), index=1
  w = SHAPE get-tuple-element(e2), index=0
  c = CONTEXT get-tuple-element(e2), index=1
  z = SHAPE get-tuple-element(c), index=0
  ROOT r = (SHAPE, SHAPE, SHAPE, SHAPE, SHAPE, SHAPE) tuple(sum, near, p, q, w, z)
}}
""",
        lambda xs, d: [total(xs), left(xs, d), -total(xs), -left(xs, d), 4 * total(xs), total(xs)],
    ),
]


def _many(line: Callable[[int], str], count: int) -> str:
    """`count` times the same, of x + k; every third result is returned."""
    names = ", ".join(f"v{k}" for k in range(0, count, 3))
    shapes = ", ".join(["SHAPE"] * len(range(0, count, 3)))
    numbers = [
        f"c{k} = f32[] constant({k})\n  b{k} = SHAPE broadcast(c{k}), dimensions={{}}\n  x{k} = SHAPE add(x, b{k})"
        for k in range(count)
    ]
    body = "\n  ".join([*numbers, *map(line, range(count))])
    return f"""
many {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  {body}
  ROOT r = ({shapes}) tuple({names})
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), ({shapes}), s32[]) async-start(x, t), calls=many
  ROOT e = ({shapes}) async-done(b)
}}
"""


def _transfer(k: int) -> str:
    return f"""go{k} = CONTEXT send(x{k}, t), channel_id=0, {TO_RIGHT}
  r{k} = CONTEXT recv(t), channel_id=0, {TO_RIGHT}
  v{k} = SHAPE get-tuple-element(r{k}), index=0"""


GROUPS += [
    Group(
        "more sends than may be in flight",
        _many(_transfer, 17),
        lambda xs, d: [left(xs, d) + np.float32(k) for k in range(0, 17, 3)],
    ),
    Group(
        "more large sends than may be in flight",
        _many(_transfer, 9),
        lambda xs, d: [left(xs, d) + np.float32(k) for k in range(0, 9, 3)],
        size=9_000,
    ),
    Group(
        "more permutes than may be in flight",
        _many(lambda k: f"v{k} = SHAPE collective-permute(x{k}), {RIGHT}", 5),
        lambda xs, d: [left(xs, d) + np.float32(k) for k in range(0, 5, 3)],
    ),
    Group(
        "more rounds than may be in flight",
        _many(lambda k: f"v{k} = SHAPE all-reduce(x{k}), to_apply=add", 9),
        lambda xs, d: [total(xs) + np.float32(4 * k) for k in range(0, 9, 3)],
    ),
]
