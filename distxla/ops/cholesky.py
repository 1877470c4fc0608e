"""HLO `cholesky`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import PRED, S32
from distxla.ir.op import Lowering, Op
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.emit import Buffer, Index, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.lapack import LETTERS, call_lapack, part, working_type
from distxla.ops.support.registry import register


@register
class Cholesky(ExecutableOp):
    """Cholesky factor of each matrix of a batch; only the named triangle is read.

    The other triangle of the result is zero. A matrix that is not positive definite, or has a NaN, gives NaN alone.

    Shapes:  T[.., n, n] -> T[.., n, n].
    Errors:  C2 less than two dimensions; C3 matrices that aren't square; C4 neither float nor complex.
    Source:  StableHLO spec, "cholesky"; Operation Semantics, "Cholesky".
    """

    opcode: ClassVar[str] = "cholesky"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(1)
    lower: bool = attribute("bool", default=False)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return check_square_matrices(self, operands[0], rank="C2", square="C3", kind="C4")

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """Column by column in double precision."""
        (operand,) = operands
        matrix = operand.astype(np.complex128 if run.shape.dtype.is_complex else np.float64)
        if not self.lower:
            matrix = matrix.swapaxes(-1, -2).conj()
        factor = np.zeros_like(matrix)
        with np.errstate(all="ignore"):
            for j in range(matrix.shape[-1]):
                left, pivot_row = factor[..., j:, :j], factor[..., j, :j].conj()
                column = matrix[..., j:, j] - (left * pivot_row[..., None, :]).sum(-1)
                pivot = column[..., :1].real
                root = np.sqrt(np.where(pivot > 0, pivot, np.nan))
                factor[..., j:, j] = column / root
                factor[..., j, j] = root[..., 0]
            has_failed = np.isnan(factor).any(axis=(-2, -1), keepdims=True)
            factor = np.where(has_failed, np.nan, factor)
            return (factor if self.lower else factor.swapaxes(-1, -2).conj()).astype(operand.dtype)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """LAPACK's potrf. A row-major lower triangle is a column-major upper one, and so are the factors."""
        (operand,), (result,) = operands, results
        kind, n = operand.shape.dtype, operand.shape.dims[-1]
        working = working_type(kind)
        copy = None if working is kind else emit.scratch(Shape(working, (n, n)))
        if not result.shape.size:
            return
        with emit.loops(operand.shape.dims[:-2]) as batch:
            matrix = copy or part(emit, result, batch)
            with emit.loops((n, n)) as (i, j):
                matrix.store((i, j), emit.convert(operand.load((*batch, i, j)), working))
            info = emit.local(emit.constant(0, S32))
            call_lapack(emit, f"{LETTERS[working.name]}potrf", "U" if self.lower else "L", n, matrix, n, info)
            is_positive = self._is_positive(emit, matrix, info)
            failed = emit.constant(complex("nan+nanj") if kind.is_complex else float("nan"), kind)
            with emit.loops((n, n)) as (i, j):
                inside = emit.index_compare("GE" if self.lower else "LE", i, j)
                value = emit.select(inside, emit.convert(matrix.load((i, j)), kind), emit.constant(0, kind))
                result.store((*batch, i, j), emit.select(is_positive, value, failed))

    def _is_positive(self, emit: KernelEmitter, factor: Buffer, info: Buffer) -> Value:
        """PRED: potrf has finished, and no NaN got to the diagonal (its test for pivots may let one pass)."""
        real = factor.shape.dtype.real_part
        zero = emit.constant(0, real)

        def step(index: Index, before: tuple[Value, ...]) -> tuple[Value, ...]:
            pivot = factor.load((index[0], index[0]))
            size = emit.unary("real", pivot) if factor.shape.dtype.is_complex else pivot
            return (emit.binary("and", before[0], emit.compare("GT", "FLOAT", size, zero)),)

        finished = emit.compare("EQ", "SIGNED", info.load(()), emit.constant(0, S32))
        (all_positive,) = emit.fold((factor.shape.dims[0],), (emit.constant(True, PRED),), step)
        return emit.binary("and", finished, all_positive)


def check_square_matrices(op: Op, shape: Shape, *, rank: str, square: str, kind: str) -> Shape:
    """The shape without layout; RuleViolation where it isn't float or complex [.., n, n]."""
    op.require(shape.is_array and shape.rank >= 2, rank, f"works on matrices, not {shape}", at="operands")
    op.require(shape.dims[-1] == shape.dims[-2], square, f"{shape} are no square matrices", at="operands")
    op.require(
        shape.dtype.is_float or shape.dtype.is_complex,
        kind,
        f"{shape.dtype} is neither float nor complex",
        at="operands",
    )
    return Shape(shape.dtype, shape.dims)
