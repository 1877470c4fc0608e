"""The large constants of a module, out of its HloModuleProto: as bytes, not as decimal text."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from distxla.errors import InternalError
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.jax.partitioner.protobuf import fields, packed
from distxla.ops.constant import Constant
from distxla.text.literals import print_literal
from distxla.text.parser import parse_module

if TYPE_CHECKING:
    from distxla.ir.instruction import Instruction

LEFT_OUT: Final = "{...}"  # how XLA's printer and ours write a constant that is left out
_CONSTANT: Final = re.compile(
    r"%?(?P<name>[\w.\-]+) = [^\n=]* constant\((?P<value>[^\n\"]*\{\.\.\.\}[^\n\"]*?)\)(?=[,\s]|$)"
)
_COMPUTATIONS, _INSTRUCTIONS = 3, 2  # of HloModuleProto, of HloComputationProto
_NAME, _OPCODE, _LITERAL = 1, 2, 8  # of HloInstructionProto
_SHAPE, _TUPLE = 1, 10  # of LiteralProto
_LAYOUT, _MINOR_TO_MAJOR = 5, 1  # of ShapeProto, of LayoutProto
_NUMBERS: Final = {"s32": 4, "s64": 5, "u32": 6, "u64": 7}  # of LiteralProto: varints
# of LiteralProto: little endian, one byte for an element of fewer bits
_BYTES: Final = {
    "pred": 2, "u8": 3, "f32": 8, "f64": 9, "f16": 11, "c64": 12, "bf16": 13, "s8": 15, "u16": 16, "s16": 17,
    "c128": 18, "f8e5m2": 19, "f8e4m3fn": 20, "s4": 21, "u4": 22, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24,
    "f8e4m3fnuz": 25, "s2": 26, "u2": 27, "f8e4m3": 28, "f8e3m4": 29, "f4e2m1fn": 32, "f8e8m0fnu": 33,
}  # fmt: skip


def module_with_constants(text: str, proto: bytes, file: str) -> Module:
    """The module of HLO text whose large constants are left out as {...}, and stand in `proto`.

    file: what messages call the text. InternalError for a constant that isn't there; the errors of parse_module.
    """
    module = parse_module(text, file)
    if LEFT_OUT not in text:
        return module
    literals = _literals(proto)

    def filled(i: Instruction) -> Instruction:
        if not isinstance(i.op, Constant) or not i.op.literal.is_elided:
            return i
        return i.replace(op=dataclasses.replace(i.op, literal=_literal(literals, i.name, i.op.literal.shape)))

    computations = tuple(
        dataclasses.replace(computation, instructions=tuple(map(filled, computation)))
        for computation in module.computations
    )
    return module.replace(computations=computations)


def text_with_constants(text: str, proto: bytes) -> str:
    """The text, all its constants in full."""
    if LEFT_OUT not in text:
        return text
    module = module_with_constants(text, proto, "<text>")
    found = {
        i.name: i.op.literal for computation in module.computations for i in computation if isinstance(i.op, Constant)
    }

    def in_full(match: re.Match[str]) -> str:
        begin, end = match.span("value")
        at = match.start()
        return f"{match[0][: begin - at]}{print_literal(found[match['name']])}{match[0][end - at :]}"

    return _CONSTANT.sub(in_full, text)


def constants_digest(text: str, proto: bytes) -> str:
    """A hash of the text and of the constants that are left out of it."""
    digest = hashlib.sha256(text.encode())
    if LEFT_OUT in text:
        for name, literal in sorted(_literals(proto).items()):
            digest.update(f"\0{name}\0{len(literal)}\0".encode())
            digest.update(literal)
    return digest.hexdigest()


def _literals(proto: bytes) -> dict[str, memoryview]:
    """The LiteralProto of each constant."""
    found: dict[str, memoryview] = {}
    for computation in _messages(memoryview(proto), _COMPUTATIONS):
        for instruction in _messages(computation, _INSTRUCTIONS):
            parts: dict[int, Any] = {}
            for number, value in fields(instruction):
                parts[number] = value
                if number == _OPCODE and bytes(parts[_OPCODE]) != b"constant":
                    break
            else:
                if _LITERAL in parts:
                    found[bytes(parts[_NAME]).decode()] = parts[_LITERAL]
    return found


def _messages(message: memoryview, wanted: int) -> list[memoryview]:
    return [value for number, value in fields(message) if number == wanted and isinstance(value, memoryview)]


def _literal(literals: dict[str, memoryview], name: str, shape: Shape) -> Literal:
    if name not in literals:
        raise InternalError(f"the module's HloModuleProto has no value of the constant {name}")
    return _of_shape(literals[name], shape, name)


def _of_shape(literal: memoryview, shape: Shape, name: str) -> Literal:
    if shape.is_tuple:
        elements = zip(_messages(literal, _TUPLE), shape.elements or (), strict=True)
        return Literal(shape, elements=tuple(_of_shape(element, each, name) for element, each in elements))
    found: dict[int, Any] = dict(fields(literal))
    kind = shape.dtype.name
    if kind in _NUMBERS:
        flat = _varints(found.get(_NUMBERS[kind], b"")).astype(shape.dtype.dtype)
    else:
        flat = _elements(np.frombuffer(found.get(_BYTES[kind], b""), np.uint8), shape)
    if flat.size != shape.size:
        raise InternalError(f"the constant {name} of {shape} has {flat.size} elements in the module's HloModuleProto")
    layout = dict(fields(dict(fields(found[_SHAPE])).get(_LAYOUT, b"")))
    order = packed(layout.get(_MINOR_TO_MAJOR, b""))[::-1] or list(range(len(shape.dims)))
    stored = flat.reshape([shape.dims[dimension] for dimension in order])
    return Literal(shape, stored.transpose(np.argsort(order)) if order else stored)


def _elements(data: np.ndarray[Any, Any], shape: Shape) -> np.ndarray[Any, Any]:
    element = shape.dtype
    if element.bits >= 8:
        return data.view(element.dtype)
    low = data & ((1 << element.bits) - 1)
    if element.is_float:
        return low.view(element.dtype)
    sign = 1 << (element.bits - 1) if element.kind == "signed" else 0
    return ((low ^ sign).astype(np.int8) - np.int8(sign)).astype(element.dtype)


def _varints(data: Any) -> np.ndarray[Any, Any]:
    """The numbers of a packed field, modulo 2^64."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    starts = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends
    found = np.zeros(ends.shape, np.uint64)
    for k in range(int((ends - starts).max(initial=-1)) + 1):
        at = np.minimum(starts + k, ends)
        digits = (raw[at] & 127).astype(np.uint64)
        found |= np.where(starts + k <= ends, digits << np.uint64(7 * k), np.uint64(0))
    return found


__all__ = ["LEFT_OUT", "constants_digest", "module_with_constants", "text_with_constants"]
