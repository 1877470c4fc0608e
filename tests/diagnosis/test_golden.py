"""What `check` and the reference say of programs that deadlock: one file a program holds both.

tests/runtime/failures/test_deadlocks.py has the cluster.
"""

from __future__ import annotations

import pytest

from distxla.scheduler.verdict import Outcome
from tests.diagnosis.golden import (
    CASES,
    FOLDER,
    NAMED,
    STUCK,
    check_check,
    check_run,
    diagnosis_of,
    evaluated,
    golden,
    verdict_on,
)


@pytest.mark.parametrize("name", STUCK)
def test_in_the_reference(name: str) -> None:
    check_run(name, diagnosis_of(NAMED[name]))


@pytest.mark.parametrize("name", STUCK)
def test_before_the_run(name: str) -> None:
    verdict = verdict_on(NAMED[name])
    assert verdict.outcome is (Outcome.UNKNOWN if golden(name)["undecided"] else Outcome.DEADLOCK)
    check_check(name, verdict)


@pytest.mark.parametrize("name", [case.name for case in CASES if not case.deadlocks])
def test_neighbours_that_do_not_deadlock(name: str) -> None:
    assert verdict_on(NAMED[name]).outcome is (Outcome.UNKNOWN if "infeed" in name else Outcome.SAFE)
    evaluated(NAMED[name])


def test_each_program_has_one_file() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(STUCK)
