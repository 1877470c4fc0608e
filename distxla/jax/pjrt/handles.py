"""Handles: what C++ holds of Python's objects, an address of a record that native getters read."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from distxla.jax.pjrt.switch import SWITCH
from distxla.jax.pjrt.table import RECORDS, STRUCTURES, offset

free: Final = ctypes.CDLL(None).free
"""Frees a record that native code has made."""
free.argtypes, free.restype = (ctypes.c_void_p,), None
_FLOAT: Final = 3  # PJRT_NamedValue_Type
objects: Final[dict[int, Any]] = {}
"""Objects and their records, by handle, while C++ may give it back."""
fresh: Final[list[int]] = []
"""What the main thread has bound, in the entry points that it is in."""


def bind(owner: Any, record: ctypes.Structure) -> int:
    """The handle of an object, which is kept until `release`. record: what native getters read of it."""
    handle = ctypes.addressof(record)
    if threading.get_ident() == SWITCH.main:
        fresh.append(handle)
    objects[handle] = owner, record
    return handle


class Once:
    """Whether an entry point has changed what must change once: it is called again where an interrupt has come."""

    __slots__ = ("is_done",)

    def __init__(self) -> None:
        self.is_done = False


def forget(first: int) -> None:
    """Release what the main thread has bound since `fresh` had so many elements: an interrupt has kept C++ from getting
    it. Nothing in other threads, which have no interrupts."""
    if threading.get_ident() == SWITCH.main:
        for handle in fresh[first:]:
            release(handle)
        del fresh[first:]


def hand_over(first: int) -> None:
    """C++ gets what the main thread has bound since `fresh` had so many elements."""
    if threading.get_ident() == SWITCH.main:
        del fresh[first:]


def new(owner: Any) -> int:
    """The handle of an object of which native getters read nothing."""
    return bind(owner, RECORDS["Object"]())


def of(handle: int) -> Any:
    """The object of a handle."""
    return objects[handle][0]


def find(handle: int) -> Any:
    """The object of a handle, or None for one that was released, or is null."""
    found = objects.get(handle)
    return None if found is None else found[0]


def release(handle: int | None) -> None:
    """C++ has given the handle up; null is fine."""
    if handle:
        objects.pop(handle, None)


def count(kind: type[Any] = object) -> int:
    """Handles of objects of this class that C++ holds."""
    return sum(isinstance(owner, kind) for owner, _ in list(objects.values()))


class CBytes:
    """Bytes that C++ may read as long as this lives. address, size: where, and how many."""

    __slots__ = ("_bytes", "address", "size")

    def __init__(self, content: bytes | str) -> None:
        data = content.encode() if isinstance(content, str) else content
        self._bytes = ctypes.create_string_buffer(data, len(data) + 1)
        self.address = ctypes.addressof(self._bytes)
        self.size = len(data)


class CArray:
    """An array that C++ may read as long as this lives. address, size: where, and how many elements."""

    __slots__ = ("_elements", "address", "size")

    def __init__(self, kind: Any, values: Sequence[int]) -> None:
        self._elements = (kind * max(1, len(values)))(*values)
        self.address = ctypes.addressof(self._elements)
        self.size = len(values)


class CNumbers:
    """A list of PJRT_NamedValue with numbers that C++ may read as long as this lives. address, size: as of CArray."""

    __slots__ = ("_names", "_values", "address", "size")

    def __init__(self, numbers: Mapping[str, float]) -> None:
        named = STRUCTURES["NamedValue"]
        self._names = [CBytes(name) for name in numbers]
        self._values: Any = (named * max(1, len(numbers)))()
        for found, name, number in zip(self._values, self._names, numbers.values()):
            found.struct_size, found.name, found.name_size = ctypes.sizeof(named), name.address, name.size
            found.type, found.value_size = _FLOAT, 1
            ctypes.c_float.from_buffer(found, offset(named, "value")).value = number
        self.address = ctypes.addressof(self._values)
        self.size = len(numbers)


def _keep(_: int) -> None:
    """Deletes nothing: what C++ got lives as long as its owner."""


_keeps: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_keep)
NOTHING_TO_DELETE: Final = ctypes.cast(_keeps, ctypes.c_void_p).value


def array_getter(argument: str, attribute: str, field: str) -> Callable[[Any], None]:
    """An entry point that tells where an array of the argument's object lies, and how many elements it has."""
    return _getter(argument, attribute, field, f"num_{field}")


def bytes_getter(argument: str, attribute: str, field: str | None = None) -> Callable[[Any], None]:
    """The same of bytes. field: that of the attribute's name, if None."""
    field = field or attribute
    return _getter(argument, attribute, field, f"{field}_size")


def _getter(argument: str, attribute: str, field: str, size: str) -> Callable[[Any], None]:
    def entry(args: Any) -> None:
        found = getattr(of(getattr(args, argument)), attribute)
        setattr(args, field, found.address)
        setattr(args, size, found.size)

    return entry


def serializer(argument: str, attribute: str, kind: str) -> Callable[[Any], None]:
    """The same of bytes that C++ gives back by a function of their own; they live as long as the object."""
    tell_bytes = bytes_getter(argument, attribute, "serialized_bytes")

    def entry(args: Any) -> None:
        tell_bytes(args)
        setattr(args, f"serialized_{kind}", getattr(args, argument))
        setattr(args, f"serialized_{kind}_deleter", NOTHING_TO_DELETE)

    return entry


def integers(address: int | None, count: int, kind: Any = ctypes.c_int64) -> list[int]:
    """The elements of an array of the caller's."""
    return list((kind * count).from_address(address)) if address and count else []


def write(address: int, found: Sequence[int]) -> None:
    """Write handles into an array of the caller's."""
    place: Any = (ctypes.c_uint64 * len(found)).from_address(address)
    place[:] = found


def text(address: int | None, size: int) -> str:
    """A string of the caller's."""
    return ctypes.string_at(address, size).decode() if address else ""


__all__ = [
    "NOTHING_TO_DELETE",
    "CArray",
    "CBytes",
    "CNumbers",
    "Once",
    "array_getter",
    "bind",
    "bytes_getter",
    "count",
    "find",
    "forget",
    "free",
    "fresh",
    "hand_over",
    "integers",
    "new",
    "objects",
    "of",
    "release",
    "serializer",
    "text",
    "write",
]
