"""A function of the driver, replaced in what programs call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from distxla.targets.nvptx.interfaces.driver import FUNCTIONS
from distxla.targets.nvptx.program_memory import ProgramOnGpu


def replace_driver_function(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., int]) -> None:
    """Programs that are loaded from now on call `function` with the driver's own function and the arguments."""
    original, kind = ProgramOnGpu.driver_function, ctypes.CFUNCTYPE(ctypes.c_int, *FUNCTIONS[name])
    held: list[Any] = []

    def driver_function(on_gpu: ProgramOnGpu, asked: str) -> int:
        address = original(on_gpu, asked)
        if asked != name:
            return address
        driver = kind(address)
        held.append(kind(lambda *arguments: function(driver, *arguments)))
        return ctypes.cast(held[-1], ctypes.c_void_p).value or 0

    monkeypatch.setattr(ProgramOnGpu, "driver_function", driver_function)


__all__ = ["replace_driver_function"]
