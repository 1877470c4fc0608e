"""A report as one HTML page: no scripts, nothing from elsewhere, every name escaped.

The graph of who waits for whom (its cycles marked), timelines of the devices up to the end, what each device did last
with the first difference marked, and all that the text says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape as _escape

from distxla.collectives.report import DeviceReport, Doing, Event, Report, chain
from distxla.errors import printable

MOST_NODES = 40  # devices in the graph
MOST_LABELS = 12  # devices in it up to which their instructions stand beside them; then there is no room
MOST_ROWS = 256  # devices in timelines and tables
MOST_EVENTS = 12  # of each device in the table of histories; fewer where there are many devices
MOST_DRAWN, LEAST_DRAWN = 640, 2  # events in all timelines, and of each device whatever there are
WIDTH, LABEL, ROW = 1000, 84, 18  # pixels
LETTERS = 16  # of an instruction's name beside its device

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #f4f5f7; --line: #d4d8dd;
 --red: #cf222e; --pink: #ffd7d5; --gold: #bf8700; --cream: #fff3c4; --grey: #57606a; --green: #1a7f37; --mint: #dafbe1;
 --blue: #218bff; --sky: #b6e3ff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #0d1117; --soft: #1c222b; --line: #3a424d;
 --red: #ff6a69; --pink: #5d1f22; --gold: #d4a72c; --cream: #4a3a0a; --grey: #9aa4af; --green: #4ac26b; --mint: #12401f;
 --blue: #388bfd; --sky: #1f4a78; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1080px; padding: 0 1em; color: var(--ink);
 background: var(--paper); }
h1 { font-size: 1.3em; } h2 { font-size: 1.05em; margin-top: 2em; }
pre, code, td { font-family: ui-monospace, monospace; font-size: 12px; }
pre { background: var(--soft); padding: .8em; overflow-x: auto; }
table { border-collapse: collapse; } td, th { border: 1px solid var(--line); padding: 2px 6px; text-align: left; }
th { font-size: 12px; background: var(--soft); } td.first { background: var(--pink); font-weight: bold; }
svg text { font: 11px ui-monospace, monospace; fill: var(--ink); } .scroll { overflow-x: auto; }
.cycle { stroke: var(--red); fill: var(--pink); } .behind { stroke: var(--gold); fill: var(--cream); }
.over { stroke: var(--grey); fill: var(--line); stroke-dasharray: 3 2; }
.free { stroke: var(--green); fill: var(--mint); }
path.edge { stroke: var(--grey); stroke-width: 1.2; fill: none; } path.hot { stroke: var(--red); stroke-width: 2.6; }
.did { fill: var(--blue); } .waited { fill: var(--sky); } .stuck { fill: var(--red); } .axis { stroke: var(--line); }
"""


def page(report: Report) -> str:
    """The whole page."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(report.kind)}: {escape(report.summary)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(report.kind)}: {escape(report.summary)}</h1>",
        *_hints(report),
        "<h2>Who waits for whom</h2>",
        *_graph(report),
        "<h2>Timelines up to the end</h2>",
        *_timelines(report),
        "<h2>Devices</h2>",
        *_table(report),
        "<h2>What each device did last</h2>",
        *_histories(report),
        "<h2>In words</h2>",
        f"<pre>{escape(report.text())}</pre>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _hints(report: Report) -> Iterator[str]:
    if report.hints:
        yield "<ul>"
        for hint in report.hints:
            yield f"<li>{escape(hint)}</li>"
        yield "</ul>"


def escape(text: str) -> str:
    """Text of the page: neither markup nor what a browser would obey."""
    return _escape(printable(text))


# --- the graph


def _graph(report: Report) -> Iterator[str]:
    nodes = _nodes(report)
    if not nodes:
        yield "<p>Nobody waits.</p>"
        return
    radius = max(90.0, len(nodes) * 22 / math.pi)
    labelled = len(nodes) <= MOST_LABELS
    middle = radius + (40 + 7 * LETTERS if labelled else 40)
    spots = {}
    for place, device in enumerate(nodes):
        angle = 2 * math.pi * place / len(nodes) - math.pi / 2
        spots[device.device] = (middle + radius * math.cos(angle), middle + radius * math.sin(angle))
    hot = {pair for cycle in report.cycles for pair in zip(cycle, (*cycle[1:], cycle[0]), strict=True)}
    for cycle in report.cycles:
        yield f"<p>Cycle: {escape(chain(cycle))}</p>"
    size = 2 * middle
    yield (
        f'<div class="scroll"><svg role="img" aria-label="Who waits for whom" width="{size:.0f}" '
        f'height="{size:.0f}" viewBox="0 0 {size:.0f} {size:.0f}">'
    )
    yield (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" fill="context-stroke"/></marker></defs>'
    )
    for device in nodes:
        for other in device.waits_for:
            if other in spots:
                yield _edge(spots[device.device], spots[other], hot=(device.device, other) in hot)
    for device in nodes:
        yield _node(device, spots[device.device], _class(report, device), middle if labelled else None)
    yield "</svg></div>"
    yield (
        "<p>An arrow leads from who waits to whom it waits for. Red: a cycle, or what does not belong together; yellow:"
        " waits behind it; dashed: has ended, failed or died, or takes no part; green: computes, or has not begun.</p>"
    )
    left = sum(1 for device in report.devices if device.waits_for) - sum(1 for device in nodes if device.waits_for)
    if left > 0:
        yield f"<p>{left} more devices wait; the table below has all of them.</p>"


def _nodes(report: Report) -> list[DeviceReport]:
    """The devices of the graph: those of cycles first, then others that wait or are waited for; not all if many."""
    by_id = {device.device: device for device in report.devices}
    wanted = dict.fromkeys(d for cycle in report.cycles for d in cycle)
    wanted |= dict.fromkeys(d for pair in report.without_end for d in pair)
    for device in report.devices:
        if device.doing in (Doing.WAITS, Doing.CAME):
            wanted |= dict.fromkeys((device.device, *device.waits_for[:4]))
    return [by_id.get(d, DeviceReport(d, Doing.ABSENT)) for d in [*wanted][:MOST_NODES]]


def _class(report: Report, device: DeviceReport) -> str:
    if device.doing is Doing.CAME or any(device.device in cycle for cycle in report.cycles):
        return "cycle"
    if device.doing is Doing.WAITS:
        return "behind"
    return "free" if device.doing in (Doing.COMPUTES, Doing.NOT_BEGUN) else "over"


def _edge(begin: tuple[float, float], end: tuple[float, float], *, hot: bool) -> str:
    """An arrow, bent a little so that two that go both ways are seen."""
    (x, y), (u, v) = begin, end
    length = math.hypot(u - x, v - y) or 1.0
    dx, dy = (u - x) / length, (v - y) / length
    x, y, u, v = x + 20 * dx, y + 20 * dy, u - 22 * dx, v - 22 * dy
    bend = min(24.0, length / 6)
    middle = ((x + u) / 2 - bend * dy, (y + v) / 2 + bend * dx)
    kind = "edge hot" if hot else "edge"
    return (
        f'<path class="{kind}" marker-end="url(#head)" '
        f'd="M {x:.1f} {y:.1f} Q {middle[0]:.1f} {middle[1]:.1f} {u:.1f} {v:.1f}"/>'
    )


def _node(device: DeviceReport, spot: tuple[float, float], kind: str, middle: float | None) -> str:
    """middle: of the circle of devices, both ways, where its label is to stand outside of that; None for no label."""
    x, y = spot
    what = f"device {device.device} {device.doing}" + (f" in {device.place}" if device.instruction else "")
    text = ""
    if middle is not None and device.instruction:
        name = device.instruction
        label = name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"
        if abs(x - middle) < 1:  # above or below
            where = f'x="{x:.1f}" y="{y - 26 if y < middle else y + 34:.1f}" text-anchor="middle"'
        else:
            right = x > middle
            where = f'x="{x + (24 if right else -24):.1f}" y="{y + 4:.1f}" text-anchor="{"start" if right else "end"}"'
        text = f"<text {where}>{escape(label)}</text>"
    return (
        f'<g><title>{escape(what)}</title><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="18" stroke-width="2"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{device.device}</text>{text}</g>'
    )


# --- timelines


def _timelines(report: Report) -> Iterator[str]:
    rows = [device for device in report.devices if device.events][:MOST_ROWS]
    if not rows:
        yield "<p>No device has recorded anything.</p>"
        return
    rows = [replace(device, events=device.events[-_most_events(rows) :]) for device in rows]
    timed = all(event.begun is not None for device in rows for event in device.events)
    spans = {device.device: _spans(device, timed=timed) for device in rows}
    begins = [begin for row in spans.values() for begin, _, _ in row]
    first, last_begin = min(begins), max(begins)
    axis = _Axis(first, last_begin)
    bottom = ROW * len(rows) + 4
    height = bottom + 34
    yield (
        f'<div class="scroll"><svg role="img" aria-label="Timelines" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">'
    )
    for number, device in enumerate(rows):
        y = ROW * number + 4
        yield f'<text x="2" y="{y + 11}">device {device.device}</text>'
        yield f'<line class="axis" x1="{LABEL}" x2="{WIDTH - 10}" y1="{y + 7}" y2="{y + 7}"/>'
        for event, span in zip(device.events, spans[device.device], strict=True):
            is_last = event is device.events[-1] and device.doing in (Doing.WAITS, Doing.CAME)
            yield _bar(event, span, axis, y, timed=timed, is_last=is_last)
    unit = f"{-first:.6g} s before the end" if timed else "in the order of execution; times are not known"
    yield f'<text x="{LABEL}" y="{bottom + 12}">{escape(unit)}</text>'
    yield f'<text x="{WIDTH - 10}" y="{bottom + 12}" text-anchor="end">end</text>'
    if timed and last_begin < 0:
        at = axis.x(last_begin)
        yield f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{bottom}" stroke-dasharray="2 3"/>'
        side = "start" if at < WIDTH / 2 else "end"
        quiet = f"here on, for {-last_begin:.3g} s, nobody began anything"
        yield f'<text x="{at:.1f}" y="{bottom + 28}" text-anchor="{side}">from {quiet}</text>'
    yield "</svg></div>"
    yield "<p>Blue: communicating instructions; light: waiting; red: what a device is in at the end.</p>"


def _most_events(rows: Sequence[DeviceReport]) -> int:
    """Of each device that a page has room for."""
    return max(LEAST_DRAWN, MOST_DRAWN // len(rows))


def _bar(
    event: Event, span: tuple[float, float, float | None], axis: _Axis, y: int, *, timed: bool, is_last: bool
) -> str:
    """An event in a timeline, its wait in another colour. y: of the row's upper edge."""
    begin, end, wait = span
    x = axis.x(begin)
    width = max(1.5, axis.x(end) - x)
    kind = "stuck" if is_last else "did"
    bars = f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="13"/>'
    if wait is not None and not is_last:
        at = axis.x(wait)
        bars += f'<rect class="waited" x="{at:.1f}" y="{y}" width="{max(1.0, x + width - at):.1f}" height="13"/>'
    return f"<g><title>{escape(_event_text(event, timed=timed))}</title>{bars}</g>"


class _Axis:
    """Seconds before the end as pixels. What nobody began anything in takes a quarter at most."""

    def __init__(self, first: float, last_begin: float) -> None:
        self._first, self._last = first, last_begin
        width = WIDTH - LABEL - 10
        before, after = last_begin - first, -last_begin
        self._knee = width * (max(0.75, before / (before + after)) if before > 0 and before + after > 0 else 0.02)
        self._rest = width - self._knee

    def x(self, moment: float) -> float:
        if moment <= self._last:
            return LABEL + self._knee * (moment - self._first) / max(1e-12, self._last - self._first)
        return LABEL + self._knee + self._rest * (moment - self._last) / max(1e-12, -self._last)


def _spans(device: DeviceReport, *, timed: bool) -> list[tuple[float, float, float | None]]:
    """Begin, end and begin of the wait of each event, at most 0."""
    count = len(device.events)
    if not timed:
        return [(float(k - count), k - count + 0.9, None) for k in range(count)]
    spans = []
    for event in device.events:
        begin = min(0.0, event.begun or 0.0)
        spans.append((begin, max(begin, min(0.0, event.ended or 0.0)), event.waited))
    return spans


def _event_text(event: Event, *, timed: bool) -> str:
    text = f"{event}"
    if event.iteration:
        text += f", iteration {event.iteration}"
    if timed and event.begun is not None:
        took = f", took {(event.ended - event.begun) * 1e6:.1f} us" if event.ended is not None else ", has not ended"
        text += f", begun {-event.begun:.6f} s before the end{took}"
    return text


# --- tables


def _table(report: Report) -> Iterator[str]:
    heads = (
        "device",
        "does",
        "instruction",
        "opcode",
        "at",
        "source",
        "round",
        "channel",
        "group",
        "waits for",
        "loops",
    )
    yield '<div class="scroll"><table><tr>' + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for device in report.devices[:MOST_ROWS]:
        where = device.location
        loops = "; ".join(f"{x.instruction}: {x.iteration or '?'}" for x in device.loops)
        cells = (
            str(device.device),
            device.doing.value,
            device.instruction,
            device.opcode,
            f"{where.file}:{where.line}" if where else "",
            " ".join(filter(None, (where.frame if where else None, device.op_name))),
            "" if device.round is None else str(device.round),
            "" if device.channel is None else str(device.channel),
            _numbers(device.group),
            device.host or _numbers(device.waits_for),
            loops,
        )
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table></div>"
    if len(report.devices) > MOST_ROWS:
        yield f"<p>and {len(report.devices) - MOST_ROWS} more</p>"


def _numbers(devices: Sequence[int]) -> str:
    shown = ", ".join(map(str, devices[:16]))
    return shown + (f", ... ({len(devices)})" if len(devices) > 16 else "")


def _histories(report: Report) -> Iterator[str]:
    rows = [device for device in report.devices if device.events][:MOST_ROWS]
    marks = {(device, d.one_event) for d in report.differences for device in (d.device, *d.also)} | {
        (device, d.other_event) for d in report.differences for device in (d.other_device, *d.other_also)
    }
    mark = ' class="first"'
    if not rows:
        yield "<p>Nothing is known.</p>"
        return
    most = min(MOST_EVENTS, _most_events(rows))
    yield '<div class="scroll"><table>'
    for device in rows:
        first = max(0, len(device.events) - most)
        cells = "".join(
            f"<td{mark if (device.device, number) in marks else ''}>"
            f"{escape(f'{event.instruction} #{event.round}')}</td>"
            for number, event in enumerate(device.events[first:], first)
        )
        yield f"<tr><th>device {device.device}</th>{cells}</tr>"
    yield "</table></div>"
    if report.differences:
        yield "<ul>" + "".join(f"<li>{escape(str(d))}</li>" for d in report.differences) + "</ul>"


__all__ = ["page"]
