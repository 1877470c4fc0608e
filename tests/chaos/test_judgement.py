"""The judge of `make chaos` finds what is wrong with a case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.judgement import Bounds, judge
from tests.chaos.log import kept
from tests.chaos.plan import KINDS, Case, draw
from tests.chaos.runner import CLOSING_SOCKETS, Process, Story

STRUCK = 100.0
BITS = "b"


def said(event: str, at: float = STRUCK + 0.5, **values: Any) -> dict[str, Any]:
    return {"event": event, "at": at, **values}


def error(name: str, text: str = "", **values: Any) -> dict[str, Any]:
    return {"error": name, "classes": [name, "DistxlaError"], "text": text, "notes": [], "injected": [], **values}


LOST = error("ReplicaLostError", "the replica of device 2 ended during a call in summed")
FINE = {"error": "", "bits": BITS, "injected": []}
RUNNING = [said("starting", 97), said("ready", 98, bits=BITS), said("running", 99)]
CLOSED = said("closed", 110, descriptors={}, threads=[])
STOPPED = said("notice", STRUCK + 2, text="distxla: device 1 is stopped in dot, until SIGCONT")


def story(kind: str, *events: dict[str, Any], **values: Any) -> Story:
    case = replace(draw(1, 0, (kind,)), which=1)
    return Story(case, [*RUNNING, *events, CLOSED], STRUCK, **values)


RIGHT = {  # kind, events after `running`, outcome
    "lost": ("kill a device", [said("ended", **LOST), said("again", **LOST)], "lost"),
    "over before": ("kill a device", [said("ended", STRUCK - 1, **FINE), said("again", **LOST)], "too late"),
    "over before the raylet was missed": ("kill the raylet", [said("ended", **FINE)], "right"),
    "went on": ("stop a device", [said("ended", **FINE), said("again", **FINE)], "right"),
    "noticed": (
        "stop a device until noticed",
        [STOPPED, said("ended", STRUCK + 3, **FINE), said("again", **FINE)],
        "noticed, right",
    ),
    "limit": (
        "stop a device beyond the limit",
        [said("ended", 101.5, **error("TimeLimitError", "device 1 is stopped")), said("again", **FINE)],
        "limit",
    ),
    "interrupted": (
        "interrupt the driver in a run",
        [said("interrupted", **error("KeyboardInterrupt")), said("again", **FINE)],
        "interrupted",
    ),
}
WRONG = {  # kind, events after `running`, part of the complaint
    "late": ("kill a device", [said("ended", STRUCK + 2.5, **LOST)], "noticed after 2.50 s"),
    "no device": ("kill a device", [said("ended", **error("ReplicaLostError", "lost in summed"))], "no device"),
    "no instruction": (
        "kill a device",
        [said("ended", **error("ReplicaLostError", "device 2 was lost"))],
        "no instruction",
    ),
    "another error": ("kill a device", [said("ended", **error("InternalError", "a bug"))], "InternalError: a bug"),
    "too early": ("kill a device", [said("ended", STRUCK - 1, **LOST)], "before the signal"),
    "right although killed": ("kill a device", [said("ended", **FINE)], "ended well"),
    "right long after the raylet": ("kill the raylet", [said("ended", STRUCK + 3, **FINE)], "ended well"),
    "no end": ("kill a device", [], "said nothing"),
    "other bits": ("stop a device", [said("ended", **{**FINE, "bits": "c"}), said("again", **FINE)], "other bits"),
    "other bits afterwards": (
        "stop a device",
        [said("ended", **FINE), said("again", **{**FINE, "bits": "c"})],
        "other bits (again)",
    ),
    "unusable": ("stop a device", [said("ended", **FINE), said("again", **LOST)], "again: the replica"),
    "another notice": (
        "stop a device until noticed",
        [said("notice", text="device 0 computes"), said("ended", **FINE), said("again", **FINE)],
        "nothing says",
    ),
    "a late notice": (
        "stop a device until noticed",
        [{**STOPPED, "at": STRUCK + 6}, said("ended", **FINE), said("again", **FINE)],
        "noticed after 6.00 s",
    ),
    "late limit": (
        "stop a device beyond the limit",
        [said("ended", 107, **error("TimeLimitError", "device 1 is stopped"))],
        "6.00 s after the limit",
    ),
    "error for an interrupt": ("interrupt the driver in a run", [said("ended", **LOST)], "ReplicaLostError"),
    "unusable after an interrupt": (
        "interrupt the driver in a run",
        [said("interrupted", **error("KeyboardInterrupt")), said("again", **LOST)],
        "can't be used again",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_case_is_right(name: str) -> None:
    kind, events, outcome = RIGHT[name]
    verdict = judge(story(kind, *events), BITS, Bounds())
    assert (verdict.wrong, verdict.outcome) == ("", outcome)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_case_is_wrong(name: str) -> None:
    kind, events, complaint = WRONG[name]
    assert complaint in judge(story(kind, *events), BITS, Bounds()).wrong


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"left": ["process 7 ray::Replica"]}, "left behind: process 7"),
        ({"hang": "no ended within 60 s"}, "no ended within 60 s"),
        ({"status": -11}, "the driver has ended with -11"),
        ({"grown": {"pipe": 2}}, "descriptors left in the driver: {'pipe': 2}"),
    ],
)
def test_leftovers_hangs_and_crashes_are_wrong(values: dict[str, Any], complaint: str) -> None:
    found = story("stop a device", said("ended", **FINE), said("again", **FINE), **values)
    assert complaint in judge(found, BITS, Bounds()).wrong


def test_memory_and_threads_left_in_the_driver_are_wrong() -> None:
    for left in ({"descriptors": {"memory file": 1}}, {"threads": ["distxla-watch"]}):
        found = story("stop a device", said("ended", **FINE), said("again", **FINE))
        found.events[-1] = {**CLOSED, **left}
        assert "left in the driver" in judge(found, BITS, Bounds()).wrong


def test_descriptors_beyond_those_of_the_first_cluster_are_left(tmp_path: Path) -> None:
    driver = Process("json.tool", tmp_path)
    try:
        assert driver.grown({"pipe": 2}, opened=False) == {}
        assert driver.grown({"pipe": 2, "file": 5, "socket": 1}, opened=True) == {}
        assert driver.grown({"pipe": 2, "file": 5, "socket": 2}, opened=True) == {}
        assert driver.grown({"pipe": 3, "file": 4, "socket": 4 + CLOSING_SOCKETS, "anon_inode": 1}, opened=True) == {
            "pipe": 1,
            "socket": 1,
            "anon_inode": 1,
        }
    finally:
        driver.clean()


def test_cases_are_drawn_again_from_their_seed() -> None:
    kinds = tuple(KINDS)
    cases: list[Case] = [draw(3, n, kinds) for n in range(1000)]
    assert cases == [draw(3, n, kinds) for n in range(1000)]
    assert {case.kind for case in cases} == set(kinds)


def test_the_log_keeps_all_that_is_known_of_a_case(tmp_path: Path) -> None:
    events = said("interrupted", **error("KeyboardInterrupt")), said("again", **error("ClusterError", "it is gone"))
    found = story("interrupt the driver at any moment", *events, messages="a warning\n", left=["process 7"])
    verdict = judge(found, BITS, Bounds())
    paths = [kept(tmp_path / "chaos", found, verdict) for _ in range(2)]
    assert len(set(paths)) == 2, "a case that is played again overwrites nothing"
    text = paths[1].read_text()
    for known in (
        str(found.case),
        verdict.wrong,
        "it is gone",
        '"event": "closed"',
        "a warning",
        "process 7",
        "struck",
    ):
        assert known in text
