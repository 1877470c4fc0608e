"""Other formats than HLO text (StableHLO, MLIR bytecode, protocol buffers): how to tell them and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from distxla.errors import ArgumentError
from distxla.lazy_dataclass import dataclass
from distxla.text.lexer import BLANK

_MLIR_TEXT = re.compile(
    rf"{BLANK}(?:(?:builtin\.)?module(?:\s+@|\s+attributes\b|\s*\{{(?={BLANK}(?:[\w.]+ (?:p\w+ )?@|[\w.]+ ?[(\"])))"
    r"|\"builtin\.module\"|func\.func\b|sdy\.mesh\s+@|[#!]\w+\s*=|\{-#)"
)
# An operation of MLIR begins a line, perhaps behind its results.
_OPERATION = re.compile(r'^\s*(?:%[\w:#]+(?:\s*,\s*%[\w:#]+)*\s*=\s*)?"?([a-z_]\w*)\.\w', re.MULTILINE)
# dialects that a module of StableHLO may have besides
_BESIDE_STABLEHLO: Final = frozenset({"builtin", "chlo", "func", "sdy"})
BYTE_ORDER_MARK: Final = "\ufeff"  # editors may write it before a text in UTF-8; it is no part of it
MLIR_BYTECODE: Final = b"ML\xefR"
_FIRST_FIELD: Final = b"\n"  # the tag of a protocol buffer's field 1 that has a length
_SECOND_FIELD: Final = b"\x12"
_COUNTS = re.compile(r"mhlo\.num_(replicas|partitions) = ([0-9]+)")
_NAME = re.compile(rb"[\w.\-<>]+")
_Error = TypeVar("_Error", bound=Exception)
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class OtherFormat:
    """what: its name, as in `this is ...`.  notes: how to get HLO text from it; one of several lines is Python.
    is_convertible: whether jaxlib reads it."""

    what: str
    notes: tuple[str, ...]
    is_convertible: bool = True


def with_notes(error: _Error, other: OtherFormat) -> _Error:
    """The error, with instructions as its notes."""
    for note in other.notes:
        error.add_note(note)
    return error


def decoded(data: bytes, name: str) -> str:
    """Text in UTF-8, without a byte order mark; ArgumentError for anything else. name: of its file, or in <>."""
    other = format_of_bytes(data, name)
    if other is not None:
        raise with_notes(ArgumentError(f"{name} is {other.what}, not HLO text"), other)
    try:
        return data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        if _begins_module_proto(data):
            text = f"{name} begins as a serialized HloModuleProto, but is none: it may have been cut off"
            raise ArgumentError(text) from error
        raise ArgumentError(f"{name} is not text: byte {error.start} is not UTF-8") from error


def format_of_text(text: str, name: str) -> OtherFormat | None:
    """MLIR; None for any other text."""
    if _MLIR_TEXT.match(text) is None:
        return None
    dialect = "StableHLO" if "stablehlo." in text else "MHLO" if "mhlo." in text.replace("mhlo.num_", "") else None
    if dialect is None and _BESIDE_STABLEHLO.issuperset(_OPERATION.findall(text)):
        dialect = "StableHLO"  # a function of JAX that returns its arguments has no other operation
    if dialect is None:
        return OtherFormat("MLIR text without StableHLO", ("convert it to StableHLO first",), is_convertible=False)
    counts = [f"--{what} {count}" for what, count in _COUNTS.findall(text) if int(count) > 1]
    flags = (f"HLO text made of it has no counts: run it with {' '.join(counts)}",) if counts else ()
    return OtherFormat(f"{dialect} (MLIR text)", (*_from_mlir(name, "text"), *flags))


def format_of_bytes(data: bytes, name: str) -> OtherFormat | None:
    """MLIR bytecode, or an HloModuleProto, perhaps within an HloProto or HloSnapshot; None for any other bytes."""
    if data.startswith(MLIR_BYTECODE):
        return OtherFormat("MLIR bytecode", _from_mlir(name, "data"))
    found = _module_proto(data, 0, len(data)) if data.startswith(_FIRST_FIELD) else None
    if found is None:
        return None
    whole = found == (0, len(data))
    part = "" if whole else f"[{found[0]}:{found[1]}]"
    return OtherFormat(
        "a serialized HloModuleProto" + ("" if whole else " within an HloProto"),
        (
            "these lines make HLO text of it:",
            _lines("_hlo", f"_hlo.XlaComputation({_source(name, 'data')}{part})", name),
            "XLA dumps text with XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_text'",
        ),
    )


def module_proto_of(data: bytes) -> bytes | None:
    """The HloModuleProto in these bytes, perhaps within an HloProto or HloSnapshot; None where there is none."""
    found = _module_proto(data, 0, len(data)) if data.startswith(_FIRST_FIELD) else None
    return None if found is None else data[slice(*found)]


def _from_mlir(name: str, variable: str) -> tuple[str, ...]:
    return (
        "these lines make HLO text of it:",
        _lines("_jax", f"_jax.mlir.mlir_module_to_xla_computation({_source(name, variable)})", name),
        "JAX gives HLO text itself: jax.jit(f).lower(*args).compile().as_text()",
    )


def _source(name: str, variable: str) -> str:
    return variable if name.startswith("<") else f"open({name!r}, 'rb').read()"


def _lines(module: str, computation: str, name: str) -> str:
    target = "module.hlo" if name.startswith("<") else re.sub(r"(\.hlo)?\.\w+$|$", ".hlo", name, count=1)
    if target == name:  # HLO only by its name
        target = f"{name.removesuffix('.hlo')}.text.hlo"
    write = f"open({target!r}, 'w').write(computation.as_hlo_text(True))"
    return f"from jaxlib import {module}\ncomputation = {computation}\n{write}"


def _module_proto(data: bytes, start: int, end: int, depth: int = 0) -> tuple[int, int] | None:
    """The place of the HloModuleProto: field 1 is its name, 2 the entry's, 3 are computations; else the message in
    field 1 is tried."""
    fields = dict[int, tuple[int, int]]()
    for number, first, last in _fields(data, start, end):
        fields.setdefault(number, (first, last))
    if 1 not in fields or -1 in fields:
        return None
    first, last = fields[1]
    if 3 in fields and 2 in fields and all(_NAME.fullmatch(data, *fields[number]) for number in (1, 2)):
        return start, end
    return _module_proto(data, first, last, depth + 1) if depth < 3 else None


def _begins_module_proto(data: bytes, start: int = 0, depth: int = 0) -> bool:
    """Whether field 1 is a module's name, and field 2 follows it; else the message in field 1 is tried."""
    if not data.startswith(_FIRST_FIELD, start) or depth > 3:
        return False
    length, first = _varint(data, start + 1, len(data))
    if data.startswith(_SECOND_FIELD, first + length) and _NAME.fullmatch(data, first, first + length):
        return True
    return _begins_module_proto(data, first, depth + 1)


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of the fields of a message that have a length; number -1 where the bytes are no message."""
    position = start
    while position < end:
        tag, position = _varint(data, position, end)
        kind, number = tag & 7, tag >> 3
        if kind == _VARINT:
            _, position = _varint(data, position, end)
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        elif kind == _LENGTH:
            length, position = _varint(data, position, end)
            if number > 0 and position + length <= end:
                yield number, position, position + length
            position += length
        else:
            position = end + 1
        if not 0 < position <= end:
            yield -1, 0, 0
            return


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number and the position behind it; a position beyond `end` where it doesn't stop in time."""
    value = 0
    for k in range(min(10, end - position)):
        value |= (data[position + k] & 127) << (7 * k)
        if data[position + k] < 128:
            return value, position + k + 1
    return 0, end + 1
