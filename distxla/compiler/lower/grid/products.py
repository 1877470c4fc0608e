"""Sums of products on a grid: blocks a tile of the result, a block an element, or one thread an element.

The order of an element's terms depends on the sizes alone: where a block computes an element, its threads take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import MatrixOperand
from distxla.compiler.lower.grid.block_of_threads import BlockOfThreads
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.shared_array import SharedArray
from distxla.compiler.lower.grid.warps import WARP
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.reduction import Slots
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.element_type import F32, F64, PRED, ElementType
from distxla.ir.shape import Shape
from distxla.ops.support.emit import RunProducts
from distxla.targets.grid_module import grid_of

TILE = 64  # rows and columns of the result that a block computes
DEPTH = 16  # of the sum, for which the factors are in shared memory at a time
PATCH = 4  # rows and columns that a thread computes
SIDE = TILE // PATCH  # threads along either side of a tile
THREADS = SIDE * SIDE
MANY_BLOCKS = 256  # that fill the device
LONG_PIECE = 512  # terms of a tile that are worth a block of their own where there are few tiles
LONG_SUM = 256  # terms that are worth a block
LEAST = 32  # rows, columns and terms from which on tiles have work for most threads


@dataclass(frozen=True)
class Factor:
    """One side of the products. load: an element, by batch, row and term, or batch, term and column.
    by_terms: whether neighbouring terms are neighbours in memory, not neighbouring rows or columns."""

    load: Callable[[Any, Any, Any], ScalarValue]
    by_terms: bool


def emit_grid_gemm(
    emit: GridLoops, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n]; operands are (array, batch, row and column strides)."""
    kind = c[0].shape.dtype

    def position(operand: MatrixOperand, index: Sequence[Any]) -> Any:
        array, *strides = operand
        found: Any = array.offset
        for i, stride in zip(index, strides, strict=True):
            found = found + i * stride
        return found

    def factor(operand: MatrixOperand, *, by_terms: bool) -> Factor:
        return Factor(lambda *index: emit.load(operand[0].pointer, position(operand, index), kind), by_terms)

    def store(value: ScalarValue, *index: Any) -> None:
        emit.store(c[0].pointer, position(c, index), value)

    left, right = factor(a, by_terms=a[3] == 1), factor(b, by_terms=b[2] == 1)
    _Products(emit, shape, kind, left, right, store).emit()


def emit_grid_run_products(emit: GridLoops, products: RunProducts) -> None:
    """See ops/support/emit.py."""
    kind, run = products.result.shape.dtype, products.run
    zero = emit.constant(0, kind)

    def left(_: Any, row: Any, term: Any) -> ScalarValue:
        position, inside = products.source(row, term // run)
        array: Any = products.lhs
        value = emit.load(array.pointer, array.offset + position + term % run, array.shape.dtype)
        value = emit.convert(value, kind) if array.shape.dtype is not kind else value
        return value if inside is None else emit.select(inside, value, zero)  # type: ignore[arg-type]

    def right(_: Any, term: Any, column: Any) -> ScalarValue:
        return products.weight(term // run, term % run, column)  # type: ignore[return-value]

    def store(value: ScalarValue, _: Any, row: Any, column: Any) -> None:
        target: Any = products.result
        emit.store(target.pointer, target.offset + products.target(row) + column, value)

    shape = 1, products.rows, products.columns, products.places * run
    _Products(emit, shape, kind, Factor(left, run > 1), Factor(right, False), store).emit()


class _Products:
    """shape: batch, rows, columns, terms.  store: a value at (batch, row, column)."""

    def __init__(
        self,
        emit: GridLoops,
        shape: tuple[int, int, int, int],
        kind: ElementType,
        left: Factor,
        right: Factor,
        store: Callable[..., None],
    ) -> None:
        self.emit_code, self.shape, self.kind = emit, shape, kind
        self.left, self.right, self.store = left, right, store

    def emit(self) -> None:
        _, m, n, k = self.shape
        if min(m, n, k) >= LEAST and not self.kind.is_complex and not self.emit_code.nests:
            self.emit_tiles()
        elif k >= LONG_SUM and self.left.by_terms and self.right.by_terms and not self.emit_code.nests:
            self.emit_lines()
        elif k >= LONG_SUM and n >= WARP and not self.right.by_terms and not self.emit_code.nests:
            self.emit_columns()
        else:
            self.emit_elements()

    def emit_elements(self) -> None:
        """One thread an element."""
        emit, (batch, m, n, k) = self.emit_code, self.shape
        with emit.loops((batch, m, n), independent=True) as (i, row, column):

            def step(index: Any, carried: tuple[ScalarValue, ...]) -> tuple[ScalarValue, ...]:
                factors = self.left.load(i, row, index[0]), self.right.load(i, index[0], column)
                return (self._add(carried[0], *factors),)

            (total,) = emit.fold((k,), (emit.constant(0, self.kind),), step)
            self.store(total, i, row, column)

    def emit_lines(self) -> None:
        """One block an element, where both factors have neighbouring terms side by side."""
        emit, (batch, m, n, k) = self.emit_code, self.shape
        with emit.blocks(batch * m * n) as number:
            index = self._element(number)
            self._sums().combine(k, lambda term: self._product(index, term), lambda total: self.store(total[0], *index))

    def emit_columns(self) -> None:
        """One block neighbouring elements of a row, whose factors lie side by side."""
        batch, m, n, k = self.shape
        self._sums().combine_lines(
            batch * m * n,
            k,
            lambda number, term: self._product(self._element(number), term),
            lambda number, total: self.store(total[0], *self._element(number)),
        )

    def _sums(self) -> BlockOfThreads:
        emit = self.emit_code
        return BlockOfThreads(emit, [self.kind], lambda x, y: [emit.binary("add", x[0], y[0])], free=True)

    def _element(self, number: IndexExpression) -> tuple[IndexExpression, IndexExpression, IndexExpression]:
        """The batch, row and column of an element of the result."""
        _, m, n, _ = self.shape
        return number // (m * n), number // n % m, number % n

    def _product(self, index: Sequence[IndexExpression], term: IndexExpression) -> list[ScalarValue]:
        i, row, column = index
        return [self.emit_code.binary("multiply", self.left.load(i, row, term), self.right.load(i, term, column))]

    def emit_tiles(self) -> None:
        """One block a tile, or several that take pieces of the sums.

        Runs of DEPTH terms go through shared memory; elements beyond the edges count as zeros.
        """
        emit, (batch, m, n, k) = self.emit_code, self.shape
        builder, zero = emit.builder, emit.constant(0, self.kind)
        grid = grid_of(builder)
        across, down, runs = -(-n // TILE), -(-m // TILE), -(-k // DEPTH)
        length = -(-runs // max(1, min(MANY_BLOCKS // (batch * down * across), k // LONG_PIECE)))
        pieces = -(-runs // length)
        parts = emit.scratch(Shape(self.kind, (pieces, batch, m, n))) if pieces > 1 else None
        with emit.blocks(pieces * batch * down * across, THREADS) as number:
            i, tile = number // (down * across) % batch, number % (down * across)
            piece = number // (batch * down * across)
            first_row, first_column = (tile // across) * TILE, (tile % across) * TILE
            left, right = SharedArray(emit, self.kind, TILE * DEPTH), SharedArray(emit, self.kind, TILE * DEPTH)
            thread = emit.wrap_index(grid.emit_thread(builder), 0, THREADS - 1)
            patch_row, patch_column = (thread // SIDE) * PATCH, (thread % SIDE) * PATCH
            totals = [[Slots(emit, [self.kind]) for _ in range(PATCH)] for _ in range(PATCH)]
            for slots in (slot for row in totals for slot in row):
                slots.store([zero])
            with emit.loops((length,)) as (run,):
                start = (piece * length + run) * DEPTH
                for part in range(TILE * DEPTH // THREADS):
                    place = thread + part * THREADS
                    # neighbouring threads load neighbours, whichever way the factor lies in memory
                    row, term = self._apart(place, by_terms=self.left.by_terms)
                    left.store(term * TILE + row, self._inside(self.left, i, (first_row + row, m), (start + term, k)))
                    column, term = self._apart(place, by_terms=self.right.by_terms)
                    found = self._inside(self.right, i, (start + term, k), (first_column + column, n))
                    right.store(term * TILE + column, found)
                grid.emit_barrier(builder)
                for step in range(DEPTH):
                    rows = [left.load(patch_row + (step * TILE + r)) for r in range(PATCH)]
                    columns = [right.load(patch_column + (step * TILE + c)) for c in range(PATCH)]
                    for own, x in zip(totals, rows):
                        for slots, y in zip(own, columns):
                            slots.store([self._add(slots.load()[0], x, y)])
                grid.emit_barrier(builder)  # the next run goes to the same places

            def store(value: ScalarValue, *index: Any) -> None:
                if parts is None:
                    self.store(value, *index)
                else:
                    parts.store((piece, *index), value)

            self._store_patch(i, (first_row + patch_row, first_column + patch_column), totals, store)
        if parts is not None:
            self._add_parts(parts, pieces)

    def _add_parts(self, parts: MemoryArray, pieces: int) -> None:
        """What several blocks have summed for an element, in the order of the terms."""
        emit, (batch, m, n, _) = self.emit_code, self.shape
        with emit.loops((batch, m, n), independent=True) as index:

            def step(piece: Any, carried: tuple[ScalarValue, ...]) -> tuple[ScalarValue, ...]:
                return (emit.binary("add", carried[0], parts.load((piece[0], *index))),)

            first = parts.load((0, *index))
            following = emit.fold((pieces - 1,), (first,), lambda k, carried: step((k[0] + 1,), carried))
            self.store(following[0], *index)

    def _apart(self, place: IndexExpression, *, by_terms: bool) -> tuple[IndexExpression, IndexExpression]:
        """The row or column, and the term, of an element of a factor's tile by its number."""
        return (place // DEPTH, place % DEPTH) if by_terms else (place % TILE, place // TILE)

    def _inside(self, factor: Factor, i: Any, *bounded: tuple[IndexExpression, int]) -> ScalarValue:
        """An element by (index, size) of both dimensions, 0 where it is beyond."""
        emit = self.emit_code
        index = [emit.index_clamp(0, position, size - 1) for position, size in bounded]
        value = factor.load(i, *index)
        for position, size in bounded:
            inside = emit.index_compare("LT", position, size)
            value = emit.select(inside, value, emit.constant(0, self.kind))
        return value

    def _store_patch(
        self, i: Any, first: tuple[Any, Any], totals: Sequence[Sequence[Slots]], store: Callable[..., None]
    ) -> None:
        emit, (_, m, n, _) = self.emit_code, self.shape
        for r, own in enumerate(totals):
            for column, slots in enumerate(own):
                at = first[0] + r, first[1] + column
                is_row, is_column = (emit.index_compare("LT", p, size) for p, size in zip(at, (m, n)))
                with emit.when(ScalarValue(PRED, emit.builder.and_(is_row.llvm, is_column.llvm))):
                    store(slots.load()[0], i, *at)

    def _add(self, total: ScalarValue, x: ScalarValue, y: ScalarValue) -> ScalarValue:
        emit = self.emit_code
        if self.kind in (F32, F64):
            return emit.multiply_add(x, y, total)
        return emit.binary("add", total, emit.binary("multiply", x, y))


__all__ = ["emit_grid_gemm", "emit_grid_run_products"]
