"""HLO `dynamic-update-slice`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.op import Lowering
from distxla.ir.op_traits import InPlaceKernel, OperandCount
from distxla.ir.shape import Called, Shape
from distxla.ops.support.box_starts import emitted_starts, evaluated_starts, require_starts
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import cut, widened


@register
class DynamicUpdateSlice(ExecutableOp):
    """dynamic-update-slice(x, update, starts..): x with a box overwritten; starts are clamped so that the box fits.

    Shapes:  T[dims], T[update dims], one integer scalar for each dimension (or one vector) -> T[dims]; any T.
    Errors:  C2 element types differ.  C3 the update has another rank.  C4 not one start for each dimension (reported as
             C2 of the starts).  C6 the update is larger than the operand.
    """

    opcode = "dynamic-update-slice"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = OperandCount(least=2)
    in_place: ClassVar[InPlaceKernel] = InPlaceKernel(operand=0, writes_only_a_part=True)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, update, *starts = operands
        self.require(operand.is_array and update.is_array, "C1", f"{operand} and {update}: not arrays", at="operands")
        self.require(operand.dtype is update.dtype, "C2", f"element types of {operand} and {update}", at="operands")
        self.require(operand.rank == update.rank, "C3", f"ranks of {operand} and {update} differ", at="operands")
        require_starts(self, operand.rank, starts)
        self.require(
            all(size <= dimension_size for size, dimension_size in zip(update.dims, operand.dims, strict=True)),
            "C6",
            f"{update} does not fit into {operand}",
            at="operands",
        )
        return operand.without_layout()

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        return actual[0]

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        operand, update, *starts = operands
        bounds, update_bounds, *_ = (s.dims for s in run.operand_shapes)
        first = evaluated_starts(bounds, update_bounds, starts)
        result: Array = np.array(widened(operand, bounds))
        result[tuple(slice(s, s + size) for s, size in zip(first, update.shape, strict=True))] = update
        return cut(result, operand.shape)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        (result,) = results
        operand, update, *starts = operands
        # The starts are read first: they may be in memory that the copy overwrites.
        first = emitted_starts(emit, operand.shape.dims, update.shape.dims, starts)
        emit.copy(result, operand)
        with emit.loops(update.shape.dims, independent=True) as index:
            result.store([i + s for i, s in zip(index, first, strict=True)], update.load(index))
