"""The document that a timeline becomes, and that the test's own schema sees what is wrong with one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distxla.runtime.calls.timeline import Arrow, Slice, Span, Timeline, Track
from tests.runtime import trace_schema

TIMELINE = Timeline(
    [Track("calls", "driver"), Track('device 0 "<b>"', "host a"), Track("device 1", "host b")],
    [
        Slice(0, "call 1", "call", 1000.0, 9000.4),
        Slice(1, "recv-done", "channel", 2500.0, 6000.0, {"round": 3}),
        Slice(1, "wait for device 1", "wait", 2500.0, 5999.9),
        Slice(1, "loop", "loop", 2000.0, 8000.0),
        Slice(2, "send", "channel", 3000.0, 3100.0),
        Slice(2, "all-reduce", "collective", 4000.0, 9000.4, unfinished=True),
    ],
    [Arrow("send", 2, 3099.0, 1, 5999.0)],
    [Span(1, "permute-start", 2000.0, 8000.0, {"round": 1})],
    {"note": 1},
)


def test_a_document(tmp_path: Path) -> None:
    TIMELINE.write(tmp_path / "t.json")
    document = trace_schema.read(tmp_path / "t.json")
    rows = trace_schema.by_phase(document)
    assert [(r["name"], r["pid"], r["ts"], r["dur"]) for r in rows["X"]] == [
        ("call 1", 1, 0.0, 8.0),
        ("loop", 2, 1.0, 6.0),
        ("recv-done", 2, 1.5, 3.5),
        ("wait for device 1", 2, 1.5, 3.5),
        ("send", 3, 2.0, 0.1),
        ("all-reduce", 3, 3.0, 5.0),
    ]
    assert [r["args"].get("unfinished", False) for r in rows["X"]] == [False] * 5 + [True]
    assert [r["args"] for r in rows["M"] if r["name"] == "thread_name"][1] == {"name": 'device 0 "<b>"'}
    assert (rows["s"][0]["tid"], rows["f"][0]["tid"]) == (3, 2)
    assert [row["name"] for row in rows["b"]] == ['permute-start (device 0 "<b>")']
    assert document["otherData"] == {"note": 1}


def test_nothing_at_all() -> None:
    trace_schema.check(Timeline([Track("calls", "driver")], []).document())


def test_a_host_is_a_process_and_a_device_a_thread_in_order() -> None:
    """Also where there are more devices than one digit counts."""
    tracks = [Track("calls", "driver"), *(Track(f"device {d}", f"host {d // 12}") for d in range(24))]
    slices = [Slice(track, "run", "run", 0.0, 5.0) for track in range(25)]
    document = Timeline(tracks, slices).document()
    trace_schema.check(document)
    about = trace_schema.by_phase(document)["M"]
    names = [(row["pid"], row["args"]["name"]) for row in about if row["name"] == "process_name"]
    assert names == [(1, "driver"), (2, "host 0"), (3, "host 1")]
    threads = [row for row in about if row["name"] == "thread_name"]
    assert [(row["pid"], row["args"]["name"]) for row in threads[1:]] == [
        (2 + d // 12, f"device {d}") for d in range(24)
    ]
    orders = [row["args"]["sort_index"] for row in about if row["name"] == "thread_sort_index"]
    assert orders == [*range(25)]


def slices(document: dict[str, Any]) -> list[dict[str, Any]]:
    return trace_schema.by_phase(document)["X"]


BREAK: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a slice that is none": lambda d: slices(d)[0].pop("dur"),
    "a field that is unknown": lambda d: slices(d)[0].update(color="red"),
    "slices that overlap": lambda d: slices(d)[2].update(dur=20.0),
    "an arrow without its end": lambda d: d["traceEvents"].pop(),
    "an arrow into the past": lambda d: trace_schema.by_phase(d)["s"][0].update(ts=9.0),
    "an arrow to nowhere": lambda d: trace_schema.by_phase(d)["f"][0].update(ts=7.9),
    "a process without a name": lambda d: d["traceEvents"].pop(0),
}


@pytest.mark.parametrize("what", BREAK)
def test_what_is_wrong_is_seen(what: str) -> None:
    document = copy.deepcopy(TIMELINE.document())
    trace_schema.check(document)
    BREAK[what](document)
    with pytest.raises(AssertionError):
        trace_schema.check(document)
