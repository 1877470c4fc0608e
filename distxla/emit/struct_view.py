"""Fields of structures that ctypes declares, as LLVM IR."""

from __future__ import annotations

import ctypes

from llvmlite import ir

from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import field_of, i64


class Struct:
    """Fields of a structure that ctypes declares, at an address."""

    def __init__(self, atomics: AtomicsBuilder, structure: type[ctypes.Structure], base: ir.Value) -> None:
        self._atomics = atomics
        self._structure = structure
        self.base = base

    @property
    def builder(self) -> ir.IRBuilder:
        """Of the function that reads and writes them."""
        return self._atomics.builder

    def get(self, field: str) -> ir.Value:
        kind, offset = field_of(self._structure, field)
        return self._atomics.load(kind, self.base, offset)

    def set(self, field: str, value: ir.Value | int) -> None:
        kind, offset = field_of(self._structure, field)
        self._atomics.store(kind(value) if isinstance(value, int) else value, self.base, offset)

    def at(self, field: str) -> ir.Value:
        return self._atomics.at(self.base, field_of(self._structure, field)[1])

    def element(self, field: str, number: ir.Value, kind: ir.Type) -> ir.Value:
        """Of an array that the field points to."""
        return self._atomics.load(
            kind, self.place(field, number, kind.width // 8 if isinstance(kind, ir.IntType) else 8)
        )

    def place(self, field: str, number: ir.Value, size: int) -> ir.Value:
        builder = self._atomics.builder
        return self._atomics.at(self.get(field), builder.mul(number, i64(size)))
