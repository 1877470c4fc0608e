"""One process with JAX on distxla's devices for all files of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distxla.testing.session import checks_of
from tests.conftest import open_resources, require_nothing_left
from tests.jax.pjrt.served import Served


@pytest.fixture(scope="package", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """As in other folders (tests/conftest.py), but for all modules together, as long as which the process runs."""
    shared = checks_of(request.config).pool
    shared.close_idle()
    before = open_resources()
    yield
    require_nothing_left(before, shared)


@pytest.fixture(scope="package")
def served(nothing_is_left_behind: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The process, whose scripts tell when they change what others see."""
    process = Served(tmp_path_factory.mktemp("served") / "errors")
    yield process
    process.close()
