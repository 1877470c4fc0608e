"""The driver on which kernels for GPUs run in tests: modules and conftests import the fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

VARIABLE = "DISTXLA_GPU_DRIVER"


@pytest.fixture(scope="module", autouse=True)
def gpu_driver() -> Iterator[str]:
    """The emulated one, unless DISTXLA_GPU_DRIVER names another."""
    with pytest.MonkeyPatch.context() as patch:
        name = os.environ.get(VARIABLE, "emulated")
        patch.setenv(VARIABLE, name)
        yield name


__all__ = ["gpu_driver"]
