"""Devices that can never go on: found within a second, reported in full, and the cluster can be used again."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.verify.world import verify_world
from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs
from distxla.runtime.failures import stragglers
from tests.channel_case import annotated
from tests.deadlock_programs import (
    BY_INFEED,
    FIVE,
    GOT,
    STEP,
    SUM,
    alone,
    by_device,
    looped,
    recv,
    recv_done,
    reduce,
    send,
    send_done,
)
from tests.diagnosis.golden import CASES, NAMED, check_run, evaluated, golden
from tests.runtime.failures.deadlocks_cases import SECONDS, X, run
from tests.stopwatch import Stopwatch


class Clusters:
    """One cluster at a time, of as many replicas as are asked for."""

    def __init__(self) -> None:
        self._open: dx.Cluster | None = None
        self._count = 0

    def of(self, count: int) -> dx.Cluster:
        if self._count != count:
            self.close()
            self._open, self._count = dx.Cluster(replicas=count).__enter__(), count
            self._open.wait_started()
        assert self._open is not None
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open, self._count = None, 0


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    found = Clusters()
    yield found
    found.close()


def by_size(*, deadlocks: bool) -> list[str]:
    """Names of cases; those that share a cluster one after the other."""
    return [case.name for case in sorted(CASES, key=lambda case: case.replicas) if case.deadlocks is deadlocks]


@pytest.mark.cluster
@pytest.mark.sampled(one_in=20)
@pytest.mark.parametrize("name", by_size(deadlocks=True))
def test_what_can_never_go_on(clusters: Clusters, name: str) -> None:
    """In a call behind others: rounds are counted from its begin."""
    case = NAMED[name]
    cluster = clusters.of(case.replicas)
    pids = [place[2] for place in cluster.replicas_info]
    before = cluster.compile(dx.parse(looped(STEP, FIVE), "before.hlo"))
    before([X], repeat=2)
    error, watch = run(case, cluster)
    assert isinstance(error, DeadlockError), error
    assert watch.seconds < SECONDS
    assert error.exit_status == 3
    assert error.diagnosis is not None
    check_run(name, error.diagnosis, by_chance=True)
    assert str(error).splitlines()[0] == f"{error.location}: {golden(name)['text'][0]}"
    assert str(error).endswith(error.diagnosis.text())
    found = json.loads(json.dumps(error.diagnosis.as_json()))
    assert len(found["devices"]) == case.replicas
    assert [place[2] for place in cluster.replicas_info] == pids  # nobody was killed


UNMATCHED = {
    "a send alone": (
        DeadlockError,
        alone(f"{send('s', 1, '{{0,1}}')}\n{send_done('sd', 's', 1)}\nROOT r = f32[4] copy(x)"),
    ),
    "a recv alone": (DeadlockError, alone(f"{recv('c', 1, '{{0,1}}')}\n{recv_done('rd', 'c', 1)}\n{GOT}")),
    "a send and a recv of other pairs": (
        DeadlockError,
        alone(
            f"{send('s', 1, '{{0,1}}')}\n{recv('c', 1, '{{1,0}}')}\n{send_done('sd', 's', 1)}\n"
            f"{recv_done('rd', 'c', 1)}\n{GOT}"
        ),
    ),
    "a send and a recv of other shapes": (
        CollectiveMismatchError,
        alone(
            f"{send('s', 1, '{{0,1}}')}\n{recv('c', 2, '{{0,1}}').replace('f32[4]', 'f32[2]')}\n"
            f"{send_done('sd', 's', 1)}\n{recv_done('rd', 'c', 2).replace('f32[4]', 'f32[2]')}\nROOT r = f32[4] copy(x)"
        ),
    ),
}


@pytest.mark.sampled(one_in=2)
@pytest.mark.cluster
@pytest.mark.parametrize("name", UNMATCHED)
def test_what_has_no_counterpart_is_refused_everywhere(clusters: Clusters, name: str) -> None:
    """By check, the reference and the cluster with the same error."""
    kind, text = UNMATCHED[name]
    module = dx.parse(text, "a.hlo")
    texts = []
    for execute in (
        lambda: verify_world([(range(2), module)], Counts(2, 1)),
        lambda: run_programs({0: module, 1: module}, {0: [X], 1: [X]}, Counts(2, 1)),
        lambda: clusters.of(2).compile(module)([[X], [X]], time_limit=20),
    ):
        with pytest.raises(DeadlockError) as caught:
            execute()
        assert type(caught.value) is kind
        texts.append(str(caught.value).splitlines()[0])
    assert len(set(texts)) == 1, texts


@pytest.mark.cluster
@pytest.mark.sampled(one_in=16)
@pytest.mark.parametrize("name", by_size(deadlocks=False))
def test_harmless_neighbours(clusters: Clusters, name: str) -> None:
    """On clusters that have seen deadlocks, too."""
    case = NAMED[name]
    cluster = clusters.of(case.replicas)
    done, _ = run(case, cluster)
    assert not isinstance(done, Exception), done
    wanted = evaluated(case)
    for device, row in wanted.items():
        assert np.array_equal(np.asarray(done[device][0]), row[0])


@pytest.mark.cluster
def test_a_cluster_is_used_again_and_again(clusters: Clusters) -> None:
    cluster = clusters.of(2)
    for _ in range(3):
        for name in ("ring_2", "posted_early", "loops_by_device", "an_async_pair_that_encloses_another"):
            done, _ = run(NAMED[name], cluster)
            assert isinstance(done, DeadlockError) is NAMED[name].deadlocks


SLOW = """t = token[] after-all()
f = (f32[4], token[]) infeed(t)
v = f32[4] get-tuple-element(f), index=0
"""
FED = by_device(f"{SLOW}{reduce('ROOT c', 'v')}", reduce("ROOT c", "p"))


@pytest.mark.cluster
def test_a_starving_infeed_is_no_deadlock(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stragglers, "NOTICE_S", 0.3)
    cluster = clusters.of(2)
    module = dx.parse(FED, "a.hlo")
    with pytest.raises(dx.TimeLimitError) as caught:
        cluster.compile(module)([[X], [X]], time_limit=0.8)
    assert re.sub(r"round \d+", "round N", str(caught.value)) == (
        "time-limit: the time limit of 0.8 s ran out\n"
        "  device 0 waits in f (a.hlo:10:3) for the host, at the other end of the stream: infeed, round N\n"
        "  device 1 waits in c (a.hlo:16:8) for device 0: all-reduce, group {0,1}, round N"
    )
    notice = "\n".join(caplog.messages)
    assert "distxla: device 0 waits in f (a.hlo:10:3) for the host, at the other end of the stream, for" in notice
    later = threading.Timer(0.5, cluster.infeed(0).put, [X])
    later.start()
    outs = cluster.compile(module)([[X], [X]], time_limit=20)
    later.join()
    assert np.array_equal(np.asarray(outs[1][0]), 2 * X)


COUNTED = f"""HloModule counted, is_scheduled=true
{SUM}
ENTRY main {{
  x = f32[4] parameter(0)
  t = token[] after-all()
  f = (f32[4], token[]) infeed(t)
  v = f32[4] get-tuple-element(f), index=0
  s = (f32[4], u32[], token[]) send(v, t), channel_id=3, {annotated("{{0,1}}")}
  c = (f32[4], u32[], token[]) recv(t), channel_id=3, {annotated("{{0,1}}")}
  sd = token[] send-done(s), channel_id=3
  rd = (f32[4], token[]) recv-done(c), channel_id=3
  p = f32[4] collective-permute(v), source_target_pairs={{{{0,1}},{{1,0}}}}
  {reduce("a", "p")}
  ROOT b = f32[4] add(a, x)
}}
"""


@pytest.mark.cluster
def test_rounds_transfers_and_items_are_counted_from_the_begin_of_the_call(clusters: Clusters) -> None:
    cluster = clusters.of(2)
    step = cluster.compile(dx.parse(COUNTED, "counted.hlo"))
    for device in range(2):
        cluster.infeed(device).put_all([X] * 7)
    step([X], repeat=2)
    step([X])
    with pytest.raises(dx.TimeLimitError) as caught:
        step([X], repeat=9, time_limit=0.5)
    assert caught.value.diagnosis is not None
    for found in caught.value.diagnosis.devices:
        assert (found.instruction, found.round) == ("f", 5)
        for name in ("f", "p", "a", "sd" if found.device == 0 else "rd"):
            rounds = [event.round for event in found.events if event.instruction == name]
            assert rounds == [1, 2, 3, 4, *([5] if name == "f" else [])], name


@pytest.mark.cluster
def test_an_exhausted_infeed_releases_everybody(clusters: Clusters) -> None:
    cluster = clusters.of(2)
    step = cluster.compile(dx.parse(looped(STEP, BY_INFEED), "a.hlo"))
    cluster.infeed(0).put(np.int32(2))
    later = threading.Timer(0.3, cluster.infeed(1).close)
    later.start()
    watch = Stopwatch()
    with pytest.raises(dx.StreamEndError) as caught:
        step([[X], [X]], time_limit=20)
    assert watch.seconds < 0.3 + SECONDS
    later.join()
    assert caught.value.diagnosis is not None
    assert "device 0 waits in u (a.hlo:12:3) for device 1: all-reduce" in str(caught.value)


@pytest.mark.cluster
def test_a_full_outfeed_that_nobody_reads(clusters: Clusters) -> None:
    cluster = clusters.of(2)
    body = """t = token[] after-all()
    given = token[] outfeed(v, t), outfeed_shape=f32[4]
    u = f32[4] copy(v), control-predecessors={given}"""
    step = cluster.compile(dx.parse(looped(body, "count = s32[] constant(1000000)"), "a.hlo"), [0])
    with pytest.raises(dx.TimeLimitError) as caught:
        step([X], time_limit=1)
    text = str(caught.value)
    assert re.search(
        r"device 0 waits in given \(a\.hlo:\d+:\d+\) for the host, at the other end of the stream: outfeed, round \d+, "
        r"in iteration \d+ of w",
        text,
    ), text
    assert len(list(cluster.outfeed(0))) > 0


@pytest.mark.cluster
@pytest.mark.parametrize("seconds", [1.5, pytest.param(61.0, marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_a_straggler_is_no_deadlock(
    clusters: Clusters, seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from distxla.ops.custom_calls import user

    monkeypatch.setattr(stragglers, "NOTICE_S", seconds / 4)

    def slowly(x: Any) -> Any:
        time.sleep(seconds)
        return x

    dx.register_custom_call("slowly", slowly)
    try:
        slow = f'v = f32[4] custom-call(p), custom_call_target="slowly"\n{reduce("ROOT c", "v")}'
        step = clusters.of(2).compile(dx.parse(by_device(slow, reduce("ROOT c", "p")), "a.hlo"))
        outs = step([[X], [X]], time_limit=4 * seconds + 10)
    finally:
        user.registered.clear()
    assert np.array_equal(np.asarray(outs[0][0]), 2 * X)
    lines = [line for line in caplog.messages if line.startswith("distxla:")]
    assert 1 <= len(lines) <= 3
    pattern = r"distxla: device 0 computes.*; device 1 waits for it in c \(a\.hlo:\d+:8\), for \d+ s so far"
    assert all(re.fullmatch(pattern, line) for line in lines), lines
