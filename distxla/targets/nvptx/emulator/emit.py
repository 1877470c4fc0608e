"""Helpers to emit the emulator's own code: fields of its structures, loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Array, Structure
from functools import cache
from typing import Any

from llvmlite import ir

from distxla.emit.native_function import FIELD_TYPES, I32, POINTER


@cache
def type_of(declared: Any) -> ir.Type:
    """The type that has the layout of a ctypes type."""
    if issubclass(declared, Structure):
        return ir.LiteralStructType([type_of(field[1]) for field in declared._fields_])
    if issubclass(declared, Array):
        return ir.ArrayType(type_of(declared._type_), declared._length_)
    return FIELD_TYPES[declared]


def field(
    builder: ir.IRBuilder, structure: type[Structure], pointer: ir.Value, name: str, *index: ir.Value | int
) -> ir.Value:
    """The address of a field, or of an element or a field in it."""
    names = [one[0] for one in structure._fields_]
    steps = [I32(0), I32(names.index(name)), *(I32(k) if isinstance(k, int) else k for k in index)]
    return builder.gep(pointer, steps, inbounds=True, source_etype=type_of(structure))


def element(builder: ir.IRBuilder, structure: type[Structure], table: ir.Value, index: ir.Value) -> ir.Value:
    """The address of an element of a table of structures; table: its address as i64."""
    base = builder.inttoptr(table, POINTER)
    return builder.gep(base, [index], inbounds=True, source_etype=type_of(structure))


@contextmanager
def counted(builder: ir.IRBuilder, stop: ir.Value) -> Iterator[ir.Value]:
    """Emit `for index in range(stop)`, unsigned; the with-body is the loop's, and may return from the function."""
    entry = builder.block
    test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
    builder.branch(test)
    builder.position_at_end(test)
    index = builder.phi(stop.type)
    index.add_incoming(stop.type(0), entry)
    builder.cbranch(builder.icmp_unsigned("<", index, stop), body, done)
    builder.position_at_end(body)
    yield index
    if not builder.block.is_terminated:
        index.add_incoming(builder.add(index, stop.type(1)), builder.block)
        builder.branch(test)
    builder.position_at_end(done)
