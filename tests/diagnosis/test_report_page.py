"""The page of a report: small, legible, and valid, for few devices as for many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from unittest.mock import ANY

import pytest

from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event
from distxla.diagnosis.graph import Deadlock
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.diagnosis.report.html import headline_of
from distxla.location import Location
from tests.browser import in_a_cell
from tests.diagnosis.made import in_groups, made, made_of

LETTER, ABOVE, BELOW = 6.7, 9.0, 3.0  # pixels of a monospaced letter of 11: wide, above its line, below it
VOID = {"meta"}
BARS = {"did", "waited", "stuck"}


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
    """Takes a page to pieces, strictly: each element is closed by its own end, attributes are quoted.

    rows: the names of the lines of time.  bars: their begins and ends, in per cent.  axis: the texts above and below.
    cells: of the table of devices, by row.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sizes: list[tuple[float, float]] = []
        self.texts: list[Text] = []
        self.titles: list[str] = []
        self.rows: list[str] = []
        self.bars: list[tuple[float, float]] = []
        self.axis: list[str] = []
        self.cells: list[list[str]] = []
        self.kinds: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        source = self.get_starttag_text() or ""
        assert source.count('"') == 2 * len(attrs), source
        kind = values.get("class", "")
        if tag == "svg":
            self.sizes.append((float(values["width"]), float(values["height"])))
            assert values["aria-label"]
        if tag == "text":
            at = float(values["x"]), float(values["y"])
            self.texts.append(Text(len(self.sizes), "", *at, values.get("text-anchor", "start")))
        if tag == "i" and BARS & {*kind.split()}:
            left, width = re.findall(r"[\d.]+(?=%)", values["style"])
            self.bars.append((float(left), float(left) + float(width)))
        if tag == "tr":
            self.cells.append([])
        if tag not in VOID:
            self.open.append(tag)
            self.kinds.append(kind)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.kinds.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "text":
            self.texts[-1].letters += data
        if self.open == ["html", "head", "title"]:
            self.titles.append(data)
        if self.kinds and self.kinds[-1] == "who" and self.open[-1] == "span":
            self.rows.append(data)
        if self.open[-2:] == ["div", "span"] and self.kinds[-2] == "track":
            self.axis.append(data)
        if self.open and self.open[-1] == "td":
            self.cells[-1].append(data)

    def cards(self, picture: int) -> list[str]:
        """The names of a picture's cards."""
        return [text.letters for text in self.texts if text.picture == picture and "device" in text.letters]


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 12, 13, 40, 64])
def test_no_text_lies_on_another_or_outside_of_its_picture(count: int, quick: bool) -> None:
    page = Page(made(count, name="a-rather-long-name.all-reduce.17", quick=quick).page())
    assert [width for width, _ in page.sizes] == [1000, 340]
    for text in page.texts:
        left, top, right, bottom = text.box
        width, height = page.sizes[text.picture - 1]
        assert left >= 0, text
        assert top >= 0, text
        assert right <= width, text
        assert bottom <= height, text
    for one, other in combinations(page.texts, 2):
        assert one.picture != other.picture or not overlap(one.box, other.box), (one, other)
    assert len(page.rows) == (count if count <= 12 else 1)
    assert all(LETTER * len(row) < 118 for row in page.rows)


def test_timelines_go_up_to_the_end() -> None:
    page = Page(made(4).page())
    ends = [end for _, end in page.bars]
    assert max(ends) == pytest.approx(100, abs=0.01)
    assert sum(end == max(ends) for end in ends) == 4
    assert all(0 <= begin <= end <= 100.01 for begin, end in page.bars)


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
    assert text.count('<rect class="cycle"') == text.count('<rect class="behind"') == 2  # in each picture once
    assert text.count('<i class="stuck') == 2
    assert text.count('<li class="first">') == 2


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
    scale = 100 / -first
    wanted = [(scale * (begin - first), scale * ((end or 0.0) - first)) for begin, end in events]
    assert bars == [pytest.approx(pair, abs=0.01) for pair in wanted]


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
    assert [found for found in page.axis if "cut out" in found] == cut
    pieces = sorted(events[0:1] + events[1:2])
    (x, y), (u, v) = page.bars[:2]
    lengths = [end - begin for begin, end in pieces if end is not None]
    assert (y - x) / (v - u) == pytest.approx(lengths[0] / lengths[1], rel=0.1)  # one scale on both sides of a break
    assert max(end for _, end in page.bars) == pytest.approx(100, abs=0.01)


def test_unknown_times_are_not_to_scale() -> None:
    events = tuple(Event("c", "all-reduce", k) for k in (1, 2, 3))
    device = DeviceState(0, Doing.WAITS, "m", "c", "all-reduce", waits_for=(1,), events=events)
    text = made_of("deadlock", "stuck", {0: device, 1: DeviceState(1, Doing.ENDED)}).page()
    assert "Not to scale" in text
    widths = {round(end - begin, 1) for begin, end in Page(text).bars}
    assert len(widths) == 1


@pytest.mark.parametrize("count", [2, 3, 8, 12, 13, 40, 64])
def test_the_graph_fills_its_space(count: int) -> None:
    page = Page(made(count).page())
    for picture, columns in ((1, 5), (2, 2)):
        width, height = page.sizes[picture - 1]
        xs = [found.x for found in page.texts if found.picture == picture]
        ys = [found.y for found in page.texts if found.picture == picture]
        assert max(xs) - min(xs) >= 0.4 * width
        assert min(ys) <= 60
        assert max(ys) >= height - 60
        rows = 1 if count == 2 else 2 * -(-min(count, 48) // (2 * columns))
        assert height == 110 + (rows - 1) * 128


@pytest.mark.parametrize(
    ("count", "over", "names"),
    [(4, 1, ("0-2", "3")), (32, 2, ("0-29", "30, 31")), (256, 16, ("0-239", "240-255"))],
)
def test_devices_that_do_the_same_are_one(count: int, over: int, names: tuple[str, str]) -> None:
    text = in_groups(count, over).page()
    page = Page(text)
    wanted = [f"device{'' if name.isdigit() else 's'} {name}" for name in names]
    for picture in (1, 2):
        assert page.cards(picture) == wanted
    assert text.count('class="edge"') == 2  # an arrow in each picture
    assert page.rows == (wanted if count > 12 else [f"device {device}" for device in range(count)])
    assert [row[0] for row in page.cells if row] == [*names]
    doing = f"which {'has' if over == 1 else 'have'} ended"
    assert page.titles == [f"Deadlock: {wanted[0]} wait for {wanted[1]}, {doing}"]
    assert f"<li><b>{count}</b>devices</li><li><b>{count - over}</b>wait</li>" in text
    assert f'<li class="bad"><b>{count - over}</b>can never end</li>' in text
    assert len(text) < 40_000


@pytest.mark.parametrize("count", [18, 256])
def test_many_cycles_of_devices_in_the_same_place_are_one_card(count: int) -> None:
    devices = {
        d: DeviceState(d, Doing.WAITS, "m", "rd", "recv-done", channel=1, waits_for=(d ^ 1,)) for d in range(count)
    }
    cycles = tuple((d, d + 1) for d in range(0, count, 2))
    found = made_of("deadlock", "stuck", devices, Deadlock(tuple(range(count)), cycles, (), ()))
    page = Page(found.page())
    assert page.cards(1) == page.cards(2) == [f"devices 0-{count - 1}"]
    assert page.titles == [f"Deadlock: {count} devices wait for each other in {count // 2} cycles"]
    assert "<p>Cycles: 0 -&gt; 1 -&gt; 0, 2 -&gt; 3 -&gt; 2, " in found.page()
    assert f"14 -&gt; 15 -&gt; 14, … ({count // 2} in all)</p>" in found.page()
    assert [row for row in page.cells if row] == [[f"0-{count - 1}", "wait", "rd", "recv-done", "1", ANY]]


def test_the_program_the_command_and_the_version_are_told(tmp_path: Path) -> None:
    program, source = tmp_path / "step.hlo", tmp_path / "model.py"
    program.write_text("".join(f"instruction <{k}>\n" for k in range(1, 9)))
    source.write_text("".join(f"line {k}\n" for k in range(1, 9)))
    place = Location(str(program), 5, 1, 3, "instruction <5>", frame=f"{source}:3 in f")
    devices = {0: DeviceState(0, Doing.WAITS, "m", "a", "recv", place, waits_for=(0,))}
    found = made_of("deadlock", "stuck", devices, Deadlock((0,), ((0,),), (), ()))
    text = found.page("distxla check 'a b.hlo'")
    Page(text)
    assert f"<dt>program</dt><dd>m ({program}) on device 0</dd>" in text
    assert "<dt>command</dt><dd>distxla check &#x27;a b.hlo&#x27;</dd>" in text
    assert "<dt>version</dt><dd>distxla " in text
    assert '<mark><span class="at">5</span>  instruction &lt;5&gt;</mark>' in text
    assert '<mark><span class="at">3</span>  line 3</mark>' in text
    assert "instruction &lt;3&gt;" in text
    assert "instruction &lt;8&gt;" not in text
    program.write_text("another one\n")
    assert text.count("<mark>") == found.page().count("<mark>")
    assert "instruction &lt;4&gt;" not in found.page()  # only what the location itself holds
    assert "<dt>command</dt>" not in found.page()


def test_only_python_files_are_read_for_a_source(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret\n")
    place = Location("step.hlo", 5, 1, 3, "text", frame=f"{tmp_path}/secret:1 in f")
    devices = {0: DeviceState(0, Doing.WAITS, "m", "a", "recv", place, waits_for=(0,))}
    assert "a secret" not in made_of("deadlock", "stuck", devices, Deadlock((0,), ((0,),), (), ())).page()


def test_a_notebook_shows_the_same_without_a_page() -> None:
    found = made(4)
    shown = in_a_cell(found)
    Page(shown)
    assert shown.startswith('<div class="dx"><style>')
    assert shown.endswith("</div>")
    body = shown.split("</style>")[1].removesuffix("\n</div>")
    assert body in found.page()
    selectors = re.findall(r"^ ?([^@{}\n]+) \{", shown.split("<style>")[1].split("</style>")[0], re.M)
    assert all(".dx" in part for selector in selectors for part in selector.split(","))


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
