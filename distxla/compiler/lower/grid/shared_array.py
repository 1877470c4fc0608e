"""Scalars in the memory that the threads of a block share."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.compiler.lower import conversion
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_value import ScalarValue, memory_type, register_type
from distxla.emit.native_function import I32
from distxla.ir.element_type import ElementType
from distxla.targets.grid_module import grid_of


class SharedArray:
    """`count` values as they are in memory, but for complex ones, which are in two parts."""

    def __init__(self, emit: GridLoops, element_type: ElementType, count: int) -> None:
        self.emit = emit
        self.element_type = element_type
        grid = grid_of(emit.builder)
        if element_type.is_complex:
            self.stored, parts = register_type(element_type), 2
        else:
            self.stored, parts = memory_type(element_type), 1
        self.parts = [grid.emit_shared_array(emit.builder, self.stored, count) for _ in range(parts)]

    def store(self, place: IndexExpression | int, value: ScalarValue) -> None:
        builder = self.emit.builder
        registers = value.registers() if self.element_type.is_complex else [conversion.pack(builder, value)]
        for part, register in zip(self.parts, registers, strict=True):
            builder.store(register, self._address(part, place))

    def load(self, place: IndexExpression | int) -> ScalarValue:
        builder = self.emit.builder
        registers = [builder.load(self._address(part, place), typ=self.stored) for part in self.parts]
        return self._value(registers)

    def _value(self, registers: Sequence[ir.Value]) -> ScalarValue:
        if self.element_type.is_complex:
            return ScalarValue(self.element_type, *registers)
        return conversion.unpack(self.emit.builder, registers[0], self.element_type)

    def load_neighbours(self, place: IndexExpression | int, count: int) -> list[ScalarValue]:
        """The `count` values from `place` on, by one access. `count` is a power of two, `place` a multiple of it."""
        builder = self.emit.builder
        found = []
        for part in self.parts:
            vector = ir.VectorType(self.stored, count)
            bytes_of_one = self.element_type.byte_size // len(self.parts)
            load = builder.load(self._address(part, place), typ=vector, align=min(16, count * bytes_of_one))
            found.append([builder.extract_element(load, I32(k)) for k in range(count)])
        return [self._value(registers) for registers in zip(*found, strict=True)]

    def load_word(self, place: IndexExpression | int) -> ir.Value:
        """An i32 of the two 16-bit values from an even place on, the first one in its lower half."""
        return self.emit.builder.load(self._address(self.parts[0], place), typ=I32, align=4)

    def _address(self, part: ir.Value, place: IndexExpression | int) -> ir.Value:
        return self.emit.builder.gep(part, [self.emit.i64(place)], inbounds=True, source_etype=self.stored)
