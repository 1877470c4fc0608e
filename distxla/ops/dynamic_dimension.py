"""HLO `get-dimension-size` and `set-dimension-size`: dimension sizes known at run time only.

Their meaning for the other ops: ops/support/run_time_sizes.py. Compiled programs carry the sizes as s32[] values
beside the arrays (compiler/passes/pad_dynamic_dimensions.py), which have their bounds' dimension sizes; both ops are
gone then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import S32
from distxla.ir.op import Lowering, Op
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import cut


@register
class GetDimensionSize(ExecutableOp):
    """The run-time size of a dimension; of a static one its size.

    Shapes:  array -> s32[].
    Errors:  C1 not one dimension of the operand.
    Source:  StableHLO spec, "get_dimension_size"; Operation Semantics, "GetDimensionSize".
    """

    opcode: ClassVar[str] = "get-dimension-size"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    dimensions: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        _check_dimension(self, self.dimensions, operands[0])
        return Shape(S32)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return np.array(operands[0].shape[self.dimensions[0]], np.int32)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.constant(operands[0].shape.dims[self.dimensions[0]], S32)


@register
class SetDimensionSize(ExecutableOp):
    """The same array with another run-time size along a dimension.

    A size below 0 counts as 0, one above the bound as the bound.  Elements that a larger size adds to a dynamic
    dimension are zeros; in XLA they are the memory's old content.

    Shapes:  (T[.., n, ..], s32[]) -> T[.., <=n, ..].
    Errors:  C1 not one dimension of the operand; C2 the size is not s32[]; shape: other dimension sizes, another type.
    Source:  Operation Semantics, "SetDimensionSize".
    """

    opcode: ClassVar[str] = "set-dimension-size"
    sets_dimension_sizes: ClassVar[bool] = True
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(2)
    dimensions: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, size = operands
        _check_dimension(self, self.dimensions, operand)
        self.require(size.compatible(Shape(S32)), "C2", f"the size is {size}, not s32[]", at="operands")
        dynamic = list(operand.dynamic or (False,) * operand.rank)
        dynamic[self.dimensions[0]] = True
        return Shape(operand.element_type, operand.dims, tuple(dynamic))

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        """A size that is a constant may make the dimension static again, so only the others' flags are compared."""
        inferred = self.infer_shape(operands, called)
        changed = self.dimensions[0]
        stated, other = shape.dynamic or (False,) * shape.rank, inferred.dynamic
        same = (
            shape.is_array
            and (shape.element_type, shape.dims) == (inferred.element_type, inferred.dims)
            and all(stated[d] == other[d] for d in range(shape.rank) if d != changed)
        )
        self.require(same, "shape", f"the result is {inferred}, the text says {shape}", at="shape")

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return True

    def dynamic_result(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Shape:
        return self.infer_shape(operands, called)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        array, size = operands
        dimension = self.dimensions[0]
        bound = run.operand_shapes[0].dims[dimension]
        dimension_size = min(max(int(size), 0), bound)
        return cut(array, (*array.shape[:dimension], dimension_size, *array.shape[dimension + 1 :]))

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return operands[0].load(index)


def _check_dimension(op: Op, dimensions: Sequence[int], operand: Shape) -> None:
    op.require(
        operand.is_array and len(dimensions) == 1 and 0 <= dimensions[0] < operand.rank,
        "C1",
        f"dimensions={list(dimensions)} is not one dimension of {operand}",
        at="dimensions",
    )
