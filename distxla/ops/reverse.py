"""HLO `reverse`."""

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
class Reverse(ExecutableOp):
    """Reverse the order of the elements along `dimensions`.

    Shapes:  T[dims] -> T[dims]; any T.
    Errors:  C2 a dimension is repeated.  C3 a dimension is not one of the operand's.
    """

    opcode = "reverse"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    dimensions: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        text = f"dimensions={list(self.dimensions)} of {operand}"
        self.require(len(set(self.dimensions)) == len(self.dimensions), "C2", f"{text} repeat one", at="dimensions")
        self.require(
            operand.is_array and all(0 <= d < operand.rank for d in self.dimensions),
            "C3",
            f"{text} are not all dimensions of it",
            at="dimensions",
        )
        return operand.without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        return np.flip(operands[0], self.dimensions)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        source = [shape.dims[d] - 1 - i if d in self.dimensions else i for d, i in enumerate(index)]
        return operands[0].load(source)
