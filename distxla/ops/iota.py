"""HLO `iota`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.conversion import Array, converted
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Iota(ExecutableOp):
    """Each element is its index along `iota_dimension`, converted to the element type.

    Shapes:  () -> T[dims], rank at least 1; T is an integer, float or complex type.
    Errors:  C1 `iota_dimension` is not a dimension of the result.  C2 T is none of these.
    """

    opcode = "iota"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(0)
    needs_shape: ClassVar[bool] = True
    iota_dimension: int = attribute("int")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        self.require(shape.is_array and shape.dtype.kind != "pred", "C2", f"no iota of {shape}", at="shape")
        self.require(
            0 <= self.iota_dimension < shape.rank,
            "C1",
            f"iota_dimension={self.iota_dimension} is not a dimension of {shape}",
            at="iota_dimension",
        )

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        dims = run.shape.dims
        counted = converted(np.arange(dims[self.iota_dimension], dtype=np.int64), run.shape.dtype)
        column = [-1 if d == self.iota_dimension else 1 for d in range(len(dims))]
        return np.broadcast_to(counted.reshape(column), dims).copy()

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.value_of(index[self.iota_dimension], shape.dtype)
