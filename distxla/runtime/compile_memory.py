"""The memory limit of the compile process: a short module can need much memory to compile."""

from __future__ import annotations

import os
import re
import resource

from distxla.errors import ArgumentError
from distxla.runtime.memory_limits import most_memory

VARIABLE = "DISTXLA_COMPILE_MEMORY"
LEAST_BYTES = 1 << 30  # LLVM and NumPy alone take a quarter of it
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def compile_memory_bytes() -> int:
    """DISTXLA_COMPILE_MEMORY, as in 6G; by default half of the memory of this machine or its control group, at least
    LEAST_BYTES.

    Raises ArgumentError if the variable holds no size.
    """
    given = os.environ.get(VARIABLE)
    if given:
        match = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", given.strip(), re.IGNORECASE)
        if match is None or int(match[1]) == 0:
            raise ArgumentError(f"{VARIABLE}: expected a size as in 6G, found {given!r}")
        return int(match[1]) * _UNITS[match[2].upper()]
    return max(LEAST_BYTES, most_memory().bytes // 2)


def limit_memory(size: int) -> None:
    """Limit this process to `size` bytes of private, writable memory; allocations beyond fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


__all__ = ["VARIABLE", "compile_memory_bytes", "limit_memory"]
