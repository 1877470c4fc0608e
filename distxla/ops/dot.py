"""HLO `dot`: sums of products over the contracting dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.dot_dimensions import (
    DotDimensions,
    DotOp,
    check_algorithm,
    check_precision,
    check_result_type,
    product_type,
)
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.matrix_views import (
    Matrices,
    accumulation_type,
    as_matrices,
    collapsed_stride,
    emit_products,
    result_in,
    row_major_strides,
    store_result,
)
from distxla.ops.support.registry import register


@register
class Dot(DotOp):
    """Sum of products over the contracting dimensions, for every index of the batch dimensions.

    Shapes:     lhs and rhs with paired batch and contracting dimensions -> [batch, other dimensions of lhs, of rhs].
    Types:      the operands', or whatever numeric type of the same kind the text states; summed in the result's type,
                floats narrower than f32 in f32. operand_precision and algorithm ask for a least precision; every
                product is computed in full.
    Errors:     C1 C2 unpaired dimensions; C3 C4 a dimension twice; C5 to C8 a dimension out of range; C9 C10 dimension
                sizes that differ; C11 operand_precision; C13 the result's type; algorithm: no such one.
    Source:     StableHLO spec, "dot_general"; Operation Semantics, "DotGeneral".
    """

    opcode: ClassVar[str] = "dot"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(2)
    operand_precision: tuple[str, ...] = attribute("precision", default=())
    algorithm: str | None = attribute("word", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        lhs, rhs = operands
        self.dimensions.check(self, lhs, rhs)
        check_precision(self, "C11", self.operand_precision)
        check_algorithm(self, self.algorithm)
        return Shape(product_type(lhs, rhs), self.dimensions.result_dims(lhs, rhs))

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        inferred = self.infer_shape(operands, called)
        self.require(
            shape.is_array and shape.dims == inferred.dims,
            "C12",
            f"the result is {inferred}, the text says {shape}",
            at="shape",
        )
        check_result_type(self, shape, *operands)

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        dims = self.dimensions
        pairs = (*zip(dims.lhs_batch, dims.rhs_batch), *zip(dims.lhs_contracting, dims.rhs_contracting))
        return tuple(((0, a), (1, b)) for a, b in pairs)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        element_type = run.shape.dtype
        wide = accumulation_type(element_type).dtype
        lhs, rhs = (o.astype(wide) for o in operands)
        dims = self.dimensions
        batch, free = len(dims.lhs_batch), dims.lhs_free(lhs.ndim)
        rows = lhs.transpose(dims.lhs_batch + free + dims.lhs_contracting)
        columns = rhs.transpose(dims.rhs_batch + dims.rhs_contracting + dims.rhs_free(rhs.ndim))
        k = prod(lhs.shape[d] for d in dims.lhs_contracting)
        b = rows.shape[:batch]
        left = rows.reshape((prod(b), prod(lhs.shape[d] for d in free), k))
        right = columns.reshape((prod(b), k, prod(rhs.shape[d] for d in dims.rhs_free(rhs.ndim))))
        return np.matmul(left, right).reshape(run.shape.dims).astype(element_type.dtype)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        (result,), (lhs, rhs) = results, operands
        if result.shape.size == 0:
            return
        dims = self.dimensions
        free = (dims.lhs_free(lhs.shape.rank), dims.rhs_free(rhs.shape.rank))
        contracting = _contraction_order(dims, lhs.shape, rhs.shape)
        k = prod(lhs.shape.dims[d] for d, _ in contracting)
        wide = accumulation_type(result.shape.dtype)
        if k == 0:
            emit.fill(result, emit.constant(0, result.shape.dtype))
            return
        batch = [lhs.shape.dims[d] for d in dims.lhs_batch]
        m = prod(lhs.shape.dims[d] for d in free[0])
        n = prod(rhs.shape.dims[d] for d in free[1])
        factors = emit.factors((m, n, k), (lhs.shape.dtype, rhs.shape.dtype), wide)
        a = as_matrices(emit, lhs, (dims.lhs_batch, free[0], [d for d, _ in contracting]), factors.element_type)
        b = as_matrices(emit, rhs, (dims.rhs_batch, [d for _, d in contracting], free[1]), factors.element_type)
        c = result_in(emit, result, wide, result.shape.dims)
        products = Matrices(c, row_major_strides(c.shape.dims)[: len(batch)], n, 1)
        emit_products(emit, batch, (m, n, k), (a, b, products), factors.terms)
        store_result(emit, result, c, range(result.shape.rank))


def _contraction_order(dims: DotDimensions, lhs: Shape, rhs: Shape) -> list[tuple[int, int]]:
    """The pairs of contracting dimensions in an order in which both sides, or at least one, need no copy."""
    pairs = list(zip(dims.lhs_contracting, dims.rhs_contracting))

    def copies(order: list[tuple[int, int]]) -> int:
        left = collapsed_stride(lhs.dims, row_major_strides(lhs.dims), [a for a, _ in order])
        right = collapsed_stride(rhs.dims, row_major_strides(rhs.dims), [b for _, b in order])
        return (left is None) * lhs.size + (right is None) * rhs.size

    return min((pairs, sorted(pairs), sorted(pairs, key=lambda pair: pair[1])), key=copies)
