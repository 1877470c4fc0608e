"""Functions of a C library, with their types."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from distxla.targets.nvptx.driver.errors import DriverError


def require_functions(library: ctypes.CDLL, name: str, functions: Mapping[str, tuple[Any, ...]], why: str) -> None:
    """Set the argument types of all functions, each of which returns a number. DriverError with the library's name, and
    `why`, where it lacks one."""
    for function_name, types in functions.items():
        try:
            function = getattr(library, function_name)
        except AttributeError:
            raise DriverError(f"{name} has no function {function_name}: {why}") from None
        function.argtypes, function.restype = types, ctypes.c_int
