"""HLO `transpose`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, IndexLike, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Transpose(ExecutableOp):
    """Permute dimensions: result dimension i is operand dimension dimensions[i].

    Shapes:  T[d0, .., dn-1] -> T[d(p0), .., d(pn-1)] with p = dimensions; any T.
    Errors:  C2 `dimensions` is not a permutation of the operand's dimensions.
    """

    opcode = "transpose"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    dimensions: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        self.require(
            operand.is_array and sorted(self.dimensions) == list(range(operand.rank)),
            "C2",
            f"dimensions={list(self.dimensions)} does not permute the {operand.rank} dimensions of {operand}",
            at="dimensions",
        )
        dynamic = tuple(operand.dynamic[d] for d in self.dimensions) if operand.dynamic else ()
        return Shape(operand.element_type, tuple(operand.dims[d] for d in self.dimensions), dynamic)

    def leading_dimensions(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int, ...]:
        same = [position == d for position, d in enumerate(self.dimensions)]
        return (same.index(False) if False in same else len(same),)

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        order = [d for d in self.dimensions if operands[0].dims[d] != 1]
        return order == sorted(order)

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        result: Array = operands[0].transpose(self.dimensions)
        return result

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        source: list[IndexLike] = list(index)
        for result_dimension, operand_dimension in enumerate(self.dimensions):
            source[operand_dimension] = index[result_dimension]
        return operands[0].load(source)
