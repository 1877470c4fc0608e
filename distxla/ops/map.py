"""HLO `map`: apply a computation of scalars to the elements of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.mixed_precision import Computed, with_float
from distxla.ir.op import Lowering
from distxla.ir.op_traits import ElementRules, OperandCount
from distxla.ir.shape import Called, Shape
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.reducer import check_scalar_computation
from distxla.ops.support.registry import register


@register
class Map(ExecutableOp):
    """Apply a computation of scalars to the elements of equally shaped arrays.

    Shapes:  N arrays T_i[d0,..] and a computation (T_0[],..) -> U[] give U[d0,..].
    Errors:  C1 arrays of different dimension sizes; C3 `dimensions`, where given, is not 0..rank-1; C4 the
             computation's signature.
    Source:  StableHLO spec, "map"; Operation Semantics, "Map".
    """

    opcode: ClassVar[str] = "map"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True, is_expensive=True)
    dimensions: tuple[int, ...] = attribute("int_list", default=())
    to_apply: str = attribute("computation")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        for operand in operands:
            self.require(operand.is_array, "C1", f"maps arrays, not {operand}", at="operands")
            self.require(
                operand.dims == operands[0].dims,
                "C1",
                f"{operand} and {operands[0]} differ in their dimension sizes",
                at="operands",
            )
        rank = operands[0].rank
        self.require(
            not self.dimensions or self.dimensions == tuple(range(rank)),
            "C3",
            f"dimensions={list(self.dimensions)} must be all {rank} dimensions in order",
            at="dimensions",
        )
        result = called(self.to_apply).result
        self.require(result.is_array and result.rank == 0, "C4", f"{self.to_apply} gives {result}", at="to_apply")
        check_scalar_computation(self, "C4", self.to_apply, called, [o.dtype for o in operands], [result.dtype])
        return Shape(result.dtype, operands[0].dims, operands[0].dynamic)

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        program = called(self.to_apply)
        if len(program.parameters) != len(operands) or not program.result.is_array:
            return None
        taken = (with_float(o, p.dtype) for o, p in zip(operands, program.parameters, strict=True) if p.is_array)
        return Computed(tuple(taken), with_float(shape, program.result.dtype))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.map(self.to_apply, *operands)[0]

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.apply(self.to_apply, *(operand.load(index) for operand in operands))[0]
