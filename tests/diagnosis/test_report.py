"""Reports as text, as JSON, as a page: what they say, whoever made them."""

from __future__ import annotations

import json
import pickle
from html.parser import HTMLParser

import pytest

from distxla.diagnosis.diagnose import summary_of
from distxla.diagnosis.divergence import divergence
from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event, Loop
from distxla.diagnosis.graph import Deadlock
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import DeadlockError
from distxla.location import Location
from distxla.wording import named
from tests.diagnosis.made import made_of

EVIL = '<script>alert("x")</script>&\x1b[31m'


def waiting(device: int, other: int, name: str = "c", **others: object) -> DeviceState:
    location = Location("m.hlo", 10 + device, 3, 4, "c = ...", frame="model.py:7 in f")
    return DeviceState(device, Doing.WAITS, "m", name, "all-reduce", location, waits_for=(other,), **others)  # type: ignore[arg-type]


def made(count: int = 2, name: str = "c") -> Diagnosis:
    devices = {d: waiting(d, (d + 1) % count, name, round=d + 1, group=tuple(range(count))) for d in range(count)}
    verdict = Deadlock(tuple(range(count)), (tuple(range(count)),), (), ())
    return made_of("deadlock", summary_of(verdict, devices), devices, verdict)


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ([3], "device 3"),
        ([1, 0], "devices 0, 1"),
        ([0, 1, 2], "devices 0-2"),
        ([0, 2, 3, 4, 7], "devices 0, 2-4, 7"),
    ],
)
def test_names_of_devices(devices: list[int], text: str) -> None:
    assert named(devices) == text


def test_text() -> None:
    assert made().text() == (
        "  device 0 waits in c (m.hlo:10:3) for device 1: all-reduce, group {0,1}, round 1, from model.py:7 in f\n"
        "  device 1 waits in c (m.hlo:11:3) for device 0: all-reduce, group {0,1}, round 2, from model.py:7 in f\n"
        "  2 of 2 devices can never end\n"
        "  cycle: 0 -> 1 -> 0"
    )


def test_every_state_of_a_device_has_a_line() -> None:
    loops = (Loop("outer", None, 2), Loop("inner", None, 5))
    devices = {
        0: DeviceState(0, Doing.ENDED, "m", "c"),
        1: DeviceState(1, Doing.COMPUTES, "m", "dot"),
        2: DeviceState(2, Doing.ABSENT),
        3: DeviceState(3, Doing.LOST, "m", "dot"),
        4: DeviceState(4, Doing.FAILED, "m"),
        5: DeviceState(5, Doing.WAITS, "m", "f", "infeed", host="the host", loops=loops, round=3),
        6: DeviceState(6, Doing.WAITS, "m", "g", "all-gather", waits_for=(0, 2)),
        7: DeviceState(7, Doing.ENDED, "m", "c"),
        8: DeviceState(8, Doing.NOT_BEGUN, "m"),
        9: DeviceState(9, Doing.NOT_BEGUN, "m"),
    }
    assert made_of("time-limit", "over", devices).text().splitlines() == [
        "  devices 0, 7 have ended after c",
        "  device 1 computes dot",
        "  device 2 takes no part",
        "  device 3 was lost in dot",
        "  device 4 has failed",
        "  device 5 waits in f for the host: infeed, round 3, in iteration 5 of inner in iteration 2 of outer",
        "  device 6 waits in g for devices 0, 2: all-gather",
        "  devices 8, 9 have not begun",
    ]


def test_many_devices_stay_readable() -> None:
    lines = made(200, "x").text().splitlines()
    assert len(lines) < 210
    chain = next(line for line in lines if "cycle" in line)
    assert chain == "  cycle: 0 -> 1 -> 2 -> 3 -> 4 -> ... 193 more ... -> 198 -> 199 -> 0"


def test_json_says_all() -> None:
    found = json.loads(json.dumps(made().as_json()))
    assert found["kind"] == "deadlock"
    assert found["cycles"] == [[0, 1]]
    assert found["devices"][1]["location"]["line"] == 11
    assert found["devices"][1]["location"]["frame"] == "model.py:7 in f"
    assert found["devices"][0]["waits_for"] == [1]
    assert found["devices"][0]["doing"] == "waits"


def test_errors_keep_their_report_when_they_are_pickled() -> None:
    error = DeadlockError("stuck")
    error.diagnosis = made()
    again = pickle.loads(pickle.dumps(error))
    assert again.diagnosis == error.diagnosis
    assert str(again) == "deadlock: stuck\n" + made().text()


class _Page(HTMLParser):
    """Checks that elements are closed; collects the names of all and every attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.values += [value or "" for _, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("count", [2, 3, 60])
def test_the_page_is_self_contained_and_escaped(count: int) -> None:
    events = (
        Event(EVIL, EVIL, 1, begun=-2.0, ended=-1.5, waited=-1.8, iteration=2),
        Event(EVIL, EVIL, 2, begun=-1.0, waited=-0.9),
    )
    frame = Location(EVIL, 1, 1, 2, EVIL, frame=EVIL)
    devices = {
        d: DeviceState(
            d,
            Doing.WAITS,
            EVIL,
            EVIL,
            EVIL,
            frame,
            EVIL,
            2,
            1,
            tuple(range(count)),
            ((d + 1) % count,),
            loops=(Loop(EVIL, frame, 3),),
            events=events,
        )
        for d in range(count)
    }
    verdict = Deadlock(tuple(range(count)), (tuple(range(count)),), (), ())
    text = made_of("deadlock", EVIL, devices, verdict).page()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert "script" not in page.tags
    assert not page.attributes & {"src", "href", "onload", "onclick", "xlink:href"}
    assert "http" not in text.replace("http-equiv", "")
    assert EVIL not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text
    assert text.count('class="edge hot"') == 2 * (count if count <= 12 else 1)  # in both pictures


def test_the_first_difference_of_histories_is_marked() -> None:
    same = [Event("a", "all-reduce", k) for k in range(1, 5)]
    one = DeviceState(0, Doing.WAITS, "m", "a", waits_for=(1,), events=(*same, Event("a", "all-reduce", 5)))
    other = DeviceState(1, Doing.WAITS, "m", "b", waits_for=(0,), events=(*same[1:], Event("b", "all-gather", 5)))
    found = divergence(one, other)
    assert found is not None
    assert (found.one_event, found.other_event) == (4, 3)
    assert str(found) == (
        "after a (all-reduce), round 4 device 0 reached a (all-reduce), round 5, "
        "device 1 reached b (all-gather), round 5"
    )
    verdict = Deadlock((0, 1), ((0, 1),), (), ())
    page = made_of("deadlock", "stuck", {0: one, 1: other}, verdict).page()
    assert page.count('<li class="first">') == 2


def turned(*iterations: int, device: int = 0) -> DeviceState:
    events = tuple(Event("a", "all-reduce", k, iteration=turn) for k, turn in enumerate(iterations, 1))
    return DeviceState(device, Doing.WAITS, "m", "a", events=events)


def test_a_loop_that_one_device_runs_more_often_shows_in_the_iterations() -> None:
    """Long before the rounds do: the inner one of two loops, three times in the second turn of the outer one."""
    found = divergence(turned(1, 2, 1, 2, 3, 1, 2), turned(1, 2, 1, 2, 1, 2, device=1))
    assert found is not None
    assert (found.one_event, found.other_event) == (4, 4)
    assert str(found) == (
        "after a (all-reduce), round 4 device 0 reached a (all-reduce), round 5 in iteration 3, "
        "device 1 reached a (all-reduce), round 5 in iteration 1"
    )


def test_devices_with_the_same_history_are_told_of_once() -> None:
    devices = {d: turned(1, 2, *([3] if d > 1 else []), device=d) for d in range(4)}
    ended = tuple((d, over) for d in (2, 3) for over in (0, 1))
    found = made_of("deadlock", "stuck", devices, Deadlock((2, 3), (), ended, ()))
    assert [line for line in found.text().splitlines() if "history" in line] == [
        "  history: after a (all-reduce), round 2 devices 2, 3 reached a (all-reduce), round 3, devices 0, 1 reached "
        "nothing more"
    ]
    assert [found.as_json()["divergences"][0][key] for key in ("devices", "also", "other_also")] == [[2, 0], [3], [1]]
    page = found.page()
    assert page.count('<li class="first">') == 1  # what devices 2 and 3 reached
    assert '<li class="who">devices 2, 3</li>' in page
    assert '<li class="who">devices 0, 1</li>' in page


@pytest.mark.parametrize(("diverging", "shown", "last"), [(4, 4, None), (5, 5, "  history: others diverge, too")])
def test_that_there_are_more_histories_is_said(diverging: int, shown: int, last: str | None) -> None:
    devices = {d: turned(*range(1, 3 + d), device=d) for d in range(diverging + 1)}
    pairs = tuple((diverging, d) for d in range(diverging))
    found = made_of("deadlock", "stuck", devices, Deadlock((diverging,), (), pairs, ()))
    assert len(found.divergences) == diverging
    histories = [line for line in found.text().splitlines() if "history" in line]
    assert len(histories) == shown
    assert last in (None, histories[-1])
    assert ("others diverge" in found.text()) == (last is not None)


def test_loops_may_meet_in_other_iterations_from_the_begin_on() -> None:
    found = divergence(turned(1, 2, 3, 4), turned(8, 9, 10, device=1))
    assert found is not None
    assert (found.one_event, found.other_event) == (3, -1)
    assert divergence(turned(1, 2, 3), turned(8, 9, 10, device=1)) is None


def test_histories_that_are_equal_or_unknown_have_no_difference() -> None:
    events = (Event("a", "all-reduce", 1),)
    one = DeviceState(0, Doing.WAITS, "m", "a", events=events)
    assert divergence(one, DeviceState(1, Doing.WAITS, "m", "a", events=events)) is None
    assert divergence(one, DeviceState(1, Doing.WAITS, "m", "a")) is None


def test_old_names_work_and_name_the_new_ones() -> None:
    error = DeadlockError("stuck")
    error.diagnosis = made()
    with pytest.warns(DeprecationWarning, match=r"is now DistxlaError\.diagnosis"):
        assert error.report is error.diagnosis
    with pytest.warns(DeprecationWarning, match="is now divergences"):
        assert error.diagnosis.differences == error.diagnosis.divergences
