"""The models of groups and streams in every execution, weak memory, aborts and deaths included; and what mutants do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distxla.collectives.protocols.layout import Order
from distxla.collectives.protocols.machine import Process
from distxla.collectives.protocols.models import group_rounds, stream_items, with_abort
from tests.collectives.protocols.explore import explore


def test_two_members_meet_in_two_rounds() -> None:
    found = explore(group_rounds(2)[0])
    assert found.problem == ""
    assert found.states > 1000


def test_two_items_go_through_a_place_for_one() -> None:
    found = explore(stream_items()[0])
    assert found.problem == ""
    assert found.states > 1000


@pytest.mark.parametrize("kills", [False, True], ids=["abort", "death and abort"])
def test_whoever_waits_is_released(kills: bool) -> None:
    found = explore(with_abort(stream_items(1)), kills=kills)
    assert found.problem == ""
    assert found.states > 1000


MUTANTS = [  # model, the steps that are changed, how, what an execution then does
    ("group", "publish", "plain", "not the round's own outcome"),
    ("group", "fence before wake", "drop", "asleep for ever"),
    ("group", "count sleeper", "drop", "asleep for ever"),
    ("group", "wake", "drop", "asleep for ever"),
    ("group", "arrive", "drop", "asleep for ever"),
    ("group", "reset", "drop", "asleep for ever"),
    ("stream", "post", "plain", "not the item"),
    ("stream", "wake", "drop", "asleep for ever"),
    ("stream", "fence before wake", "drop", "asleep for ever"),
    ("stream", "count sleeper", "drop", "asleep for ever"),
    ("aborted stream", "set abort", "drop", "asleep for ever"),
    ("aborted stream", "fence after abort", "drop", "asleep for ever"),
    ("aborted stream", "note waiting", "drop", "asleep for ever"),
]


def _mutant(model: str, tag: str, change: str) -> list[Process]:
    members = {"group": group_rounds(2)[0], "stream": stream_items()[0], "aborted stream": with_abort(stream_items(1))}
    processes = members[model]
    changed = 0
    for process in processes:
        for at, step in enumerate(process.steps):
            if step.tag == tag:
                changed += 1
                if change == "plain":
                    process.steps[at] = replace(step, order=Order.PLAIN)
                elif step.kind != "jump":
                    process.steps[at] = replace(step, kind="jump", value=0)
    assert changed
    return processes


@pytest.mark.parametrize(("model", "tag", "change", "problem"), MUTANTS)
def test_mutants_are_caught(model: str, tag: str, change: str, problem: str) -> None:
    assert problem in explore(_mutant(model, tag, change), kills=model == "aborted stream").problem
