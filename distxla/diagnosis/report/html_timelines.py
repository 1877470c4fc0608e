"""The timelines of a diagnosis's page: each device's events up to the end, on one axis.

The axis is to scale. A piece in which nothing begins or ends is cut out if it is longer than all the rest: the axis is
broken there, and the length of the piece is written above. Where times aren't known, the page says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event
from distxla.diagnosis.facts.findings import Findings
from distxla.diagnosis.report.html_markup import LETTER, WIDTH, escape, legend, picture, shortened
from distxla.lazy_dataclass import dataclass, replace
from distxla.wording import named

MOST_ROWS = 256  # devices
MOST_DRAWN, LEAST_DRAWN = 640, 2  # events in all timelines, and of each device in any case
LABEL, RIGHT = 96, 10  # pixels left and right of the axis
LETTERS = int((LABEL - 4) / LETTER)  # of a label left of it
CUT = 64.0  # pixels of a piece that is cut out
MOST_CUTS = 3
LARGE_SHARE = 0.5  # of the time that is left: a longer piece without any event is cut out
TICKS = 8

Span = tuple[float, float, float | None]  # when it begins and ends, and when its wait begins


def timelines(diagnosis: Findings) -> Iterator[str]:
    rows = [device for device in diagnosis.devices if device.events][:MOST_ROWS]
    if not rows:
        yield "<p>No device has recorded anything.</p>"
        return
    rows = [replace(device, events=device.events[-most_events(len(rows)) :]) for device in rows]
    timed = all(event.begun is not None for device in rows for event in device.events)
    names = {device.device: [device.device] for device in rows} if timed else _alike(rows)
    rows = [device for device in rows if device.device in names]
    spans = [_spans(device, timed=timed) for device in rows]
    axis = _axis([moment for row in spans for span in row for moment in span if moment is not None], cuts=timed)
    height = 18 if len(rows) <= 24 else 15
    top = 20 if axis.cuts else 6
    bottom = top + height * len(rows)
    yield picture("Timelines", bottom + 18)
    if timed:
        yield from _ticks(axis, top, bottom)
    for number, (device, found) in enumerate(zip(rows, spans, strict=True)):
        y = top + height * number
        name = named(names[device.device])
        yield f'<text x="2" y="{y + 11}"><title>{name}</title>{shortened(name, LETTERS)}</text>'
        yield f'<line class="axis" x1="{LABEL}" x2="{WIDTH - RIGHT}" y1="{y + 7}" y2="{y + 7}"/>'
        for event, span in zip(device.events, found, strict=True):
            is_last = event is device.events[-1] and device.doing in (Doing.WAITS, Doing.ARRIVED)
            yield _bar(event, span, axis, y, height - 5, timed=timed, is_last=is_last)
    for cut in axis.cuts:
        yield from _break(axis, cut, top, bottom)
    if not timed:
        yield f'<text x="{LABEL}" y="{bottom + 12}">first</text>'
        yield f'<text x="{WIDTH - RIGHT}" y="{bottom + 12}" text-anchor="end">last</text>'
    yield "</svg></div>"
    kinds = [("did", "communicating instruction"), ("waited", "its wait"), ("stuck", "where the device is at the end")]
    if not timed:
        kinds.pop(1)
    yield legend(*kinds)
    yield f'<p class="note">{_scale(axis, timed=timed)}</p>'


def _alike(rows: Sequence[DeviceState]) -> dict[int, list[int]]:
    """By the first of them, the devices that did the same."""
    found: dict[tuple[object, ...], list[int]] = {}
    for device in rows:
        file = None if device.location is None else device.location.file
        found.setdefault((device.program, file, device.doing, device.events), []).append(device.device)
    return {devices[0]: devices for devices in found.values()}


def most_events(rows: int) -> int:
    """Of each device that a page has room for."""
    return max(LEAST_DRAWN, MOST_DRAWN // rows)


def _scale(axis: _Axis, *, timed: bool) -> str:
    if not timed:
        return "Not to scale: the order of execution of each device. Times are not known."
    if not axis.cuts:
        return "To scale. Times count from the first event that is shown."
    return "To scale, but for the breaks, where nothing begins or ends. Times count from the first event that is shown."


def _ticks(axis: _Axis, top: float, bottom: float) -> Iterator[str]:
    """Lines at round times, and these below."""
    free = -math.inf
    for moment, text in axis.ticks():
        x = axis.x(moment)
        width = LETTER * len(text)
        left = min(max(x - width / 2, LABEL - 20), WIDTH - width)
        if left < free:
            continue
        free = left + width + 8
        yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'
        yield f'<text x="{left:.1f}" y="{bottom + 12}">{escape(text)}</text>'


def _break(axis: _Axis, cut: tuple[float, float], top: float, bottom: float) -> Iterator[str]:
    """Two jagged lines through all rows, and above how long the piece between them is."""
    middle = (axis.x(cut[0]) + axis.x(cut[1])) / 2
    steps = range(round((bottom - top) / 6) + 1)
    jagged = " ".join(f"{3 if step % 2 else -3},{top + 6 * step}" for step in steps)
    yield f'<g transform="translate({middle:.1f} 0)"><polyline class="cut" points="{jagged}"/>'
    for side in (-3, 3):
        yield f'<polyline class="edge-of-cut" transform="translate({side} 0)" points="{jagged}"/>'
    yield "</g>"
    text = f"{_seconds(cut[1] - cut[0])} cut out"
    half = LETTER * len(text) / 2
    x = min(max(middle, half), WIDTH - half)
    yield f'<text x="{x:.1f}" y="{top - 8}" text-anchor="middle">{escape(text)}</text>'


def _bar(event: Event, span: Span, axis: _Axis, y: float, height: float, *, timed: bool, is_last: bool) -> str:
    """An event in a timeline, its wait in another colour. y: of the row's upper edge."""
    begin, end, wait = span
    x = axis.x(begin)
    width = max(1.5, axis.x(end) - x)
    kind = "stuck" if is_last else "did"
    bars = f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}"/>'
    if wait is not None and not is_last:
        at = axis.x(wait)
        bars += f'<rect class="waited" x="{at:.1f}" y="{y}" width="{max(1.0, x + width - at):.1f}" height="{height}"/>'
    if not timed and LETTER * len(event.instruction) + 8 < width:
        bars += f'<text class="on" x="{x + 4:.1f}" y="{y + height / 2 + 3.5:.1f}">{escape(event.instruction)}</text>'
    return f"<g><title>{escape(_event_text(event, timed=timed))}</title>{bars}</g>"


@dataclass(frozen=True)
class _Axis:
    """Moments as pixels. first, last: its ends.  cuts: pieces that are cut out, ascending.  scale: pixels of a unit."""

    first: float
    last: float
    cuts: tuple[tuple[float, float], ...]
    scale: float

    def x(self, moment: float) -> float:
        pixels = LABEL + self.scale * (moment - self.first)
        for one, other in self.cuts:
            if moment <= one:
                break
            inside = min(moment, other) - one
            pixels += inside * (CUT / (other - one) - self.scale)
        return pixels

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Round times since the first moment, none of them in a piece that is cut out."""
        shown = self.last - self.first - sum(other - one for one, other in self.cuts)
        if shown <= 0:
            return
        step = _round(shown / TICKS)
        pieces = [self.first, *(end for cut in self.cuts for end in cut), self.last]
        for begin, end in zip(pieces[::2], pieces[1::2], strict=True):
            moment = step * math.ceil((begin - self.first) / step - 1e-9)
            while moment <= (end - self.first) * (1 + 1e-9):
                yield self.first + moment, _seconds(moment)
                moment += step


def _axis(moments: Sequence[float], *, cuts: bool) -> _Axis:
    """An axis from the first of the moments up to the end, at 0. cuts: whether pieces may be cut out."""
    points = sorted({*moments, 0.0})
    first = points[0] if points[0] < 0 else -1.0
    left = -first
    gaps = sorted(pairwise(points), key=lambda gap: gap[0] - gap[1])
    found = []
    for begin, end in gaps[:MOST_CUTS] if cuts and len(points) > 2 else []:
        if end - begin <= LARGE_SHARE * left:
            break
        found.append((begin, end))
        left -= end - begin
    room = WIDTH - RIGHT - LABEL - CUT * len(found)
    return _Axis(first, 0.0, tuple(sorted(found)), room / left if left > 0 else 0.0)


def _round(seconds: float) -> float:
    """The next of 1, 2, 5, 10, 20, … units."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next((power * factor for factor in (1, 2, 5) if power * factor >= seconds), 10 * power)


def _seconds(seconds: float) -> str:
    """`0`, `20 µs`, `1.5 ms`, `3 s`."""
    if seconds < 1e-12:
        return "0"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * (1 - 1e-9):
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def _spans(device: DeviceState, *, timed: bool) -> list[Span]:
    """When each event begins and ends, and when its wait begins; at most 0."""
    count = len(device.events)
    if not timed:
        return [(float(k - count), k - count + 0.96, None) for k in range(count)]
    spans: list[Span] = []
    for event in device.events:
        begin = min(0.0, event.begun or 0.0)
        wait = None if event.waited is None else min(0.0, max(begin, event.waited))
        spans.append((begin, max(begin, min(0.0, event.ended or 0.0)), wait))
    return spans


def _event_text(event: Event, *, timed: bool) -> str:
    text = f"{event}"
    if event.iteration:
        text += f", iteration {event.iteration}"
    if timed and event.begun is not None:
        took = f", took {_seconds(event.ended - event.begun)}" if event.ended is not None else ", has not ended"
        text += f", begun {_seconds(-event.begun)} before the end{took}"
    return text


__all__ = ["LABEL", "MOST_ROWS", "most_events", "timelines"]
