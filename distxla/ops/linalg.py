"""HLO `cholesky` and `triangular-solve`."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Cholesky(Op):
    """Cholesky factor of each matrix of a batch."""

    opcode = "cholesky"
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    lower: bool = attribute("bool", default=False)


@register
class TriangularSolve(Op):
    """Solve op(A) X = B or X op(A) = B for triangular A."""

    opcode = "triangular-solve"
    lowering = Lowering.NONE
    min_operands = 2
    max_operands = 2
    left_side: bool = attribute("bool", default=False)
    lower: bool = attribute("bool", default=False)
    unit_diagonal: bool = attribute("bool", default=False)
    transpose_a: str = attribute("word", default="TRANSPOSE_INVALID")
