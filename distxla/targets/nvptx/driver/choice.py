"""Which library's driver this process uses, and NVIDIA's, loaded where it is installed."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

from distxla.targets.nvptx.driver.driver import Driver
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.driver.native_functions import require_functions
from distxla.targets.nvptx.interfaces.driver import FUNCTIONS, Library

if TYPE_CHECKING:
    from distxla.targets.nvptx.driver.emulated.library import EmulatedLibrary

VARIABLE = "DISTXLA_GPU_DRIVER"
LIBRARY = "libcuda.so.1"
EMULATED, CUDA = "emulated", "cuda"
_EMULATED_GPUS = re.compile(rf"{EMULATED}(?::([1-9]\d?))?")


def chosen() -> str:
    """The driver that the environment asks for: never the emulator by itself. DriverError for another word."""
    name = os.environ.get(VARIABLE, CUDA)
    if name != CUDA and not is_emulated(name):
        raise DriverError(f"{VARIABLE}={name!r}: expected {EMULATED}, {EMULATED}:N for N GPUs, or {CUDA}")
    return name


def is_emulated(name: str) -> bool:
    """Whether it names the emulator: `emulated`, or `emulated:4` for one with four GPUs."""
    return _EMULATED_GPUS.fullmatch(name) is not None


def open_driver() -> Driver:
    """The driver that the environment asks for; DriverError where it can't be used."""
    return driver_named(chosen())


@cache
def driver_named(name: str) -> Driver:
    """The driver of a name that `chosen` gave; DriverError where it can't be used."""
    if is_emulated(name):
        return Driver(emulated_driver(name))
    return Driver(load_cuda())


def emulated_driver(name: str) -> EmulatedLibrary:
    """The library of an emulated driver of this process."""
    from distxla.targets.nvptx.driver.emulated.library import emulated_library

    found = _EMULATED_GPUS.fullmatch(name)
    return emulated_library(int(found[1] or 1) if found else 0, os.environ.get("CUDA_VISIBLE_DEVICES"))


def load_cuda(load: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> Library:
    """NVIDIA's library, its functions with their types. DriverError where it is missing, or lacks a function."""
    try:
        library = load(LIBRARY)
    except OSError as error:
        raise DriverError(
            f"{LIBRARY} can't be loaded: {error}; it comes with NVIDIA's driver, and into a container with NVIDIA's "
            "container toolkit"
        ) from error
    require_functions(library, LIBRARY, FUNCTIONS, "the driver is too old")
    return cast(Library, library)


__all__ = [
    *("CUDA", "EMULATED", "VARIABLE", "chosen", "driver_named", "emulated_driver", "is_emulated", "load_cuda"),
    "open_driver",
]
