"""A diagnosis as one HTML page: no scripts, nothing from elsewhere, every name escaped.

A headline, what to change, the wait-for graph (its cycles marked), timelines of the devices up to the end, the last
events of each device with the first difference marked, and the whole text report. Of JAX processes: process_html.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.diagnosis.facts.findings import UNDECIDED, UNMATCHED, Findings
from distxla.diagnosis.report.html_graph import graph
from distxla.diagnosis.report.html_markup import STYLE, escape
from distxla.diagnosis.report.html_timelines import MOST_ROWS, most_events, timelines
from distxla.diagnosis.report.process_html import process_headline, process_sections
from distxla.diagnosis.report.text import text
from distxla.wording import named

MOST_EVENTS = 12  # of each device in the table of histories; fewer where there are many devices


def page(diagnosis: Findings) -> str:
    """The whole page."""
    headline = escape(headline_of(diagnosis))
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{headline}</title><style>{STYLE}</style></head><body>",
        f"<h1>{headline}</h1>",
        f"<p>{escape(diagnosis.summary)}</p>",
        *_listed("What to change", diagnosis.hints),
        *_listed("Injected", diagnosis.injected),
        *process_sections(diagnosis),
        *(_about_devices(diagnosis) if diagnosis.devices else ()),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def headline_of(diagnosis: Findings) -> str:
    """`Deadlock: 8 devices wait for each other`: the kind and the devices, in a line."""
    if diagnosis.kind == UNDECIDED:
        return "Warning: only the run can tell whether all devices go on"
    kind = "Deadlock" if diagnosis.kind == UNMATCHED else diagnosis.kind.replace("-", " ").capitalize()
    if diagnosis.processes:
        return f"{kind}: {process_headline(diagnosis)}"
    if not diagnosis.devices:
        return f"{kind}: refused before the run"
    came = [device.device for device in diagnosis.devices if device.doing is Doing.ARRIVED]
    if diagnosis.cycles:
        cycle = min(diagnosis.cycles, key=len)
        if len(cycle) == 1:
            return f"{kind}: device {cycle[0]} waits for itself"
        who = f"devices {cycle[0]} and {cycle[1]}" if len(cycle) == 2 else f"{len(cycle)} devices"
        return f"{kind}: {who} wait for each other"
    if diagnosis.without_end:
        waiter, over = diagnosis.without_end[0]
        doing = next((device.doing for device in diagnosis.devices if device.device == over), Doing.ABSENT)
        return f"{kind}: device {waiter} waits for device {over}, which {doing}"
    if came:
        verb = "does" if len(came) == 1 else "do"
        return f"{kind}: {named(came)} {verb} not fit the others"
    waiting = [device.device for device in diagnosis.devices if device.doing is Doing.WAITS]
    if waiting:
        return f"{kind}: {named(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
    return kind


def _about_devices(diagnosis: Findings) -> Iterator[str]:
    yield "<h2>Who waits for whom</h2>"
    yield from graph(diagnosis)
    yield from _recorded(diagnosis)
    yield "<h2>Devices</h2>"
    yield from _table(diagnosis)
    yield "<h2>In words</h2>"
    yield f"<pre>{escape(text(diagnosis))}</pre>"


def _listed(title: str, items: Iterable[object]) -> Iterator[str]:
    """A section with a list; nothing without items."""
    lines = [f"<li>{escape(str(item))}</li>" for item in items]
    if lines:
        yield f'<div class="hints"><strong>{title}</strong><ul>'
        yield from lines
        yield "</ul></div>"


def _recorded(diagnosis: Findings) -> Iterator[str]:
    """The sections that only a run's records fill; none of a program that has not run."""
    if not any(device.events for device in diagnosis.devices):
        yield '<p class="note">No times: nothing has run, or no device has recorded anything.</p>'
        return
    yield "<h2>Timelines up to the end</h2>"
    yield from timelines(diagnosis)
    yield "<h2>What each device did last</h2>"
    yield from _histories(diagnosis)


# --- tables


def _table(diagnosis: Findings) -> Iterator[str]:
    """A row for each device, without empty columns."""
    rows = [_row(device) for device in diagnosis.devices[:MOST_ROWS]]
    columns = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]
    yield '<div class="scroll"><table><tr>' + "".join(f"<th>{name}</th>" for name in columns) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(row[name])}</td>" for name in columns) + "</tr>"
    yield "</table></div>"
    if len(diagnosis.devices) > MOST_ROWS:
        yield f"<p>and {len(diagnosis.devices) - MOST_ROWS} more</p>"


def _row(device: DeviceState) -> dict[str, str]:
    where = device.location
    return {
        "device": str(device.device),
        "does": device.doing.value,
        "instruction": device.instruction,
        "opcode": device.opcode,
        "at": f"{where.file}:{where.line}" if where else "",
        "source": " ".join(filter(None, (where.frame if where else None, device.op_name))),
        "round": "" if device.round is None else str(device.round),
        "channel": "" if device.channel is None else str(device.channel),
        "group": _numbers(device.group),
        "waits for": device.host or _numbers(device.waits_for),
        "loops": "; ".join(f"{loop.instruction}: {loop.iteration or '?'}" for loop in device.loops),
    }


def _numbers(devices: Sequence[int]) -> str:
    shown = ", ".join(map(str, devices[:16]))
    return shown + (f", ... ({len(devices)})" if len(devices) > 16 else "")


def _histories(diagnosis: Findings) -> Iterator[str]:
    """A row for all devices that did the same."""
    rows = [device for device in diagnosis.devices if device.events][:MOST_ROWS]
    marks = {(device, d.one_event) for d in diagnosis.divergences for device in (d.device, *d.also)} | {
        (device, d.other_event) for d in diagnosis.divergences for device in (d.other_device, *d.other_also)
    }
    mark = ' class="first"'
    most = min(MOST_EVENTS, most_events(len(rows)))
    grouped: dict[tuple[str, str | None, str], list[int]] = {}
    for device in rows:
        first = max(0, len(device.events) - most)
        cells = "".join(
            f"<td{mark if (device.device, number) in marks else ''}>"
            f"{escape(f'{event.instruction} #{event.round}')}</td>"
            for number, event in enumerate(device.events[first:], first)
        )
        file = None if device.location is None else device.location.file
        grouped.setdefault((device.program, file, cells), []).append(device.device)
    yield '<div class="scroll"><table>'
    for (_, _, cells), devices in grouped.items():
        yield f"<tr><th>{named(devices)}</th>{cells}</tr>"
    yield "</table></div>"
    yield '<p class="note">#: the round of the group, or the transfer of the channel. Red: the first difference.</p>'
    if diagnosis.divergences:
        yield "<ul>" + "".join(f"<li>{escape(str(d))}</li>" for d in diagnosis.divergences) + "</ul>"


__all__ = ["headline_of", "page"]
