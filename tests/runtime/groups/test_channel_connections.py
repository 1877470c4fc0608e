"""Channels between real replicas: one program, several programs, calls that follow one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from distxla.builder.xla_builder import XlaBuilder
from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.runtime.cluster import Cluster
from distxla.text.parser import parse_module
from tests.channel_case import ChannelCase, annotated
from tests.channel_programs import CASES
from tests.joined_channel_programs import CASES as JOINED

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[tuple[int, int], Cluster]]:
    found: dict[tuple[int, int], Cluster] = {}
    yield found
    for cluster in found.values():
        cluster.close()


def cluster_for(clusters: dict[tuple[int, int], Cluster], case: ChannelCase) -> Cluster:
    counts = (case.replicas, case.partitions)
    if counts not in clusters:
        clusters[counts] = Cluster(*counts).start()
    return clusters[counts]


@pytest.mark.sampled(one_in=16)
@pytest.mark.parametrize("case", [case for case in (*CASES, *JOINED) if case.devices < 6], ids=lambda case: case.name)
def test_values_arrive(case: ChannelCase, clusters: dict[tuple[int, int], Cluster]) -> None:
    cluster = cluster_for(clusters, case)
    programs = {devices: cluster.compile(module, devices) for devices, module in case.modules()}
    arguments = {device: case.arguments(device) for device in range(case.devices)}
    for _ in range(3):
        assert not case.wrong(cluster.run(programs, arguments, time_limit=20))


# --- calls that follow one another, and those that fail

X = "(f32[2], u32[], token[])"


def one_way(kind: str, channel: int = 1, shape: str = "f32[2]", fill: str = "x") -> str:
    """A program that sends its argument, or one that receives."""
    context = f"({shape}, u32[], token[])"
    if kind == "send":
        return f"""
ENTRY main {{
  x = {shape} parameter(0)
  t = token[] after-all()
  s = {context} send({fill}, t), channel_id={channel}
  sd = token[] send-done(s), channel_id={channel}
  ROOT z = {shape} copy(x)
}}"""
    return f"""
ENTRY main {{
  t = token[] after-all()
  r = {context} recv(t), channel_id={channel}
  rd = ({shape}, token[]) recv-done(r), channel_id={channel}
  ROOT z = {shape} get-tuple-element(rd), index=0
}}"""


@pytest.fixture(scope="module")
def four(clusters: dict[tuple[int, int], Cluster]) -> Cluster:
    if (4, 1) not in clusters:
        clusters[4, 1] = Cluster(4).start()
    return clusters[4, 1]


def value(device: int) -> np.ndarray[Any, Any]:
    return np.array([device, 10 * device], np.float32)


def test_the_same_program_runs_with_other_partners(four: Cluster) -> None:
    send = {d: four.compile(parse_module(one_way("send")), d) for d in [(0,), (1,), (0, 1)]}
    receive = {d: four.compile(parse_module(one_way("recv")), d) for d in [(2,), (3,), (2, 3), (3, 2)]}
    for sources, targets in (
        ((0,), (2,)),
        ((0,), (3,)),
        ((1,), (2,)),
        ((0, 1), (2, 3)),
        ((0, 1), (3, 2)),
        ((0,), (2,)),
    ):
        programs = {sources: send[sources], targets: receive[targets]}
        outs = four.run(programs, {d: [value(d)] for d in sources}, time_limit=20)
        for source, target in zip(sources, sorted(targets), strict=True):
            assert np.asarray(outs[target][0]).tolist() == value(source).tolist()


def test_what_cannot_be_paired_is_refused_before_it_runs(four: Cluster) -> None:
    send = four.compile(parse_module(one_way("send"), "lone.hlo"), [0])
    with pytest.raises(DeadlockError, match=r"no program of the run has a recv on channel 1") as caught:
        four.run({(0,): send}, {0: [value(0)]})
    assert caught.value.location is not None
    assert str(caught.value.location) == "lone.hlo:5:3"
    three = four.compile(parse_module(one_way("recv", shape="f32[3]"), "three.hlo"), [1])
    with pytest.raises(CollectiveMismatchError, match=r".* is of f32\[2\], .* of f32\[3\]"):
        four.run({(0,): send, (1,): three}, {0: [value(0)]})


MIXED = """
first {
  x = f32[SIZE] parameter(0)
  t = token[] after-all()
  a = (f32[SIZE], u32[], token[]) send(x, t), PAIRS
  ad = token[] send-done(a)
  y = f32[1] slice(x), slice={[0:1]}
  b = (f32[1], u32[], token[]) send(y, t), PAIRS
  bd = token[] send-done(b)
  ROOT z = f32[1] copy(y)
}
second {
  x = f32[SIZE] parameter(0)
  t = token[] after-all()
  b = (f32[1], u32[], token[]) recv(t), PAIRS
  bd = (f32[1], token[]) recv-done(b)
  a = (f32[SIZE], u32[], token[]) recv(t), PAIRS
  ad = (f32[SIZE], token[]) recv-done(a)
  ROOT z = f32[1] get-tuple-element(bd), index=0
}
ENTRY main {
  x = f32[SIZE] parameter(0)
  r = u32[] replica-id()
  i = s32[] convert(r)
  ROOT z = f32[1] conditional(i, x, x), branch_computations={first, second}
}"""


@pytest.mark.parametrize("size", [2, 100_000])
def test_another_type_at_run_time_is_a_mismatch(size: int, clusters: dict[tuple[int, int], Cluster]) -> None:
    cluster = two(clusters)
    text = MIXED.replace("SIZE", str(size)).replace("PAIRS", annotated("{{0,1}}"))
    step = cluster.compile(parse_module(text, "mixed.hlo"))
    for _ in range(2):
        with pytest.raises(CollectiveMismatchError, match=r"a transfer from device 0 to device 1 on") as caught:
            step([[np.zeros(size, np.float32)]] * 2, time_limit=20)
        assert "mixed.hlo:5:3" in str(caught.value)
        assert "mixed.hlo:16:3" in str(caught.value)
        assert f"f32[{size}]" in str(caught.value).splitlines()[0]


def two(clusters: dict[tuple[int, int], Cluster]) -> Cluster:
    if (2, 1) not in clusters:
        clusters[2, 1] = Cluster(2).start()
    return clusters[2, 1]


def test_who_waits_for_whom_is_told(four: Cluster) -> None:
    """Both wait for the other's first value."""
    text = """HloModule waiting, is_scheduled=true
ENTRY main {
  x = f32[2] parameter(0)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), channel_id=IN
  rd = (f32[2], token[]) recv-done(r), channel_id=IN
  s = (f32[2], u32[], token[]) send(x, t), channel_id=OUT
  sd = token[] send-done(s), channel_id=OUT
  ROOT z = f32[2] get-tuple-element(rd), index=0
}"""
    modules = [parse_module(text.replace("IN", a).replace("OUT", b), f"{a}.hlo") for a, b in (("1", "2"), ("2", "1"))]
    programs = {(0,): four.compile(modules[0], [0]), (1,): four.compile(modules[1], [1])}
    for _ in range(2):
        with pytest.raises(DeadlockError) as caught:
            four.run(programs, {d: [value(d)] for d in range(2)}, time_limit=20)
        assert "waits in rd (1.hlo:6:3) for device 1" in str(caught.value)
        assert "waits in rd (2.hlo:6:3) for device 0" in str(caught.value)
    test_the_same_program_runs_with_other_partners(four)


UNFINISHED = """
ENTRY main {
  x = f32[2] parameter(0)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), PAIRS
  s = (f32[2], u32[], token[]) send(x, t), PAIRS
  MORE
  rd = (f32[2], token[]) recv-done(r)
  ROOT z = f32[2] get-tuple-element(rd), index=0
}"""


def test_what_a_call_left_in_flight_is_forgotten(four: Cluster) -> None:
    """A send too many, without its done: the next call begins afresh."""
    pairs = annotated("{{0,1},{1,0}}")
    too_many = f"s2 = {X} send(x, t), {pairs}"
    text = UNFINISHED.replace("PAIRS", pairs)
    left = four.compile(parse_module(text.replace("MORE", too_many)))
    clean = four.compile(parse_module(text.replace("MORE", "sd = token[] send-done(s)")))
    for step in (left, clean, left, left, clean):
        outs = step([[value(d)] for d in range(4)], time_limit=20)
        assert [np.asarray(row[0]).tolist() for row in outs] == [[1, 10], [0, 0], [0, 0], [0, 0]]


def test_a_thousand_calls_take_no_memory(four: Cluster) -> None:
    send = four.compile(parse_module(one_way("send", shape="f32[20000]")), [0])
    receive = four.compile(parse_module(one_way("recv", shape="f32[20000]")), [1])
    programs = {(0,): send, (1,): receive}
    sent = four.put(np.arange(20000, dtype=np.float32), 0)
    top = None
    for round_ in range(1000):
        outs = four.run(programs, {0: [sent]}, time_limit=60)
        if round_ == 10:
            top = four.loader.heap.used  # type: ignore[union-attr]
    assert np.asarray(outs[1][0]).tolist() == list(range(20000))
    assert top is not None
    assert four.loader.heap.used <= top  # type: ignore[union-attr]


def test_builders_programs_run(four: Cluster) -> None:
    """A value is sent, changed, and sent back, by programs that XlaBuilder made."""
    one, other = XlaBuilder("one"), XlaBuilder("other")
    x = one.parameter(0, "f32[2]")
    one.send(x, 7)
    back = one.recv("f32[2]", 8)
    got = other.recv("f32[2]", 7)
    other.send(got * 2.0, 8)
    outs = four.run({(1,): one.build(back), (3,): other.build(got)}, {1: [value(5)]}, time_limit=20)
    assert np.asarray(outs[1][0]).tolist() == (2 * value(5)).tolist()
    assert np.asarray(outs[3][0]).tolist() == value(5).tolist()


def test_a_peer_that_ended_without_sending_is_named(four: Cluster) -> None:
    text = """
give {
  x = f32[2] parameter(0)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1
  sd = token[] send-done(s), channel_id=1
  ROOT z = f32[2] negate(x)
}
keep {
  ROOT x = f32[2] parameter(0)
}
ENTRY main {
  x = f32[2] parameter(0)
  p = pred[] parameter(1)
  ROOT z = f32[2] conditional(p, x, x), true_computation=give, false_computation=keep
}"""
    programs = {
        (0,): four.compile(parse_module(text, "maybe.hlo"), [0]),
        (1,): four.compile(parse_module(one_way("recv"), "taker.hlo"), [1]),
    }
    outs = four.run(programs, {0: [value(0), np.array(True)]}, time_limit=20)
    assert np.asarray(outs[1][0]).tolist() == value(0).tolist()
    with pytest.raises(DeadlockError, match=r"device 1 waits in rd \(taker.hlo:5:3\) for device 0"):
        four.run(programs, {0: [value(0), np.array(False)]}, time_limit=20)
    outs = four.run(programs, {0: [value(0), np.array(True)]}, time_limit=20)
    assert np.asarray(outs[1][0]).tolist() == value(0).tolist()
