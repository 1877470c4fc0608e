"""A trace as a page: devices as lines, computation, communication and waiting to scale, the critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distxla.diagnosis.report.html_lines import Axis, Bar, Row, lines, seconds_text
from distxla.diagnosis.report.html_markup import about, counts, escape, in_notebook, legend, table, whole_page
from distxla.lazy_dataclass import dataclass, field
from distxla.machine.packages import installed_version
from distxla.runtime.calls.timeline import Slice, Timeline
from distxla.wording import counted

COMMUNICATES = ("collective", "channel", "feed")
MOST_ROWS = 256
MOST_TOLD = 64  # devices in the table
MOST_BARS = 16_000  # in all lines together, about
FINEST = 0.05  # per cent of the axis: shorter bars that lie together are drawn as one
MOST_INSTRUCTIONS = 12
SECOND = 1e9
LEGEND = (
    ("computed", "computes"),
    ("did", "communicates"),
    ("waited", "waits for others"),
    ("stuck", "waited till the end"),
    ("critical", "critical path"),
)


@dataclass
class Share:
    """Of a device, or of an instruction. Seconds, but for count and size.

    running: from the begin of each run to its end.  communicating: without the waits in it.  size: bytes.
    """

    running: float = 0.0
    communicating: float = 0.0
    waiting: float = 0.0
    critical: float = 0.0
    count: int = 0
    size: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def computing(self) -> float:
        return max(0.0, self.running - self.communicating - self.waiting)

    def of_running(self, seconds: float) -> str:
        """`12 %`."""
        return f"{100 * seconds / self.running:.0f} %" if self.running > 0 else ""


def page(timeline: Timeline, command: str = "") -> str:
    """The whole page. command: the one that has traced, "" for none."""
    return whole_page(headline_of(timeline), _parts(timeline, command))


def fragment(timeline: Timeline) -> str:
    """What a cell of a notebook shows."""
    return in_notebook(_parts(timeline, ""))


def headline_of(timeline: Timeline) -> str:
    """`Timeline: 8 devices, 5 calls, 12 ms`."""
    calls = [one for one in timeline.slices if one.category == "call"]
    if not calls:
        return "Timeline: no call was recorded"
    seconds = (max(one.end for one in calls) - min(one.begin for one in calls)) / SECOND
    devices = len(timeline.tracks) - 1
    return f"Timeline: {counted(devices, 'device')}, {counted(len(calls), 'call')}, {seconds_text(seconds)}"


def summary(timeline: Timeline) -> str:
    """Lines of text: how each device's time was spent, and where devices waited longest."""
    shares, instructions = _shares(timeline), _instructions(timeline)
    found = [headline_of(timeline)]
    for number, track in [*enumerate(timeline.tracks)][1:]:
        share = shares.get(number)
        if share is not None:
            parts = (("computes", share.computing), ("communicates", share.communicating), ("waits", share.waiting))
            found.append(f"  {track.name}: " + ", ".join(f"{what} {share.of_running(spent)}" for what, spent in parts))
    for name, one in instructions[:MOST_INSTRUCTIONS]:
        if one.waiting > 0:
            found.append(f"  {name}: {counted(one.count, 'execution')}, waits of {seconds_text(one.waiting)} in all")
    found += [f"  {what}: {value}" for what, value in timeline.about.items()]
    return "\n".join(found)


def _parts(timeline: Timeline, command: str) -> Iterator[str]:
    shares = _shares(timeline)
    yield f"<h1>{escape(headline_of(timeline))}</h1>"
    yield _counts(timeline, shares)
    programs = dict.fromkeys(one.name for one in timeline.slices if one.category == "run")
    version = installed_version("distxla")
    yield from about(
        [
            ("program" if len(programs) == 1 else "programs", ", ".join(programs)),
            ("command", command),
            ("version", f"distxla {version}" if version else ""),
            *((what, str(value)) for what, value in timeline.about.items()),
        ]
    )
    if not timeline.slices:
        yield "<p>No device has recorded anything.</p>"
        return
    yield "<h2>Devices</h2>"
    yield from _lines(timeline, shares)
    rows = [*_instruction_rows(timeline)]
    if rows:
        yield "<h2>Where devices communicate and wait</h2>"
        yield from table(rows)
    yield "<h2>How each device spends its time</h2>"
    rows = [*_device_rows(timeline, shares)]
    yield from table(rows[:MOST_TOLD])
    if len(rows) > MOST_TOLD:
        yield f'<p class="note">and {len(rows) - MOST_TOLD} more devices, whose shares of waiting are above</p>'


def _counts(timeline: Timeline, shares: Mapping[int, Share]) -> str:
    running = sum(share.running for share in shares.values())
    numbers: list[tuple[int | str, str, bool]] = [
        (len(timeline.tracks) - 1, "devices" if len(timeline.tracks) != 2 else "device", False),
        (sum(one.category == "call" for one in timeline.slices), "calls", False),
    ]
    if running > 0:
        for what, name in (("computing", "computing"), ("communicating", "communicating"), ("waiting", "waiting")):
            spent = sum(getattr(share, what) for share in shares.values())
            numbers.append((f"{100 * spent / running:.0f} %", name, False))
    unfinished = {one.track for one in timeline.slices if one.category == "run" and one.unfinished}
    if unfinished:
        numbers.append((len(unfinished), "did not end", True))
    return counts(*numbers)


# --- lines


def _lines(timeline: Timeline, shares: Mapping[int, Share]) -> Iterator[str]:
    zero = min(one.begin for one in timeline.slices)
    by_track: dict[int, list[Slice]] = defaultdict(list)
    for one in timeline.slices:
        by_track[one.track].append(one)
    tracks = [*range(1, len(timeline.tracks))]
    runs = [one for one in timeline.slices if one.category in ("run", "call")]
    spans = [((one.begin - zero) / SECOND, (one.end - zero) / SECOND) for one in runs]
    ended = [span for one, span in zip(runs, spans, strict=True) if not one.unfinished]
    axis = Axis.of([moment for span in spans for moment in span], cuts=True, kept=ended)
    finest = max(FINEST, 100.0 * len(tracks) / MOST_BARS)
    critical: dict[int, list[Bar]] = defaultdict(list)
    for piece in timeline.path:
        begin, end = (piece.begin - zero) / SECOND, (piece.end - zero) / SECOND
        said = f"on the critical path for {seconds_text(end - begin)}"
        critical[piece.device + 1].append(Bar(begin, end, "critical", said, is_top=True))
    rows, is_joined = [], False
    for track in tracks[:MOST_ROWS]:
        bars = [_bar(one, zero) for one in _drawn(by_track[track])]
        fewer = [*_joined(bars, axis, finest), *_joined(critical[track], axis, finest)]
        is_joined = is_joined or len(fewer) < len(bars) + len(critical[track])
        share = shares.get(track, Share())
        text = share.of_running(share.waiting)
        name = timeline.tracks[track]
        rows.append(Row(f"device {track - 1}", f"{name.host}, {name.name}", fewer, f"waits {text}" if text else ""))
    yield from lines(rows, axis, "What each device did")
    if len(tracks) > MOST_ROWS:
        yield f'<p class="note">and {len(tracks) - MOST_ROWS} more devices: the file of --trace has them</p>'
    kinds = {bar.kind for row in rows for bar in row.bars}
    yield legend(*(each for each in LEGEND if each[0] in kinds))
    note = "To scale, but for the breaks, where nothing begins or ends." if axis.cuts else "To scale."
    if is_joined:
        span = (axis.last - axis.first) * finest / 100
        note += f" Pieces shorter than {seconds_text(span)} that lie together are drawn as one, of the kind of most."
    yield f'<p class="note">{note} The pointer tells names, sizes and times.</p>'


def _drawn(slices: Sequence[Slice]) -> list[Slice]:
    """Those of a device that are bars: its steps, or, where none were recorded, its runs; above these the rest."""
    has_steps = any(one.category not in (*COMMUNICATES, "wait", "run", "loop") for one in slices)
    left_out = ("loop", "run") if has_steps else ("loop",)
    order = {"run": 0, "wait": 2}
    kept = [one for one in slices if one.category not in left_out]
    return sorted(kept, key=lambda one: (one.begin, order.get(one.category, 1)))


def _bar(one: Slice, zero: float) -> Bar:
    begin, end = (one.begin - zero) / SECOND, (one.end - zero) / SECOND
    kind = "waited" if one.category == "wait" else "did" if one.category in COMMUNICATES else "computed"
    if one.category == "wait" and one.unfinished:
        kind = "stuck"
    details = [one.name, *(f"{name} {value}" for name, value in one.details.items() if name in _TOLD)]
    took = "has not ended" if one.unfinished else seconds_text(end - begin)
    return Bar(begin, end, kind, ", ".join([*details, took, f"from {seconds_text(begin)} on"]))


_TOLD = ("opcode", "round", "iteration", "bytes", "source", "location")


def _joined(bars: Sequence[Bar], axis: Axis, finest: float) -> Iterator[Bar]:
    """Bars that are shorter than a piece of the axis of that length as one a piece, of the kind that most of it is."""
    pieces: dict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        begin = axis.at(bar.begin)
        if axis.at(bar.end) - begin < finest:
            pieces[int(begin / finest)].append(bar)
        else:
            yield bar
    for found in pieces.values():
        yield found[0] if len(found) == 1 else _as_one(found)


def _as_one(bars: Sequence[Bar]) -> Bar:
    spent: dict[str, float] = defaultdict(float)
    for bar in bars:
        spent[bar.kind] += bar.end - bar.begin
    spent["did"] -= spent["waited"] + spent["stuck"]  # waits lie within what communicates
    kind = max((name for name in spent if any(bar.kind == name for bar in bars)), key=lambda name: spent[name])
    meanings = dict(LEGEND)
    said = ", ".join(f"{meanings[name]} for {seconds_text(time)}" for name, time in spent.items() if time > 0)
    said = f"{len(bars)} pieces from {seconds_text(bars[0].begin)} on: {said}"
    return Bar(bars[0].begin, max(bar.end for bar in bars), kind, said, is_top=bars[0].is_top)


# --- shares


def _shares(timeline: Timeline) -> dict[int, Share]:
    """By track."""
    found: dict[int, Share] = defaultdict(Share)
    for one in timeline.slices:
        share, seconds = found[one.track], (one.end - one.begin) / SECOND
        if one.category == "run":
            share.running += seconds
            share.count += 1
        elif one.category in COMMUNICATES:
            share.communicating += seconds
        elif one.category == "wait":
            share.waiting += seconds
            share.communicating -= seconds
    for piece in timeline.path:
        found[piece.device + 1].critical += (piece.end - piece.begin) / SECOND
    found.pop(0, None)
    return found


def _instructions(timeline: Timeline) -> list[tuple[str, Share]]:
    """Of all devices together, those with the longest waits first."""
    found: dict[str, Share] = defaultdict(Share)
    within: dict[int, Slice] = {}
    for one in sorted(timeline.slices, key=lambda s: (s.begin, -s.end, s.category == "wait")):
        seconds = (one.end - one.begin) / SECOND
        if one.category in COMMUNICATES:
            share = found[one.name]
            share.communicating += seconds
            share.count += 1
            share.size += one.details.get("bytes", 0)
            share.about = dict(one.details)
            within[one.track] = one
        elif one.category == "wait" and one.track in within:
            share = found[within[one.track].name]
            share.waiting += seconds
            share.communicating -= seconds
    return sorted(found.items(), key=lambda item: -item[1].waiting - item[1].communicating)


def _instruction_rows(timeline: Timeline) -> Iterator[dict[str, str]]:
    for name, share in _instructions(timeline)[:MOST_INSTRUCTIONS]:
        yield {
            "instruction": name,
            "opcode": str(share.about.get("opcode", "")),
            "source": str(share.about.get("source", share.about.get("location", ""))),
            "executions": str(share.count),
            "bytes in all": str(share.size or ""),
            "communicates": seconds_text(max(0.0, share.communicating)),
            "waits": seconds_text(share.waiting),
        }


def _device_rows(timeline: Timeline, shares: Mapping[int, Share]) -> Iterator[dict[str, str]]:
    for track in range(1, len(timeline.tracks)):
        share = shares.get(track, Share())
        parts = (
            ("computes", share.computing),
            ("communicates", share.communicating),
            ("waits", share.waiting),
            ("on the critical path", share.critical),
        )
        told = {name: f"{seconds_text(max(0.0, spent))} ({share.of_running(spent)})" for name, spent in parts}
        yield {
            "device": str(track - 1),
            "runs": str(share.count),
            **(told if share.running else dict.fromkeys(told, "")),
        }


__all__ = ["fragment", "headline_of", "page", "summary"]
