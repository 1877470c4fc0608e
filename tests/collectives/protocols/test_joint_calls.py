"""Joint calls with their owner in every execution in which members may die anywhere; and what mutants do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.collectives.protocols.explore_deaths import WHATEVER, Found, explore
from tests.collectives.protocols.models.joint_owner import Joint, Own, Scene, scene
from tests.collectives.protocols.models.machine import NEVER, NOTHING, ModelStep, Process


@dataclass(frozen=True)
class Case:
    """A scene, how many members die at most, and how many states it has at least."""

    make: Callable[[], Scene]
    states: int
    deaths: int = 0


FIRST, OTHER, SKIPPED = Joint(0), Joint(0, program=1), Joint(0, skips=True)
CASES = {
    "a call of which a member dies": Case(lambda: scene([FIRST], [FIRST]), 20_000, deaths=1),
    "a call of a member alone behind a joint one": Case(lambda: scene([FIRST], [FIRST, Own()]), 20_000),
    "members that differ, and go on": Case(lambda: scene([FIRST, Joint(2)], [OTHER, Joint(2)]), 12_000),
    "a member that skips a call, and goes on": Case(lambda: scene([SKIPPED, Joint(2)], [FIRST, Joint(2)]), 12_000),
}
LARGER = {
    "a later call that is refused first": Case(
        lambda: scene([FIRST, Joint(2)], [FIRST, Joint(2, program=1, is_told=True)], order=[2, 0]), 100_000
    ),
    "a call of which both members die": Case(lambda: scene([FIRST], [FIRST]), 25_000, deaths=2),
    "a death around a call of a member alone": Case(lambda: scene([FIRST], [FIRST, Own()]), 40_000, deaths=1),
    "a member that ends early": Case(lambda: scene([FIRST, Joint(1)], [FIRST]), 40_000),
    "a death in one of two calls": Case(lambda: scene(*[[FIRST, Joint(1)]] * 2), 180_000, deaths=1),
    "three calls": Case(lambda: scene(*[[FIRST, Joint(1), Joint(2)]] * 2), 300_000),
    "one of three members differs": Case(lambda: scene([FIRST], [FIRST], [OTHER]), 60_000),
    "three members": Case(lambda: scene([FIRST], [FIRST], [FIRST]), 400_000),
    "one of three members skips": Case(lambda: scene([FIRST], [FIRST], [SKIPPED]), 30_000),
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", CASES)
def test_every_execution_does_what_it_shall(name: str) -> None:
    _require_right(CASES[name])


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGER)
def test_every_execution_of_larger_scenes_does(name: str) -> None:
    _require_right(LARGER[name])


def _require_right(case: Case) -> None:
    found = _explored(case.make(), case.deaths)
    assert found.problem == "", "\n".join((found.problem, *found.path))
    assert found.states > case.states


def _explored(made: Scene, deaths: int) -> Found:
    return explore(made.processes, made.mortal, deaths=deaths, serving=made.serving)


MUTATED: dict[str, Case] = {
    "dies": CASES["a call of which a member dies"],
    "alone": CASES["a call of a member alone behind a joint one"],
    "differs": CASES["members that differ, and go on"],
    "skips": CASES["a member that skips a call, and goes on"],
    "early": LARGER["a later call that is refused first"],
    "one of three": LARGER["one of three members differs"],
}
ENDLESS = "never ends"
MUTANTS = [  # scene, the steps that are changed, how, what an execution then does
    ("dies", "wake for a member", "drop", ENDLESS),
    ("dies", "start for a member", "drop", ENDLESS),
    ("dies", "tell the verdict", "drop", ENDLESS),
    ("dies", "let go", "drop", ENDLESS),
    ("dies", "refuse", "drop", ENDLESS),
    ("dies", "refuse", "store", "no start of a refused call"),
    ("alone", "start", "store", ENDLESS),
    ("dies", "look at the issues", "drop", ENDLESS),
    ("alone", "take hold", "drop", "not a slice of"),
    ("alone", "look for a hold", "drop", "not a slice of"),
    ("alone", "look for a hold", "early", "not a slice of"),
    ("alone", "arrive", "store", ENDLESS),
    ("differs", "arrive", "store", ENDLESS),
    ("differs", "tell the verdict", "drop", ENDLESS),
    ("skips", "await the refusal", "drop", "not"),
]
LARGER_MUTANTS = [
    ("early", "too early", "never", ENDLESS),
    ("early", "refuse", "drop", ENDLESS),
    ("one of three", "tell the verdict", "drop", ENDLESS),
]


def mutant(name: str, tag: str, change: str) -> Scene:
    """A scene with all steps of a tag changed.

    drop: they do nothing.  early: they come before the access before them.  store: a compare-and-swap is a store that
    succeeds.  never: a loop or block is never left by a condition.
    """
    made = MUTATED[name].make()
    changed = sum(_change(process, tag, change) for process in made.processes)
    assert changed
    return made


def _change(process: Process, tag: str, change: str) -> int:
    steps, changed = process.steps, 0
    for at, step in enumerate(steps):
        if tag not in step.tag.split("/"):
            continue
        if change == "drop" and step.kind not in ("check", "jump", "assign"):
            steps[at] = NOTHING
        elif change == "early" and step.kind not in ("check", "jump", "assign"):
            before = _before(steps, at)
            steps[at], steps[before] = steps[before], step
        elif change == "store" and step.kind == "cas":
            steps[at] = replace(step, condition=("", "==", WHATEVER))
        elif change == "never" and step.kind == "jump":
            steps[at] = replace(step, condition=NEVER)
        else:
            continue
        changed += 1
    return changed


def _before(steps: list[ModelStep], at: int) -> int:
    at -= 1
    while steps[at].kind in ("jump", "check", "assign", "increment", "end"):
        at -= 1
    return at


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("name", "tag", "change", "problem"), MUTANTS)
def test_mutants_are_caught(name: str, tag: str, change: str, problem: str) -> None:
    assert problem in _explored(mutant(name, tag, change), MUTATED[name].deaths).problem


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "tag", "change", "problem"), LARGER_MUTANTS)
def test_mutants_of_larger_scenes_are_caught(name: str, tag: str, change: str, problem: str) -> None:
    assert problem in _explored(mutant(name, tag, change), MUTATED[name].deaths).problem
