"""NVIDIA's driver, which this process loads where it is installed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import cast

from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.driver.native_functions import require_functions
from distxla.targets.nvptx.interfaces.driver import FUNCTIONS, Library

LIBRARY = "libcuda.so.1"


def load_cuda(load: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> Library:
    """The library, its functions with their types. DriverError where it is missing, or lacks a function."""
    try:
        library = load(LIBRARY)
    except OSError as error:
        raise DriverError(
            f"{LIBRARY} can't be loaded: {error}; it comes with NVIDIA's driver, and into a container with NVIDIA's "
            "container toolkit"
        ) from error
    require_functions(library, LIBRARY, FUNCTIONS, "the driver is too old")
    return cast(Library, library)


__all__ = ["LIBRARY", "load_cuda"]
