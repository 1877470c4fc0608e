"""The product of a sparse and a dense matrix that JAX on CPU calls for BCSR."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.ir.element_type import S32, S64
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.target import Call, CustomCallTarget, target
from distxla.ops.support.emit import Buffer, IndexLike, IndexValue, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.lapack import LETTERS


@target("cpu_csr_sparse_dense_ffi")
class CsrProduct(CustomCallTarget):
    """A matrix in compressed sparse rows, times a dense matrix or vector.

    Row r has the elements from starts[r] up to starts[r + 1], each with its column. Elements whose column is outside
    of the matrix, with which JAX fills up, add nothing.

    Shapes: elements T[e], starts I[m+1], columns I[e], dense T[n] or T[n, k] -> T[m] or T[m, k]; T f32, f64, c64 or
    c128, I s32 or s64.
    """

    def obstacle(self, call: Call) -> str | None:
        wanted = self._result(call.operands)
        if wanted is None:
            given = ", ".join(map(str, call.operands))
            return (
                f'custom-call of "{call.name}" takes T[e], I[m+1], I[e] and T[n] or T[n,k] with T f32, f64, c64 or '
                f"c128 and I s32 or s64, not ({given})"
            )
        if not call.shape.compatible(wanted):
            return f'custom-call of "{call.name}" gives {wanted}, the text says {call.shape}'
        return None

    @staticmethod
    def _result(operands: tuple[Shape, ...]) -> Shape | None:
        """The result's shape; None for operands that don't fit."""
        if len(operands) != 4 or not all(shape.is_array and not shape.is_dynamic for shape in operands):
            return None
        elements, starts, columns, dense = operands
        fits = (
            [shape.rank for shape in operands[:3]] == [1, 1, 1]
            and dense.rank in (1, 2)
            and elements.dims == columns.dims
            and starts.dims[0] > 0
            and elements.dtype is dense.dtype
            and elements.dtype.name in LETTERS
            and starts.dtype is columns.dtype
            and starts.dtype in (S32, S64)
        )
        return Shape(dense.dtype, (starts.dims[0] - 1, *dense.dims[1:])) if fits else None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        elements, starts, columns, dense = operands
        result = np.zeros(call.shape.dims, call.shape.dtype.dtype)
        for row in range(len(result)):
            for k in range(max(0, int(starts[row])), min(len(elements), int(starts[row + 1]))):
                if 0 <= columns[k] < len(dense):
                    result[row] += elements[k] * dense[columns[k]]
        return result

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        elements, starts, columns, dense = operands
        (result,) = results
        kind, count, rows = dense.shape.dtype, elements.shape.dims[0], dense.shape.dims[0]
        zero = emit.constant(0, kind)
        if not count or not rows:
            emit.fill(result, zero)
            return

        with emit.loops(result.shape.dims, independent=True) as place:
            row, *behind = place
            first, end = (emit.index_clamp(0, emit.index_of(starts.load((row + k,))), count) for k in (0, 1))

            def step(
                number: IndexLike, sums: tuple[Value, ...], first: IndexValue = first, behind: list[IndexValue] = behind
            ) -> tuple[Value, ...]:
                k = emit.index_clamp(0, first + number, count - 1)
                column = emit.index_of(columns.load((k,)))
                inside = emit.index_clamp(0, column, rows - 1)
                product = emit.binary("multiply", elements.load((k,)), dense.load((inside, *behind)))
                return (
                    emit.binary("add", sums[0], emit.select(emit.index_compare("EQ", column, inside), product, zero)),
                )

            (total,) = emit.steps(end - first, count, (zero,), step)
            result.store(place, total)
