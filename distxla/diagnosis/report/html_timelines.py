"""The timelines of a diagnosis's page: the last events of each device up to the end, on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event
from distxla.diagnosis.facts.findings import Findings
from distxla.diagnosis.report.equal_devices import of_rows
from distxla.diagnosis.report.html_lines import Axis, Bar, Row, lines, seconds_text
from distxla.diagnosis.report.html_markup import legend
from distxla.wording import counted, named

MOST_ROWS = 256
MOST_DRAWN, LEAST_DRAWN = 640, 2  # events in all timelines, and of each row in any case
LETTERS = 17  # of a row's name

Span = tuple[float, float, float | None]  # when it begins and ends, and when its wait begins


def timelines(diagnosis: Findings) -> Iterator[str]:
    recorded = [device for device in diagnosis.devices if device.events]
    if not recorded:
        yield "<p>No device has recorded anything.</p>"
        return
    groups = of_rows(recorded)
    most = most_events(len(groups[:MOST_ROWS]))
    timed = all(event.begun is not None for device in recorded for event in device.events[-most:])
    rows, moments = [], [0.0]
    for devices in groups[:MOST_ROWS]:
        spans = _spans(devices, most, timed=timed)
        moments += [moment for span in spans for moment in span if moment is not None]
        rows.append(_row(devices, spans, most, timed=timed))
    axis = Axis.of(moments, cuts=timed)
    yield from lines(rows, axis, "Timelines", ends=None if timed else ("first", "last"))
    if len(groups) > MOST_ROWS:
        yield f'<p class="note">and {counted(len(groups) - MOST_ROWS, "more line")}</p>'
    kinds = [("did", "communicating instruction"), ("waited", "its wait"), ("stuck", "where the device is at the end")]
    if not timed:
        kinds.pop(1)
    yield legend(*kinds)
    several = any(len(devices) > 1 for devices in groups) and timed
    yield f'<p class="note">{_scale(axis, timed=timed)}{SEVERAL if several else ""}</p>'


SEVERAL = " A bar of several devices goes from the first one that begins to the last one that ends."


def most_events(rows: int) -> int:
    """Of each row that a page has room for."""
    return max(LEAST_DRAWN, MOST_DRAWN // rows)


def _scale(axis: Axis, *, timed: bool) -> str:
    if not timed:
        return "Not to scale: the order of execution of each device. Times are not known."
    if not axis.cuts:
        return "To scale. Times count from the first event that is shown."
    return "To scale, but for the breaks, where nothing begins or ends. Times count from the first event that is shown."


def _row(devices: Sequence[DeviceState], spans: Sequence[Span], most: int, *, timed: bool) -> Row:
    first, who = devices[0], named(device.device for device in devices)
    bars = []
    for event, (begin, end, wait) in zip(first.events[-most:], spans, strict=True):
        is_last = event is first.events[-1] and first.doing in (Doing.WAITS, Doing.ARRIVED)
        said = _event_text(event, timed=timed)
        bars.append(Bar(begin, end, "stuck" if is_last else "did", said, "" if timed else event.instruction))
        if wait is not None and not is_last:
            bars.append(Bar(wait, end, "waited", said))
    short = who if len(who) <= LETTERS else counted(len(devices), "device")
    return Row(short, who, bars)


def _spans(devices: Sequence[DeviceState], most: int, *, timed: bool) -> list[Span]:
    """When each event begins and ends, and when its wait begins; at most 0. Of several devices from the first to the
    last."""
    events = [device.events[-most:] for device in devices]
    count = len(events[0])
    if not timed:
        return [(float(k - count), k - count + 0.96, None) for k in range(count)]
    spans: list[Span] = []
    for same in zip(*events, strict=True):
        begin = min(0.0, *(event.begun or 0.0 for event in same))
        end = max(begin, *(min(0.0, event.ended or 0.0) for event in same))
        waits = [max(begin, event.waited) for event in same if event.waited is not None]
        spans.append((begin, end, min(0.0, *waits) if waits else None))
    return spans


def _event_text(event: Event, *, timed: bool) -> str:
    text = f"{event}"
    if event.iteration:
        text += f", iteration {event.iteration}"
    if timed and event.begun is not None:
        took = f", took {seconds_text(event.ended - event.begun)}" if event.ended is not None else ", has not ended"
        text += f", begun {seconds_text(-event.begun)} before the end{took}"
    return text


__all__ = ["MOST_ROWS", "most_events", "timelines"]
