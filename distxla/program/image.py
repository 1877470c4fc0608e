"""A linked program, as a target's linker makes it."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Image:
    """Position-independent code and data, entered through `symbols` (name -> offset); mapped by every replica.

    imports: names of external functions, in the order of the image's import slots (8 bytes each from imports_offset).
    code_bytes: its first bytes up to here are read-only and executable; the rest is private and writable.
    """

    data: bytes
    symbols: dict[str, int]
    imports: tuple[str, ...]
    imports_offset: int
    code_bytes: int
