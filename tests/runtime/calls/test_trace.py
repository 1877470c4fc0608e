"""Traces of a cluster: what is in them, that they change no results, and what is left of calls that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.collectives import recorder
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import event as event_words
from distxla.collectives.protocols.stream import NEAR_BYTES
from distxla.compiler.compile import compile_module
from distxla.errors import ClusterError, DistxlaError
from distxla.ir.counts import Counts
from distxla.program.options import CompileOptions
from distxla.runtime.calls import trace as trace_module
from distxla.testing import ClusterPool
from distxla.text.parser import parse_module
from tests.browser import in_a_cell
from tests.collectives.recorder_cases import LOOP, TRANSFER, check_times
from tests.compiler.runner import Devices
from tests.runtime import trace_schema
from tests.runtime.calls.trace_cases import STUCK, X, slices
from tests.runtime.random_modules import RandomModule

DEVICES = 2
PAIR = """HloModule pair, replica_count=2
ENTRY e { x = f32[4] parameter(0)
  s = (f32[4], f32[4]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}
  y = f32[4] tanh(x)
  d = f32[4] collective-permute-done(s)
  ROOT t = (f32[4], f32[4]) tuple(d, y) }
"""
ENDLESS = """HloModule endless, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
body { x = f32[4] parameter(0)
  y = f32[4] all-reduce(x), to_apply=add
  ROOT z = f32[4] tanh(y) }
condition { x = f32[4] parameter(0) ROOT c = pred[] constant(true) }
ENTRY e { x = f32[4] parameter(0) ROOT w = f32[4] while(x), condition=condition, body=body }
"""
FED = """HloModule fed, replica_count=2
ENTRY e { k = token[] after-all()
  i = (f32[4], token[]) infeed(k)
  x = f32[4] get-tuple-element(i), index=0
  ROOT y = f32[4] negate(x) }
"""


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as opened:
        yield opened


def written(trace: Any, path: Path) -> dict[str, Any]:
    trace.write(path / "trace.json")
    return trace_schema.read(path / "trace.json")


@pytest.mark.cluster
def test_a_loop(cluster: dx.Cluster, tmp_path: Path) -> None:
    module = parse_module(LOOP.format(n=4, times=5), "loop.hlo")
    plain, step = cluster.compile(module), cluster.compile(module, trace=True)
    wanted = plain([X])
    with cluster.trace() as trace:
        outs = step([X], repeat=2)
        again = plain([X])
    for rows in (outs, again):
        assert all(np.asarray(a[0]).tobytes() == np.asarray(b[0]).tobytes() for a, b in zip(rows, wanted, strict=True))
    plain([X])  # no part of the trace
    for events in trace.events().values():
        check_times([event for event in events if event.site is not None])
        assert len([event for event in events if event.site is not None]) == 30
    document = written(trace, tmp_path)
    assert document["otherData"] == {}
    for device in range(DEVICES):
        rounds = slices(document, device, "collective")
        assert [row["name"] for row in rounds] == ["y", "z"] * 15
        assert [row["args"]["iteration"] for row in rounds] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5] * 3
        assert {row["args"]["opcode"] for row in rounds} == {"all-reduce", "collective-permute"}
        assert all(row["args"]["location"].startswith("loop.hlo:") for row in rounds)
        assert len(slices(document, device, "run")) == 3
        assert [row["args"]["iterations"] for row in slices(document, device, "loop")] == [5, 5]
        assert len(slices(document, device, "kernel")) >= 20
    calls = [row for row in trace_schema.by_phase(document)["X"] if row["cat"] == "call"]
    assert [row["name"] for row in calls] == ["call 1", "call 2"]
    arrows = [(row["tid"], row["name"]) for row in trace_schema.by_phase(document)["s"]]
    assert sorted(arrows) == [(2, "permute")] * 15 + [(3, "permute")] * 15
    everything = trace_schema.by_phase(document)["X"]
    for call in calls:  # both clocks are the same
        end = call["ts"] + call["dur"]
        inside = [row for row in everything if call["ts"] <= row["ts"] <= end]
        assert len(inside) > 20
    first, second = calls
    runs = sorted(row["ts"] for d in range(DEVICES) for row in slices(document, d, "run"))
    assert first["ts"] < runs[0]
    assert runs[3] < first["ts"] + first["dur"] <= second["ts"] < runs[4]


@pytest.mark.cluster
@pytest.mark.parametrize("interrupted", range(DEVICES))
def test_nothing_is_received_before_it_is_sent(cluster: dx.Cluster, tmp_path: Path, interrupted: int) -> None:
    """By a device that was interrupted for milliseconds between its readings of two clocks."""
    step = cluster.compile(parse_module(LOOP.format(n=4, times=5)), trace=True)
    with cluster.trace() as trace:
        step([X])
    (call,) = trace.calls
    row = bytearray(call.rows[interrupted])
    place = control_words.R_CLOCK + 16  # the cycle counter of the second moment
    row[place : place + 8] = (int.from_bytes(row[place : place + 8], "little") + 10_000_000).to_bytes(8, "little")
    trace.calls[0] = replace(call, rows={**call.rows, interrupted: bytes(row)})
    document = written(trace, tmp_path)
    assert len(trace_schema.by_phase(document)["s"]) == 10


@pytest.mark.cluster
def test_arrows_are_left_out_where_clocks_of_hosts_differ_too_much(cluster: dx.Cluster, tmp_path: Path) -> None:
    step = cluster.compile(parse_module(LOOP.format(n=4, times=5)), trace=True)
    with cluster.trace() as trace:
        step([X])
    trace.ahead[1] = 10_000_000_000  # as if it lived on another host
    document = written(trace, tmp_path)
    assert {row["tid"] for row in trace_schema.by_phase(document)["s"]} == {3}
    ((what, count),) = document["otherData"].items()
    assert what.startswith("arrows left out")
    assert count == 5


@pytest.mark.cluster
def test_how_a_notebook_and_a_terminal_show_it(cluster: dx.Cluster) -> None:
    step = cluster.compile(parse_module(LOOP.format(n=4, times=5), "loop.hlo"), trace=True)
    with cluster.trace() as trace:
        step([X], repeat=2)
    timeline = trace.timeline()
    sizes = {one.name: one.details["bytes"] for one in timeline.slices if one.category == "collective"}
    assert sizes == {"y": 16, "z": 16}
    assert timeline.path
    assert all(one.end == other.begin for one, other in pairwise(timeline.path))
    shown = in_a_cell(trace)
    assert shown.startswith('<div class="dx">')
    for text in (shown, trace.page(), str(trace)):
        assert "Timeline: 2 devices, 1 call, " in text
    assert trace.page().count('<i class="critical') > 0
    assert 'title="y, opcode all-reduce, round 1, bytes 16, location loop.hlo:' in trace.page()


@pytest.mark.cluster
def test_a_call_that_is_ended_keeps_its_last_events_only(cluster: dx.Cluster, tmp_path: Path) -> None:
    """An endless loop makes millions, and the user who ends it waits for the file."""
    step = cluster.compile(parse_module(ENDLESS), trace=True)
    with cluster.trace() as trace:
        with pytest.raises(dx.TimeLimitError):
            step([X], time_limit=1.0)
        step_count = sum(map(len, trace.events().values()))
    assert 0 < step_count <= trace_module.FAILED_EVENTS + DEVICES  # one each is not in the ring yet
    assert "the last 16384 of all devices in one that fails" in trace.left_out
    document = written(trace, tmp_path)
    assert len(document["traceEvents"]) < 3 * trace_module.FAILED_EVENTS
    assert len(trace.page()) < 1_000_000


@pytest.mark.cluster
def test_an_asynchronous_pair_is_a_span(cluster: dx.Cluster, tmp_path: Path) -> None:
    step = cluster.compile(parse_module(PAIR), trace=True)
    with cluster.trace() as trace:
        step([X])
    rows = trace_schema.by_phase(written(trace, tmp_path))
    assert [(row["tid"], row["name"].partition(" (process")[0]) for row in rows["b"]] == [
        (2, "s (device 0"),
        (3, "s (device 1"),
    ]
    assert sorted(row["tid"] for row in rows["s"]) == [2, 3]


@pytest.mark.cluster
def test_what_comes_from_the_host_is_a_feed(cluster: dx.Cluster, tmp_path: Path) -> None:
    step = cluster.compile(parse_module(FED), trace=True)
    for device in range(DEVICES):
        cluster.infeed(device).put(X)
    with cluster.trace() as trace:
        step()
    document = written(trace, tmp_path)
    assert [row["name"] for d in range(DEVICES) for row in slices(document, d, "feed")] == ["i", "i"]


@pytest.mark.cluster
def test_what_an_outfeed_waits_for_its_host_is_a_wait(cluster: dx.Cluster, tmp_path: Path) -> None:
    large = 2 * NEAR_BYTES // 3  # the first one has room at once, the second one where the host takes that one
    text = f"""HloModule given, replica_count=2
ENTRY e {{ x = u8[{large}] parameter(0)
  k = token[] after-all()
  o = token[] outfeed(x, k)
  p = token[] outfeed(x, o)
  ROOT y = u8[{large}] negate(x) }}
"""
    step = cluster.compile(parse_module(text), trace=True)
    with cluster.trace() as trace:
        step([np.zeros(large, np.uint8)])
    for device in range(DEVICES):
        assert [len(cluster.outfeed(device).get()) for _ in range(2)] == [large] * 2
    document = written(trace, tmp_path)
    for device in range(DEVICES):
        (wait,) = slices(document, device, "wait")
        assert wait["name"] == "wait for the host"
        assert wait["dur"] >= 2000  # us


@pytest.mark.cluster
def test_a_call_that_fails(cluster: dx.Cluster, tmp_path: Path) -> None:
    step = cluster.compile(parse_module(STUCK), trace=True)
    with cluster.trace() as trace, pytest.raises(DistxlaError):
        step([X], time_limit=5)
    document = written(trace, tmp_path)
    unfinished = [row for row in slices(document, 0, "collective") if row["args"].get("unfinished")]
    assert [row["name"] for row in unfinished] == ["y"]
    assert [row["name"] for row in slices(document, 0, "collective")] == ["w", "y"]
    assert [row["name"] for row in slices(document, 1, "collective")] == ["w"]
    waits = [row for row in slices(document, 0, "wait") if row["args"].get("unfinished")]
    assert [row["name"] for row in waits] == ["wait for the group"]
    (call,) = (row for row in trace_schema.by_phase(document)["X"] if row["cat"] == "call")
    assert "Error: " in call["args"]["error"]


@pytest.mark.cluster
def test_after_a_failure_the_last_events_are_there_unasked(cluster: dx.Cluster) -> None:
    step = cluster.compile(parse_module(STUCK))
    with pytest.raises(DistxlaError):
        step([X], time_limit=1)
    loader = cluster.loader
    assert loader is not None
    records = loader.dispatcher.records()
    last = recorder.events(records, 0)[-1]
    assert (last.ended, last.resumed, last.waits_for) == (None, None, -1)
    assert last.waited is not None
    assert recorder.events(records, 1)[-1].ended is not None


@pytest.mark.cluster
def test_more_events_than_a_ring_holds(cluster: dx.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MOST_EVENTS", event_words.EVENTS)
    monkeypatch.setattr(cluster, "_rings", None)  # those of other traces are larger
    step = cluster.compile(parse_module(LOOP.format(n=4, times=200)))
    with cluster.trace() as trace:
        step([X])
    lost = 400 - event_words.EVENTS
    document = written(trace, tmp_path)
    assert document["otherData"] == {"events that were overwritten": {"device 0": lost, "device 1": lost}}
    assert [len(slices(document, device, "collective")) for device in range(DEVICES)] == [event_words.EVENTS] * 2
    assert trace.left_out.startswith(
        f"the trace lacks the first {2 * lost} events of 1 call: it keeps the last 256 events"
    )


@pytest.mark.cluster
def test_calls_that_are_too_much_are_dropped(
    cluster: dx.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "KEPT_BYTES", 3 * 2 * 10 * event_words.EVENT_BYTES)
    step = cluster.compile(parse_module(LOOP.format(n=4, times=5)))
    with cluster.trace() as trace:
        for _ in range(5):
            step([X])
    document = written(trace, tmp_path)
    assert document["otherData"] == {"calls that were dropped": 2}
    calls = [row["name"] for row in trace_schema.by_phase(document)["X"] if row["cat"] == "call"]
    assert calls == ["call 3", "call 4", "call 5"]
    assert trace.left_out.startswith("the trace lacks the first 2 of 5 calls: ")


@pytest.mark.cluster
def test_one_trace_at_a_time(cluster: dx.Cluster) -> None:
    with cluster.trace(), pytest.raises(ClusterError, match="already"):
        cluster.trace()
    cluster.trace().close()


@pytest.mark.cluster
def test_sends_and_recvs_are_joined_by_arrows(tmp_path: Path) -> None:
    with dx.Cluster(partitions=2) as cluster:
        step = cluster.compile(parse_module(TRANSFER), trace=True)
        with cluster.trace() as trace:
            step([X], repeat=3)
        document = written(trace, tmp_path)
    arrows = trace_schema.by_phase(document)
    assert [row["name"] for row in arrows["s"]] == ["send"] * 6
    assert sorted((s["tid"], f["tid"]) for s, f in zip(arrows["s"], arrows["f"], strict=True)) == (
        [(2, 3)] * 3 + [(3, 2)] * 3
    )
    assert {row["name"] for row in slices(document, 0, "channel")} == {"r", "s", "d", "f"}


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("seed", range(6))
def test_traced_programs_compute_the_same_bits(seed: int) -> None:
    made = RandomModule(900 + seed, DEVICES, pairs=True)
    module = parse_module(made.text)
    random = np.random.default_rng(seed)
    sizes = {"s32[4]": (4,), "s32[8]": (8,), "s32[]": ()}
    args = [[random.integers(-9, 9, sizes[kind]).astype(np.int32) for kind in made.parameters] for _ in range(DEVICES)]
    outs = []
    for traced in (False, True):
        devices = Devices(compile_module(module, Counts(DEVICES, 1), CompileOptions(traced=traced)))
        try:
            outs.append([[array.tobytes() for array in row] for row in devices(args)])
        finally:
            devices.close()
    assert outs[0] == outs[1]


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("devices", "events"), [(1, 1 << 16), (16, 1 << 16), (64, 16384), (100, 8192), (4096, 256)])
def test_rings_fit_into_the_control_block(devices: int, events: int) -> None:
    assert trace_module.ring_events(devices) == events
