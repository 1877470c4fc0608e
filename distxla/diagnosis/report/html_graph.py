"""The picture of the wait-for graph in a diagnosis's page.

Devices are in rows, to and fro, so that a cycle runs through neighbours and ends near where it begins. A few devices
are cards with their instructions; many are circles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.diagnosis.facts.findings import Findings
from distxla.diagnosis.report.html_markup import LETTER, WIDTH, escape, legend, picture, shortened
from distxla.lazy_dataclass import dataclass
from distxla.wording import chain

MOST_CARDS = 12  # devices up to which each is a card
MOST_NODES = 64  # devices in the graph
MOST_IN_A_ROW = 16
CARD = (66.0, 29.0)  # half its width and height
CIRCLE = (16.0, 16.0)
MARGIN = 24.0  # on all sides: room for bent arrows
PASS = 14.0  # between a device and an arrow that passes it
LETTERS = int((2 * CARD[0] - 10) / LETTER)  # of a line of a card

MEANINGS = {
    "cycle": "in the cycle, or does not fit",
    "behind": "waits behind that",
    "over": "ended, failed, lost, or takes no part",
    "free": "computes, or has not begun",
}


@dataclass(frozen=True)
class Spot:
    """Where a device is drawn. row, place: in the rows.  half: of its width and height."""

    row: int
    place: int
    x: float
    y: float
    half: tuple[float, float]

    def border(self, u: float, v: float) -> tuple[float, float]:
        """The point a little outside of the border in the direction of (u, v)."""
        dx, dy = u - self.x, v - self.y
        if self.half == CIRCLE:
            share = (CIRCLE[0] + 2) / (math.hypot(dx, dy) or 1.0)
        else:
            share = min((half + 2) / abs(d) if d else math.inf for half, d in zip(self.half, (dx, dy), strict=True))
            share = min(share, 1.0)
        return self.x + share * dx, self.y + share * dy


def graph(diagnosis: Findings) -> Iterator[str]:
    nodes = _nodes(diagnosis)
    if not nodes:
        yield "<p>No device waits.</p>"
        return
    for cycle in diagnosis.cycles:
        yield f"<p>Cycle: {escape(chain(cycle))}</p>"
    spots, height = _spots([device.device for device in nodes])
    hot = {pair for cycle in diagnosis.cycles for pair in zip(cycle, (*cycle[1:], cycle[0]), strict=True)}
    yield picture("Who waits for whom", height)
    yield (
        "<defs>"
        + "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" markerWidth="9" '
            f'markerHeight="9" orient="auto"><path class="{name}" d="M 0 0 L 10 5 L 0 10 z"/></marker>'
            for name in ("head", "hothead")
        )
        + "</defs>"
    )
    waits = {device.device: device.waits_for for device in nodes}
    for device in nodes:
        for other in device.waits_for:
            if other in spots:
                both = other in waits and device.device in waits[other]
                yield _edge(spots[device.device], spots[other], hot=(device.device, other) in hot, both=both)
    for device in nodes:
        yield _node(device, spots[device.device], _class(diagnosis, device))
    yield "</svg></div>"
    present = {_class(diagnosis, device) for device in nodes}
    yield legend(*((kind, text) for kind, text in MEANINGS.items() if kind in present))
    yield '<p class="note">An arrow leads from a device to one that it waits for.</p>'
    left = sum(1 for device in diagnosis.devices if device.waits_for) - sum(1 for device in nodes if device.waits_for)
    if left > 0:
        yield f'<p class="note">{left} more devices wait; the table below has all of them.</p>'


def _nodes(diagnosis: Findings) -> list[DeviceState]:
    """The devices of the graph: those of cycles first, then others that wait or are waited for; not all if many."""
    by_id = {device.device: device for device in diagnosis.devices}
    wanted = dict.fromkeys(d for cycle in diagnosis.cycles for d in cycle)
    wanted |= dict.fromkeys(d for pair in diagnosis.without_end for d in pair)
    for device in diagnosis.devices:
        if device.doing in (Doing.WAITS, Doing.ARRIVED):
            wanted |= dict.fromkeys((device.device, *device.waits_for[:4]))
    return [by_id.get(d, DeviceState(d, Doing.ABSENT)) for d in [*wanted][:MOST_NODES]]


def _spots(devices: Sequence[int]) -> tuple[dict[int, Spot], float]:
    """Where each device is drawn, and the height of the picture: an even number of rows, if there are several."""
    count, half = len(devices), CARD if len(devices) <= MOST_CARDS else CIRCLE
    rows = 1 if count <= 2 else 2 * math.ceil(count / (2 * MOST_IN_A_ROW))
    distance = 2 * half[1] + (70 if half == CARD else 36)
    spots: dict[int, Spot] = {}
    for row in range(rows):
        first, last = row * count // rows, (row + 1) * count // rows
        for place, device in enumerate(devices[first:last]):
            share = (place + 0.5) / (last - first)
            x = MARGIN + (WIDTH - 2 * MARGIN) * (share if row % 2 == 0 else 1 - share)
            spots[device] = Spot(row, place, x, MARGIN + half[1] + row * distance, half)
    return spots, 2 * MARGIN + 2 * half[1] + (rows - 1) * distance


def _class(diagnosis: Findings, device: DeviceState) -> str:
    if device.doing is Doing.ARRIVED or any(device.device in cycle for cycle in diagnosis.cycles):
        return "cycle"
    if device.doing is Doing.WAITS:
        return "behind"
    return "free" if device.doing in (Doing.COMPUTES, Doing.NOT_BEGUN, Doing.STOPPED) else "over"


def _edge(begin: Spot, end: Spot, *, hot: bool, both: bool) -> str:
    """An arrow, bent where another one leads back (`both`), and more where it has to pass other devices."""
    kinds = ("edge hot", "hothead") if hot else ("edge", "head")
    if begin == end:
        x, y = begin.x, begin.y - begin.half[1] - 2
        path = f"M {x - 12:.1f} {y:.1f} C {x - 12:.1f} {y - 26:.1f} {x + 12:.1f} {y - 26:.1f} {x + 12:.1f} {y:.1f}"
        return f'<path class="{kinds[0]}" marker-end="url(#{kinds[1]})" d="{path}"/>'
    dx, dy = end.x - begin.x, end.y - begin.y
    length = math.hypot(dx, dy)
    bend = min(40.0, length / 8) if both else 0.0
    if begin.row == end.row and abs(begin.place - end.place) > 1:
        bend = 2 * (begin.half[1] + PASS)  # a curve goes half as far aside as its control point
    elif dx == 0 and abs(begin.row - end.row) > 1:
        outwards = 1 if (begin.x > WIDTH / 2) == (dy < 0) else -1
        bend = outwards * 2 * (begin.half[0] + PASS)
    u, v = begin.x + dx / 2 - bend * dy / length, begin.y + dy / 2 + bend * dx / length
    (x, y), (s, t) = begin.border(u, v), end.border(u, v)
    return (
        f'<path class="{kinds[0]}" marker-end="url(#{kinds[1]})" '
        f'd="M {x:.1f} {y:.1f} Q {u:.1f} {v:.1f} {s:.1f} {t:.1f}"/>'
    )


def _node(device: DeviceState, spot: Spot, kind: str) -> str:
    what = f"device {device.device} {device.doing}" + (f" in {device.place}" if device.instruction else "")
    title, (x, y) = f"<title>{escape(what)}</title>", (spot.x, spot.y)
    if spot.half == CIRCLE:
        shape = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{CIRCLE[0]:.0f}" stroke-width="2"/>'
        return f'<g>{title}{shape}<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{device.device}</text></g>'
    width, height = CARD
    shape = (
        f'<rect class="{kind}" x="{x - width:.1f}" y="{y - height:.1f}" width="{2 * width:.0f}" '
        f'height="{2 * height:.0f}" rx="8" stroke-width="2"/>'
    )
    place = "" if device.location is None else f"{device.location.file.rpartition('/')[2]}:{device.location.line}"
    if len(place) > LETTERS:
        place = f"…{place[1 - LETTERS :]}"
    lines = [line for line in (shortened(device.instruction or device.doing, LETTERS), place) if line]
    texts = "".join(
        f'<text x="{x:.1f}" y="{y - 12 + 17 * number:.1f}" text-anchor="middle"'
        f"{' class=' + chr(34) + 'name' + chr(34) if number == 0 else ''}>{escape(line)}</text>"
        for number, line in enumerate([f"device {device.device}", *lines])
    )
    return f"<g>{title}{shape}{texts}</g>"


__all__ = ["graph"]
