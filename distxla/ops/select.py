"""HLO `select`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.element_type import PRED
from distxla.ir.op import Lowering
from distxla.ir.op_traits import ElementRules, OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.elementwise_binary import common_shape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Select(ExecutableOp):
    """select(pred, on_true, on_false): the second operand's element where the first is true, else the third's.

    Shapes:  pred[dims] or pred[], T[dims], T[dims] -> T[dims].
    Errors:  C1 the predicate is not pred of rank 0 or of equal dimension sizes.  C2 the other operands' shapes differ.
    """

    opcode = "select"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(3)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        predicate, on_true, on_false = operands
        shape = common_shape(self, (on_true, on_false), "C2")
        self.require(on_true.dtype is on_false.dtype, "C2", f"{on_true} and {on_false} differ", at="operands")
        self.require(
            predicate.is_array and predicate.dtype is PRED and predicate.dims in ((), on_true.dims),
            "C1",
            f"the predicate is {predicate}, not pred[] or {on_true.without_layout().with_dtype(PRED)}",
            at="operands",
        )
        return shape

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        predicate, on_true, on_false = operands
        return np.asarray(np.where(predicate, on_true, on_false))

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        predicate, on_true, on_false = operands
        chosen = predicate.load(index if predicate.shape.rank else ())
        return emit.select(chosen, on_true.load(index), on_false.load(index))
