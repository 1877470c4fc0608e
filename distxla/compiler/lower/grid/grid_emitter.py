"""`GridEmitter`: an op's code for a grid."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import MatrixOperand
from distxla.compiler.lower.grid import line_reductions, products, transposes
from distxla.compiler.lower.grid.grid_loops import GridLoops, NoGridFormError
from distxla.compiler.lower.row_fusions import emit_rows_apart
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.ops.support.emit import Argument, Factors, Tuning


class GridEmitter(GridLoops):
    """The LLVM side of ops/support/emit.py's `KernelEmitter` for a grid: in place of libraries and vectors."""

    @property
    def tuning(self) -> Tuning:
        return Tuning(lanes=32, cached_bytes=1 << 15, on_grid=True)

    def factors(
        self, shape: tuple[int, int, int], types: tuple[ElementType, ElementType], sums: ElementType
    ) -> Factors:
        """Narrow floats as they are: they are widened where they are multiplied."""
        lhs, rhs = types
        return Factors(lhs if lhs is rhs and lhs.is_float and sums.is_float and lhs.bits < sums.bits else sums)

    def gemm(
        self,
        shape: tuple[int, int, int, int],
        a: MatrixOperand,
        b: MatrixOperand,
        c: MatrixOperand,
        terms: int | None = None,
    ) -> None:
        first = len(self.launches)
        products.emit_grid_gemm(self, shape, a, b, c)
        product = products.matrix_product(self, first, shape, a, b, c)
        if product is not None:
            self.products.append(product)

    run_products = products.emit_grid_run_products
    elements = transposes.emit_grid_elements
    reductions = line_reductions.emit_grid_reductions
    rows = emit_rows_apart

    def call(self, symbol: str, result: ElementType | None, *arguments: Argument) -> ScalarValue | None:
        raise NoGridFormError(f"it calls {symbol}")

    def call_native(
        self,
        symbol: str,
        result: Shape,
        results: Sequence[MemoryArray],
        operand_shapes: Sequence[Shape],
        operands: Sequence[MemoryArray],
    ) -> None:
        raise NoGridFormError(f"it calls {symbol}")


__all__ = ["GridEmitter", "NoGridFormError"]
