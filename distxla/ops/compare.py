"""HLO `compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import PRED, ElementType
from distxla.ir.op import Lowering
from distxla.ir.op_traits import ElementRules, OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.elementwise_binary import common_shape
from distxla.ops.support.conversion import Array, widened
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.total_order import total_order_key

DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


_INTEGERS = ("signed", "unsigned", "pred")


def default_comparison(element_type: ElementType) -> str:
    """The meaning of an absent `type`."""
    if element_type.is_float or element_type.is_complex:
        return "FLOAT"
    return "SIGNED" if element_type.is_signed else "UNSIGNED"


@register
class Compare(ExecutableOp):
    """Whether a relation holds between two elements: EQ NE LT LE GT GE.

    FLOAT follows IEEE 754: a NaN is unequal to everything. TOTALORDER orders all floats:
    -NaN < -inf < .. < -0 < +0 < .. < inf < NaN. SIGNED and UNSIGNED are of integers (UNSIGNED of pred), whose order is
    total anyway. Newer text has `order=TOTAL` and `order=PARTIAL` for TOTALORDER and FLOAT.

    Shapes:  T[dims], T[dims] -> pred[dims].
    Errors:  C1 element types differ.  C2 dimension sizes differ.  C3 `type` does not fit T.  C4 `direction` is none of
             the six, or orders complex numbers.
    """

    opcode = "compare"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(2)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True)
    direction: str = attribute("word")
    comparison: str | None = attribute("comparison", default=None, text="type", also=("order", "order"))

    def comparison_of(self, element_type: ElementType) -> str:
        """FLOAT, TOTALORDER, SIGNED or UNSIGNED."""
        if self.comparison is None or (self.comparison == "TOTALORDER" and element_type.kind in _INTEGERS):
            return default_comparison(element_type)
        return self.comparison

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        shape = common_shape(self, operands, "C2")
        left, right = operands
        self.require(left.dtype is right.dtype, "C1", f"element types differ: {left} and {right}", at="operands")
        fitting = {default_comparison(left.dtype)} | ({"TOTALORDER"} if left.dtype.is_float else set())
        kind = self.comparison_of(left.dtype)
        self.require(
            kind in fitting, "C3", f"type={kind} of {left.dtype}, which has {' and '.join(sorted(fitting))}", at="type"
        )
        self.require(
            self.direction in DIRECTIONS,
            "C4",
            f"direction={self.direction} is none of {', '.join(DIRECTIONS)}",
            at="direction",
        )
        self.require(
            self.direction in ("EQ", "NE") or not left.dtype.is_complex,
            "C4",
            f"direction={self.direction} of complex numbers, which have no order",
            at="direction",
        )
        return shape.with_dtype(PRED)

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        element_type = run.operand_shapes[0].dtype
        left, right = (widened(operand) for operand in operands)
        if self.comparison_of(element_type) == "TOTALORDER":
            left, right = (total_order_key(operand, element_type) for operand in operands)
        return np.asarray(DIRECTIONS[self.direction](left, right), np.bool_)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        left, right = (operand.load(index) for operand in operands)
        return emit.compare(self.direction, self.comparison_of(left.element_type), left, right)
