"""A report as one HTML page: no scripts, nothing from elsewhere, every name escaped.

The graph of who waits for whom (its cycles marked), timelines of the devices up to the end, what each device did last
with the first difference marked, and all that the text says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape as _escape

from distxla.collectives.report import DeviceReport, Doing, Event, Report
from distxla.errors import printable

MOST_NODES = 40  # devices in the graph
MOST_ROWS = 256  # devices in timelines and tables
MOST_EVENTS = 12  # of each device in the table of histories
WIDTH, LABEL, ROW = 1000, 70, 18  # pixels

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1080px; color: #1b1f24; background: #fff; }
h1 { font-size: 1.3em; } h2 { font-size: 1.05em; margin-top: 2em; }
pre, code, td { font-family: ui-monospace, monospace; font-size: 12px; }
pre { background: #f4f5f7; padding: .8em; overflow-x: auto; }
table { border-collapse: collapse; } td, th { border: 1px solid #d4d8dd; padding: 2px 6px; text-align: left; }
th { font-size: 12px; background: #f4f5f7; } td.first { background: #ffd7d5; font-weight: bold; }
svg text { font: 11px ui-monospace, monospace; } .scroll { overflow-x: auto; }
.cycle { stroke: #cf222e; fill: #ffd7d5; } .behind { stroke: #bf8700; fill: #fff3c4; }
.over { stroke: #57606a; fill: #d4d8dd; stroke-dasharray: 3 2; } .free { stroke: #1a7f37; fill: #dafbe1; }
path.edge { stroke: #8c959f; stroke-width: 1.2; fill: none; } path.hot { stroke: #cf222e; stroke-width: 2.6; }
.did { fill: #54aeff; } .waited { fill: #b6e3ff; } .stuck { fill: #cf222e; } .axis { stroke: #d4d8dd; }
"""


def page(report: Report) -> str:
    """The whole page."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>distxla: {escape(report.kind)}</title><style>{_STYLE}</style></head><body>",
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
    middle = radius + 60
    spots = {}
    for place, device in enumerate(nodes):
        angle = 2 * math.pi * place / len(nodes) - math.pi / 2
        spots[device.device] = (middle + radius * math.cos(angle), middle + radius * math.sin(angle))
    hot = {pair for cycle in report.cycles for pair in zip(cycle, (*cycle[1:], cycle[0]), strict=True)}
    size = 2 * middle
    yield f'<div class="scroll"><svg role="img" width="{size:.0f}" height="{size:.0f}">'
    yield (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" fill="context-stroke"/></marker></defs>'
    )
    for device in nodes:
        for other in device.waits_for:
            if other in spots:
                yield _edge(spots[device.device], spots[other], hot=(device.device, other) in hot)
    for device in nodes:
        yield _node(device, spots[device.device], _class(report, device))
    yield "</svg></div>"
    left = sum(1 for device in report.devices if device.waits_for) - sum(1 for device in nodes if device.waits_for)
    if left > 0:
        yield f"<p>{left} more devices wait; the table below has all of them.</p>"


def _nodes(report: Report) -> list[DeviceReport]:
    """The devices of the graph: those of cycles first, then others that wait or are waited for; not all if many."""
    by_id = {device.device: device for device in report.devices}
    wanted = dict.fromkeys(d for cycle in report.cycles for d in cycle)
    wanted |= dict.fromkeys(d for pair in report.without_end for d in pair)
    for device in report.devices:
        if device.waits_for or device.host:
            wanted |= dict.fromkeys((device.device, *device.waits_for[:4]))
    return [by_id.get(d, DeviceReport(d, Doing.ABSENT)) for d in [*wanted][:MOST_NODES]]


def _class(report: Report, device: DeviceReport) -> str:
    if any(device.device in cycle for cycle in report.cycles):
        return "cycle"
    if device.doing is Doing.WAITS:
        return "behind"
    return "free" if device.doing is Doing.COMPUTES else "over"


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


def _node(device: DeviceReport, spot: tuple[float, float], kind: str) -> str:
    x, y = spot
    what = f"device {device.device} {device.doing}" + (f" in {device.place}" if device.instruction else "")
    label = device.instruction if len(device.instruction) <= 16 else device.instruction[:15] + "…"
    return (
        f'<g><title>{escape(what)}</title><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="18" stroke-width="2"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{device.device}</text>'
        f'<text x="{x:.1f}" y="{y + 32:.1f}" text-anchor="middle">{escape(label)}</text></g>'
    )


# --- timelines


def _timelines(report: Report) -> Iterator[str]:
    rows = [device for device in report.devices if device.events][:MOST_ROWS]
    if not rows:
        yield "<p>No device has recorded anything.</p>"
        return
    timed = all(event.begun is not None for device in rows for event in device.events)
    spans = {device.device: _spans(device, timed=timed) for device in rows}
    begins = [begin for row in spans.values() for begin, _, _ in row]
    first, last_begin = min(begins), max(begins)
    axis = _Axis(first, last_begin)
    height = ROW * len(rows) + 30
    yield f'<div class="scroll"><svg role="img" width="{WIDTH}" height="{height}">'
    for number, device in enumerate(rows):
        y = ROW * number + 4
        yield f'<text x="2" y="{y + 11}">device {device.device}</text>'
        yield f'<line class="axis" x1="{LABEL}" x2="{WIDTH - 10}" y1="{y + 7}" y2="{y + 7}"/>'
        for event, (begin, end, wait) in zip(device.events, spans[device.device], strict=True):
            x = axis.x(begin)
            width = max(1.5, axis.x(end) - x)
            last = event is device.events[-1] and device.doing is Doing.WAITS
            title = f"<title>{escape(_event_text(event, timed=timed))}</title>"
            kind = "stuck" if last else "did"
            yield f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="13">{title}</rect>'
            if wait is not None and not last:
                at = axis.x(wait)
                rest = max(1.0, x + width - at)
                yield f'<rect class="waited" x="{at:.1f}" y="{y}" width="{rest:.1f}" height="13">{title}</rect>'
    unit = f"{-first:.6g} s before the end" if timed else "in the order of execution; times are not known"
    yield f'<text x="{LABEL}" y="{height - 6}">{escape(unit)}</text>'
    if timed and last_begin < 0:
        at = axis.x(last_begin)
        yield f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height - 18}" stroke-dasharray="2 3"/>'
        yield f'<text x="{at:.1f}" y="{height - 6}">nobody began anything for {-last_begin:.3g} s</text>'
    yield f'<text x="{WIDTH - 10}" y="{height - 6}" text-anchor="end">end</text></svg></div>'
    yield "<p>Blue: communicating instructions; light: waiting; red: what a device waits in at the end.</p>"


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
            (where.frame if where else "") or "",
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
    marks = {(d.device, d.one_event) for d in report.differences} | {
        (d.other_device, d.other_event) for d in report.differences
    }
    if not rows:
        yield "<p>Nothing is known.</p>"
        return
    yield '<div class="scroll"><table>'
    for device in rows:
        first = max(0, len(device.events) - MOST_EVENTS)
        cells = "".join(
            f"<td{' class=first' if (device.device, number) in marks else ''}>"
            f"{escape(f'{event.instruction} #{event.round}')}</td>"
            for number, event in enumerate(device.events[first:], first)
        )
        yield f"<tr><th>device {device.device}</th>{cells}</tr>"
    yield "</table></div>"
    if report.differences:
        yield "<ul>" + "".join(f"<li>{escape(str(d))}</li>" for d in report.differences) + "</ul>"


__all__ = ["page"]
