"""Sends and recvs between devices on several Ray nodes: the same values as on one host, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs
from distxla.runtime.cluster import Cluster

pytestmark = pytest.mark.cluster

LOOP = """HloModule loop
more {
  p = (s32[], SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(20)
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
  w = SHAPE get-tuple-element(rd), index=0
  u = SHAPE multiply(w, w)
  h = f32[] constant(0.5)
  b = SHAPE broadcast(h), dimensions={}
  x = SHAPE add(u, b)
  ROOT q = (s32[], SHAPE) tuple(j, x)
}
ENTRY main {
  x = SHAPE parameter(0)
  zero = s32[] constant(0)
  p = (s32[], SHAPE) tuple(zero, x)
  w = (s32[], SHAPE) while(p), condition=more, body=body
  ROOT r = SHAPE get-tuple-element(w), index=1
}"""
PING = """s = (SHAPE, u32[], token[]) send(v, t), channel_id=1
  sd = token[] send-done(s), channel_id=1
  r = (SHAPE, u32[], token[]) recv(sd), channel_id=2
  rd = (SHAPE, token[]) recv-done(r), channel_id=2"""
PONG = """r = (SHAPE, u32[], token[]) recv(t), channel_id=1
  rd = (SHAPE, token[]) recv-done(r), channel_id=1
  t1 = token[] get-tuple-element(rd), index=1
  s = (SHAPE, u32[], token[]) send(v, t1), channel_id=2
  sd = token[] send-done(s), channel_id=2"""
PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,3},{3,0}}"}'
AROUND = f"""r = (SHAPE, u32[], token[]) recv(t), channel_id=1, {PAIRS}
  s = (SHAPE, u32[], token[]) send(v, t), channel_id=1, {PAIRS}
  rd = (SHAPE, token[]) recv-done(r), channel_id=1
  sd = token[] send-done(s), channel_id=1"""
SIZES = [1, 5000, 300_000]  # eager, eager, through a bounce buffer


def text(body: str, size: int) -> str:
    return LOOP.replace("BODY", body).replace("SHAPE", f"f32[{size}]")


@pytest.fixture(
    scope="module",
    params=[pytest.param(counts, marks=pytest.mark.exhaustive) for counts in ([4], [2, 2])] + [[1, 2, 1]],
    ids=str,
)
def cluster(address: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """On one host, on two or on three."""
    with dx.Cluster(partitions=4, address=address, devices_per_host=request.param) as opened:
        opened.wait_started()
        yield opened


def expected(programs: dict[int, dx.Module], args: dict[int, list[np.ndarray]]) -> list[bytes]:
    """Bytes of the reference's results, by device."""
    outs = run_programs(programs, args, Counts(1, 4))
    return [np.asarray(outs[device][0]).tobytes() for device in sorted(outs)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES)
def test_round_a_ring(cluster: Cluster, size: int) -> None:
    args = [[np.random.default_rng(d).uniform(-0.5, 0.5, size).astype(np.float32)] for d in range(4)]
    module = dx.parse(text(AROUND, size))
    step = cluster.compile(module)
    for _ in range(2):
        outs = step(args, time_limit=60)
        wanted = expected(dict.fromkeys(range(4), module), dict(enumerate(args)))
        assert [np.asarray(row[0]).tobytes() for row in outs] == wanted


@pytest.mark.sampled(one_in=3, first=("[1, 2, 1]-1",))
@pytest.mark.parametrize("size", SIZES)
def test_between_two_programs(cluster: Cluster, size: int) -> None:
    programs = {0: dx.parse(text(PING, size)), 3: dx.parse(text(PONG, size))}
    args = {d: [np.random.default_rng(d).uniform(-0.5, 0.5, size).astype(np.float32)] for d in (0, 3)}
    outs = cluster.run(programs, args, time_limit=60)
    assert [np.asarray(outs[d][0]).tobytes() for d in (0, 3)] == expected(programs, args)


NEVER_TAKEN = """HloModule never
yes {
  p = (f32[4], u32[], token[]) parameter(0)
  d = (f32[4], token[]) recv-done(p), channel_id=1
  ROOT r = f32[4] get-tuple-element(d), index=0
}
no {
  p = (f32[4], u32[], token[]) parameter(0)
  c = f32[] constant(7)
  ROOT r = f32[4] broadcast(c), dimensions={}
}
ENTRY main {
  x = f32[4] parameter(0)
  wanted = pred[] parameter(1)
  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id=1, PAIRS
  q = (f32[4], u32[], token[]) recv(t), channel_id=1, PAIRS
  e = token[] send-done(s), channel_id=1, control-predecessors={q}
  ROOT r = f32[4] conditional(wanted, q, q), true_computation=yes, false_computation=no, control-predecessors={e}
}"""


@pytest.mark.exhaustive
def test_what_a_call_leaves_in_flight_ends_with_it(cluster: Cluster) -> None:
    """More often than a channel has places, and between devices that are not on the driver's host."""
    module = NEVER_TAKEN.replace("PAIRS", PAIRS.replace("{0,1},{1,2},{2,3},{3,0}", "{2,3}"))
    given = [np.full(4, 10 + device, np.float32) for device in range(4)]
    step = cluster.compile(dx.parse(module))
    for wanted in (True, *(False,) * 10, True):
        results = step([[x, np.bool_(wanted)] for x in given], time_limit=30)
        assert [np.asarray(row[0]).tolist() for row in results] == (
            [[0.0] * 4] * 3 + [[12.0] * 4] if wanted else [[7.0] * 4] * 4
        )
