"""Which cuBLAS this process uses, if any."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import cast

from distxla.errors import ArgumentError
from distxla.targets.nvptx.driver.choice import EMULATED, is_emulated
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.driver.native_functions import require_functions
from distxla.targets.nvptx.interfaces.cublas import FUNCTIONS, Library
from distxla.targets.nvptx.interfaces.packaged import packaged

VARIABLE = "DISTXLA_CUBLAS"
WITHOUT = "none"
# by the version of CUDA that the driver has to support: the Python package that brings it, and where it is in that
PACKAGES = {
    13: {"nvidia-cublas": "nvidia/cu13/lib/libcublas.so.13"},
    12: {"nvidia-cublas-cu12": "nvidia/cublas/lib/libcublas.so.12"},
}


def open_cublas(driver: str, version: tuple[int, int]) -> tuple[Library, str] | None:
    """The library for this driver, which supports that version of CUDA, and its name; None where there is none.

    The variable names a file, or says that none is wanted. Otherwise the newest is taken that the driver supports, of a
    Python package or where the system finds it. ArgumentError and DriverError for what can't be had.
    """
    asked = os.environ.get(VARIABLE, "")
    if is_emulated(driver):
        if asked not in ("", WITHOUT, EMULATED):
            raise ArgumentError(f"{VARIABLE}={asked!r}: the emulated driver has {EMULATED} or {WITHOUT}")
        return _emulated(driver) if asked == EMULATED else None
    if asked == EMULATED:
        raise ArgumentError(f"{VARIABLE}={asked!r}: only beside the emulated driver")
    if asked == WITHOUT:
        return None
    path = asked or installed(version[0])
    return None if path is None else (load_cublas(path), path)


@cache
def load_cublas(path: str) -> Library:
    """A library's functions, with their types. DriverError where it can't be loaded, or lacks one."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise DriverError(f"{path} can't be loaded: {error}; with {VARIABLE}={WITHOUT} programs do without") from error
    require_functions(library, path, FUNCTIONS, "it is no cuBLAS of CUDA 11 or newer")
    return cast(Library, library)


def _emulated(driver: str) -> tuple[Library, str]:
    from distxla.targets.nvptx.cublas.emulated import emulated_cublas

    return emulated_cublas(driver), "the emulated cuBLAS"


@cache
def installed(newest: int) -> str | None:
    for version, packages in PACKAGES.items():
        if version > newest:
            continue
        found = packaged(packages) or _of_system(f"libcublas.so.{version}")
        if found is not None:
            return found
    return None


def _of_system(name: str) -> str | None:
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    return name


__all__ = ["VARIABLE", "WITHOUT", "load_cublas", "open_cublas"]
