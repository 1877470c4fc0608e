"""The interface of a memory that only kernels access, such as a GPU's, to the programs that use it."""

from __future__ import annotations

from typing import NamedTuple


class DeviceMemoryImports(NamedTuple):
    """Names of the functions by which a program uses a memory that only its kernels can access. Each returns a Status,
    i32; `context` is the program's. A place in that memory is named by the same place in the host's."""

    begin: str  # (context): before all others of a call
    end: str  # (context): behind them, where the call succeeds; kernels may be at work until then
    to_device: str  # (context, place, i64 bytes)
    to_host: str  # (context, place, i64 bytes): once the kernels before it are done
    copy: str  # (context, target, source, i64 bytes): within that memory; nothing if both are the same


__all__ = ["DeviceMemoryImports"]
