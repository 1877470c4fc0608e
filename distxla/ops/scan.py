"""HLO `scan`: a loop along one dimension that carries values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.control_flow import signature
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Scan(Op):
    """Run a computation along a dimension, carrying values from step to step.

    Shapes:  N arrays T_i[.., n, ..] and C carries U_j -> (M arrays V_i[.., n, ..], the last carries U_j); the
             computation takes the arrays' slices without the dimension, then the carries, and gives the results'
             slices and carries.
    Errors:  C1 not one dimension of the arrays; C2 more carries than operands; C3 the computation's parameters; C4 the
             number of results; C5 a carry of another shape.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "scan"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    needs_shape: ClassVar[bool] = True
    dimensions: tuple[int, ...] = attribute("int_list")
    is_reverse: bool = attribute("bool", default=False)
    is_associative: bool | None = attribute("bool", default=None)
    num_carries: int | None = attribute("int", default=None)
    to_apply: str = attribute("computation")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        carries = self.num_carries or 0
        self.require(0 <= carries <= len(operands), "C2", f"num_carries={carries}", at="num_carries")
        inputs, initial = operands[: len(operands) - carries], operands[len(operands) - carries :]
        self.require(len(self.dimensions) == 1, "C1", f"dimensions={list(self.dimensions)}", at="dimensions")
        axis = self.dimensions[0]
        for operand in inputs:
            self.require(
                operand.is_array and 0 <= axis < operand.rank,
                "C1",
                f"{operand} has no dimension {axis}",
                at="dimensions",
            )
        have = called(self.to_apply)
        takes = [*(i.with_dims(i.dims[:axis] + i.dims[axis + 1 :]) for i in inputs), *initial]
        self.require(
            len(have.parameters) == len(takes) and all(p.compatible(t) for p, t in zip(have.parameters, takes)),
            "C3",
            f"{self.to_apply} must take ({', '.join(map(str, takes))}), it is {signature(have)}",
            at="to_apply",
        )
        results, gives = shape.elements or (shape,), have.result.elements or (have.result,)
        self.require(
            len(results) == len(gives) and len(results) >= carries,
            "C4",
            f"{self.to_apply} gives {len(gives)} values, the text says {shape}",
            at="shape",
        )
        for wanted, result, given in zip(reversed(initial), reversed(results), reversed(gives)):
            self.require(
                wanted.compatible(result) and wanted.compatible(given),
                "C5",
                f"a carry starts as {wanted}, is given as {given} and ends as {result}",
                at="shape",
            )
