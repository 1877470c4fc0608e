"""A program's kernels as a driver loads them. Light, and pickled between processes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceCode:
    """driver: by name (driver/choice.py).  architecture: the least that can run them.  code: PTX, a cubin, or of the
    emulated driver its own form."""

    driver: str
    architecture: str
    code: bytes = field(repr=False)


__all__ = ["DeviceCode"]
