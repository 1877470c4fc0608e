"""The page of a report: small, legible, and valid, for few devices as for many."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import combinations

import pytest

from distxla.diagnosis.diagnose import summary_of
from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event
from distxla.diagnosis.graph import Deadlock
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.diagnosis.report.html import headline_of
from distxla.diagnosis.report.html_timelines import LABEL
from distxla.location import Location
from tests.diagnosis.made import made_of

LETTER, ABOVE, BELOW = 6.7, 9.0, 3.0  # pixels of a monospaced letter of 11: wide, above its line, below it
VOID = {"meta"}


@dataclass
class Text:
    """A text of a picture, and its box."""

    picture: int
    letters: str
    x: float
    y: float
    anchor: str

    @property
    def box(self) -> tuple[float, float, float, float]:
        width = LETTER * len(self.letters)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - ABOVE, left + width, self.y + BELOW


class Page(HTMLParser):
    """Takes a page to pieces, strictly: each element is closed by its own end, attributes are quoted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sizes: list[tuple[float, float]] = []
        self.texts: list[Text] = []
        self.titles: list[str] = []
        self.bars: list[tuple[float, float]] = []  # begin and end
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        source = self.get_starttag_text() or ""
        assert source.count('"') == 2 * len(attrs), source
        if tag == "svg":
            self.sizes.append((float(values["width"]), float(values["height"])))
            assert values["aria-label"]
        if tag == "text":
            at = float(values["x"]), float(values["y"])
            self.texts.append(Text(len(self.sizes), "", *at, values.get("text-anchor", "start")))
        if tag == "rect" and values["class"] in ("did", "waited", "stuck"):
            self.bars.append((float(values["x"]), float(values["x"]) + float(values["width"])))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "text":
            self.texts[-1].letters += data
        if self.open == ["html", "head", "title"]:
            self.titles.append(data)


def made(count: int, *, events: int = 32, name: str = "all-reduce.17", quick: bool = False) -> Diagnosis:
    """Devices that wait in a ring, each behind some rounds. quick: all began to wait at the end only."""
    step = 1e-9 if quick else 0.01
    devices = {}
    for d in range(count):
        history = [
            Event(
                name, "all-reduce", k + 1, 1, k + 1, -1 - step * (events - k), -1 - step * (events - k) / 2, -1 - step
            )
            for k in range(events - 1)
        ]
        history.append(Event(name, "all-reduce", events, 1, events, 0.0 if quick else -1.0, None, -0.9))
        place = Location("step.hlo", 10 + d, 3, 4, f"{name} = ...", frame="model.py:7 in f")
        devices[d] = DeviceState(
            d,
            Doing.WAITS,
            "m",
            name,
            "all-reduce",
            place,
            round=events,
            waits_for=((d + 1) % count,),
            events=tuple(history),
        )
    verdict = Deadlock(tuple(range(count)), (tuple(range(count)),), (), ())
    return made_of("deadlock", summary_of(verdict, devices), devices, verdict)


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 12, 13, 40, 64])
def test_no_text_lies_on_another_or_outside_of_its_picture(count: int, quick: bool) -> None:
    page = Page(made(count, name="a-rather-long-name.all-reduce.17", quick=quick).page())
    assert len(page.sizes) == 2
    for text in page.texts:
        left, top, right, bottom = text.box
        width, height = page.sizes[text.picture - 1]
        assert left >= 0, text
        assert top >= 0, text
        assert right <= width, text
        assert bottom <= height, text
    for one, other in combinations(page.texts, 2):
        assert one.picture != other.picture or not overlap(one.box, other.box), (one, other)
    labels = [text for text in page.texts if text.picture == 2 and text.letters.startswith("device ")]
    assert len(labels) == count
    assert all(text.box[2] < LABEL for text in labels)


def test_timelines_go_up_to_the_end() -> None:
    page = Page(made(4).page())
    ends = [end for _, end in page.bars]
    assert max(ends) == pytest.approx(page.sizes[1][0] - 10, abs=0.2)
    assert sum(end == max(ends) for end in ends) == 4
    assert all(LABEL <= begin < end <= max(ends) for begin, end in page.bars)


@pytest.mark.parametrize("count", [8, 64, 256])
def test_the_size_has_a_bound(count: int) -> None:
    assert len(made(count).page().encode()) < 300_000


def test_it_has_a_title_and_two_colour_schemes() -> None:
    found = made(2)
    text = found.page()
    assert Page(text).titles == ["Deadlock: devices 0 and 1 wait for each other"]
    assert f"<p>{found.summary}</p>" in text
    assert "prefers-color-scheme: dark" in text
    assert "Cycle: 0 -&gt; 1 -&gt; 0" in text


def test_what_does_not_belong_together_is_marked() -> None:
    came = DeviceState(
        0, Doing.ARRIVED, "m", "a", "all-reduce", round=1, events=(Event("a", "all-reduce", 1, begun=-1.0),)
    )
    waits = DeviceState(
        1, Doing.WAITS, "m", "b", "all-gather", round=1, events=(Event("b", "all-gather", 1, begun=-1.0),)
    )
    text = made_of("mismatch", "both", {0: came, 1: waits}, pair=(0, 1)).page()
    Page(text)
    assert text.count('<rect class="cycle"') == text.count('<rect class="behind"') == 1
    assert text.count('<rect class="stuck"') == 2
    assert text.count('<td class="first">') == 2


def timed(*events: tuple[float, float | None]) -> Diagnosis:
    """One device with rounds from so many seconds before the end to so many; it waits for another device."""
    history = tuple(Event("c", "all-reduce", k, begun=begin, ended=end) for k, (begin, end) in enumerate(events, 1))
    devices = {
        0: DeviceState(0, Doing.WAITS, "m", "c", "all-reduce", waits_for=(1,), events=history),
        1: DeviceState(1, Doing.ENDED, "m"),
    }
    return made_of("deadlock", "stuck", devices, Deadlock((0,), (), ((0, 1),), ()))


@pytest.mark.parametrize(
    "events",
    [
        [(-8.0, -6.0), (-4.0, -3.0), (-2.0, None)],
        [(-1e-6, -0.8e-6), (-0.7e-6, -0.4e-6), (-0.3e-6, None)],
    ],
)
def test_the_axis_is_to_scale(events: list[tuple[float, float | None]]) -> None:
    text = timed(*events).page()
    assert "To scale. Times count" in text
    assert "cut out" not in text
    bars, first = Page(text).bars, events[0][0]
    scale = (1000 - 10 - LABEL) / -first
    wanted = [(LABEL + scale * (begin - first), LABEL + scale * ((end or 0.0) - first)) for begin, end in events]
    assert bars == [pytest.approx(pair, abs=0.1) for pair in wanted]


@pytest.mark.parametrize(
    ("events", "cut"),
    [
        ([(-1.003, -1.002), (-1.001, -1.0005), (-1.0, None)], ["1 s cut out"]),
        ([(-60.0, -59.9), (-0.3, -0.2), (-0.1, None)], ["59.6 s cut out"]),
        ([(-60.0, -59.99), (-5.02, -5.01), (-5.0, None)], ["54.97 s cut out", "5 s cut out"]),
    ],
)
def test_a_piece_without_events_is_cut_out_and_the_page_says_so(
    events: list[tuple[float, float | None]], cut: list[str]
) -> None:
    text = timed(*events).page()
    page = Page(text)
    assert "To scale, but for the breaks" in text
    assert [found.letters for found in page.texts if "cut out" in found.letters] == cut
    pieces = sorted(events[0:1] + events[1:2])
    (x, y), (u, v) = page.bars[:2]
    lengths = [end - begin for begin, end in pieces if end is not None]
    assert (y - x) / (v - u) == pytest.approx(lengths[0] / lengths[1], rel=0.1)  # one scale on both sides of a break
    assert max(end for _, end in page.bars) == pytest.approx(990, abs=0.1)


def test_unknown_times_are_not_to_scale() -> None:
    events = tuple(Event("c", "all-reduce", k) for k in (1, 2, 3))
    device = DeviceState(0, Doing.WAITS, "m", "c", "all-reduce", waits_for=(1,), events=events)
    text = made_of("deadlock", "stuck", {0: device, 1: DeviceState(1, Doing.ENDED)}).page()
    assert "Not to scale" in text
    widths = {round(end - begin, 1) for begin, end in Page(text).bars}
    assert len(widths) == 1


@pytest.mark.parametrize("count", [2, 3, 8, 12, 13, 40, 64])
def test_the_graph_fills_its_space(count: int) -> None:
    text = made(count).page()
    page = Page(text)
    width, height = page.sizes[0]
    assert width == 1000
    xs = [found.x for found in page.texts if found.picture == 1]
    ys = [found.y for found in page.texts if found.picture == 1]
    assert max(xs) - min(xs) >= 0.45 * width
    assert min(ys) <= 60
    assert max(ys) >= height - 60
    assert height <= 300


KINDS = [
    ((Deadlock((0, 1), ((0, 1),), (), ())), "Deadlock: devices 0 and 1 wait for each other"),
    ((Deadlock((0, 1, 2), ((0, 1, 2),), (), ())), "Deadlock: 3 devices wait for each other"),
    ((Deadlock((0,), ((0,),), (), ())), "Deadlock: device 0 waits for itself"),
    ((Deadlock((0,), (), ((0, 3),), ())), "Deadlock: device 0 waits for device 3, which has ended"),
    (None, "Deadlock: devices 0-2 wait"),
]


@pytest.mark.parametrize(("verdict", "headline"), KINDS, ids=[headline for _, headline in KINDS])
def test_headlines_are_short(verdict: Deadlock | None, headline: str) -> None:
    devices = {d: DeviceState(d, Doing.WAITS, "m", "c", waits_for=((d + 1) % 3,)) for d in range(3)}
    devices[3] = DeviceState(3, Doing.ENDED, "m")
    found = made_of("deadlock", "a long sentence that tells of instructions and places", devices, verdict)
    assert headline_of(found) == headline
    assert f"<h1>{headline}</h1>" in found.page()
