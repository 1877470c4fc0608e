"""A linked program, as a target's linker makes it."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Image:
    """The linked program; the fields mean the same as in CompiledProgram."""

    data: bytes
    symbols: dict[str, int]
    imports: tuple[str, ...]
    imports_offset: int
    code_bytes: int
