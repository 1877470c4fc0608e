"""HLO `triangular-solve`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement, same_positions
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.cholesky import check_square_matrices
from distxla.ops.support import small_triangles as small
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.lapack import LARGEST, call_trsm, part, working_type
from distxla.ops.support.registry import register

_LETTERS = {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}


@register
class TriangularSolve(ExecutableOp):
    """Solve op(A) X = B (left_side) or X op(A) = B for triangular A; only the named triangle is read.

    unit_diagonal: the diagonal is not read either, it counts as ones. A zero on it gives infinities and NaN.
    Real triangles of up to 8 rows are inverted and multiplied, each step rounded to the type: the numbers of XLA CPU.

    Shapes:  A T[.., n, n] and B T[.., m, k] with n = m (left_side) or n = k -> T[.., m, k].
    Errors:  C1 types that differ; C2 ranks; C3 dimension sizes; C5 neither float nor complex; kind: no such
             transpose_a.
    Source:  StableHLO spec, "triangular_solve"; Operation Semantics, "TriangularSolve".
    """

    opcode: ClassVar[str] = "triangular-solve"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(2)
    left_side: bool = attribute("bool", default=False)
    lower: bool = attribute("bool", default=False)
    unit_diagonal: bool = attribute("bool", default=False)
    transpose_a: str = attribute("word", default="TRANSPOSE_INVALID")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        a, b = operands
        kinds = ", ".join(_LETTERS)
        self.require(self.transpose_a in _LETTERS, "kind", f"{self.transpose_a} is none of {kinds}", at="transpose_a")
        check_square_matrices(self, a, rank="C2", square="C3", kind="C5")
        self.require(b.is_array and b.dtype is a.dtype, "C1", f"{a} and {b} differ in type", at="operands")
        self.require(b.rank == a.rank, "C2", f"{a} and {b} differ in rank", at="operands")
        side = -2 if self.left_side else -1
        fits = a.dims[:-2] == b.dims[:-2] and a.dims[-1] == b.dims[side]
        self.require(fits, "C3", f"{a} does not fit {b}", at="operands")
        return Shape(b.dtype, b.dims)

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        return same_positions(operands)[:-2]

    def as_small(self, triangles: Sequence[int]) -> small.System:
        """The inlined form, for triangles of real numbers with these dimension sizes."""
        return small.System(
            left=self.left_side,
            lower=self.lower,
            unit=self.unit_diagonal,
            transposed=self.transpose_a != "NO_TRANSPOSE",
            alone=prod(triangles[:-2]) == 1,
        )

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        if operands[1].is_array and max(operands[1].dims[-2:]) > LARGEST:
            return f"this version cannot execute triangular-solve of {operands[1]}: BLAS's integers have 32 bits"
        return super().obstacle(shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """By the inverse where the triangle is small; else substitution row by row in double precision, of the system
        turned so that it reads `matrix @ x = right`."""
        matrix, right = operands
        if small.applies(run.shape.dtype, matrix.shape[-1]):
            return small.evaluate(self.as_small(matrix.shape), run.shape.dtype, matrix, right)
        wide = np.complex128 if run.shape.dtype.is_complex else np.float64
        matrix, right = (operand.astype(wide) for operand in operands)
        if self.transpose_a == "ADJOINT":
            matrix = matrix.conj()
        is_lower = self.lower
        if self.transpose_a != "NO_TRANSPOSE":
            matrix, is_lower = matrix.swapaxes(-1, -2), not is_lower
        if not self.left_side:
            matrix, right, is_lower = matrix.swapaxes(-1, -2), right.swapaxes(-1, -2), not is_lower
        n = matrix.shape[-1]
        x = np.zeros_like(right)
        with np.errstate(all="ignore"):
            for i in range(n) if is_lower else reversed(range(n)):
                known = slice(0, i) if is_lower else slice(i + 1, n)
                row = right[..., i, :] - (matrix[..., i, known, None] * x[..., known, :]).sum(-2)
                x[..., i, :] = row if self.unit_diagonal else row / matrix[..., i, i, None]
            return (x if self.left_side else x.swapaxes(-1, -2)).astype(operands[1].dtype)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """The inverse of a small triangle; else BLAS's trsm, which overwrites the right sides."""
        (a, b), (result,) = operands, results
        if not result.shape.size:
            return
        kind = a.shape.dtype
        if small.applies(kind, a.shape.dims[-1]):
            small.emit_kernel(self.as_small(a.shape.dims), emit, a, b, result)
            return
        working = working_type(kind)
        copies = None
        if working is kind:
            emit.copy(result, b)
        else:
            copies = [emit.scratch(Shape(working, array.shape.dims[-2:])) for array in (a, b)]
        with emit.loops(b.shape.dims[:-2]) as batch:
            matrix, x = copies or (part(emit, a, batch), part(emit, result, batch))
            if copies:
                for copy, array in zip(copies, (a, b)):
                    with emit.loops(copy.shape.dims) as index:
                        copy.store(index, emit.convert(array.load((*batch, *index)), working))
            call_trsm(
                emit,
                "L" if self.left_side else "R",
                "L" if self.lower else "U",
                _LETTERS[self.transpose_a],
                "U" if self.unit_diagonal else "N",
                matrix,
                x,
            )
            if copies:
                with emit.loops(x.shape.dims) as index:
                    result.store((*batch, *index), emit.convert(x.load(index), kind))
