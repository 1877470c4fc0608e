"""A trace as a page and as lines of text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distxla.runtime.calls.timeline import Slice, Timeline, Track
from distxla.runtime.calls.timeline_page import fragment, headline_of, page, summary
from tests.browser import SCHEMES, WIDTHS, first_row, measured, picture
from tests.runtime.calls.timelines import MS, made

BAR = re.compile(r'<i class="(\w+)[^"]*" style="left:([\d.]+)%;width:([\d.]+)%" title="([^"]*)">')


def bars(text: str, kind: str) -> list[tuple[float, float, str]]:
    """Begin, end and words of each bar of a kind."""
    found = [(float(x), float(x) + float(w), said) for what, x, w, said in BAR.findall(text) if what == kind]
    assert all(0 <= begin <= end <= 100.01 for begin, end, _ in found)
    return found


def test_bars_are_to_scale() -> None:
    text = page(made(2, calls=1))
    assert bars(text, "waited") == [(10.0, 50.0, "wait for device 1, 4 ms, from 1 ms on")]
    assert [bar[:2] for bar in bars(text, "computed")] == [(0.0, 10.0), (60.0, 100.0), (0.0, 40.0), (60.0, 100.0)]
    (one, other) = bars(text, "did")
    assert (one[:2], other[:2]) == ((10.0, 60.0), (40.0, 60.0))
    assert one[2] == (
        "all-reduce.17, opcode all-reduce, round 1, bytes 4096, source model.py:47 in &lt;f&gt;, 5 ms, from 1 ms on"
    )
    assert [bar[:2] for bar in bars(text, "critical")] == [(50.0, 100.0), (0.0, 50.0)]


def test_each_devices_share_of_waiting_is_told() -> None:
    text = page(made(2), "distxla run step.hlo --timeline page.html")
    assert '<span class="share">waits 40 %</span>' in text
    assert '<span class="share">waits 0 %</span>' in text
    assert "<dt>command</dt><dd>distxla run step.hlo --timeline page.html</dd>" in text
    assert "<dt>program</dt><dd>jit_train_step</dd>" in text
    assert "1.01 s" in headline_of(made(2))
    assert '<td data-name="bytes in all">16384</td>' in text
    assert '<td data-name="waits">8 ms (40 %)</td>' in text
    assert '<td data-name="on the critical path">10 ms (50 %)</td>' in text
    assert "990 ms cut out" in text
    assert "To scale, but for the breaks" in text


def test_in_lines_of_text() -> None:
    assert summary(made(2)).splitlines() == [
        "Timeline: 2 devices, 2 calls, 1.01 s",
        "  device 0 (process 1000): computes 50 %, communicates 10 %, waits 40 %",
        "  device 1 (process 1001): computes 80 %, communicates 20 %, waits 0 %",
        "  all-reduce.17: 4 executions, waits of 8 ms in all",
    ]


def test_a_program_without_recorded_steps_shows_its_runs() -> None:
    text = page(made(2, calls=1, steps=False))
    assert [bar[:2] for bar in bars(text, "computed")] == [(0.0, 100.0), (0.0, 100.0)]
    assert text.index('<i class="computed') < text.index('<i class="did')  # below the others


def test_a_wait_without_end_is_marked() -> None:
    slices = [
        Slice(0, "call 1", "call", 0.0, 10 * MS),
        Slice(1, "m", "run", 0.0, 10 * MS, unfinished=True),
        Slice(1, "all-reduce.17", "collective", MS, 10 * MS, unfinished=True),
        Slice(1, "wait for the group", "wait", 2 * MS, 10 * MS, unfinished=True),
    ]
    text = page(Timeline([Track("calls", "driver"), Track("device 0", "host")], slices))
    assert bars(text, "stuck") == [(20.0, 100.0, "wait for the group, has not ended, from 2 ms on")]
    assert '<li class="bad"><b>1</b>did not end</li>' in text


def test_many_short_bars_become_few() -> None:
    """Of each piece the kind of most of it: first it computes for 3 of 4 units, then it waits for as long."""
    count, unit = 20_000, 10.0
    slices = [Slice(0, "call 1", "call", 0.0, 4 * count * unit), Slice(1, "m", "run", 0.0, 4 * count * unit)]
    for k in range(count):
        begin = 4 * k * unit
        middle = begin + (3 * unit if k < count / 2 else unit)
        slices.append(Slice(1, "fusion", "kernel", begin, middle))
        slices.append(Slice(1, "all-reduce", "collective", middle, begin + 4 * unit))
        slices.append(Slice(1, "wait", "wait", middle, begin + 4 * unit))
    text = page(Timeline([Track("calls", "driver"), Track("device 0", "host")], slices))
    computed, waited = bars(text, "computed"), bars(text, "waited")
    assert len(computed) == pytest.approx(1000, abs=2)
    assert len(waited) == pytest.approx(1000, abs=2)
    assert bars(text, "did") == []
    assert max(end for _, end, _ in computed) <= 50.1
    assert min(begin for begin, _, _ in waited) >= 49.9
    assert re.match(r"3\d pieces from 0 on: computes for 3\d\d ns, waits for others for 1\d\d ns", computed[0][2])
    assert "are drawn as one" in text


@pytest.mark.parametrize("count", [8, 64, 256])
def test_the_size_has_a_bound(count: int) -> None:
    assert len(page(made(count, calls=20)).encode()) < 4_000_000


def test_nothing_was_recorded() -> None:
    empty = Timeline([Track("calls", "driver"), Track("device 0", "host")], [])
    assert "No device has recorded anything" in page(empty)
    assert summary(empty) == "Timeline: no call was recorded"


def test_names_are_escaped_and_nothing_comes_from_elsewhere() -> None:
    slices = [Slice(0, "call 1", "call", 0.0, MS), Slice(1, "<script>", "run", 0.0, MS)]
    text = page(Timeline([Track("calls", "driver"), Track("device 0", "<b>")], slices), "<script>")
    assert "<script" not in text
    assert "<b>, device 0" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_notebook_shows_the_same() -> None:
    shown = fragment(made(4))
    assert shown.startswith('<div class="dx"><style>')
    assert shown.split("</style>")[1].removesuffix("\n</div>") in page(made(4))


PAGES = {f"timeline {count}": page(made(count), "distxla run step.hlo --timeline t.html") for count in (4, 32, 256)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_clipped_or_covered(scheme: str, tmp_path: Path) -> None:
    found = measured(PAGES, scheme, tmp_path)
    assert set(found) == {f"{name} {width}" for name in PAGES for width in WIDTHS}
    assert {name: one["faults"] for name, one in found.items() if one["faults"]} == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_its_picture(width: int, tmp_path: Path) -> None:
    assert first_row(picture(PAGES["timeline 32"], width, 900, "light", tmp_path))[:2] == (width, 900)
