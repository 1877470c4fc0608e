"""HLO `broadcast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Broadcast(ExecutableOp):
    """Repeat an array along new dimensions: operand dimension i becomes result dimension dimensions[i].

    Shapes:  T[operand dims] -> T[dims], the operand's dimension sizes found at `dimensions`; any T.
    Errors:  C1 element types differ.  C2 not one entry of `dimensions` for each operand dimension.  C3 an entry is no
             dimension of the result.  C4 an entry is repeated.  C5 dimension sizes differ.
    """

    opcode = "broadcast"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True
    dimensions: tuple[int, ...] = attribute("int_list", default=())

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        (operand,) = operands
        self.require(
            operand.is_array and operand.element_type is shape.element_type, "C1", f"{operand} to {shape}", at="shape"
        )
        at, dims = "dimensions", self.dimensions
        self.require(
            len(dims) == operand.rank,
            "C2",
            f"dimensions={list(dims)} for the {operand.rank} dimensions of {operand}",
            at,
        )
        self.require(
            all(0 <= d < shape.rank for d in dims),
            "C3",
            f"dimensions={list(dims)} are not all dimensions of {shape}",
            at,
        )
        self.require(len(set(dims)) == len(dims), "C4", f"dimensions={list(dims)} repeat a dimension", at)
        for i, d in enumerate(dims):
            self.require(
                operand.dims[i] == shape.dims[d],
                "C5",
                f"dimension {i} of {operand} becomes dimension {d} of {shape}: the dimension sizes differ",
                at,
            )

    def leading_dimensions(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int, ...]:
        (operand,) = operands
        same = [
            d == position and operand.dims[position] == shape.dims[position]
            for position, d in enumerate(self.dimensions)
        ]
        return (same.index(False) if False in same else len(same),)

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        own = [d for d in self.dimensions if shape.dims[d] != 1]
        return own == sorted(own) and shape.size == operands[0].size

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        (dimension_sizes,) = (a.dims for a in actual)
        dims = list(shape.dims)
        for n, d in zip(dimension_sizes, self.dimensions, strict=True):
            dims[d] = n
        return shape.with_dims(tuple(dims))

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        (operand,) = operands
        in_result_order = operand.transpose(np.argsort(self.dimensions)) if self.dimensions else operand
        dimension_sizes = [n if d in self.dimensions else 1 for d, n in enumerate(run.shape.dims)]
        return np.broadcast_to(in_result_order.reshape(dimension_sizes), run.shape.dims).copy()

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return operands[0].load([index[d] for d in self.dimensions])
