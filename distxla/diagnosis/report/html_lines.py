"""Lines of time: a row for each device, or for several that did the same, with bars on a common axis.

The axis is to scale. A piece in which nothing begins or ends is cut out if it is longer than all the rest, unless it is
to be kept: the axis is broken there, and the length of the piece is written above. All places are in per cent of the
axis's length.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from distxla.diagnosis.report.html_markup import LETTER, escape
from distxla.lazy_dataclass import dataclass

CUT = 7.0  # per cent, of a piece that is cut out
MOST_CUTS = 3
ROUNDING = 1e-9  # relative, of lengths that are differences of moments
LARGE_SHARE = 0.5  # of the time that is left: a longer piece without any event is cut out
TICKS = 8
APART = 11.0  # per cent between texts on the axis, at least
CUTS_APART = 50.0  # per cent between the lengths of two cuts that share a line
VISIBLE = 0.6  # per cent, of a bar that is drawn apart from the one before
LABELLED = 580.0  # pixels of the shortest axis whose bars have names
THIN = 48  # rows from which on they are low
MOST_TICKED = 64  # rows up to which the axis's marks run through them


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a row. begin, end: moments of the axis.  kind: a class of the style.  said: shown beside the pointer.
    label: written into it.  is_top: only along the row's lower edge."""

    begin: float
    end: float
    kind: str
    said: str
    label: str = ""
    is_top: bool = False


@dataclass(frozen=True)
class Row:
    """who: short.  said: shown beside the pointer.  share: written at the end of the row."""

    who: str
    said: str
    bars: Sequence[Bar]
    share: str = ""


@dataclass(frozen=True)
class Axis:
    """Moments as per cent. first, last: its ends.  cuts: pieces that are cut out, ascending.  scale: per cent of a
    unit."""

    first: float
    last: float
    cuts: tuple[tuple[float, float], ...]
    scale: float

    @classmethod
    def of(cls, moments: Sequence[float], *, cuts: bool, kept: Sequence[tuple[float, float]] = ()) -> Axis:
        """From the first of the moments to the last. cuts: whether pieces may be cut out.  kept: pieces between two
        of the moments of which nothing is cut out."""
        points = sorted({*moments})
        first, last = points[0], points[-1]
        if last <= first:
            first = last - 1.0
        gaps = sorted(pairwise(points), key=lambda gap: gap[0] - gap[1])
        found: list[tuple[float, float]] = []
        if cuts:
            busy = _joined(kept)
            rest = gaps.copy()
            for gap in [gap for gap in gaps[: len(gaps) - 1] if not _is_within(gap, busy)][:MOST_CUTS]:
                if _length(gap) <= LARGE_SHARE * _sum(rest) * (1 + ROUNDING):
                    break
                rest.remove(gap)
                found.append(gap)
            gaps = rest
        room = 100.0 - CUT * len(found)
        return cls(first, last, tuple(sorted(found)), room / (_sum(gaps) or last - first))

    def at(self, moment: float) -> float:
        place, begin = 0.0, self.first
        for one, other in self.cuts:
            if moment <= one:
                break
            place += self.scale * (one - begin) + CUT * (min(moment, other) - one) / (other - one)
            begin = other
        return place + self.scale * max(0.0, moment - begin)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Round times since the first moment, none of them in a piece that is cut out."""
        ends = [self.first, *(end for cut in self.cuts for end in cut), self.last]
        pieces = [*zip(ends[::2], ends[1::2], strict=True)]
        step = _round(_sum(pieces) / TICKS)
        for begin, end in pieces:
            first = math.ceil((begin - self.first) / step - 1e-9)
            last = math.floor((end - self.first) / step + 1e-9)
            for number in range(first, last + 1):
                yield self.first + number * step, seconds_text(number * step)


def lines(rows: Sequence[Row], axis: Axis, label: str, *, ends: tuple[str, str] | None = None) -> Iterator[str]:
    """ends: written at both ends of the axis in the place of times."""
    told = " told" if any(row.share for row in rows) else ""
    ticks = [] if ends is not None else [*_spread(axis)]
    marks = "".join(f'<i class="tick" style="left:{place:.2f}%"></i>' for place, _ in ticks)
    marks = marks if len(rows) <= MOST_TICKED else ""
    breaks = "".join(
        f'<i class="break" style="left:{(axis.at(one) + axis.at(other)) / 2:.2f}%"></i>' for one, other in axis.cuts
    )
    thin = " thin" if len(rows) > THIN else ""
    yield f'<div class="lines{thin}" role="img" aria-label="{escape(label)}">'
    for cuts in _cut_lines(axis):
        yield f'<div class="line axis{told}"><span class="who"></span><div class="track">{cuts}</div></div>'
    for number, row in enumerate(rows):
        is_named = not thin or number % 4 == 0
        who = f'<span class="who" title="{escape(row.said)}">{escape(row.who) if is_named else ""}</span>'
        bars = "".join(_bar(bar, axis) for bar in row.bars)
        share = f'<span class="share">{escape(row.share) if is_named else ""}</span>' if told else ""
        yield f'<div class="line{told}">{who}<div class="track">{marks}{bars}{breaks}</div>{share}</div>'
    if ends is not None:
        texts = _on_axis(0.0, ends[0], "") + _on_axis(100.0, ends[1], "")
    else:
        texts = "".join(
            _on_axis(place, text, "more" if number % 2 else "") for number, (place, text) in enumerate(ticks)
        )
    yield f'<div class="line axis{told}"><span class="who"></span><div class="track">{texts}</div></div>'
    yield "</div>"


def seconds_text(seconds: float) -> str:
    """`0`, `20 µs`, `1.5 ms`, `3 s`."""
    if seconds < 1e-12:
        return "0"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * (1 - 1e-9):
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def _length(piece: tuple[float, float]) -> float:
    return piece[1] - piece[0]


def _sum(pieces: Sequence[tuple[float, float]]) -> float:
    """Their lengths together. Not a difference of moments far apart, which may lose all of a short piece."""
    return math.fsum(map(_length, pieces))


def _joined(pieces: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The pieces in order, those that overlap or touch as one."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(pieces):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _is_within(gap: tuple[float, float], joined: Sequence[tuple[float, float]]) -> bool:
    """Whether the gap, between two neighbouring moments, lies in one of the pieces."""
    number = bisect_right(joined, gap[0], key=lambda piece: piece[0]) - 1
    return number >= 0 and gap[1] <= joined[number][1]


def _cut_lines(axis: Axis) -> Iterator[str]:
    """The lengths of what is cut out, above their places: those that are near to each other in lines of their own."""
    left = [((axis.at(one) + axis.at(other)) / 2, f"{seconds_text(other - one)} cut out") for one, other in axis.cuts]
    while left:
        free, line, later = -math.inf, [], []
        for place, text in left:
            if place >= free:
                free = place + CUTS_APART
                line.append(_on_axis(place, text, ""))
            else:
                later.append((place, text))
        yield "".join(line)
        left = later


def _spread(axis: Axis) -> Iterator[tuple[float, str]]:
    """The ticks that have room."""
    free = -math.inf
    for moment, text in axis.ticks():
        place = axis.at(moment)
        if place >= free:
            free = place + APART
            yield place, text


def _on_axis(place: float, text: str, kind: str) -> str:
    """A text below or above a place: within the axis at its ends."""
    if place <= 8.0:
        where = f"left:{max(0.0, place):.2f}%"
    elif place >= 92.0:
        where = f"right:{max(0.0, 100.0 - place):.2f}%"
    else:
        where = f"left:{place:.2f}%;transform:translateX(-50%)"
    return f'<span{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} style="{where}">{escape(text)}</span>'


def _bar(bar: Bar, axis: Axis) -> str:
    begin = axis.at(bar.begin)
    width = max(0.0, axis.at(bar.end) - begin)
    kind = f"{bar.kind} top" if bar.is_top else f"{bar.kind} apart" if width > VISIBLE else bar.kind
    label = escape(bar.label) if width / 100 * LABELLED > LETTER * len(bar.label) + 8 else ""
    style = f"left:{begin:.3f}%;width:{width:.3f}%"
    return f'<i class="{kind}" style="{style}" title="{escape(bar.said)}">{label}</i>'


def _round(seconds: float) -> float:
    """The next of 1, 2, 5, 10, 20, … units."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next((power * factor for factor in (1, 2, 5) if power * factor >= seconds), 10 * power)


__all__ = ["Axis", "Bar", "Row", "lines", "seconds_text"]
