"""HLO `dynamic-slice`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount
from distxla.ir.shape import Called, Shape
from distxla.ops.support.box_starts import emitted_starts, evaluated_starts, require_starts
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import widened


@register
class DynamicSlice(ExecutableOp):
    """A box of fixed dimension sizes whose start is known at run time; starts are clamped so that the box fits.

    Shapes:  T[dims], one integer scalar for each dimension (or one vector) -> T[dynamic_slice_sizes]; any T.
    Errors:  C2 not one start, or not one size, for each dimension.  C3 starts are not of one integer type.  C4 a size
             is negative or larger than the size.
    """

    opcode = "dynamic-slice"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    dynamic_slice_sizes: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, *starts = operands
        sizes, at = self.dynamic_slice_sizes, "dynamic_slice_sizes"
        self.require(
            operand.is_array and len(sizes) == operand.rank,
            "C2",
            f"{len(sizes)} sizes for the {operand.rank} dimensions of {operand}",
            at,
        )
        require_starts(self, operand.rank, starts)
        self.require(
            all(0 <= size <= dimension_size for size, dimension_size in zip(sizes, operand.dims, strict=True)),
            "C4",
            f"a box of {list(sizes)} does not fit into {operand}",
            at,
        )
        return operand.with_dims(sizes)

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        box = zip(actual[0].dims, operands[0].dims, shape.dims, strict=True)
        return shape.with_dims(tuple(n if size == bound else size for n, bound, size in box))

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return shape.dims == operands[0].dims

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        operand, *starts = operands
        bounds = run.operand_shapes[0].dims
        first = evaluated_starts(bounds, self.dynamic_slice_sizes, starts)
        whole = [size == bound for size, bound in zip(self.dynamic_slice_sizes, bounds, strict=True)]
        seen: Any = widened(operand, [n if w else b for n, b, w in zip(operand.shape, bounds, whole, strict=True)])
        box = tuple(slice(s, s + size) for s, size in zip(first, self.dynamic_slice_sizes, strict=True))
        result: Array = seen[(*box, ...)]
        return result

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        operand, *starts = operands
        first = emitted_starts(emit, operand.shape.dims, shape.dims, starts)
        return operand.load([i + s for i, s in zip(index, first, strict=True)])
