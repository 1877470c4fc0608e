"""Which library's driver this process uses."""

from __future__ import annotations

import os
from functools import cache

from distxla.targets.nvptx.driver.binding import Binding
from distxla.targets.nvptx.driver.driver import Driver
from distxla.targets.nvptx.driver.errors import DriverError

VARIABLE = "DISTXLA_GPU_DRIVER"
EMULATED, CUDA = "emulated", "cuda"


def chosen() -> str:
    """The driver that the environment asks for: never the emulator by itself. DriverError for another word."""
    name = os.environ.get(VARIABLE, CUDA)
    if name not in (EMULATED, CUDA):
        raise DriverError(f"{VARIABLE}={name!r}: expected {EMULATED} or {CUDA}")
    return name


def open_driver() -> Driver:
    """The driver that the environment asks for; DriverError where it can't be used."""
    return driver_named(chosen())


@cache
def driver_named(name: str) -> Driver:
    """`emulated` or `cuda`; DriverError where it can't be used."""
    if name == EMULATED:
        from distxla.targets.nvptx.driver.emulated.library import emulated_library

        return Binding(emulated_library())
    from distxla.targets.nvptx.driver.cuda import load_cuda

    return Binding(load_cuda())


__all__ = ["CUDA", "EMULATED", "VARIABLE", "chosen", "driver_named", "open_driver"]
