"""Declarations of frames: kind, typed fields, payload. Each once, like the shared words of collectives/protocols.

    @frame(2, payload="a piece of an operand")
    class Region(Frame):
        \"\"\"A piece of one member's data for another host.\"\"\"

        group: int = u32("offset of the group's state")
        offset: int = u64("of the piece in its region")

A frame's fields travel in the FIELD_BYTES of its header, little-endian, in the order of their declaration and without
padding; the rest are zeros. Bytes that can't be such a frame are refused when they are read: another kind than the
connection has, or bytes behind the fields.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

from distxla.errors import ClusterError, InternalError
from distxla.lazy_dataclass import dataclass

FIELD_BYTES = 32
_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
_T = TypeVar("_T", bound="Frame")


def _field(type_name: str, meaning: str) -> Any:
    return dataclasses.field(metadata={"type": type_name, "meaning": meaning})


def u8(meaning: str) -> Any:
    """A field of one byte."""
    return _field("u8", meaning)


def u16(meaning: str) -> Any:
    """A field of two bytes."""
    return _field("u16", meaning)


def u32(meaning: str) -> Any:
    """A field of four bytes."""
    return _field("u32", meaning)


def u64(meaning: str) -> Any:
    """A field of eight bytes."""
    return _field("u64", meaning)


class FieldOf(NamedTuple):
    """A declared field, for documentation. offset: among the fields of the header."""

    offset: int
    name: str
    type: str
    meaning: str


class Frame:
    """The kind-specific part of a frame's header, besides its number and the length of its payload.

    KIND: u16, of its connections.  NAME: for messages, as VALUE_PART.  PAYLOAD: its meaning, "" for none.
    """

    __slots__ = ()
    KIND: ClassVar[int]
    NAME: ClassVar[str]
    PAYLOAD: ClassVar[str]
    LAYOUT: ClassVar[struct.Struct]
    _values: ClassVar[Callable[[Any], tuple[int, ...]]]

    def pack(self) -> bytes:
        """Its fields. struct.error where a number is too large."""
        return self.LAYOUT.pack(*type(self)._values(self))

    @classmethod
    def unpack(cls: type[_T], fields: bytes | memoryview) -> _T:
        """The frame with these fields. ClusterError where there is anything behind them."""
        size = cls.LAYOUT.size
        if any(fields[size:]):
            raise ClusterError(f"a {cls.NAME} frame has bytes behind its fields")
        return cls(*cls.LAYOUT.unpack_from(fields))

    @classmethod
    def fields(cls) -> Iterator[FieldOf]:
        """Its declared fields, in order."""
        at = 0
        for one in dataclasses.fields(cls):  # type: ignore[arg-type]
            kind = one.metadata["type"]
            yield FieldOf(at, one.name, kind, one.metadata["meaning"])
            at += struct.calcsize(_CODES[kind])


@dataclass_transform(frozen_default=True, field_specifiers=(u8, u16, u32, u64))
def frame(kind: int, *, payload: str = "") -> Callable[[type[_T]], type[_T]]:
    """Declare a frame. InternalError where its fields don't fit into the header."""

    def declare(cls: type[_T]) -> type[_T]:
        found: Any = dataclass(frozen=True, slots=True)(cls)
        names = [one.name for one in dataclasses.fields(found)]
        layout = struct.Struct("<" + "".join(_CODES[one.metadata["type"]] for one in dataclasses.fields(found)))
        if layout.size > FIELD_BYTES:
            raise InternalError(f"{cls.__name__}: {layout.size} bytes of fields; a header has {FIELD_BYTES}")
        found.KIND, found.PAYLOAD, found.LAYOUT = kind, payload, layout
        found.NAME = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
        get = attrgetter(*names) if names else lambda _: ()
        found._values = get if len(names) != 1 else lambda one: (get(one),)
        return found  # type: ignore[no-any-return]

    return declare


class Frames:
    """The frames of one sort of connection.

    purpose: u16, which both sides state in the handshake.  name: for documentation.
    """

    def __init__(self, purpose: int, name: str, *frames: type[Frame]) -> None:
        self.purpose, self.name = purpose, name
        self.by_kind = {one.KIND: one for one in frames}
        if len(self.by_kind) != len(frames):
            raise InternalError(f"two frames {name} have the same kind")

    def unpack(self, kind: int, fields: bytes | memoryview) -> Frame:
        """The frame of this kind with these fields. ClusterError where there is none."""
        found = self.by_kind.get(kind)
        if found is None:
            raise ClusterError(f"a frame of unknown kind {kind}")
        return found.unpack(fields)
