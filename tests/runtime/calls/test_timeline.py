"""The document that a timeline becomes, and that the test's own schema sees what is wrong with one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distxla.runtime.calls.timeline import Arrow, Slice, Span, Timeline
from tests.runtime import trace_schema

TIMELINE = Timeline(
    ["driver", 'device 0 "<b>"', "device 1"],
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
    assert [r["args"] for r in rows["M"] if r["name"] == "process_name"][1] == {"name": 'device 0 "<b>"'}
    assert (rows["s"][0]["pid"], rows["f"][0]["pid"]) == (3, 2)
    assert document["otherData"] == {"note": 1}


def test_nothing_at_all() -> None:
    trace_schema.check(Timeline(["driver"], []).document())


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
