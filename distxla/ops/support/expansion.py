"""`Build`: how an op with Lowering.EXPANSION writes down the instructions by which it is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distxla.ir.computation import Computation
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
from distxla.ops.op import Op
from distxla.ops.reduce import Reduce
from distxla.ops.registry import op_class
from distxla.ops.reshape import Reshape
from distxla.ops.select import Select
from distxla.ops.slice import Slice
from distxla.ops.transpose import Transpose
from distxla.ops.tuple import GetTupleElement, Tuple


class Build(ABC):
    """A computation under construction. Instructions are named by strings, as everywhere in the IR.

    Every method that adds an instruction gives its name; shapes are without layout.
    """

    @property
    @abstractmethod
    def is_static(self) -> bool:
        """Whether the extents of all arrays of the module are known before it runs."""

    @abstractmethod
    def shape(self, name: str) -> Shape:
        """The shape of an instruction that exists already."""

    @abstractmethod
    def op(self, name: str) -> Op:
        """The op of an instruction that exists already."""

    @abstractmethod
    def add(self, op: Op, *operands: str, shape: Shape | None = None, name: str | None = None) -> str:
        """Append an instruction.

        shape: where it can't be inferred.  name: the expanded instruction's own name, for the one that reports should
        name (at most once; otherwise the result gets it), or None.
        """

    @abstractmethod
    def computation(self, parameters: Sequence[Shape], body: Callable[[Build, Sequence[str]], str]) -> str:
        """A new computation of the module; body: adds its instructions, given its parameters' names, and names its
        root. Equal ones need not be shared: the compiler merges them."""

    @abstractmethod
    def called(self, computation: str) -> Computation:
        """A computation of the module, its own expansions done."""

    # --- single instructions ------------------------------------------------------------------------------------

    def compute(self, opcode: str, *operands: str) -> str:
        """An opcode without attributes, such as `add` or `rsqrt`."""
        return self.add(op_class(opcode)(), *operands)

    def constant(self, value: Any, element_type: ElementType, dims: Sequence[int] = ()) -> str:
        """A number, or as many equal ones as `dims` tells. A float beyond the type's range is an infinity."""
        with np.errstate(over="ignore"):
            scalar = self.literal(np.array(value), Shape(element_type))
        return self.broadcast(scalar, dims)

    def literal(self, value: Any, shape: Shape) -> str:
        """An array of constants."""
        literal = Literal.of(value, shape)
        return self.add(Constant(literal=literal), shape=literal.shape)

    def convert(self, operand: str, element_type: ElementType) -> str:
        """The operand itself where it is of that type."""
        shape = self.shape(operand)
        if shape.dtype is element_type:
            return operand
        return self.add(Convert(), operand, shape=shape.with_dims(shape.dims).with_dtype(element_type))

    def broadcast(self, operand: str, dims: Sequence[int], dimensions: Sequence[int] = ()) -> str:
        """Operand dimension i becomes dimension dimensions[i]; the operand itself where that changes nothing."""
        shape = self.shape(operand)
        if shape.dims == tuple(dims):
            return operand
        return self.add(Broadcast(dimensions=tuple(dimensions)), operand, shape=Shape(shape.dtype, tuple(dims)))

    def reshape(self, operand: str, dims: Sequence[int]) -> str:
        """The operand itself where it has these extents."""
        shape = self.shape(operand)
        if shape.dims == tuple(dims):
            return operand
        return self.add(Reshape(), operand, shape=Shape(shape.dtype, tuple(dims)))

    def row(self, operand: str, number: int) -> str:
        """One of the slices along dimension 0, which stays as one of extent 1."""
        dims = self.shape(operand).dims
        ranges = (SliceDimension(number, number + 1), *(SliceDimension(0, extent) for extent in dims[1:]))
        return self.add(Slice(slice=ranges), operand)

    def transpose(self, operand: str, dimensions: Sequence[int]) -> str:
        """Result dimension i is operand dimension dimensions[i]."""
        return self.add(Transpose(dimensions=tuple(dimensions)), operand)

    def iota(self, element_type: ElementType, dims: Sequence[int], dimension: int) -> str:
        return self.add(Iota(iota_dimension=dimension), shape=Shape(element_type, tuple(dims)))

    def compare(self, direction: str, a: str, b: str) -> str:
        """direction: EQ NE LT LE GT GE."""
        return self.add(Compare(direction=direction), a, b)

    def select(self, predicate: str, on_true: str, on_false: str) -> str:
        return self.add(Select(), predicate, on_true, on_false)

    def join(self, *operands: str) -> str:
        """A tuple of the operands."""
        return self.add(Tuple(), *operands)

    def element(self, operand: str, index: int) -> str:
        return self.add(GetTupleElement(index=index), operand)

    # --- with computations --------------------------------------------------------------------------------------

    def scalar(self, opcode: str, element_type: ElementType) -> str:
        """A computation that applies a binary opcode to two scalars."""
        return self.computation([Shape(element_type)] * 2, lambda inner, operands: inner.compute(opcode, *operands))

    def sum(self, operand: str, dimensions: Sequence[int]) -> str:
        """The sum along the dimensions, in the operand's element type."""
        element_type = self.shape(operand).dtype
        reduce = Reduce(dimensions=tuple(dimensions), to_apply=self.scalar("add", element_type))
        return self.add(reduce, operand, self.constant(0, element_type))

    def loop(
        self,
        initial: Sequence[str],
        condition: Callable[[Build, Sequence[str]], str],
        body: Callable[[Build, Sequence[str]], Sequence[str]],
    ) -> tuple[str, ...]:
        """A while loop over several values; condition and body are given the values' names inside of it."""
        state = self.join(*initial)
        shape = self.shape(state)

        def parts(inner: Build, parameters: Sequence[str]) -> list[str]:
            return [inner.element(parameters[0], index) for index in range(len(initial))]

        test = self.computation([shape], lambda inner, values: condition(inner, parts(inner, values)))
        step = self.computation([shape], lambda inner, values: inner.join(*body(inner, parts(inner, values))))
        done = self.add(While(condition=test, body=step), state)
        return tuple(self.element(done, index) for index in range(len(initial)))
