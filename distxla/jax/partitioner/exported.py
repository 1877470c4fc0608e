"""Files of `jax.export`: a FlatBuffers table that holds the module as MLIR bytecode. Needs neither JAX nor FlatBuffers.

Source: jax/_src/export/serialization.fbs; fields are found by their number, which no version of a schema changes.
"""

from __future__ import annotations

import struct
from typing import Final

from distxla.lazy_dataclass import dataclass
from distxla.text.other_formats import MLIR_BYTECODE

_FUNCTION_NAME, _NR_DEVICES_SHORT, _PLATFORMS, _MODULE, _NR_DEVICES = 1, 6, 9, 13, 18  # numbers of fields
_FIRST_ENTRY: Final = 4  # of a vtable, whose own size and whose table's come before


@dataclass(frozen=True)
class Exported:
    """module: MLIR bytecode, a portable artifact.  devices: for how many it was exported.  platforms: for which; where
    they are several, the module's first parameter is the number of one in this list."""

    name: str
    module: bytes
    devices: int
    platforms: tuple[str, ...] = ()


def read_exported(data: bytes) -> Exported | None:
    """What jax.export has serialised; None for other bytes, and where the module in them is cut off."""
    if MLIR_BYTECODE not in data:
        return None
    try:
        table = _Table(data)
        module, name = table.vector(_MODULE), table.vector(_FUNCTION_NAME)
        devices = table.number("<I", _NR_DEVICES) or table.number("<H", _NR_DEVICES_SHORT) or 1
        if module is None or name is None or not module.startswith(MLIR_BYTECODE):
            return None
        platforms = tuple(text.decode() for text in table.strings(_PLATFORMS))
        return Exported(name.decode(), module, devices, platforms)
    except (struct.error, UnicodeDecodeError, _Outside):
        return None


class _Outside(Exception):
    """A place outside of the bytes."""


class _Table:
    """The root table of a FlatBuffer."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.start = self.read("<I", 0)
        self.vtable = self.start - self.read("<i", self.start)
        self.vtable_bytes = self.read("<H", self.vtable)

    def read(self, form: str, at: int) -> int:
        if at < 0:
            raise _Outside
        (value,) = struct.unpack_from(form, self.data, at)
        return int(value)

    def place(self, field: int) -> int | None:
        """Where the field's value stands; None where the table has none."""
        entry = _FIRST_ENTRY + 2 * field
        offset = self.read("<H", self.vtable + entry) if entry + 2 <= self.vtable_bytes else 0
        return self.start + offset if offset else None

    def number(self, form: str, field: int) -> int:
        """The number, 0 where there is none."""
        at = self.place(field)
        return 0 if at is None else self.read(form, at)

    def vector(self, field: int) -> bytes | None:
        """The bytes of a vector or string."""
        at = self.place(field)
        return None if at is None else self.bytes_at(at)

    def strings(self, field: int) -> list[bytes]:
        """The elements of a vector of strings; none where the table has no such."""
        at = self.place(field)
        if at is None:
            return []
        begin = at + self.read("<I", at)
        return [self.bytes_at(begin + 4 + 4 * number) for number in range(self.read("<I", begin))]

    def bytes_at(self, at: int) -> bytes:
        """Those of the vector or string whose offset stands here."""
        begin = at + self.read("<I", at)
        length = self.read("<I", begin)
        if begin + 4 + length > len(self.data):
            raise _Outside
        return self.data[begin + 4 : begin + 4 + length]


__all__ = ["Exported", "read_exported"]
