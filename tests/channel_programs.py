"""Programs with channels and what they must give, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.channel_case import ChannelCase, annotated, chain, mine, permute, ring


def shifted(size: int, *, count: int, closed: bool) -> Callable[[int], list[Any]]:
    def results(device: int) -> list[Any]:
        return [mine((device - 1) % count, size) if device or closed else np.zeros(size, np.float32)]

    return results


def _permute_case(
    name: str, size: int, pairs: str, *, closed: bool, count: int, channel: str = "channel_id=0"
) -> ChannelCase:
    text = f"""
ENTRY main {{
  x = f32[{size}] parameter(0){permute("y", "x", f"f32[{size}]", pairs, channel)}
  ROOT z = f32[{size}] copy(y)
}}"""
    every = range(count)
    return ChannelCase(name, ((every, text),), lambda d: [mine(d, size)], shifted(size, count=count, closed=closed),
                       replicas=count)  # fmt: skip


def _counted_ring(steps: int, size: int = 1) -> str:
    """Every device passes on what it got, `steps` times."""
    shape = f"f32[{size}]"
    return f"""
body {{
  p = (s32[], {shape}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = {shape} get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one){permute("w", "v", shape, "PAIRS")}
  ROOT q = (s32[], {shape}) tuple(j, w)
}}
more {{
  p = (s32[], {shape}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({steps})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = {shape} parameter(0)
  zero = s32[] constant(0)
  p = (s32[], {shape}) tuple(zero, x)
  w = (s32[], {shape}) while(p), condition=more, body=body
  ROOT r = {shape} get-tuple-element(w), index=1
}}"""


def counted_ring(count: int, steps: int, size: int = 1) -> ChannelCase:
    return ChannelCase(
        f"counted_ring_{count}_{steps}_{size}",
        ((range(count), _counted_ring(steps, size).replace("PAIRS", ring(count))),),
        lambda d: [mine(d, size)],
        lambda d: [mine((d - steps) % count, size)],
        replicas=count,
    )


def pipelined_text(count: int, steps: int, size: int, pairs: str, **others: str) -> str:
    """Transfers begun in one iteration end in the next: contexts travel through the loop's state.

    State: i, v, sum, contexts of the recv and the send.  Iteration: end the transfer, sum += received, begin another.
    """
    shape = f"f32[{size}]"
    context = f"({shape}, u32[], token[])"
    state = f"(s32[], {shape}, {shape}, {context}, {context})"
    rest = f"channel_id=0, {annotated(pairs, **others)}"
    return f"""
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = {shape} get-tuple-element(p), index=1
  sum = {shape} get-tuple-element(p), index=2
  rc = {context} get-tuple-element(p), index=3
  sc = {context} get-tuple-element(p), index=4
  rd = ({shape}, token[]) recv-done(rc), channel_id=0
  sd = token[] send-done(sc), channel_id=0
  got = {shape} get-tuple-element(rd), index=0
  next = {shape} add(sum, got)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  two = f32[] constant(2)
  twos = {shape} broadcast(two), dimensions={{}}
  w = {shape} multiply(v, twos)
  t = token[] after-all()
  r = {context} recv(t), {rest}
  s = {context} send(w, t), {rest}, control-predecessors={{r}}
  ROOT q = {state} tuple(j, w, next, r, s)
}}
more {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({steps})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = {shape} parameter(0)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  nones = {shape} broadcast(none), dimensions={{}}
  t = token[] after-all()
  r = {context} recv(t), {rest}
  s = {context} send(x, t), {rest}, control-predecessors={{r}}
  p = {state} tuple(zero, x, nones, r, s)
  w = {state} while(p), condition=more, body=body
  sum = {shape} get-tuple-element(w), index=2
  rc = {context} get-tuple-element(w), index=3
  sc = {context} get-tuple-element(w), index=4
  rd = ({shape}, token[]) recv-done(rc), channel_id=0
  sd = token[] send-done(sc), channel_id=0
  got = {shape} get-tuple-element(rd), index=0
  ROOT all = ({shape}, {shape}) tuple(sum, got)
}}"""


def pipelined(count: int, steps: int, size: int, *, closed: bool = True) -> ChannelCase:
    def results(device: int) -> list[Any]:
        source = mine((device - 1) % count, size) if device or closed else np.zeros(size, np.float32)
        total = np.zeros(size, np.float32)
        for k in range(steps):
            total = total + source * np.float32(2**k)
        return [total, source * np.float32(2**steps)]

    text = pipelined_text(count, steps, size, ring(count) if closed else chain(count))
    name = f"pipelined_{count}_{steps}_{size}" + ("" if closed else "_open")
    return ChannelCase(name, ((range(count), text),), lambda d: [mine(d, size)], results, replicas=count)


def _bounds_case() -> ChannelCase:
    """A loop of 4 iterations in which pair {0,1} transfers in 0 to 1, pair {1,2} in 1 to 3, pair {2,0} never."""
    bounds = "{{0,1},{1,3},{7,9}}"
    shape = "f32[1]"
    text = f"""
body {{
  p = (s32[], {shape}, f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = {shape} get-tuple-element(p), index=1
  seen = f32[4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ones = {shape} constant({{1}})
  w = {shape} add(v, ones){permute("y", "v", shape, "{{0,1},{1,2},{2,0}}", validation=bounds)}
  now = f32[4] dynamic-update-slice(seen, y, i)
  ROOT q = (s32[], {shape}, f32[4]) tuple(j, w, now)
}}
more {{
  p = (s32[], {shape}, f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = {shape} parameter(0)
  zero = s32[] constant(0)
  seen = f32[4] constant({{-1,-1,-1,-1}})
  p = (s32[], {shape}, f32[4]) tuple(zero, x, seen)
  w = (s32[], {shape}, f32[4]) while(p), condition=more, body=body
  ROOT r = f32[4] get-tuple-element(w), index=2
}}"""
    want = {0: [0, 0, 0, 0], 1: [5, 6, 0, 0], 2: [0, 1006, 1007, 1008]}
    return ChannelCase("bounds", ((range(3), text),), lambda d: [np.array([1000 * d + 5], np.float32)],
                       lambda d: [np.array(want[d], np.float32)], replicas=3)  # fmt: skip


def _streams_case() -> ChannelCase:
    """Two chains on one channel in opposite orders at both ends, each on a stream of its own."""
    shape = "s32[2]"
    text = f"""
ENTRY main {{
  x = {shape} parameter(0)
  y = {shape} negate(x)
  t = token[] after-all()
  a.r = ({shape}, u32[], token[]) recv(t), channel_id=0, {annotated("{{0,1}}")}
  b.r = ({shape}, u32[], token[]) recv(t), channel_id=0, {annotated("{{0,1}}", pipeline="1")}
  b.s = ({shape}, u32[], token[]) send(y, t), channel_id=0, {annotated("{{0,1}}", pipeline="1")}
  a.s = ({shape}, u32[], token[]) send(x, t), channel_id=0, {annotated("{{0,1}}")}
  a.rd = ({shape}, token[]) recv-done(a.r), channel_id=0
  b.rd = ({shape}, token[]) recv-done(b.r), channel_id=0
  a.sd = token[] send-done(a.s), channel_id=0
  b.sd = token[] send-done(b.s), channel_id=0
  a = {shape} get-tuple-element(a.rd), index=0
  b = {shape} get-tuple-element(b.rd), index=0
  ROOT r = ({shape}, {shape}) tuple(a, b)
}}"""
    sent = np.array([3, -4], np.int32)
    return ChannelCase("streams", ((range(2), text),), lambda d: [sent],
                       lambda d: [sent, -sent] if d else [0 * sent, 0 * sent], replicas=2)  # fmt: skip


def _order_case(size: int) -> ChannelCase:
    """Three values on one channel, whose dones stand in another order at both ends."""
    shape = f"f32[{size}]"
    lines = []
    for k in range(3):
        lines.append(f"r{k} = ({shape}, u32[], token[]) recv(t), {annotated('{{0,1},{1,0}}')}")
    for k in range(3):
        lines.append(f"m{k} = f32[] constant({k + 1})")
        lines.append(f"n{k} = {shape} broadcast(m{k}), dimensions={{}}")
        lines.append(f"x{k} = {shape} multiply(x, n{k})")
        lines.append(f"s{k} = ({shape}, u32[], token[]) send(x{k}, t), {annotated('{{0,1},{1,0}}')}")
    for k in (2, 0, 1):
        lines.append(f"rd{k} = ({shape}, token[]) recv-done(r{k})")
        lines.append(f"y{k} = {shape} get-tuple-element(rd{k}), index=0")
    for k in (1, 2, 0):
        lines.append(f"sd{k} = token[] send-done(s{k})")
    body = "\n  ".join(lines)
    text = f"""
ENTRY main {{
  x = {shape} parameter(0)
  t = token[] after-all()
  {body}
  ROOT r = ({shape}, {shape}, {shape}) tuple(y0, y1, y2)
}}"""
    return ChannelCase(f"order_{size}", ((range(2), text),), lambda d: [mine(d, size)],
                       lambda d: [mine(1 - d, size) * np.float32(k + 1) for k in range(3)], replicas=2)  # fmt: skip


def _tuple_case() -> ChannelCase:
    """A tuple within a tuple, an empty array and small types as what is sent."""
    shape = "(f32[3], (bf16[2], pred[2]), s8[0,4], c64[])"
    text = f"""
ENTRY main {{
  a = f32[3] parameter(0)
  b = bf16[2] constant({{1.5, -2}})
  c = pred[2] constant({{true, false}})
  d = s8[0,4] constant({{}})
  e = c64[] constant((1, -2))
  bc = (bf16[2], pred[2]) tuple(b, c)
  x = {shape} tuple(a, bc, d, e){permute("y", "x", shape, "{{1,0}}", "")}
  y0 = f32[3] get-tuple-element(y), index=0
  y1 = (bf16[2], pred[2]) get-tuple-element(y), index=1
  y10 = bf16[2] get-tuple-element(y1), index=0
  y100 = f32[2] convert(y10)
  y11 = pred[2] get-tuple-element(y1), index=1
  y2 = s8[0,4] get-tuple-element(y), index=2
  y3 = c64[] get-tuple-element(y), index=3
  ROOT r = (f32[3], f32[2], pred[2], s8[0,4], c64[]) tuple(y0, y100, y11, y2, y3)
}}"""
    one = np.array([1, 2, 3], np.float32)

    def results(device: int) -> list[Any]:
        got = not device
        halves = np.array([1.5, -2] if got else [0, 0], np.float32)
        empty, last = np.zeros((0, 4), np.int8), np.complex64((1 - 2j) if got else 0)
        return [one * np.float32(2 * got), halves, np.array([got, False]), empty, last]

    return ChannelCase("tuple", ((range(2), text),), lambda d: [one * (d + 1)], results, replicas=2)


def _travelling_case(size: int) -> ChannelCase:
    """Contexts that go through a tuple, a call and a conditional before they end."""
    shape = f"f32[{size}]"
    context = f"({shape}, u32[], token[])"
    text = f"""
finish {{
  p = ({context}, {context}) parameter(0)
  rc = {context} get-tuple-element(p), index=0
  sc = {context} get-tuple-element(p), index=1
  sd = token[] send-done(sc)
  rd = ({shape}, token[]) recv-done(rc)
  ROOT v = {shape} get-tuple-element(rd), index=0
}}
other {{
  p = ({context}, {context}) parameter(0)
  rc = {context} get-tuple-element(p), index=0
  sc = {context} get-tuple-element(p), index=1
  rd = ({shape}, token[]) recv-done(rc)
  sd = token[] send-done(sc)
  v = {shape} get-tuple-element(rd), index=0
  ROOT n = {shape} negate(v)
}}
start {{
  x = {shape} parameter(0)
  t = token[] after-all()
  s = {context} send(x, t), {annotated("{{0,1},{1,0}}")}
  r = {context} recv(t), {annotated("{{0,1},{1,0}}")}
  ROOT q = ({context}, {context}) tuple(r, s)
}}
ENTRY main {{
  x = {shape} parameter(0)
  which = pred[] parameter(1)
  begun = ({context}, {context}) call(x), to_apply=start
  over = {shape} negate(x)
  ROOT r = {shape} conditional(which, begun, begun), true_computation=finish, false_computation=other
}}"""
    return ChannelCase(f"travelling_{size}", ((range(2), text),), lambda d: [mine(d, size), np.array(d == 0)],
                       lambda d: [mine(1, size) if d == 0 else -mine(0, size)], replicas=2)  # fmt: skip


def producer_consumer(size: int = 3, steps: int = 5, devices: int = 2) -> ChannelCase:
    """A producer sends i * x in a loop, a consumer sums; then the sum goes back. Different programs."""
    shape = f"f32[{size}]"
    loop = """
more {
  p = (s32[], SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(STEPS)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = SHAPE get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  t = token[] after-all()
  BODY
  ROOT q = (s32[], SHAPE) tuple(j, w)
}
"""
    send = """f = f32[] convert(i)
  fs = SHAPE broadcast(f), dimensions={}
  x = SHAPE multiply(v, fs)
  s = (SHAPE, u32[], token[]) send(x, t), channel_id=1
  sd = token[] send-done(s), channel_id=1
  w = SHAPE copy(v)"""
    recv = """r = (SHAPE, u32[], token[]) recv(t), channel_id=1
  rd = (SHAPE, token[]) recv-done(r), channel_id=1
  x = SHAPE get-tuple-element(rd), index=0
  w = SHAPE add(v, x)"""
    entry = """ENTRY main {
  x = SHAPE parameter(0)
  zero = s32[] constant(0)
  p = (s32[], SHAPE) tuple(zero, x)
  w = (s32[], SHAPE) while(p), condition=more, body=body
  v = SHAPE get-tuple-element(w), index=1
  t = token[] after-all()
  END
}"""
    back = """r = (SHAPE, u32[], token[]) recv(t), channel_id=2
  rd = (SHAPE, token[]) recv-done(r), channel_id=2
  ROOT y = SHAPE get-tuple-element(rd), index=0"""
    give = """s = (SHAPE, u32[], token[]) send(v, t), channel_id=2
  sd = token[] send-done(s), channel_id=2
  ROOT y = SHAPE copy(v)"""
    texts = []
    for body, ending in ((send, back), (recv, give)):
        text = loop.replace("BODY", body) + entry.replace("END", ending)
        texts.append(text.replace("SHAPE", shape).replace("STEPS", str(steps)))
    factor = np.float32(sum(range(steps)))

    def results(device: int) -> list[Any]:
        return [mine(device % devices, size) * factor + mine(device % devices + devices, size)]

    return ChannelCase(
        f"producer_consumer_{size}_{steps}_{devices}",
        ((range(devices), texts[0]), (range(devices, 2 * devices), texts[1])),
        lambda d: [mine(d, size)],
        results,
        replicas=2 * devices,
    )


def _called_twice() -> ChannelCase:
    """One send and one recv, each in a computation that is called twice."""
    give = """
give {
  x = f32[3] parameter(0)
  t = token[] after-all()
  s = (f32[3], u32[], token[]) send(x, t), channel_id=4
  sd = token[] send-done(s), channel_id=4
  ROOT n = f32[3] negate(x)
}
ENTRY main {
  x = f32[3] parameter(0)
  a = f32[3] call(x), to_apply=give
  ROOT b = f32[3] call(a), to_apply=give
}"""
    take = """
take {
  x = f32[3] parameter(0)
  t = token[] after-all()
  r = (f32[3], u32[], token[]) recv(t), channel_id=4
  rd = (f32[3], token[]) recv-done(r), channel_id=4
  v = f32[3] get-tuple-element(rd), index=0
  two = f32[] constant(2)
  twos = f32[3] broadcast(two), dimensions={}
  y = f32[3] multiply(x, twos)
  ROOT z = f32[3] add(y, v)
}
ENTRY main {
  x = f32[3] parameter(0)
  a = f32[3] call(x), to_apply=take
  ROOT b = f32[3] call(a), to_apply=take
}"""

    def results(device: int) -> list[Any]:
        x = mine(device, 3)
        return [x] if device == 0 else [(x * np.float32(2) + mine(0, 3)) * np.float32(2) - mine(0, 3)]

    return ChannelCase("called_twice", (((0,), give), ((1,), take)), lambda d: [mine(d, 3)], results, replicas=2)


def _gathered_case(size: int) -> ChannelCase:
    """What is sent lies where all members of a group have it in common; what is received is gathered again."""
    text = f"""
ENTRY main {{
  x = f32[{size}] parameter(0)
  a = f32[{2 * size}] all-gather(x), dimensions={{0}}{permute("y", "a", f"f32[{2 * size}]", ring(2))}
  b = f32[{size}] slice(y), slice={{[0:{size}]}}
  c = f32[{size}] negate(b)
  d = f32[{2 * size}] all-gather(c), dimensions={{0}}{permute("z", "d", f"f32[{2 * size}]", ring(2))}
  ROOT r = (f32[{2 * size}], f32[{2 * size}]) tuple(y, z)
}}"""
    both = np.concatenate([mine(0, size), mine(1, size)])
    again = np.concatenate([-mine(0, size)] * 2)
    return ChannelCase(f"gathered_{size}", ((range(2), text),), lambda d: [mine(d, size)],
                       lambda d: [both, again], replicas=2)  # fmt: skip


def _partition_case() -> ChannelCase:
    """channel_id=5: partitions, for each replica."""
    text = f"""
ENTRY main {{
  x = f32[2] parameter(0){permute("y", "x", "f32[2]", "{{0,2},{2,1}}", "channel_id=5")}
  ROOT z = f32[2] copy(y)
}}"""
    sources = {1: 2, 2: 0}

    def results(device: int) -> list[Any]:
        replica, partition = divmod(device, 3)
        found = sources.get(partition)
        return [np.zeros(2, np.float32) if found is None else mine(3 * replica + found, 2)]

    return ChannelCase("partitions", ((range(6), text),), lambda d: [mine(d, 2)], results, replicas=2, partitions=3)


def _never_case() -> ChannelCase:
    text = f"""
ENTRY main {{
  x = f32[2] parameter(0){permute("y", "x", "f32[2]", "{{0,1},{1,0}}", validation="invalid")}
  ROOT z = f32[2] copy(y)
}}"""
    return ChannelCase(
        "never", ((range(2), text),), lambda d: [mine(d, 2)], lambda d: [np.zeros(2, np.float32)], replicas=2
    )


LARGE = 100_000  # elements: more than travels in a message

CASES = [
    _permute_case("ring_of_8", 4, ring(8), closed=True, count=8),
    _permute_case("chain", 4, chain(4), closed=False, count=4, channel=""),
    _permute_case("large_ring", LARGE, ring(3), closed=True, count=3),
    _permute_case("large_chain", LARGE, chain(3), closed=False, count=3),
    _partition_case(),
    _never_case(),
    counted_ring(4, 50),
    counted_ring(3, 4, LARGE),
    pipelined(3, 4, 5),
    pipelined(2, 3, LARGE),
    pipelined(3, 2, 7, closed=False),
    _bounds_case(),
    _streams_case(),
    _order_case(3),
    _order_case(LARGE),
    _tuple_case(),
    _travelling_case(3),
    _travelling_case(LARGE),
    _gathered_case(20_000),
    _called_twice(),
    producer_consumer(),
    producer_consumer(LARGE, 4, 1),
]
