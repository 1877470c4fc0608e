"""Asynchronous pairs on real replicas: what stands between start and done overlaps with waiting for the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs, run_reference
from distxla.runtime.cluster import Cluster
from distxla.testing import ClusterPool
from tests.runtime.random_modules import RandomModule

pytestmark = pytest.mark.cluster
DEVICES = 4
ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as opened:
        yield opened


@pytest.fixture(autouse=True)
def registrations_end_with_the_test() -> Iterator[None]:
    from distxla.ops.custom_calls import user

    yield
    user.registered.clear()


def program(*lines: str, operand: str = "x = f32[4] parameter(0)") -> dx.Module:
    body = "\n".join(f"  {line}" for line in (operand, *lines))
    return dx.parse(f"HloModule pairs, replica_count={DEVICES}\n{ADD}ENTRY main {{\n{body}\n}}\n", "pairs.hlo")


def _late(x: Any) -> Any:
    """Wait as long as the first element says, and tell the time."""
    time.sleep(float(x.reshape(-1)[0]))
    return np.full(4, time.monotonic() % 1e6, np.float64)


PAIRS = {
    "all-reduce": ("f32[N]", "all-reduce-start(y), to_apply=add", "f32[N] all-reduce-done(s)"),
    "all-gather": (
        "(f32[N], f32[M])",
        "all-gather-start(y), replica_groups={{0,1,2,3}}, dimensions={0}",
        "f32[M] all-gather-done(s)",
    ),
    "all-to-all": (
        "((f32[N]), f32[N], u32[])",
        "all-to-all-start(y), replica_groups={{0,1,2,3}}, dimensions={0}",
        "f32[N] all-to-all-done(s)",
    ),
    "collective-permute": (
        "(f32[N], f32[N], u32[], u32[])",
        "collective-permute-start(y), source_target_pairs={{0,1},{1,0},{2,3},{3,2}}",
        "f32[N] collective-permute-done(s)",
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [4, 1 << 16])
@pytest.mark.parametrize("name", PAIRS)
def test_a_late_device_stops_nobody_before_the_end(cluster: Cluster, name: str, count: int) -> None:
    """Device 1 comes half a second late. The others compute meanwhile, and end after it has come."""
    dx.register_custom_call("late", _late)
    shape, start, done = (text.replace("N", str(count)).replace("M", str(4 * count)) for text in PAIRS[name])
    module = program(
        "y = f32[N] parameter(1)".replace("N", str(count)),
        'came = f64[4] custom-call(x), custom_call_target="late"',
        f"s = {shape} {start}, control-predecessors={{came}}",
        "zero = f32[4] multiply(x, x), control-predecessors={s}",
        "none = f32[4] subtract(zero, zero)",
        'between = f64[4] custom-call(none), custom_call_target="late"',
        f"d = {done}, control-predecessors={{between}}",
        "nothing = f32[4] add(none, none), control-predecessors={d}",
        'ended = f64[4] custom-call(nothing), custom_call_target="late"',
        f"ROOT r = (f64[4], f64[4], f64[4], {done.split()[0]}) tuple(came, between, ended, d)",
    )
    step = cluster.compile(module)
    arguments = [[np.full(4, 0.5 * (d == 1), np.float32), np.full(count, d, np.float32)] for d in range(DEVICES)]
    step([[x * 0, y] for x, y in arguments])
    outs = [[np.asarray(leaf) for leaf in row] for row in step(arguments)]
    came, between, ended = ([row[k][0] for row in outs] for k in range(3))
    others = [0] if name == "collective-permute" else [0, 2, 3]
    for device in others:
        assert between[device] < came[1] <= ended[device], (device, came, between, ended)
    wanted = run_reference(
        program(
            "y = f32[N] parameter(1)".replace("N", str(count)),
            f"s = {shape} {start}",
            f"ROOT d = {done}",
        ),
        arguments,
        Counts(DEVICES, 1),
    )
    for device in range(DEVICES):
        np.testing.assert_array_equal(outs[device][3], wanted[device][0])


LOOP = """HloModule loop, replica_count=4
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
more {
  t = (s32[], f32[8192], f32[8192]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(30)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  t = (s32[], f32[8192], f32[8192]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[8192] get-tuple-element(t), index=1
  y = f32[8192] get-tuple-element(t), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  quarter = f32[] constant(0.25)
  q = f32[8192] broadcast(quarter), dimensions={}
  s = f32[8192] all-reduce-start(x), to_apply=add
  p = (f32[8192], f32[8192], u32[], u32[]) collective-permute-start(y), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  g = f32[8192] all-reduce(y), to_apply=add
  z = f32[8192] add(x, y)
  FIRST
  SECOND
  m = f32[8192] multiply(d, q)
  h = f32[8192] multiply(g, q)
  k = f32[8192] subtract(z, h)
  l = f32[8192] add(e, k)
  w = f32[8192] multiply(l, q)
  ROOT r = (s32[], f32[8192], f32[8192]) tuple(j, m, w)
}
ENTRY main {
  x = f32[8192] parameter(0)
  y = f32[8192] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[8192], f32[8192]) tuple(zero, x, y)
  ROOT w = (s32[], f32[8192], f32[8192]) while(t), condition=more, body=body
}
"""
DONES = "d = f32[8192] all-reduce-done(s)", "e = f32[8192] collective-permute-done(p)"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_pairs_in_a_loop_around_another_round_of_the_same_group(cluster: Cluster, order: tuple[int, int]) -> None:
    text = LOOP.replace("FIRST", DONES[order[0]]).replace("SECOND", DONES[order[1]])
    module = dx.parse(text, "loop.hlo")
    random = np.random.default_rng(1)
    arguments = [[random.standard_normal(8192).astype(np.float32) for _ in range(2)] for _ in range(DEVICES)]
    wanted = run_reference(module, arguments, Counts(DEVICES, 1))
    outs = cluster.compile(module)(arguments)
    for got, want in zip(outs, wanted, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("count", [4, 1 << 15])
def test_programs_with_pairs_meet_programs_without(cluster: Cluster, name: str, count: int) -> None:
    shape, start, done = (text.replace("N", str(count)).replace("M", str(4 * count)) for text in PAIRS[name])
    operand = f"y = f32[{count}] parameter(0)"
    pair = program(f"s = {shape} {start}", "n = f32[] constant(1)", f"ROOT d = {done}", operand=operand)
    single = program(f"ROOT d = {done.split()[0]} {start.replace('-start', '')}", operand=operand)
    programs = {0: pair, 1: single, 2: pair, 3: single}
    arguments = {d: [np.arange(count, dtype=np.float32) * d] for d in range(DEVICES)}
    wanted = run_programs(programs, arguments, Counts(DEVICES, 1))
    outs = cluster.run({range(0, 3, 2): pair, range(1, 4, 2): single}, arguments)
    for device in range(DEVICES):
        np.testing.assert_array_equal(np.asarray(outs[device][0]), wanted[device][0])


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("seed", range(300, 304))
def test_random_modules(cluster: Cluster, seed: int) -> None:
    made = RandomModule(seed, DEVICES, pairs=True)
    module = dx.parse(made.text, f"random{seed}.hlo")
    random = np.random.default_rng(seed)
    sizes = {"s32[4]": (4,), "s32[8]": (8,), "s32[]": ()}
    arguments = [
        [random.integers(-9, 9, sizes[kind]).astype(np.int32) for kind in made.parameters] for _ in range(DEVICES)
    ]
    wanted = run_reference(module, arguments, Counts(DEVICES, 1))
    outs = cluster.compile(module)(arguments)
    for got, want in zip(outs, wanted, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


def branching(other: str) -> dx.Module:
    """Devices whose parameter holds begin and end an all-reduce, the rest does something else."""
    return dx.parse(
        f"""HloModule branching, replica_count={DEVICES}
{ADD}pair {{
  x = f32[4] parameter(0)
  s = f32[4] all-reduce-start(x), to_apply=add
  ROOT d = f32[4] all-reduce-done(s)
}}
other {{
  x = f32[4] parameter(0)
  {other}
}}
ENTRY main {{
  p = pred[] parameter(0)
  x = f32[4] parameter(1)
  ROOT c = f32[4] conditional(p, x, x), true_computation=pair, false_computation=other
}}
""",
        "branching.hlo",
    )


def test_reports_name_the_done_and_the_cluster_goes_on(cluster: Cluster) -> None:
    step = cluster.compile(branching("ROOT n = f32[4] negate(x)"))
    arguments = [[np.array(d < 3), np.ones(4, np.float32)] for d in range(DEVICES)]
    with pytest.raises(dx.DistxlaError, match=r"device 0 waits in d \(branching\.hlo:10:8\)"):
        step(arguments, time_limit=1)
    outs = step([[np.array(True), x] for _, x in arguments])
    np.testing.assert_array_equal(np.asarray(outs[3][0]), np.full(4, 4, np.float32))


@pytest.mark.parametrize("name", ["all-reduce", "all-reduce-start"])
def test_starts_do_not_match_what_is_different(cluster: Cluster, name: str) -> None:
    reduced = f"f32[8] {name}(p), to_apply=add"
    lines = [f"g = {reduced}"] if name == "all-reduce" else [f"h = {reduced}", "g = f32[8] all-reduce-done(h)"]
    module = branching(
        "\n  ".join(["z = f32[] constant(0)", "p = f32[8] pad(x, z), padding=0_4", *lines])
        + "\n  ROOT n = f32[4] slice(g), slice={[0:4]}"
    )
    step = cluster.compile(module)
    arguments = [[np.array(d < 2), np.ones(4, np.float32)] for d in range(DEVICES)]
    with pytest.raises(dx.CollectiveMismatchError, match=r"branching\.hlo:9:3"):
        step(arguments, time_limit=20)
    with pytest.raises(dx.CollectiveMismatchError, match=r"branching\.hlo:9:3"):
        run_reference(module, arguments, Counts(DEVICES, 1))


CROSSED = f"""HloModule crossed, replica_count={DEVICES}
{ADD}one {{
  x = f32[4] parameter(0)
  ONE
}}
other {{
  x = f32[4] parameter(0)
  OTHER
}}
ENTRY main {{
  p = pred[] parameter(0)
  x = f32[4] parameter(1)
  ROOT c = (f32[4], f32[4]) conditional(p, x, x), true_computation=one, false_computation=other
}}
"""
UP, DOWN = "replica_groups={{0,1,2,3}}, to_apply=add", "replica_groups={{3,2,1,0}}, to_apply=add"


def test_groups_may_be_entered_in_any_order_where_nobody_waits(cluster: Cluster) -> None:
    """What is a deadlock with whole collectives is none with pairs, compiled and in the reference."""
    arguments = [[np.array(d < 2), np.full(4, d, np.float32)] for d in range(DEVICES)]
    up, down = f"s = f32[4] all-reduce-start(x), {UP}", f"t = f32[4] all-reduce-start(x), {DOWN}"
    ends = ["d = f32[4] all-reduce-done(s)", "e = f32[4] all-reduce-done(t)"]
    root = "ROOT r = (f32[4], f32[4]) tuple(d, e)"
    text = CROSSED.replace("ONE", "\n  ".join([up, down, *ends, root]))
    module = dx.parse(text.replace("OTHER", "\n  ".join([down, up, *ends, root])))
    outs = cluster.compile(module)(arguments, time_limit=20)
    wanted = run_reference(module, arguments, Counts(DEVICES, 1))
    for got, want in zip(outs, wanted, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.full(4, 6, np.float32))
            np.testing.assert_array_equal(b, np.full(4, 6, np.float32))  # type: ignore[arg-type]
    up, down = f"d = f32[4] all-reduce(x), {UP}", f"e = f32[4] all-reduce(x), {DOWN}"
    text = CROSSED.replace("ONE", "\n  ".join([up, down, root])).replace("OTHER", "\n  ".join([down, up, root]))
    module = dx.parse(text)
    with pytest.raises(dx.DistxlaError):
        cluster.compile(module)(arguments, time_limit=20)
    with pytest.raises(dx.DistxlaError):
        run_reference(module, arguments, Counts(DEVICES, 1))
