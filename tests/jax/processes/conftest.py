"""Two JAX processes with two of distxla's devices each, for all files of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distxla.testing.session import checks_of
from tests.conftest import open_resources, require_nothing_left
from tests.jax.processes.group import Group


@pytest.fixture(scope="package", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """As in other folders (tests/conftest.py), but for all modules together, as long as which the processes run."""
    shared = checks_of(request.config).pool
    shared.close_idle()
    before = open_resources()
    yield
    require_nothing_left(before, shared)


@pytest.fixture(scope="package")
def pair(nothing_is_left_behind: None) -> Iterator[Group]:
    """The processes, whose scripts must leave them as they were."""
    with Group(2, devices=2) as group:
        yield group
