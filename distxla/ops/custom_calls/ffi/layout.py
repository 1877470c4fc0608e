"""The structures of XLA's FFI (xla/ffi/api/c_api.h, version 0.5), for ctypes. New versions append to them."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any, Final

from distxla.ir.shape import Shape

MAJOR, MINOR = 0, 5
METADATA: Final = 1  # type of the extension by which a handler tells its version
BUFFER: Final = 1  # type of arguments and results


class Stage(IntEnum):
    """When a handler is called: once for a call's place in a program, or thrice each time the program reaches it."""

    INSTANTIATE = 0
    PREPARE = 1
    INITIALIZE = 2
    EXECUTE = 3


class AttributeKind(IntEnum):
    ARRAY = 1
    DICTIONARY = 2
    SCALAR = 3
    STRING = 4


CODES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
TOKEN: Final = 17
TYPES: Final = {
    "pred": 1, "s8": 2, "s16": 3, "s32": 4, "s64": 5, "u8": 6, "u16": 7, "u32": 8, "u64": 9, "f16": 10, "f32": 11,
    "f64": 12, "c64": 15, "bf16": 16, "c128": 18, "f8e5m2": 19, "f8e4m3fn": 20, "s4": 21, "u4": 22,
    "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24, "f8e4m3fnuz": 25, "s2": 26, "u2": 27, "f8e4m3": 28, "f8e3m4": 29,
    "f4e2m1fn": 32, "f8e8m0fnu": 33,
}  # fmt: skip

_SIZE, _NEXT = ("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p)


class ByteSpan(ctypes.Structure):
    _fields_ = (("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t))


class Scalar(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int), ("value", ctypes.c_void_p))


class Array(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p))


class Buffer(ctypes.Structure):
    _fields_ = (
        _SIZE, _NEXT, ("dtype", ctypes.c_int), ("data", ctypes.c_void_p), ("rank", ctypes.c_int64),
        ("dims", ctypes.c_void_p),
    )  # fmt: skip


class Values(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets."""

    _fields_ = (_SIZE, _NEXT, ("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("values", ctypes.c_void_p))


class Attributes(ctypes.Structure):
    _fields_ = (
        _SIZE, _NEXT, ("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("names", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )  # fmt: skip


class CallFrame(ctypes.Structure):
    _fields_ = (
        _SIZE, _NEXT, ("api", ctypes.c_void_p), ("context", ctypes.c_void_p), ("stage", ctypes.c_int),
        ("arguments", Values), ("results", Values), ("attributes", Attributes), ("future", ctypes.c_void_p),
    )  # fmt: skip


class ApiVersion(ctypes.Structure):
    _fields_ = (_SIZE, _NEXT, ("major", ctypes.c_int), ("minor", ctypes.c_int))


class Metadata(ctypes.Structure):
    _fields_ = (_SIZE, ("version", ApiVersion), ("traits", ctypes.c_uint32), ("state_type", ctypes.c_int64))


class MetadataExtension(ctypes.Structure):
    _fields_ = (_SIZE, ("type", ctypes.c_int), ("next", ctypes.c_void_p), ("metadata", ctypes.c_void_p))


HANDLER: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)  # XLA_FFI_Error* (XLA_FFI_CallFrame*)


def size_until(structure: type[ctypes.Structure], field: str) -> int:
    """Bytes up to the end of a field, which is a structure's size as the header states it."""
    found: Any = getattr(structure, field)
    return int(found.offset + found.size)


def values_of(structures: list[Any], kind: int, keep: list[Any]) -> Values:
    """Arguments or results over buffers. keep: gets what has to live as long."""
    count = len(structures)
    kinds = (ctypes.c_int * max(1, count))(*[kind] * count)
    places = (ctypes.c_void_p * max(1, count))(*map(ctypes.addressof, structures))
    keep += [kinds, places]
    size = size_until(Values, "values")
    return Values(size, None, count, ctypes.addressof(kinds), ctypes.addressof(places))


def buffer_of(shape: Shape, keep: list[Any]) -> Buffer:
    """An array's or token's buffer, without its data."""
    dims = (ctypes.c_int64 * max(1, len(shape.dims)))(*shape.dims)
    keep.append(dims)
    dtype = TYPES[shape.dtype.name] if shape.is_array else TOKEN
    return Buffer(size_until(Buffer, "dims"), None, dtype, None, len(shape.dims), ctypes.addressof(dims))
