"""Matrix products on a grid: a block a tile of the result, or one thread an element.

Either way an element is one sum in the order of k, so its bits do not depend on which way was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.compiler.lower.buffer_emitter import MatrixOperand
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.shared_array import SharedArray
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.reduction import Slots
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.element_type import F32, F64, PRED
from distxla.targets.grid_module import grid_of

TILE = 64  # rows and columns of the result that a block computes
DEPTH = 16  # of the sum, for which the factors are in shared memory at a time
PATCH = 4  # rows and columns that a thread computes
SIDE = TILE // PATCH  # threads along either side of a tile
THREADS = SIDE * SIDE
LEAST = 32  # rows, columns and terms from which on tiles have work for most threads


def emit_grid_gemm(
    emit: GridLoops, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n]; operands are (array, batch, row and column strides)."""
    _, m, n, k = shape
    products = _Products(emit, shape, a, b, c)
    if min(m, n, k) >= LEAST and not products.kind.is_complex and not emit.nests:
        products.emit_tiles()
    else:
        products.emit_elements()


class _Products:
    def __init__(
        self, emit: GridLoops, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
    ) -> None:
        self.emit = emit
        self.shape = shape
        self.a, self.b, self.c = a, b, c
        self.kind = c[0].shape.dtype

    def emit_elements(self) -> None:
        """One thread an element."""
        emit, (batch, m, n, k) = self.emit, self.shape
        with emit.loops((batch, m, n), independent=True) as (i, row, column):

            def step(index: Any, carried: tuple[ScalarValue, ...]) -> tuple[ScalarValue, ...]:
                factors = self._load(self.a, i, row, index[0]), self._load(self.b, i, index[0], column)
                return (self._add(carried[0], *factors),)

            (total,) = emit.fold((k,), (emit.constant(0, self.kind),), step)
            self._store(total, i, row, column)

    def emit_tiles(self) -> None:
        """One block a tile. Runs of DEPTH terms go through shared memory; elements beyond the edges count as zeros."""
        emit, (batch, m, n, k) = self.emit, self.shape
        builder, zero = emit.builder, emit.constant(0, self.kind)
        grid = grid_of(builder)
        across, down = -(-n // TILE), -(-m // TILE)
        with emit.blocks(batch * down * across, THREADS) as number:
            i, tile = number // (down * across), number % (down * across)
            first_row, first_column = (tile // across) * TILE, (tile % across) * TILE
            left, right = SharedArray(emit, self.kind, TILE * DEPTH), SharedArray(emit, self.kind, TILE * DEPTH)
            thread = emit.wrap_index(grid.emit_thread(builder), 0, THREADS - 1)
            patch_row, patch_column = (thread // SIDE) * PATCH, (thread % SIDE) * PATCH
            totals = [[Slots(emit, [self.kind]) for _ in range(PATCH)] for _ in range(PATCH)]
            for slots in (slot for row in totals for slot in row):
                slots.store([zero])
            with emit.loops((-(-k // DEPTH),)) as (run,):
                start = run * DEPTH
                for part in range(TILE * DEPTH // THREADS):
                    place = thread + part * THREADS
                    # neighbouring threads load neighbours, whichever way the factor lies in memory
                    row, term = self._apart(place, by_rows=self.a[3] == 1)
                    left.store(term * TILE + row, self._inside(self.a, i, (first_row + row, m), (start + term, k)))
                    column, term = self._apart(place, by_rows=self.b[2] == 1)
                    found = self._inside(self.b, i, (start + term, k), (first_column + column, n))
                    right.store(term * TILE + column, found)
                grid.emit_barrier(builder)
                for step in range(DEPTH):
                    rows = [left.load(patch_row + (step * TILE + r)) for r in range(PATCH)]
                    columns = [right.load(patch_column + (step * TILE + c)) for c in range(PATCH)]
                    for own, x in zip(totals, rows):
                        for slots, y in zip(own, columns):
                            slots.store([self._add(slots.load()[0], x, y)])
                grid.emit_barrier(builder)  # the next run goes to the same places
            self._store_patch(i, (first_row + patch_row, first_column + patch_column), totals)

    def _apart(self, place: IndexExpression, *, by_rows: bool) -> tuple[IndexExpression, IndexExpression]:
        """The row or column, and the term, of an element of a factor's tile by its number."""
        return (place // DEPTH, place % DEPTH) if by_rows else (place % TILE, place // TILE)

    def _inside(self, operand: MatrixOperand, i: Any, *bounded: tuple[IndexExpression, int]) -> ScalarValue:
        """An element by (index, size) of both dimensions, 0 where it is beyond."""
        emit = self.emit
        index = [emit.index_clamp(0, position, size - 1) for position, size in bounded]
        value = self._load(operand, i, *index)
        for position, size in bounded:
            inside = emit.index_compare("LT", position, size)
            value = emit.select(inside, value, emit.constant(0, self.kind))
        return value

    def _store_patch(self, i: Any, first: tuple[Any, Any], totals: Sequence[Sequence[Slots]]) -> None:
        emit, (_, m, n, _) = self.emit, self.shape
        for r, own in enumerate(totals):
            for column, slots in enumerate(own):
                at = first[0] + r, first[1] + column
                is_row, is_column = (emit.index_compare("LT", p, size) for p, size in zip(at, (m, n)))
                with emit.when(ScalarValue(PRED, emit.builder.and_(is_row.llvm, is_column.llvm))):
                    self._store(slots.load()[0], i, *at)

    def _add(self, total: ScalarValue, x: ScalarValue, y: ScalarValue) -> ScalarValue:
        emit = self.emit
        if self.kind in (F32, F64):
            return emit.multiply_add(x, y, total)
        return emit.binary("add", total, emit.binary("multiply", x, y))

    def _load(self, operand: MatrixOperand, *index: Any) -> ScalarValue:
        return self.emit.load(operand[0].pointer, self._position(operand, index), self.kind)

    def _store(self, value: ScalarValue, *index: Any) -> None:
        self.emit.store(self.c[0].pointer, self._position(self.c, index), value)

    def _position(self, operand: MatrixOperand, index: Sequence[Any]) -> Any:
        array, *strides = operand
        position: Any = array.offset
        for i, stride in zip(index, strides, strict=True):
            position = position + i * stride
        return position


__all__ = ["emit_grid_gemm"]
