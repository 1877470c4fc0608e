"""HLO `cholesky` and `triangular-solve`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Cholesky(Op):
    """Cholesky factor of each matrix of a batch; only the named triangle is read.

    Shapes:  T[.., n, n] -> T[.., n, n].
    Errors:  C2 less than two dimensions; C3 matrices that aren't square; C4 neither float nor complex.
    Source:  StableHLO spec, "cholesky"; Operation Semantics, "Cholesky".
    """

    opcode: ClassVar[str] = "cholesky"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    lower: bool = attribute("bool", default=False)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        return _check_matrices(self, operands[0], rank="C2", square="C3", kind="C4")


@register
class TriangularSolve(Op):
    """Solve op(A) X = B (left_side) or X op(A) = B for triangular A; only the named triangle is read.

    Shapes:  A T[.., n, n] and B T[.., m, k] with n = m (left_side) or n = k -> T[.., m, k].
    Errors:  C1 types that differ; C2 ranks; C3 extents; C5 neither float nor complex; kind: no such transpose_a.
    Source:  StableHLO spec, "triangular_solve"; Operation Semantics, "TriangularSolve".
    """

    opcode: ClassVar[str] = "triangular-solve"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    left_side: bool = attribute("bool", default=False)
    lower: bool = attribute("bool", default=False)
    unit_diagonal: bool = attribute("bool", default=False)
    transpose_a: str = attribute("word", default="TRANSPOSE_INVALID")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        a, b = operands
        kinds = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
        self.require(self.transpose_a in kinds, "kind", f"{self.transpose_a} is none of {kinds}", at="transpose_a")
        _check_matrices(self, a, rank="C2", square="C3", kind="C5")
        self.require(b.is_array and b.dtype is a.dtype, "C1", f"{a} and {b} differ in type", at="operands")
        self.require(b.rank == a.rank, "C2", f"{a} and {b} differ in rank", at="operands")
        side = -2 if self.left_side else -1
        fits = a.dims[:-2] == b.dims[:-2] and a.dims[-1] == b.dims[side]
        self.require(fits, "C3", f"{a} does not fit {b}", at="operands")
        return Shape(b.dtype, b.dims)


def _check_matrices(op: Op, shape: Shape, *, rank: str, square: str, kind: str) -> Shape:
    op.require(shape.is_array and shape.rank >= 2, rank, f"works on matrices, not {shape}", at="operands")
    op.require(shape.dims[-1] == shape.dims[-2], square, f"{shape} are no square matrices", at="operands")
    op.require(
        shape.dtype.is_float or shape.dtype.is_complex,
        kind,
        f"{shape.dtype} is neither float nor complex",
        at="operands",
    )
    return Shape(shape.dtype, shape.dims)
