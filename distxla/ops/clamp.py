"""HLO `clamp`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.op import Lowering
from distxla.ir.op_traits import ElementRules, OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.elementwise_binary import ROWS
from distxla.ops.support.conversion import Array, converted, widened
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register

_FORMS = {row.opcode: row.function for row in ROWS}


@register
class Clamp(ExecutableOp):
    """clamp(min, x, max): minimum(maximum(x, min), max); a NaN among the three gives NaN.

    Shapes:  T[dims] or T[], T[dims], T[dims] or T[] -> T[dims].
    Errors:  C1 min is neither of rank 0 nor of x's dimension sizes.  C2 max likewise.  C3 element types differ.
    """

    opcode = "clamp"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(3)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        _, x, _ = operands
        self.require(x.is_array, "C4", f"the second operand is {x}, not an array", at="operands")
        for rule, name, bound in (("C1", "min", operands[0]), ("C2", "max", operands[2])):
            fits = bound.is_array and bound.dims in ((), x.dims)
            self.require(
                fits, rule, f"{name} is {bound}, neither of rank 0 nor of the dimension sizes of {x}", at="operands"
            )
            self.require(bound.dtype is x.dtype, "C3", f"{name} is {bound}, the operand {x}", at="operands")
        return x.without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        element_type = run.shape.dtype
        low, x, high = (np.broadcast_to(widened(operand), run.shape.dims) for operand in operands)
        with np.errstate(all="ignore"):
            raised = np.asarray(_FORMS["maximum"](x, low, element_type))
            return converted(np.asarray(_FORMS["minimum"](raised, high, element_type)), element_type)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        low, x, high = (operand.load(index if operand.shape.rank else ()) for operand in operands)
        return emit.binary("minimum", emit.binary("maximum", x, low), high)
