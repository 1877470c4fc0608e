"""The memory limit of the compile process: a short module can need much memory to compile."""

from __future__ import annotations

import contextlib
import os
import resource

from distxla.errors import ArgumentError
from distxla.machine.byte_counts import bytes_of
from distxla.machine.memory_limits import most_memory

VARIABLE = "DISTXLA_COMPILE_MEMORY"
LEAST_BYTES = 1 << 30  # LLVM and NumPy alone take a quarter of it


def compile_memory_bytes() -> int:
    """DISTXLA_COMPILE_MEMORY, as in 6G; by default half of the memory of this machine or its control group, at least
    LEAST_BYTES.

    Raises ArgumentError if the variable holds no size.
    """
    given = os.environ.get(VARIABLE)
    if given:
        with contextlib.suppress(ValueError):
            if size := bytes_of(given):
                return size
        raise ArgumentError(f"{VARIABLE}: expected a size as in 6G, found {given!r}")
    return max(LEAST_BYTES, most_memory().bytes // 2)


def limit_memory(size: int) -> None:
    """Limit this process to `size` bytes of private, writable memory; allocations beyond fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


__all__ = ["VARIABLE", "compile_memory_bytes", "limit_memory"]
