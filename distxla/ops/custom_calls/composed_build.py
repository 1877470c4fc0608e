"""`ComposedBuild`: all operations of a `Build`, made of the few that it is able to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import ElementType
from distxla.ir.literal import Literal
from distxla.ir.shape import Shape
from distxla.ir.window import SliceDimension
from distxla.ops.broadcast import Broadcast
from distxla.ops.compare import Compare
from distxla.ops.constant import Constant
from distxla.ops.control_flow import While
from distxla.ops.convert import Convert
from distxla.ops.iota import Iota
from distxla.ops.reduce import Reduce
from distxla.ops.reshape import Reshape
from distxla.ops.select import Select
from distxla.ops.slice import Slice
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import op_class
from distxla.ops.transpose import Transpose
from distxla.ops.tuple import GetTupleElement, Tuple


class ComposedBuild(Build):
    """A subclass adds single instructions and computations."""

    # --- single instructions ------------------------------------------------------------------------------------

    def compute(self, opcode: str, *operands: str) -> str:
        return self.add(op_class(opcode)(), *operands)

    def constant(self, value: Any, element_type: ElementType, dims: Sequence[int] = ()) -> str:
        with np.errstate(over="ignore"):
            scalar = self.literal(np.array(value), Shape(element_type))
        return self.broadcast(scalar, dims)

    def literal(self, value: Any, shape: Shape) -> str:
        literal = Literal.of(value, shape)
        return self.add(Constant(literal=literal), shape=literal.shape)

    def convert(self, operand: str, element_type: ElementType) -> str:
        shape = self.shape(operand)
        if shape.dtype is element_type:
            return operand
        return self.add(Convert(), operand, shape=shape.with_dims(shape.dims).with_dtype(element_type))

    def broadcast(self, operand: str, dims: Sequence[int], dimensions: Sequence[int] = ()) -> str:
        shape = self.shape(operand)
        if shape.dims == tuple(dims):
            return operand
        return self.add(Broadcast(dimensions=tuple(dimensions)), operand, shape=Shape(shape.dtype, tuple(dims)))

    def reshape(self, operand: str, dims: Sequence[int]) -> str:
        shape = self.shape(operand)
        if shape.dims == tuple(dims):
            return operand
        return self.add(Reshape(), operand, shape=Shape(shape.dtype, tuple(dims)))

    def row(self, operand: str, number: int) -> str:
        dims = self.shape(operand).dims
        ranges = (SliceDimension(number, number + 1), *(SliceDimension(0, size) for size in dims[1:]))
        return self.add(Slice(slice=ranges), operand)

    def transpose(self, operand: str, dimensions: Sequence[int]) -> str:
        return self.add(Transpose(dimensions=tuple(dimensions)), operand)

    def iota(self, element_type: ElementType, dims: Sequence[int], dimension: int) -> str:
        return self.add(Iota(iota_dimension=dimension), shape=Shape(element_type, tuple(dims)))

    def compare(self, direction: str, a: str, b: str) -> str:
        return self.add(Compare(direction=direction), a, b)

    def select(self, predicate: str, on_true: str, on_false: str) -> str:
        return self.add(Select(), predicate, on_true, on_false)

    def join(self, *operands: str) -> str:
        return self.add(Tuple(), *operands)

    def element(self, operand: str, index: int) -> str:
        return self.add(GetTupleElement(index=index), operand)

    # --- with computations --------------------------------------------------------------------------------------

    def scalar(self, opcode: str, element_type: ElementType) -> str:
        return self.computation([Shape(element_type)] * 2, lambda inner, operands: inner.compute(opcode, *operands))

    def sum(self, operand: str, dimensions: Sequence[int]) -> str:
        element_type = self.shape(operand).dtype
        reduce = Reduce(dimensions=tuple(dimensions), to_apply=self.scalar("add", element_type))
        return self.add(reduce, operand, self.constant(0, element_type))

    def loop(
        self,
        initial: Sequence[str],
        condition: Callable[[Build, Sequence[str]], str],
        body: Callable[[Build, Sequence[str]], Sequence[str]],
    ) -> tuple[str, ...]:
        state = self.join(*initial)
        shape = self.shape(state)

        def parts(inner: Build, parameters: Sequence[str]) -> list[str]:
            return [inner.element(parameters[0], index) for index in range(len(initial))]

        test = self.computation([shape], lambda inner, values: condition(inner, parts(inner, values)))
        step = self.computation([shape], lambda inner, values: inner.join(*body(inner, parts(inner, values))))
        done = self.add(While(condition=test, body=step), state)
        return tuple(self.element(done, index) for index in range(len(initial)))
