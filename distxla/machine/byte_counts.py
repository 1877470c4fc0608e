"""Formats and parses sizes in bytes."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])?(?:iB|B)?)", re.IGNORECASE)


def amount(size: int) -> str:
    """The size in the largest unit that does not exceed it: `3.5 MiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_UNITS[unit]}" if value < 1000 else f"{value:.0f} {_UNITS[unit]}"


def bytes_of(text: str) -> int:
    """The number of bytes that `4096`, `512M`, `1.5G` or `2 GiB` means; units are powers of 1024.

    Raises ValueError for any other text.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a number of bytes such as 512M or 2G, found {text!r}")
    if len(match[1]) > 20:
        raise ValueError(f"expected a number of bytes such as 512M or 2G, found {text[:30]!r}...")
    return int(float(match[1]) * 1024 ** (" KMGT".index(match[2].upper()) if match[2] else 0))
