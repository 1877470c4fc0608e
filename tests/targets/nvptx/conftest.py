"""Kernels of these tests run on the emulated driver, or on a GPU."""

import pytest

from tests.gpu_driver import gpu_driver


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look into it, on a machine with a GPU, too."""
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated")


__all__ = ["emulator", "gpu_driver"]
