"""The judge of `make chaos` on cases of several JAX processes."""

from __future__ import annotations

from typing import Any

import pytest

from distxla.cli.launch_outcome import GRACE_S
from tests.chaos.judgement import Bounds, judge
from tests.chaos.plan import KINDS, Case, draw
from tests.chaos.story import Story

STRUCK = 100.0
KILLED = "lost: process 1 was ended by SIGKILL after its call 3 (step, train.py:12)"


def case(victim: str = "process", which: int = 1, **values: Any) -> Case:
    given = {"processes": 3, "victim": victim, "which": which, "signal": "SIGKILL", "expected": "named", **values}
    return Case(1, 0, "processes", 1, **given)


def ended(process: int, text: str = KILLED, at: float = STRUCK + 0.5) -> dict[str, Any]:
    return {"event": "ended", "process": process, "at": at, "error": "JaxRuntimeError", "text": text}


def line(text: str = KILLED, at: float = STRUCK + 0.5) -> dict[str, Any]:
    return {"event": "line", "at": at, "text": text}


def judged(case: Case, *events: dict[str, Any], **values: Any) -> tuple[str, str]:
    """Outcome, and what is wrong."""
    given = {"running": case.processes, "struck": STRUCK, "status": 137 if case.launched else None, **values}
    verdict = judge(Story(case, [*events], **given), "", Bounds())
    return verdict.outcome, verdict.wrong


@pytest.mark.parametrize(
    ("made", "events", "values"),
    [
        (case(), [ended(0), ended(2)], {}),
        (case(launched=True), [ended(0), ended(2)], {}),
        (case(), [ended(0), ended(2, at=STRUCK + 3)], {"scale": 2.0}),
        (case(which=0), [line("distxla: lost: process 0 was ended by SIGKILL")], {}),
        (case(launched=True), [ended(0), line("error: process 1 failed first", STRUCK + GRACE_S + 1)], {"running": 1}),
        (
            case("owner", launched=True),
            [ended(k, "lost: the process that owns the devices (pid 3) was ended by SIGKILL") for k in range(3)],
            {"status": 4},
        ),
        (case("replica"), [ended(k, "lost: the replica of device 2 ended by SIGKILL") for k in range(3)], {}),
        (case("replica"), [ended(k, "the devices could not be started") for k in range(3)], {"running": 0}),
    ],
)
def test_the_right_name_in_time_is_right(made: Case, events: list[dict[str, Any]], values: dict[str, Any]) -> None:
    assert judged(made, *events, **values) == ("named", "")


@pytest.mark.parametrize(
    ("made", "events", "values", "complaint"),
    [
        (case(), [ended(0)], {}, "process 2 is not told"),
        (case(), [ended(0), ended(2, "lost: process 2 was ended by SIGKILL")], {}, "process 2 is not told"),
        (case(), [ended(0), ended(2, "lost: process 1 is lost")], {}, "process 2 is not told"),
        (case(), [ended(0), ended(2, at=STRUCK + 2.5)], {}, "told after 2.50 s"),
        (case(), [line(at=STRUCK - 1)], {}, "process 0 is not told"),
        (case(), [ended(0), ended(2)], {"left": ["process 7 ray::Replica"]}, "left behind: process 7"),
        (case(launched=True), [ended(0), ended(2)], {"status": 1}, "expected 137"),
        (case(launched=True), [ended(0), ended(2)], {"status": 0, "running": 1}, "status is 0"),
        (case("owner"), [ended(k) for k in range(3)], {}, "process 0 is not told"),
        (case(), [], {"struck": None}, "was not there"),
        (case(), [ended(0), ended(2), {**line(), "event": "wrong"}], {}, "wrong numbers"),
        (case(), [], {"hang": "waited 6 s for the end"}, "waited 6 s"),
    ],
)
def test_another_end_is_wrong(made: Case, events: list[dict[str, Any]], values: dict[str, Any], complaint: str) -> None:
    assert complaint in judged(made, *events, **values)[1]


def test_by_hand_one_that_was_killed_early_may_be_named_to_nobody() -> None:
    assert judged(case(), running=1) == ("not told", "")


@pytest.mark.parametrize(("signal", "status"), [("SIGTERM", 143), ("SIGKILL", -9)])
def test_the_end_of_the_launcher(signal: str, status: int) -> None:
    made = case("launcher", launched=True, signal=signal, expected="terminated")
    assert judged(made, status=status) == ("ended", "")
    assert "expected" in judged(made, status=1)[1]
    assert "goes on" in judged(made, status=None)[1]


def test_cases_of_processes_are_drawn_with_a_victim_among_them() -> None:
    kinds = tuple(kind for kind in KINDS if kind.startswith("processes: "))
    cases = [draw(3, number, kinds) for number in range(300)]
    assert {made.kind for made in cases} == set(kinds)
    assert {made.launched for made in cases} == {False, True}
    for made in cases:
        assert made.victim != "process" or made.which < made.processes
        assert made.victim != "launcher" or made.launched
