"""A diagnosis as one HTML page: no scripts, nothing from elsewhere, every name escaped.

A headline, counts, the program and the command, what to change, the wait-for graph (its cycles marked), the lines of
the program and of the source, timelines of the devices up to the end, the last events of each device with the first
difference marked, and the whole text report. Devices that do the same are one card, one row, one line of time. Of JAX
processes: process_html.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.diagnosis.facts.findings import UNDECIDED, UNMATCHED, Findings
from distxla.diagnosis.report.equal_devices import EqualDevices, grouped
from distxla.diagnosis.report.excerpts import excerpts
from distxla.diagnosis.report.html_graph import graph
from distxla.diagnosis.report.html_markup import about, counts, escape, in_notebook, listed_hints, table, whole_page
from distxla.diagnosis.report.html_timelines import timelines
from distxla.diagnosis.report.process_html import process_headline, process_sections
from distxla.diagnosis.report.text import doing_of
from distxla.diagnosis.report.text import text as text_of
from distxla.wording import counted, listed, named

MOST_ROWS = 64  # of the table of devices
MOST_EVENTS = 12  # of each device in the lists of histories
MOST_HISTORIES = 16
MOST_PROGRAMS = 8
LETTERS = 48  # of the devices that a headline names
FIRST = ' class="first"'


def page(diagnosis: Findings, command: str = "") -> str:
    """The whole page. command: the one that has found it, "" for none."""
    return whole_page(headline_of(diagnosis), parts(diagnosis, command))


def fragment(diagnosis: Findings) -> str:
    """What a cell of a notebook shows."""
    return in_notebook(parts(diagnosis, ""))


def parts(diagnosis: Findings, command: str = "") -> Iterator[str]:
    """Of the page, or of what a cell shows."""
    yield f"<h1>{escape(headline_of(diagnosis))}</h1>"
    yield f"<p>{escape(diagnosis.summary)}</p>"
    yield _counts(diagnosis)
    yield from about(_facts(diagnosis, command))
    yield from listed_hints("What to change", diagnosis.hints)
    yield from listed_hints("Injected", diagnosis.injected)
    yield from process_sections(diagnosis)
    if diagnosis.devices:
        yield from _about_devices(diagnosis)


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
    if len(diagnosis.cycles) > 1:
        count = len({device for cycle in diagnosis.cycles for device in cycle})
        return f"{kind}: {count} devices wait for each other in {len(diagnosis.cycles)} cycles"
    if diagnosis.cycles:
        cycle = min(diagnosis.cycles, key=len)
        if len(cycle) == 1:
            return f"{kind}: device {cycle[0]} waits for itself"
        who = f"devices {cycle[0]} and {cycle[1]}" if len(cycle) == 2 else f"{len(cycle)} devices"
        return f"{kind}: {who} wait for each other"
    if diagnosis.without_end:
        return f"{kind}: {_waits_in_vain(diagnosis)}"
    if came:
        verb = "does" if len(came) == 1 else "do"
        return f"{kind}: {_short(came)} {verb} not fit the others"
    lost = [device.device for device in diagnosis.devices if device.doing is Doing.LOST]
    if lost:
        return f"{kind}: {_short(lost)}"
    waiting = [device.device for device in diagnosis.devices if device.doing is Doing.WAITS]
    if waiting:
        return f"{kind}: {_short(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
    return kind


def _short(devices: Collection[int]) -> str:
    """`devices 0, 2-5`; of very many in no order their number."""
    return text if len(text := named(devices)) <= LETTERS else counted(len(devices), "device")


def _waits_in_vain(diagnosis: Findings) -> str:
    """`devices 0-239 wait for devices 240-255, which have ended`."""
    waiters, over = ({pair[place] for pair in diagnosis.without_end} for place in (0, 1))
    states = [diagnosis.of(device) for device in sorted(over)]
    doing = {Doing.ABSENT if state is None else state.doing for state in states}
    text = f"{_short(waiters)} {'waits' if len(waiters) == 1 else 'wait'} for {_short(over)}"
    if len(doing) > 1:
        return text
    (what,) = doing
    return f"{text}, which {doing_of(what, len(over))}"


def _about_devices(diagnosis: Findings) -> Iterator[str]:
    yield "<h2>Who waits for whom</h2>"
    yield from graph(diagnosis)
    groups = grouped(diagnosis)
    places = dict.fromkeys(group.state.place for group in groups if group.kind in ("cycle", "behind"))
    quoted = [*excerpts(places)]
    if quoted:
        yield "<h2>Where</h2>"
        yield from quoted
    yield from _recorded(diagnosis)
    yield "<h2>Devices</h2>"
    yield from table([_row(group) for group in groups[:MOST_ROWS]])
    if len(groups) > MOST_ROWS:
        yield f"<p>and {len(groups) - MOST_ROWS} more</p>"
    yield "<h2>In words</h2>"
    yield f"<pre>{escape(text_of(diagnosis))}</pre>"


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


def _row(group: EqualDevices) -> dict[str, str]:
    device = group.state
    where, is_one = device.location, len(group.devices) == 1
    return {
        "devices": listed(group.devices),
        "what they do": doing_of(device.doing, len(group.devices)),
        "instruction": device.instruction,
        "opcode": device.opcode,
        "at": f"{where.file}:{where.line}" if where else "",
        "source": " ".join(filter(None, (where.frame if where else None, device.op_name))),
        "round": "" if device.round is None else str(device.round),
        "channel": "" if device.channel is None else str(device.channel),
        "group": listed(device.group) if is_one or set(group.devices) <= {*device.group} else "",
        "waits for": device.host or group.waits_text,
        "loops": "; ".join(f"{loop.instruction}: {loop.iteration or '?'}" for loop in device.loops),
    }


def _histories(diagnosis: Findings) -> Iterator[str]:
    """A list for all devices that did the same."""
    rows = [device for device in diagnosis.devices if device.events]
    marks = {(device, d.one_event) for d in diagnosis.divergences for device in (d.device, *d.also)} | {
        (device, d.other_event) for d in diagnosis.divergences for device in (d.other_device, *d.other_also)
    }
    histories: dict[tuple[object, ...], list[DeviceState]] = {}
    for device in rows:
        file = None if device.location is None else device.location.file
        history = tuple((event.instruction, event.round) for event in device.events)
        histories.setdefault((device.program, file, history), []).append(device)
    for devices in [*histories.values()][:MOST_HISTORIES]:
        events, who = devices[0].events, [device.device for device in devices]
        first = max(0, len(events) - MOST_EVENTS)
        items = "".join(
            f"<li{FIRST if any((device, number) in marks for device in who) else ''}>"
            f"{escape(f'{event.instruction} #{event.round}')}</li>"
            for number, event in enumerate(events[first:], first)
        )
        yield f'<ul class="chips"><li class="who">{named(who)}</li>{items}</ul>'
    if len(histories) > MOST_HISTORIES:
        yield f"<p>and {counted(len(histories) - MOST_HISTORIES, 'other history')}</p>"
    yield '<p class="note">#: the round of the group, or the transfer of the channel. Red: the first difference.</p>'
    if diagnosis.divergences:
        shown = [f"<li>{escape(str(d))}</li>" for d in diagnosis.divergences[:MOST_HISTORIES]]
        yield "<ul>" + "".join(shown) + "</ul>"


def _counts(diagnosis: Findings) -> str:
    """How many devices there are, what they do, and how many can never end."""
    devices = [device for device in diagnosis.devices if device.doing is not Doing.ABSENT]
    if not devices:
        return ""
    doing = Counter(device.doing for device in devices)
    numbers: list[tuple[int | str, str, bool]] = [(len(devices), "devices" if len(devices) > 1 else "device", False)]
    numbers += [
        (count, doing_of(what, count), what in (Doing.FAILED, Doing.LOST)) for what, count in doing.most_common()
    ]
    if diagnosis.cycles:
        count = len(diagnosis.cycles)
        numbers.append((count, "cycles of waits" if count > 1 else "cycle of waits", True))
    if diagnosis.stuck:
        numbers.append((len(diagnosis.stuck), "can never end", True))
    return counts(*numbers)


def _facts(diagnosis: Findings, command: str) -> Iterator[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    programs: dict[str, list[int]] = {}
    for device in diagnosis.devices:
        if device.program:
            programs.setdefault(device.program, []).append(device.device)
    files = {device.program: device.location.file for device in diagnosis.devices if device.location is not None}
    shown = [
        " ".join(filter(None, (name, f"({files[name]})" if name in files else "", f"on {named(devices)}")))
        for name, devices in programs.items()
    ]
    yield "program" if len(shown) == 1 else "programs", "; ".join(shown[:MOST_PROGRAMS])
    yield "command", command
    try:
        yield "version", f"distxla {version('distxla')}"
    except PackageNotFoundError:
        return


__all__ = ["fragment", "headline_of", "page", "parts"]
