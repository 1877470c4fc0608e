"""A timeline of devices as a document in the trace-event format, which ui.perfetto.dev opens.

Every host is a process of the document with a thread for each of its devices, in order; the driver is one before
them, with one thread for the calls. Slices are complete events
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
from distxla.runtime.calls.critical_path import Piece


@dataclass(frozen=True)
class Track:
    """name: of the thread.  host: of the process; tracks of one host are together."""

    name: str
    host: str


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
    """tracks: in the order in which they are shown; the first is that of the calls, the others those of the devices.
    about: facts on the whole, for the reader of the file.  path: the critical path of each call.
    """

    tracks: Sequence[Track]
    slices: Sequence[Slice]
    arrows: Sequence[Arrow] = ()
    spans: Sequence[Span] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    path: Sequence[Piece] = ()

    def document(self) -> dict[str, Any]:
        """The JSON object."""
        zero = math.floor(min((s.begin for s in self.slices), default=0.0))
        rows: list[dict[str, Any]] = []
        hosts = {host: number for number, host in enumerate(dict.fromkeys(track.host for track in self.tracks), 1)}
        ids = [hosts[track.host] for track in self.tracks]
        for host, number in hosts.items():
            rows.append(_about(number, ids.index(number), "process_name", {"name": host}))
            rows.append(_about(number, ids.index(number), "process_sort_index", {"sort_index": number}))
        for place, track in enumerate(self.tracks):
            rows.append(_about(ids[place], place, "thread_name", {"name": track.name}))
            rows.append(_about(ids[place], place, "thread_sort_index", {"sort_index": place}))

        def event(phase: str, track: int, name: str, category: str, nanoseconds: int) -> dict[str, Any]:
            common = {"name": name, "cat": category, "ph": phase, "pid": ids[track], "tid": track + 1}
            return common | {"ts": nanoseconds / 1000}

        for one in sorted(self.slices, key=lambda s: (s.begin, -s.end)):  # those that hold others first
            begin = round(one.begin - zero)
            row = event("X", one.track, one.name, one.category, begin)
            row["dur"] = max(0, round(one.end - zero) - begin) / 1000
            row["args"] = dict(one.details) | ({"unfinished": True} if one.unfinished else {})
            rows.append(row)
        for number, span in enumerate(self.spans):
            name = f"{span.name} ({self.tracks[span.track].name})"  # such rows belong to the process
            for phase, time in (("b", span.begin), ("e", span.end)):
                row = event(phase, span.track, name, "async", round(time - zero))
                row["id"] = f"async {number}"
                row["args"] = dict(span.details) if phase == "b" else {}
                rows.append(row)
        for number, arrow in enumerate(self.arrows):
            sent = event("s", arrow.source, arrow.name, "transfer", round(arrow.sent - zero))
            received = event("f", arrow.target, arrow.name, "transfer", round(arrow.received - zero))
            rows += [sent | {"id": number}, received | {"id": number, "bp": "e"}]
        return {"traceEvents": rows, "displayTimeUnit": "ns", "otherData": dict(self.about)}

    def write(self, path: str | Path) -> None:
        """Write the document. OSError where that is not possible."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.document(), file, separators=(",", ":"), allow_nan=False)
            file.write("\n")


def _about(process: int, track: int, name: str, details: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": process, "tid": track + 1, "args": details}


__all__ = ["Arrow", "Slice", "Span", "Timeline", "Track"]
