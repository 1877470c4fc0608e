"""Scalars in the memory that the threads of a block share."""

from __future__ import annotations

from llvmlite import ir

from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_expression import I8
from distxla.compiler.lower.scalar_value import ScalarValue, register_type
from distxla.ir.element_type import ElementType
from distxla.targets.grid_module import grid_of


class SharedArray:
    """`count` values as they are in registers: narrow floats as f32, complex ones in two parts, predicates as bytes."""

    def __init__(self, emit: GridLoops, element_type: ElementType, count: int) -> None:
        self.emit = emit
        self.element_type = element_type
        self.register = register_type(element_type)
        is_bit = isinstance(self.register, ir.IntType) and self.register.width < I8.width
        self.stored = I8 if is_bit else self.register
        grid, parts = grid_of(emit.builder), 2 if element_type.is_complex else 1
        self.parts = [grid.emit_shared_array(emit.builder, self.stored, count) for _ in range(parts)]

    def store(self, place: IndexExpression | int, value: ScalarValue) -> None:
        builder = self.emit.builder
        for part, register in zip(self.parts, value.registers(), strict=True):
            wide = register if self.stored == self.register else builder.zext(register, self.stored)
            builder.store(wide, self._address(part, place))

    def load(self, place: IndexExpression | int) -> ScalarValue:
        builder = self.emit.builder
        registers = [builder.load(self._address(part, place), typ=self.stored) for part in self.parts]
        if self.stored != self.register:
            registers = [builder.trunc(register, self.register) for register in registers]
        return ScalarValue(self.element_type, *registers)

    def _address(self, part: ir.Value, place: IndexExpression | int) -> ir.Value:
        return self.emit.builder.gep(part, [self.emit.i64(place)], inbounds=True, source_etype=self.stored)


__all__ = ["SharedArray"]
