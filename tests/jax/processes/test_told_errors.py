"""Errors between processes: the class, the text and the notes come back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distxla.diagnosis.facts.blocked import Doing
from distxla.diagnosis.facts.processes import Difference, ProcessState
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import ClusterError, CollectiveMismatchError, DistxlaError, ReplicaLostError, ReplicationError
from distxla.jax.processes.told_errors import pack_error, unpack_error


def told(error: BaseException) -> DistxlaError:
    return unpack_error(json.loads(json.dumps(pack_error(error))))


def test_an_error_comes_back() -> None:
    error = CollectiveMismatchError("processes disagree in call 4")
    error.add_note("a note")
    found = told(error)
    assert (type(found), found.message, found.__notes__) == (CollectiveMismatchError, error.message, ["a note"])
    assert str(found) == "mismatch: processes disagree in call 4"


@pytest.mark.parametrize("made", [ReplicaLostError, ClusterError])
def test_its_class_is_kept(made) -> None:
    assert type(told(made("x"))) is made


def test_an_error_of_another_kind_is_told_with_its_name() -> None:
    found = told(ValueError("data loader"))
    assert (type(found), found.message) == (ClusterError, "ValueError: data loader")


def test_which_array_differs_comes_back() -> None:
    error = ReplicationError("arg0 is declared the same on devices 0-3")
    error.array, error.devices, error.differing, error.index = "arg0", (0, 1, 2, 3), (2, 3), (1, 0)
    found = told(error)
    assert isinstance(found, ReplicationError)
    assert (found.array, found.devices, found.differing, found.index) == ("arg0", (0, 1, 2, 3), (2, 3), (1, 0))
    bare = unpack_error({"code": "replication", "message": "m", "array": {"name": "arg0"}})
    assert isinstance(bare, ReplicationError)
    assert bare.devices == ()


def test_its_report_comes_back() -> None:
    error = CollectiveMismatchError("processes disagree in call 4")
    state = ProcessState(
        1, Doing.LOST, "step", "train.py:3", 4, "is gone", ("f (a.py:1)",), ("train.py:9",), 17, "host"
    )
    difference = Difference("constant", "2", "3", 0, 1, "multiply.2", "w2.py:12", "w2.py:13")
    error.diagnosis = Diagnosis(error.code, error.message, processes=(state,), process_differences=(difference,))
    found = told(error)
    assert found.diagnosis == error.diagnosis
    assert str(found) == str(error)
    assert not hasattr(found, "__notes__")


@pytest.mark.parametrize(
    "report", [3, {}, {"states": [], "differences": 5}, {"states": [{"process": "x"}], "differences": []}]
)
def test_a_report_that_is_none(report: Any) -> None:
    found = unpack_error({"code": "lost", "message": "m", "text": "  process 1 is gone", "report": report})
    assert type(found) is ReplicaLostError
    assert found.diagnosis is None
    assert found.__notes__ == ["  process 1 is gone"]


@pytest.mark.parametrize("other", [None, 3, {}, {"code": 3, "message": [], "notes": 5, "text": None}])
def test_whatever_comes_is_an_error(other) -> None:
    assert type(unpack_error(other)) is ClusterError
