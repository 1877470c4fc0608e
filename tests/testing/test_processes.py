"""The fixture `distxla_processes`: distxla/testing/processes.py, distxla/testing/process_member.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distxla.errors import ArgumentError, ClusterError, TimeLimitError
from distxla.testing.processes import Processes
from tests.testing import process_functions_cases as cases

Take = Callable[..., Processes]


def test_a_function_runs_in_all_processes_and_they_stay(distxla_processes: Take) -> None:
    processes = distxla_processes(2, devices=2)
    assert processes.run(cases.total) == [(0, 6.0), (1, 6.0)]
    pids = processes.run(cases.pid)
    assert len(set(pids)) == 2
    assert distxla_processes(2, devices=2).run(cases.pid) == pids
    assert processes.run(cases.total, 10.0) == [(0, 60.0), (1, 60.0)]


def test_processes_that_disagree_raise_the_same_error_and_go_on(distxla_processes: Take) -> None:
    processes = distxla_processes(2, devices=2)
    with pytest.raises(Exception, match="mismatch: processes disagree in call"):
        processes.run(cases.constant_differs)
    one, other = processes.run(cases.constant_differs, return_exceptions=True)
    assert type(one).__name__ == "JaxRuntimeError"
    assert str(one) == str(other)
    assert processes.run(cases.total) == [(0, 6.0), (1, 6.0)]


def test_a_failure_of_one_is_raised_and_the_other_is_not_waited_for(distxla_processes: Take) -> None:
    processes = distxla_processes(2, devices=2)
    with pytest.raises(KeyError, match="no such batch") as raised:
        processes.run(cases.fails_in_one)
    notes = "\n".join(raised.value.__notes__)
    assert "raised by process 1" in notes
    assert "about to fail" in notes
    assert "process 0: it waited for a process that has failed" in notes
    assert processes.run(cases.total) == [(0, 6.0), (1, 6.0)]


def test_a_process_that_ends_is_told_and_started_again(distxla_processes: Take) -> None:
    processes = distxla_processes(2, devices=2)
    with pytest.raises(ClusterError, match="process 1: the process has ended with status 7"):
        processes.run(cases.leaves)
    assert processes.run(cases.total) == [(0, 6.0), (1, 6.0)]


def test_what_cannot_be_sent_is_refused(distxla_processes: Take) -> None:
    processes = distxla_processes(2, devices=2)

    def inner() -> None: ...

    for function in (inner, lambda: None, int):
        with pytest.raises(ArgumentError, match="expected a function at the top of a module"):
            processes.run(function)
    with pytest.raises(TypeError, match="a result of type function can't be pickled"):
        processes.run(cases.no_pickle)


def test_a_function_beyond_its_time_is_ended(distxla_processes: Take) -> None:
    found: list[Any] = distxla_processes(2, devices=2).run(cases.total, limit=0.0, return_exceptions=True)
    assert all(isinstance(each, TimeLimitError) for each in found)
