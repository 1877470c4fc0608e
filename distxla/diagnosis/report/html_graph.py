"""The picture of the wait-for graph in a diagnosis's page: each group of devices that do the same is a card.

Cards are in rows, to and fro, so that a cycle runs through neighbours and ends near where it begins. The picture is
there twice, for wide and for narrow pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from distxla.diagnosis.facts.findings import Findings
from distxla.diagnosis.report.equal_devices import EqualDevices, grouped
from distxla.diagnosis.report.html_markup import LETTER, NARROW, WIDE, escape, legend, shortened
from distxla.lazy_dataclass import dataclass
from distxla.wording import chain, counted

MOST_CARDS = 48
MOST_CYCLES = 8
HEIGHT = 29.0  # half of a card's
MARGIN = 26.0  # on all sides: room for bent arrows
PASS = 14.0  # between a card and an arrow that passes it
GAP = 70.0  # between rows

MEANINGS = {
    "cycle": "in a cycle, or does not fit",
    "behind": "waits",
    "over": "ended, failed, lost, or takes no part",
    "free": "computes, or has not begun",
}


@dataclass(frozen=True)
class Sheet:
    """A picture's size. width: pixels.  columns: cards in a row.  half: of a card's width."""

    name: str
    width: float
    columns: int
    half: float

    @property
    def letters(self) -> int:
        """Of a line of a card."""
        return int((2 * self.half - 8) / LETTER)


SHEETS = (Sheet("wide", WIDE, 5, 76.0), Sheet("narrow", NARROW, 2, 60.0))


@dataclass(frozen=True)
class Spot:
    """Where a card is drawn. row, place: in the rows."""

    row: int
    place: int
    x: float
    y: float
    half: float

    def border(self, u: float, v: float) -> tuple[float, float]:
        """The point a little outside of the border in the direction of (u, v)."""
        dx, dy = u - self.x, v - self.y
        share = min((half + 2) / abs(d) if d else math.inf for half, d in ((self.half, dx), (HEIGHT, dy)))
        share = min(share, 1.0)
        return self.x + share * dx, self.y + share * dy


def graph(diagnosis: Findings) -> Iterator[str]:
    groups = grouped(diagnosis)
    waiting = {number for number, group in enumerate(groups) if group.waits_for or group.kind in ("cycle", "behind")}
    wanted = waiting | {other for group in groups for other in group.waits_for}
    shown = [number for number in range(len(groups)) if number in wanted][:MOST_CARDS]
    if not shown:
        yield "<p>No device waits.</p>"
        return
    cycles = diagnosis.cycles
    if cycles:
        text = ", ".join(map(chain, cycles[:MOST_CYCLES]))
        more = f", … ({len(cycles)} in all)" if len(cycles) > MOST_CYCLES else ""
        yield f"<p>Cycle{'s' if len(cycles) > 1 else ''}: {escape(text)}{more}</p>"
    number_of = {device: number for number, group in enumerate(groups) for device in group.devices}
    hot = {
        (number_of[one], number_of[other])
        for cycle in cycles
        for one, other in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
    }
    for sheet in SHEETS:
        yield from _picture(sheet, groups, shown, hot)
    present = {groups[number].kind for number in shown}
    yield legend(*((kind, text) for kind, text in MEANINGS.items() if kind in present))
    has_arrows = any(groups[number].waits_for for number in shown)
    said = "An arrow leads from a device to one that it waits for." if has_arrows else ""
    if has_arrows and any(len(groups[number].devices) > 1 for number in shown):
        said += " Devices that do the same are together: an arrow from there is of one of them at least."
    if said:
        yield f'<p class="note">{said}</p>'
    left = [device for number in wanted.difference(shown) for device in groups[number].devices]
    if left:
        yield f'<p class="note">{counted(len(left), "more device")} in other places: see the table below.</p>'


def _picture(
    sheet: Sheet, groups: Sequence[EqualDevices], shown: Sequence[int], hot: set[tuple[int, int]]
) -> Iterator[str]:
    spots, height = _spots(shown, sheet)
    yield (
        f'<svg class="{sheet.name}" role="img" aria-label="Who waits for whom" width="{sheet.width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {sheet.width:.0f} {height:.0f}">'
    )
    yield (
        "<defs>"
        + "".join(
            f'<marker id="{name}-{sheet.name}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" '
            f'markerWidth="9" markerHeight="9" orient="auto"><path class="{name}" d="M 0 0 L 10 5 L 0 10 z"/></marker>'
            for name in ("head", "hothead")
        )
        + "</defs>"
    )
    for number in shown:
        for other in groups[number].waits_for:
            if other in spots:
                both = other != number and number in groups[other].waits_for
                yield _edge(spots[number], spots[other], sheet, hot=(number, other) in hot, both=both)
    for number in shown:
        yield _card(groups[number], spots[number], sheet)
    yield "</svg>"


def _spots(numbers: Sequence[int], sheet: Sheet) -> tuple[dict[int, Spot], float]:
    """Where each card is drawn, and the height of the picture: an even number of rows, if there are several."""
    count = len(numbers)
    rows = 1 if count <= 2 else 2 * math.ceil(count / (2 * sheet.columns))
    distance = 2 * HEIGHT + GAP
    spots: dict[int, Spot] = {}
    for row in range(rows):
        first, last = row * count // rows, (row + 1) * count // rows
        for place, number in enumerate(numbers[first:last]):
            share = (place + 0.5) / (last - first)
            x = MARGIN + (sheet.width - 2 * MARGIN) * (share if row % 2 == 0 else 1 - share)
            spots[number] = Spot(row, place, x, MARGIN + HEIGHT + row * distance, sheet.half)
    return spots, 2 * MARGIN + 2 * HEIGHT + (rows - 1) * distance


def _edge(begin: Spot, end: Spot, sheet: Sheet, *, hot: bool, both: bool) -> str:
    """An arrow, bent where another one leads back (`both`), and more where it has to pass other cards."""
    kind, head = ("edge hot", "hothead") if hot else ("edge", "head")
    opening = f'<path class="{kind}" marker-end="url(#{head}-{sheet.name})" '
    if begin == end:
        x, y = begin.x, begin.y - HEIGHT - 2
        path = f"M {x - 12:.1f} {y:.1f} C {x - 12:.1f} {y - 26:.1f} {x + 12:.1f} {y - 26:.1f} {x + 12:.1f} {y:.1f}"
        return f'{opening}d="{path}"/>'
    dx, dy = end.x - begin.x, end.y - begin.y
    length = math.hypot(dx, dy)
    bend = min(40.0, length / 8) if both else 0.0
    if begin.row == end.row and abs(begin.place - end.place) > 1:
        bend = 2 * (HEIGHT + PASS)  # a curve goes half as far aside as its control point
    elif abs(dx) < 1 and abs(begin.row - end.row) > 1:
        outwards = 1 if (begin.x > sheet.width / 2) == (dy < 0) else -1
        bend = outwards * 2 * (begin.half + PASS)
    u, v = begin.x + dx / 2 - bend * dy / length, begin.y + dy / 2 + bend * dx / length
    (x, y), (s, t) = begin.border(u, v), end.border(u, v)
    return f'{opening}d="M {x:.1f} {y:.1f} Q {u:.1f} {v:.1f} {s:.1f} {t:.1f}"/>'


def _card(group: EqualDevices, spot: Spot, sheet: Sheet) -> str:
    state, (x, y) = group.state, (spot.x, spot.y)
    what = f"{group.who} {state.doing}" + (f" in {state.place}" if state.instruction else "")
    shape = (
        f'<rect class="{group.kind}" x="{x - sheet.half:.1f}" y="{y - HEIGHT:.1f}" width="{2 * sheet.half:.0f}" '
        f'height="{2 * HEIGHT:.0f}" rx="8" stroke-width="2"/>'
    )
    who = group.who if len(group.who) <= sheet.letters else counted(len(group.devices), "device")
    place = "" if state.location is None else f"{state.location.file.rpartition('/')[2]}:{state.location.line}"
    if len(place) > sheet.letters:
        place = f"…{place[1 - sheet.letters :]}"
    lines = [who, *filter(None, (shortened(state.instruction or state.doing, sheet.letters), place))]
    texts = "".join(
        f'<text x="{x:.1f}" y="{y - 12 + 17 * number:.1f}" text-anchor="middle"'
        f"{' class=' + chr(34) + 'name' + chr(34) if number == 0 else ''}>{escape(line)}</text>"
        for number, line in enumerate(lines)
    )
    return f"<g><title>{escape(what)}</title>{shape}{texts}</g>"


__all__ = ["graph"]
