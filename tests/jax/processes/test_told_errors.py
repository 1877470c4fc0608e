"""Errors between processes: the class, the text and the notes come back."""

from __future__ import annotations

import json

import pytest

from distxla.errors import ClusterError, CollectiveMismatchError, DistxlaError, ReplicaLostError
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


@pytest.mark.parametrize("other", [None, 3, {}, {"code": 3, "message": [], "notes": 5, "text": None}])
def test_whatever_comes_is_an_error(other) -> None:
    assert type(unpack_error(other)) is ClusterError
