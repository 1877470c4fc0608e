"""Matrix products on a grid: one thread an element of the result."""

from __future__ import annotations

from typing import Any

from distxla.compiler.lower.buffer_emitter import MatrixOperand
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_value import ScalarValue


def emit_grid_gemm(
    emit: GridLoops, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n]; operands are (array, batch, row and column strides)."""
    batch, m, n, k = shape
    kind = c[0].shape.dtype

    def element(operand: MatrixOperand, *index: Any) -> ScalarValue:
        array, *strides = operand
        position: Any = array.offset
        for i, stride in zip(index, strides, strict=True):
            position = position + i * stride
        return emit.load(array.pointer, position, kind)

    with emit.loops((batch, m, n), parallel=True) as (i, row, column):

        def step(index: Any, carried: tuple[ScalarValue, ...]) -> tuple[ScalarValue, ...]:
            product = emit.binary("multiply", element(a, i, row, index[0]), element(b, i, index[0], column))
            return (emit.binary("add", carried[0], product),)

        (total,) = emit.fold((k,), (emit.constant(0, kind),), step)
        array, *strides = c
        place: IndexExpression | int = i * strides[0] + row * strides[1] + column * strides[2] + array.offset
        emit.store(array.pointer, place, total)


__all__ = ["emit_grid_gemm"]
