"""The control: scripts that agree run, with right results, and without an alarm."""

from __future__ import annotations

import re

import pytest

from tests.jax.processes.group import Group
from tests.jax.processes.random_scripts import FUNCTIONS, script_of, wrong_step_of

ALARM = re.compile(r"disagree|deadlock|mismatch|\blost\b|time-limit|can't take part")
COUNT = 20  # between two answers of the processes


def run(group: Group, first: int) -> None:
    """Scripts from this one on."""
    before = len(group.errors)
    found = group.printed(f"""
        from tests.jax.processes.random_scripts import Agent
        agent = Agent(PROCESSES, PROCESS)
        for seed in range({first}, {first + COUNT}):
            agent.run(seed)
        print("done")
    """)
    assert found == ["done"] * group.count
    assert not ALARM.search(group.errors[before:])


def run_wrong(group: Group, first: int, count: int) -> None:
    """Scripts in which one process calls something else: all members are told, and all else is right."""
    found = group.printed(f"""
        from tests.jax.processes.random_scripts import Agent
        agent = Agent(PROCESSES, PROCESS)
        print([agent.run(seed, is_wrong=True) for seed in range({first}, {first + count})])
        require_right_total()
    """)
    wanted = []
    for process in range(group.count):
        steps = [
            (script_of(seed, group.count), wrong_step_of(seed, group.count)) for seed in range(first, first + count)
        ]
        wanted.append([int(wrong is not None and process in script[wrong[0]].members) for script, wrong in steps])
    assert found == list(map(str, wanted))


def test_scripts_of_two_with_a_wrong_call(pair: Group) -> None:
    run_wrong(pair, 1000, 5)


@pytest.mark.exhaustive
def test_scripts_of_three_with_a_wrong_call() -> None:
    with Group(3) as group:
        for first in range(1000, 1100, COUNT):
            run_wrong(group, first, COUNT)


def test_scripts_of_two(pair: Group) -> None:
    run(pair, 0)


@pytest.mark.exhaustive
def test_scripts_of_three() -> None:
    with Group(3) as group:
        for first in range(0, 500, COUNT):
            run(group, first)


def test_the_scripts_have_all_kinds() -> None:
    steps = [step for seed in range(COUNT) for step in script_of(seed, 3)]
    assert {step.kind for step in steps} == {"call", "check", "local", "sleep", "all"}
    assert {step.function for step in steps if step.kind == "call"} == set(FUNCTIONS)
    assert {step.members for step in steps if step.kind == "call"} > {(0, 1, 2)}
