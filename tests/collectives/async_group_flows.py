"""Groups of transfers and collectives in loops, branches and other groups, and whose contexts go elsewhere."""

from __future__ import annotations

from tests.collectives.async_groups import DEVICES, LEFT, RIGHT, TO_LEFT, TO_RIGHT, Group, left, right, total

FLOWS = [
    Group(
        "in a loop",
        f"""
exchange {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=1, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=1, {TO_RIGHT}
  near = SHAPE collective-permute(x), {LEFT}
  ROOT o = (CONTEXT, CONTEXT, SHAPE) tuple(s, r, near)
}}
body {{
  p = (s32[], SHAPE, SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = SHAPE get-tuple-element(p), index=1
  acc = SHAPE get-tuple-element(p), index=2
  t = token[] after-all()
  b = ((SHAPE, token[]), (CONTEXT, CONTEXT, SHAPE), s32[]) async-start(a, t), calls=exchange
  one = s32[] constant(1)
  j = s32[] add(i, one)
  e = (CONTEXT, CONTEXT, SHAPE) async-done(b)
  c = CONTEXT get-tuple-element(e), index=1
  v = SHAPE get-tuple-element(c), index=0
  n = SHAPE get-tuple-element(e), index=2
  more = SHAPE add(acc, n)
  ROOT q = (s32[], SHAPE, SHAPE) tuple(j, v, more)
}}
again {{
  p = (s32[], SHAPE, SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = SHAPE parameter(0)
  zero = s32[] constant(0)
  p = (s32[], SHAPE, SHAPE) tuple(zero, x, x)
  w = (s32[], SHAPE, SHAPE) while(p), condition=again, body=body
  v = SHAPE get-tuple-element(w), index=1
  a = SHAPE get-tuple-element(w), index=2
  ROOT r = (SHAPE, SHAPE) tuple(v, a)
}}
""",
        lambda xs, d: [xs[(d - 5) % DEVICES], xs[d] + total(xs) + right(xs, d)],
    ),
    Group(
        "in one branch of a conditional",
        f"""
exchange {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=1, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=1, {TO_RIGHT}
  sum = SHAPE all-reduce(x), to_apply=add
  ROOT o = (CONTEXT, SHAPE) tuple(r, sum)
}}
together {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), (CONTEXT, SHAPE), s32[]) async-start(x, t), calls=exchange
  e = (CONTEXT, SHAPE) async-done(b)
  c = CONTEXT get-tuple-element(e), index=0
  v = SHAPE get-tuple-element(c), index=0
  sum = SHAPE get-tuple-element(e), index=1
  ROOT r = SHAPE add(v, sum)
}}
alone {{
  ROOT x = SHAPE parameter(0)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  p = pred[] constant(true)
  ROOT c = SHAPE conditional(p, x, x), true_computation=together, false_computation=alone
}}
""",
        lambda xs, d: [left(xs, d) + total(xs)],
    ),
    Group(
        "transfers that end behind the async-done, the way there through a loop",
        f"""
begin {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=4, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=4, {TO_RIGHT}
  ROOT o = (CONTEXT, CONTEXT) tuple(s, r)
}}
again {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=4, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=4, {TO_RIGHT}
  ROOT o = (CONTEXT, CONTEXT) tuple(s, r)
}}
body {{
  p = (s32[], CONTEXT, SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = CONTEXT get-tuple-element(p), index=1
  rd = (SHAPE, token[]) recv-done(c), channel_id=4
  v = SHAPE get-tuple-element(rd), index=0
  t = token[] get-tuple-element(rd), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  b = ((SHAPE, token[]), (CONTEXT, CONTEXT), s32[]) async-start(v, t), calls=again
  e = (CONTEXT, CONTEXT) async-done(b)
  s = CONTEXT get-tuple-element(e), index=0
  sd = token[] send-done(s), channel_id=4
  n = CONTEXT get-tuple-element(e), index=1
  ROOT q = (s32[], CONTEXT, SHAPE) tuple(j, n, v)
}}
more {{
  p = (s32[], CONTEXT, SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}
finish {{
  c = CONTEXT parameter(0)
  rd = (SHAPE, token[]) recv-done(c), channel_id=4
  ROOT v = SHAPE get-tuple-element(rd), index=0
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), (CONTEXT, CONTEXT), s32[]) async-start(x, t), calls=begin
  e = (CONTEXT, CONTEXT) async-done(b)
  s = CONTEXT get-tuple-element(e), index=0
  r = CONTEXT get-tuple-element(e), index=1
  sd = token[] send-done(s), channel_id=4
  zero = s32[] constant(0)
  p = (s32[], CONTEXT, SHAPE) tuple(zero, r, x)
  w = (s32[], CONTEXT, SHAPE) while(p), condition=more, body=body
  c = CONTEXT get-tuple-element(w), index=1
  before = SHAPE get-tuple-element(w), index=2
  f = ((CONTEXT), SHAPE, s32[]) async-start(c), calls=finish
  v = SHAPE async-done(f)
  ROOT o = (SHAPE, SHAPE) tuple(before, v)
}}
""",
        lambda xs, d: [xs[(d - 3) % DEVICES], xs[(d - 4) % DEVICES]],
    ),
    Group(
        "a computation that looks at what it receives",
        f"""
exchange {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  r = CONTEXT recv(t), channel_id=0, {TO_RIGHT}
  v = SHAPE get-tuple-element(r), index=0
  later = token[] get-tuple-element(r), index=2
  n = SHAPE negate(v)
  s = CONTEXT send(x, t), channel_id=0, {TO_RIGHT}
  go2 = CONTEXT send(n, later), channel_id=1, {TO_RIGHT}
  r2 = CONTEXT recv(t), channel_id=1, {TO_RIGHT}
  ROOT o = (SHAPE, CONTEXT) tuple(n, r2)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), (SHAPE, CONTEXT), s32[]) async-start(x, t), calls=exchange
  e = (SHAPE, CONTEXT) async-done(b)
  v = SHAPE get-tuple-element(e), index=0
  c = CONTEXT get-tuple-element(e), index=1
  w = SHAPE get-tuple-element(c), index=0
  ROOT r = (SHAPE, SHAPE) tuple(v, w)
}}
""",
        lambda xs, d: [-left(xs, d), -xs[(d - 2) % DEVICES]],
    ),
    Group(
        "asynchronous computations in one",
        f"""
single {{
  x = SHAPE parameter(0)
  ROOT s = SHAPE all-reduce(x), to_apply=add
}}
pair {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=2, {TO_LEFT}
  r = CONTEXT recv(t), channel_id=2, {TO_LEFT}
  ROOT v = SHAPE get-tuple-element(r), index=0
}}
pure {{
  x = SHAPE parameter(0)
  ROOT n = SHAPE negate(x)
}}
outer {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  b1 = ((SHAPE), SHAPE, s32[]) async-start(x), calls=single
  b2 = ((SHAPE, token[]), SHAPE, s32[]) async-start(x, t), calls=pair
  b3 = ((SHAPE), SHAPE, s32[]) async-start(x), calls=pure
  e2 = SHAPE async-done(b2)
  e1 = SHAPE async-done(b1)
  e3 = SHAPE async-done(b3)
  ROOT r = (SHAPE, SHAPE, SHAPE) tuple(e1, e2, e3)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), (SHAPE, SHAPE, SHAPE), s32[]) async-start(x, t), calls=outer
  y = SHAPE all-reduce(x), to_apply=add
  e = (SHAPE, SHAPE, SHAPE) async-done(b)
  ROOT r = ((SHAPE, SHAPE, SHAPE), SHAPE) tuple(e, y)
}}
""",
        lambda xs, d: [total(xs), right(xs, d), -xs[d], total(xs)],
    ),
    Group(
        "a loop of collectives",
        f"""
body {{
  p = (s32[], SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = SHAPE get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  n = SHAPE collective-permute(a), {RIGHT}
  ROOT q = (s32[], SHAPE) tuple(j, n)
}}
again {{
  p = (s32[], SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}
rounds {{
  x = SHAPE parameter(0)
  sum = SHAPE all-reduce(x), to_apply=add
  zero = s32[] constant(0)
  p = (s32[], SHAPE) tuple(zero, x)
  w = (s32[], SHAPE) while(p), condition=again, body=body
  v = SHAPE get-tuple-element(w), index=1
  near = SHAPE collective-permute(x), {RIGHT}
  ROOT r = (SHAPE, SHAPE, SHAPE) tuple(sum, v, near)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  b = ((SHAPE), (SHAPE, SHAPE, SHAPE), s32[]) async-start(x), calls=rounds
  y = SHAPE collective-permute(x), {LEFT}
  e = (SHAPE, SHAPE, SHAPE) async-done(b)
  ROOT r = ((SHAPE, SHAPE, SHAPE), SHAPE) tuple(e, y)
}}
""",
        lambda xs, d: [total(xs), xs[(d - 3) % DEVICES], left(xs, d), right(xs, d)],
    ),
    Group(
        "control edges to, from and in a group",
        f"""
exchange {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  r = CONTEXT recv(t), channel_id=0, {TO_RIGHT}
  s = CONTEXT send(x, t), channel_id=0, {TO_RIGHT}, control-predecessors={{r}}
  sum = SHAPE all-reduce(x), to_apply=add, control-predecessors={{s}}
  n = SHAPE negate(x), control-predecessors={{sum}}
  ROOT o = (CONTEXT, CONTEXT, SHAPE, SHAPE) tuple(s, r, sum, n)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  y = SHAPE negate(x)
  b = ((SHAPE, token[]), (CONTEXT, CONTEXT, SHAPE, SHAPE), s32[]) async-start(x, t), calls=exchange,
    control-predecessors={{y}}
  z = SHAPE add(x, x), control-predecessors={{b}}
  u = ((SHAPE, token[]), (CONTEXT, CONTEXT, SHAPE, SHAPE), s32[]) async-update(b), control-predecessors={{z}}
  w = SHAPE multiply(x, x), control-predecessors={{u}}
  e = (CONTEXT, CONTEXT, SHAPE, SHAPE) async-done(u), control-predecessors={{w}}
  a = SHAPE all-reduce(x), to_apply=add, control-predecessors={{e}}
  c = CONTEXT get-tuple-element(e), index=1
  v = SHAPE get-tuple-element(c), index=0
  sum = SHAPE get-tuple-element(e), index=2
  n = SHAPE get-tuple-element(e), index=3
  ROOT r = (SHAPE, SHAPE, SHAPE, SHAPE, SHAPE) tuple(v, sum, n, z, a)
}}
""",
        lambda xs, d: [left(xs, d), total(xs), -xs[d], 2 * xs[d], total(xs)],
    ),
    Group(
        "beside members that do the same one by one",
        f"""
chain {{
  x = SHAPE parameter(0)
  t = token[] parameter(1)
  first = SHAPE all-reduce(x), to_apply=add
  n = SHAPE negate(first)
  second = SHAPE all-reduce(n), to_apply=add
  s = CONTEXT send(second, t), channel_id=5, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=5, {TO_RIGHT}
  v = SHAPE get-tuple-element(r), index=0
  ROOT o = (SHAPE, SHAPE) tuple(second, v)
}}
together {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  b = ((SHAPE, token[]), (SHAPE, SHAPE), s32[]) async-start(x, t), calls=chain
  third = SHAPE all-reduce(x), to_apply=add
  s = CONTEXT send(x, t), channel_id=5, {TO_RIGHT}
  r = CONTEXT recv(t), channel_id=5, {TO_RIGHT}
  e = (SHAPE, SHAPE) async-done(b)
  rd = (SHAPE, token[]) recv-done(r), channel_id=5
  sd = token[] send-done(s), channel_id=5
  w = SHAPE get-tuple-element(rd), index=0
  second = SHAPE get-tuple-element(e), index=0
  v = SHAPE get-tuple-element(e), index=1
  ROOT o = (SHAPE, SHAPE, SHAPE, SHAPE) tuple(second, third, v, w)
}}
one_by_one {{
  x = SHAPE parameter(0)
  t = token[] after-all()
  first = SHAPE all-reduce(x), to_apply=add
  n = SHAPE negate(first)
  second = SHAPE all-reduce(n), to_apply=add
  give1 = CONTEXT send(second, t), channel_id=5, {TO_RIGHT}
  take1 = CONTEXT recv(t), channel_id=5, {TO_RIGHT}
  rd1 = (SHAPE, token[]) recv-done(take1), channel_id=5
  sd1 = token[] send-done(give1), channel_id=5
  third = SHAPE all-reduce(x), to_apply=add
  give2 = CONTEXT send(x, t), channel_id=5, {TO_RIGHT}
  take2 = CONTEXT recv(t), channel_id=5, {TO_RIGHT}
  rd2 = (SHAPE, token[]) recv-done(take2), channel_id=5
  sd2 = token[] send-done(give2), channel_id=5
  v = SHAPE get-tuple-element(rd1), index=0
  w = SHAPE get-tuple-element(rd2), index=0
  ROOT o = (SHAPE, SHAPE, SHAPE, SHAPE) tuple(second, third, v, w)
}}
ENTRY main {{
  x = SHAPE parameter(0)
  i = u32[] replica-id()
  one = u32[] constant(1)
  p = pred[] compare(i, one), direction=LE
  ROOT c = (SHAPE, SHAPE, SHAPE, SHAPE) conditional(p, x, x), true_computation=together, false_computation=one_by_one
}}
""",
        lambda xs, d: [-4 * total(xs), total(xs), -4 * total(xs), left(xs, d)],
    ),
]
