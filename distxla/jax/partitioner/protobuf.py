"""The few messages of protocol buffers that the partitioner and PJRT's callers want or give, by their wire format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import overload

from distxla.errors import ArgumentError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_HOST_PROGRAM_SHAPE = 4  # of HloModuleProto
_ELEMENT_TYPE, _DIMENSIONS, _TUPLE_SHAPES, _LAYOUT = 2, 3, 4, 5  # of ShapeProto
_MINOR_TO_MAJOR = 1  # of LayoutProto
_DEBUG_OPTIONS = (3, 3)  # where in CompileOptionsProto: executable_build_options.debug_options
_OVERRIDES = (7,)  # of CompileOptionsProto: env_option_overrides, a map
_HAVE_MAPS = (_DEBUG_OPTIONS[:1], _DEBUG_OPTIONS)
_NO_ARRAYS = (0, 13, 14, 17)  # numbers of element types: invalid, tuple, opaque, token


def varint(value: int) -> bytes:
    """A number that is not negative."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


@overload
def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]: ...
@overload
def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]: ...
def fields(data: bytes | memoryview) -> Iterator[tuple[int, int | bytes | memoryview]]:
    """(number, value) of each field of a message. ArgumentError where it is none."""
    at = 0
    try:
        while at < len(data):
            key, at = _read_varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                value, at = _read_varint(data, at)
                yield number, value
                continue
            if wire == _BYTES:
                size, at = _read_varint(data, at)
            elif wire in (_FIXED32, _FIXED64):
                size = 4 if wire == _FIXED32 else 8
            else:
                raise ArgumentError(f"a message of protocol buffers has wire type {wire}")
            yield number, data[at : at + size]
            at += size
    except IndexError:
        raise ArgumentError("a message of protocol buffers ends too early") from None


def _numeric(number: int, value: int) -> bytes:
    return varint(number << 3 | _VARINT) + varint(value)


def _message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


def packed(data: bytes | memoryview) -> list[int]:
    """The numbers of a packed field."""
    found, at = [], 0
    while at < len(data):
        value, at = _read_varint(data, at)
        found.append(value)
    return found


@lru_cache(64)  # of a process's programs many have the same
def compile_options_key(options: bytes) -> bytes:
    """The same for two equal xla.CompileOptionsProto: their maps are serialised in an order that changes from process
    to process. What can't be read is its own key."""
    try:
        return repr(_in_order(options, ())).encode()
    except ArgumentError:
        return options


def _in_order(message: bytes, path: tuple[int, ...]) -> list[tuple[int, object]]:
    """The fields, messages that contain maps as lists of fields, entries of maps sorted."""
    found: list[tuple[int, object]] = []
    entries: list[tuple[int, bytes]] = []
    for number, value in fields(message):
        at = (*path, number)
        if isinstance(value, bytes) and at in _HAVE_MAPS:
            found.append((number, _in_order(value, at)))
        elif isinstance(value, bytes) and (at == _OVERRIDES or (path == _DEBUG_OPTIONS and _is_entry(value))):
            entries.append((number, value))
        else:
            found.append((number, value))
    return [*found, *sorted(entries)]


def _is_entry(value: bytes) -> bool:
    """Whether this may be an entry of a map: a message of a key and a value. Text is none, which has other bytes."""
    try:
        return [number for number, _ in fields(value)] in ([1], [1, 2])
    except ArgumentError:
        return False


def device_assignment(ids: Sequence[Sequence[int]]) -> bytes:
    """xla.DeviceAssignmentProto. ids[replica][partition]."""
    columns = [_message(1, b"".join(map(varint, column))) for column in zip(*ids)]
    head = _numeric(1, len(ids)) + _numeric(2, len(columns))
    return head + b"".join(_message(3, column) for column in columns)


def device_ids(assignment: bytes) -> list[list[int]]:
    """The ids[replica][partition] of an xla.DeviceAssignmentProto."""
    columns = []
    for number, value in fields(assignment):
        if number == 3 and isinstance(value, bytes):
            ids: list[int] = []
            for field, content in fields(value):
                if field == 1:
                    ids += packed(content) if isinstance(content, bytes) else [content]
            columns.append(ids)
    return [list(row) for row in zip(*columns)]


def _encoded(pairs: Iterable[tuple[int, int | bytes]]) -> bytes:
    return b"".join(_numeric(n, v) if isinstance(v, int) else _message(n, v) for n, v in pairs)


def _laid_out(shape: bytes) -> bytes:
    """xla.ShapeProto: arrays without a layout, which is left to the compiler, are row-major."""
    found = dict(fields(shape))
    if _TUPLE_SHAPES in found:
        return _encoded(
            (n, _laid_out(v) if n == _TUPLE_SHAPES and isinstance(v, bytes) else v) for n, v in fields(shape)
        )
    if _LAYOUT in found or found.get(_ELEMENT_TYPE, 0) in _NO_ARRAYS:
        return shape
    sizes = found.get(_DIMENSIONS, b"")
    rank = len(packed(sizes)) if isinstance(sizes, bytes) else 1
    layout = _message(_MINOR_TO_MAJOR, bytes(reversed(range(rank)))) if rank else b""
    return shape + _message(_LAYOUT, layout)


def _shapes_laid_out(program_shape: bytes) -> bytes:
    """xla.ProgramShapeProto."""
    return _encoded((n, _laid_out(v) if n in (1, 2) and isinstance(v, bytes) else v) for n, v in fields(program_shape))


def module_with_config(module: bytes, replicas: int, partitions: int) -> bytes:
    """xla.HloModuleProtoWithConfig: the module, its entry's layout, and the counts."""
    shape = b"".join(v for number, v in fields(module) if number == _HOST_PROGRAM_SHAPE and isinstance(v, bytes))
    config = _message(1, _shapes_laid_out(shape)) + _numeric(4, replicas) + _numeric(5, partitions)
    return _message(1, module) + _message(2, config)


__all__ = ["compile_options_key", "device_assignment", "device_ids", "fields", "module_with_config", "packed", "varint"]
