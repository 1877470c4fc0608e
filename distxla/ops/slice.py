"""HLO `slice`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.window import SliceDimension
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import widened


@register
class Slice(ExecutableOp):
    """A strided box of the operand: in each dimension start, start + stride, .. below limit.

    Shapes:  T[dims] -> T[ceil((limit - start) / stride), ..]; any T.
    Errors:  C2 not one [start:limit:stride] for each dimension.  C3 a range out of bounds.  C4 stride < 1.
    """

    opcode = "slice"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    slice: tuple[SliceDimension, ...] = attribute("slice")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        self.require(
            operand.is_array and len(self.slice) == operand.rank,
            "C2",
            f"{len(self.slice)} ranges for the {operand.rank} dimensions of {operand}",
            at="slice",
        )
        dimension_sizes = []
        for d, box in enumerate(self.slice):
            text = f"[{box.start}:{box.limit}:{box.stride}] of dimension {d} of {operand}"
            self.require(0 <= box.start <= box.limit <= operand.dims[d], "C3", f"{text} is out of bounds", at="slice")
            self.require(box.stride >= 1, "C4", f"{text}: the stride must be positive", at="slice")
            dimension_sizes.append(-(-(box.limit - box.start) // box.stride))
        # A dimension that is kept whole keeps its dynamic size.
        dynamic = tuple(
            flag and dimension_sizes[d] == operand.dims[d]
            for d, flag in enumerate(operand.dynamic or (False,) * operand.rank)
        )
        return Shape(operand.element_type, tuple(dimension_sizes), dynamic)

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        box = zip(self.slice, actual[0].dims, operands[0].dims, shape.dims, strict=True)
        whole = ((n, size, (d.start, d.limit, d.stride) == (0, bound, 1)) for d, n, bound, size in box)
        return shape.with_dims(tuple(n if kept else size for n, size, kept in whole))

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return shape.dims == operands[0].dims

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        (operand,), bounds = operands, run.operand_shapes[0].dims
        # Partly kept dimensions count with their bounds: elements beyond a run-time size are zeros.
        dimension_sizes = [
            n if (d.start, d.limit, d.stride) == (0, bound, 1) else bound
            for d, n, bound in zip(self.slice, operand.shape, bounds, strict=True)
        ]
        box = tuple(builtins.slice(d.start, d.limit, d.stride) for d in self.slice)
        seen: Any = widened(operand, dimension_sizes)
        result: Array = seen[(*box, ...)]
        return result

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        source = [i * d.stride + d.start for i, d in zip(index, self.slice, strict=True)]
        return operands[0].load(source)
