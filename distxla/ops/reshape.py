"""HLO `reshape` and `dynamic-reshape`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.row_major import reshaped_index
from distxla.ops.support.run_time_sizes import cut, reshaped, reshaped_dimension_sizes


@register
class Reshape(ExecutableOp):
    """The same elements in row-major order with other dimension sizes.

    `inferred_dimension` names the result dimension whose size is dynamic; it does not change static programs.

    Shapes:  T[dims] -> T[other dims] with as many elements; any T.
    Errors:  C1 element types differ.  C2 element counts differ.  C3 `inferred_dimension` is not one of the result's.
    """

    opcode = "reshape"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True
    inferred_dimension: int | None = attribute("int", default=None)

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        (operand,) = operands
        self.require(operand.is_array, "C1", f"the operand is {operand}, not an array", at="operands")
        self.require(operand.element_type is shape.element_type, "C1", f"{operand} to {shape}", at="shape")
        self.require(
            operand.size == shape.size,
            "C2",
            f"{operand} has {operand.size} elements, {shape} has {shape.size}",
            at="shape",
        )
        inferred = self.inferred_dimension
        self.require(
            inferred is None or 0 <= inferred < shape.rank,
            "C3",
            f"inferred_dimension={inferred} is not a dimension of {shape}",
            at="inferred_dimension",
        )

    def leading_dimensions(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int, ...]:
        same = [a == b for a, b in zip(shape.dims, operands[0].dims)]
        return (same.index(False) if False in same else len(same),)

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return True

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        dims = list(shape.dims)
        for group in reshaped_dimension_sizes(operands[0], shape, self.inferred_dimension):
            if group.follower is not None:
                others = prod(shape.dims[d] for d in group.target if d != group.follower)
                dims[group.follower] = prod(actual[0].dims[d] for d in group.source) // max(others, 1)
        return shape.with_dims(tuple(dims))

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        (operand,), (stated,) = operands, run.operand_shapes
        return reshaped(operand, stated, run.instruction.shape, run.shape.dims, self.inferred_dimension)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        (operand,) = operands
        return operand.load(reshaped_index(index, shape.dims, operand.shape.dims))


@register
class DynamicReshape(ExecutableOp):
    """Reshape to dimension sizes given at run time, one scalar operand a dimension; the result's shape holds their
    bounds.

    An size below 0 counts as 0, one above its bound as the bound; elements that are missing are zeros.

    Shapes:  T[dims], s32[] for each result dimension -> T[bounds].
    Errors:  C1 element types differ.  C3 not one size for each result dimension; a size is no integer scalar.
    """

    opcode = "dynamic-reshape"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    sets_dimension_sizes: ClassVar[bool] = True
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    needs_shape: ClassVar[bool] = True

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        operand, *dimension_sizes = operands
        self.require(operand.element_type is shape.element_type, "C1", f"{operand} to {shape}", at="shape")
        self.require(
            len(dimension_sizes) == shape.rank,
            "C3",
            f"{len(dimension_sizes)} dimension sizes for the dimensions of {shape}",
            at="operands",
        )
        for dimension_size in dimension_sizes:
            fits = dimension_size.is_array and dimension_size.rank == 0 and dimension_size.dtype.is_integer
            self.require(fits, "C3", f"the size {dimension_size} is no integer scalar", at="operands")

    def dynamic_result(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Shape:
        return Shape(shape.element_type, shape.dims, (True,) * shape.rank)

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        operand, *wanted = operands
        dims = [min(max(int(n), 0), bound) for n, bound in zip(wanted, run.instruction.shape.dims, strict=True)]
        return cut(operand.reshape(-1), (prod(dims),)).reshape(dims)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        """Of a static program, where the dimension sizes are the bounds."""
        return operands[0].load(reshaped_index(index, shape.dims, operands[0].shape.dims))
