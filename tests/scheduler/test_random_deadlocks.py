"""Random programs: what the verdict says, and what the reference finds when it runs them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.passes.verify_world import verify_world
from distxla.reference.lockstep import run_programs
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from tests.scheduler.random_programs import RandomProgram


def check(data: st.DataObject) -> None:
    """Safe: no run deadlocks, whatever the arguments. Deadlock: every run does."""
    devices = data.draw(st.integers(2, 4), label="devices")
    text = RandomProgram(lambda strategy: data.draw(strategy), devices).text()
    module = parse_module(text, "random.hlo")
    verify_world([(range(devices), module)], devices, 1)
    verdict = examine([(range(devices), module)], devices, 1)
    for _ in range(2):
        numbers = data.draw(st.lists(st.integers(0, 2), min_size=devices, max_size=devices), label="arguments")
        arguments = {d: [np.zeros(2, np.float32), np.int32(n)] for d, n in enumerate(numbers)}
        error = ""
        try:
            run_programs(dict.fromkeys(range(devices), module), arguments, replicas=devices, partitions=1)
        except (DeadlockError, CollectiveMismatchError) as stuck:
            error = str(stuck)
        refuted = Outcome.SAFE if error else Outcome.DEADLOCK
        assert verdict.outcome is not refuted, f"{text}\n{error}\n{verdict.text}"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_verdicts_of_random_programs(data: st.DataObject) -> None:
    check(data)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_verdicts_of_many_random_programs(data: st.DataObject) -> None:
    check(data)
