"""What a document in the trace-event format must be, so that Perfetto draws what was meant."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COMMON = {"name": str, "ph": str, "pid": int, "tid": int}
FIELDS: dict[str, dict[str, Any]] = {  # by phase, what it has besides COMMON
    "M": {"args": dict},
    "X": {"cat": str, "ts": float, "dur": float, "args": dict},
    "b": {"cat": str, "ts": float, "id": str, "args": dict},
    "e": {"cat": str, "ts": float, "id": str, "args": dict},
    "s": {"cat": str, "ts": float, "id": int},
    "f": {"cat": str, "ts": float, "id": int, "bp": str},
}
METADATA = {
    "process_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}


def read(path: Path) -> Row:
    """The document; AssertionError where it is none."""
    document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    check(document)
    return dict(document)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def check(document: Any) -> None:
    """AssertionError where the document breaks a rule of the format, or slices would not be drawn as they are meant."""
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    for row in document["traceEvents"]:
        fields = COMMON | FIELDS[row["ph"]]
        assert set(row) == set(fields), row
        for name, kind in fields.items():
            kinds = (int, float) if kind is float else (kind,)
            assert isinstance(row[name], kinds), (name, row)
            assert not isinstance(row[name], bool), (name, row)
            assert kind is not float or (math.isfinite(row[name]) and row[name] >= 0), (name, row)
        assert row["pid"] > 0, row  # Perfetto takes 0 for the idle process
    rows = by_phase(document)
    named = {row["pid"] for row in rows["M"] if row["name"] == "process_name"}
    for row in rows["M"]:
        wanted = METADATA[row["name"]]
        assert {name: type(value) for name, value in row["args"].items()} == wanted
    assert {row["pid"] for row in document["traceEvents"]} == named
    threads = [(row["pid"], row["tid"]) for row in rows["M"] if row["name"] == "thread_name"]
    assert {(row["pid"], row["tid"]) for row in document["traceEvents"]} == {*threads}
    assert threads == sorted(threads)  # hosts one after another, and the devices of each
    _check_nesting(rows["X"])
    _check_flows(rows)
    _check_spans(rows)


def by_phase(document: Row) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in document["traceEvents"]:
        found[row["ph"]].append(row)
    return found


def _interval(row: Row) -> tuple[int, int]:
    """Of a slice, in ns as Perfetto keeps them."""
    begin = round(row["ts"] * 1000)
    return begin, begin + round(row["dur"] * 1000)


def _check_nesting(slices: list[Row]) -> None:
    """Slices of a thread lie within one another or apart, and those that hold others come first."""
    open_until: dict[tuple[int, int], list[int]] = defaultdict(list)
    last: dict[tuple[int, int], int] = defaultdict(int)
    for row in slices:
        begin, end = _interval(row)
        thread = row["pid"], row["tid"]
        assert begin >= last[thread], row
        last[thread] = begin
        stack = open_until[thread]
        while stack and stack[-1] <= begin:
            stack.pop()
        assert not stack or end <= stack[-1], row
        stack.append(end)


def _check_flows(rows: dict[str, list[Row]]) -> None:
    """Each arrow has a begin and an end, in order, within slices of their threads."""
    keys = [[(row["cat"], row["name"], row["id"]) for row in rows[phase]] for phase in "sf"]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(keys[0])
    for sent, received in zip(rows["s"], rows["f"], strict=True):
        assert sent["ts"] <= received["ts"]
        assert received["bp"] == "e"
        for row in (sent, received):
            at = round(row["ts"] * 1000)
            thread = row["pid"], row["tid"]
            around = [s for s in rows["X"] if (s["pid"], s["tid"]) == thread and s["cat"] in ("collective", "channel")]
            assert any(begin <= at <= end for begin, end in map(_interval, around)), row


def _check_spans(rows: dict[str, list[Row]]) -> None:
    keys = [[(row["pid"], row["cat"], row["name"], row["id"]) for row in rows[phase]] for phase in "be"]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(keys[0])
    assert all(begin["ts"] <= end["ts"] for begin, end in zip(rows["b"], rows["e"], strict=True))
