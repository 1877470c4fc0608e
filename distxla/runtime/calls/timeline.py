"""A timeline of devices as a document in the trace-event format, which Perfetto and chrome://tracing open.

Every device is a process of the document with one thread, the driver another one. Slices are complete events
("ph": "X"), which nest: a run contains its steps, a loop its iterations, a collective its wait. An
asynchronous pair, from its start to its done, is an asynchronous slice ("b", "e") beside them. Arrows are flow events
("s", "f") that bind to the slices around their ends. Times are microseconds from the first slice on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distxla.lazy_dataclass import dataclass, field


@dataclass(frozen=True)
class Slice:
    """A span of time on a track; slices of a track nest or are disjoint. Times in ns of one clock.

    unfinished: it never ended; `end` is as long as it is known to have gone on.
    """

    track: int
    name: str
    category: str
    begin: float
    end: float
    details: Mapping[str, Any] = field(default_factory=dict)
    unfinished: bool = False


@dataclass(frozen=True)
class Arrow:
    """From within a slice of one track to within one of another. Times in ns."""

    name: str
    source: int
    sent: float
    target: int
    received: float


@dataclass(frozen=True)
class Span:
    """Something that goes on beside a track's slices, from one of them to another. Times in ns."""

    track: int
    name: str
    begin: float
    end: float
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Timeline:
    """tracks: names, in the order in which they are shown; the first is that of the calls.
    about: facts on the whole, for the reader of the file.
    """

    tracks: Sequence[str]
    slices: Sequence[Slice]
    arrows: Sequence[Arrow] = ()
    spans: Sequence[Span] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The JSON object."""
        zero = math.floor(min((s.begin for s in self.slices), default=0.0))
        rows: list[dict[str, Any]] = []
        for track, name in enumerate(self.tracks):
            rows.append(_about_process(track, "process_name", {"name": name}))
            rows.append(_about_process(track, "process_sort_index", {"sort_index": track}))
            rows.append(_about_process(track, "thread_name", {"name": "calls" if track == 0 else "program"}))
        for one in sorted(self.slices, key=lambda s: (s.begin, -s.end)):  # those that hold others first
            begin = round(one.begin - zero)
            row = _event("X", one.track, one.name, one.category, begin)
            row["dur"] = max(0, round(one.end - zero) - begin) / 1000
            row["args"] = dict(one.details) | ({"unfinished": True} if one.unfinished else {})
            rows.append(row)
        for number, span in enumerate(self.spans):
            for phase, time in (("b", span.begin), ("e", span.end)):
                row = _event(phase, span.track, span.name, "async", round(time - zero))
                row["id"] = f"async {number}"
                row["args"] = dict(span.details) if phase == "b" else {}
                rows.append(row)
        for number, arrow in enumerate(self.arrows):
            sent = _event("s", arrow.source, arrow.name, "transfer", round(arrow.sent - zero))
            received = _event("f", arrow.target, arrow.name, "transfer", round(arrow.received - zero))
            rows += [sent | {"id": number}, received | {"id": number, "bp": "e"}]
        return {"traceEvents": rows, "displayTimeUnit": "ns", "otherData": dict(self.about)}

    def write(self, path: str | Path) -> None:
        """Write the document. OSError where that is not possible."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.document(), file, separators=(",", ":"), allow_nan=False)
            file.write("\n")


def _event(phase: str, track: int, name: str, category: str, nanoseconds: int) -> dict[str, Any]:
    # a process's only thread has its number
    common = {"name": name, "cat": category, "ph": phase, "pid": track + 1, "tid": track + 1}
    return common | {"ts": nanoseconds / 1000}


def _about_process(track: int, name: str, details: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": track + 1, "tid": track + 1, "args": details}
