"""What a diagnosis says of JAX processes, as sections of its page: what differs, the processes, their last calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from distxla.diagnosis.facts.findings import Findings
from distxla.diagnosis.facts.processes import ProcessState
from distxla.diagnosis.report.html_markup import escape, table
from distxla.diagnosis.report.process_text import process_lines
from distxla.wording import processes_named

MOST_ROWS = 64
MOST_CALLS = 8  # of each process


def process_headline(diagnosis: Findings) -> str:
    """`processes disagree in call 4 of processes 0 and 1`: the first clause of the summary."""
    return re.split(r"[:;]", diagnosis.summary, maxsplit=1)[0]


def process_sections(diagnosis: Findings) -> Iterator[str]:
    """Nothing where the diagnosis is about devices."""
    if not diagnosis.processes:
        return
    if diagnosis.process_differences:
        yield "<h2>What differs</h2>"
        yield from _differences(diagnosis)
    yield "<h2>Processes</h2>"
    yield from table([_row(state) for state in diagnosis.processes[:MOST_ROWS]])
    if len(diagnosis.processes) > MOST_ROWS:
        yield f"<p>and {len(diagnosis.processes) - MOST_ROWS} more</p>"
    if any(state.calls for state in diagnosis.processes):
        yield "<h2>What each process called last</h2>"
        yield from _calls(diagnosis.processes[:MOST_ROWS])
    yield "<h2>In words</h2>"
    words = "\n".join([diagnosis.headline, *process_lines(diagnosis)])
    yield f"<pre>{escape(words)}</pre>"


def _differences(diagnosis: Findings) -> Iterator[str]:
    yield "<table><tr><th></th><th>process</th><th>has</th><th>from</th></tr>"
    for each in diagnosis.process_differences:
        name = escape(f"{each.what} {each.where}".rstrip())
        if each.sentence:
            yield f'<tr><th>{name}</th><td colspan="3">{escape(each.sentence)}</td></tr>'
            continue
        sides = ((each.process, each.one, each.frame_one), (each.other_process, each.other, each.frame_other))
        first = f'<th rowspan="2">{name}</th>'
        for process, value, frame in sides:
            cells = f'<td>{process}</td><td class="first">{escape(value or "none")}</td><td>{escape(frame)}</td>'
            yield f"<tr>{first}{cells}</tr>"
            first = ""
    yield "</table>"


def _row(state: ProcessState) -> dict[str, str]:
    return {
        "process": str(state.process),
        "does": state.doing.value,
        "function": state.function,
        "from": state.frame,
        "call": str(state.number or ""),
        "state": state.detail,
        "main thread": "; ".join(state.stack[-2:]),
        "pid": str(state.pid or ""),
        "host": state.host,
    }


def _calls(processes: Sequence[ProcessState]) -> Iterator[str]:
    """A list for all processes that called the same; the first difference is marked."""
    grouped: dict[tuple[str, ...], list[int]] = {}
    for state in processes:
        grouped.setdefault(state.calls[-MOST_CALLS:], []).append(state.process)
    rows = list(grouped)
    common = 0
    while all(common < len(row) for row in rows) and len({row[common] for row in rows}) == 1:
        common += 1
    mark = ' class="first"'
    for calls, who in grouped.items():
        items = "".join(
            f"<li{mark if number == common and len(rows) > 1 else ''}>{escape(call)}</li>"
            for number, call in enumerate(calls)
        )
        yield f'<ul class="chips"><li class="who">{processes_named(who)}</li>{items}</ul>'
    if len(rows) > 1:
        yield '<p class="note">Oldest first. Red: the first difference.</p>'


__all__ = ["process_headline", "process_sections"]
