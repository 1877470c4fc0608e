"""Sums of products on a grid: blocks a tile of the result, a block an element, or one thread an element.

The order of an element's terms depends on the sizes alone: where a block computes an element, its threads take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import MatrixOperand
from distxla.compiler.lower.grid.block_of_threads import BlockOfThreads
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.tiles import DEPTH, SIZE, THREADS, MatrixUnits, Patches, Tile, added
from distxla.compiler.lower.grid.warps import WARP
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import RunProducts
from distxla.program.artifact import Factor, MatrixProduct
from distxla.targets.grid import MatrixUnit
from distxla.targets.grid_module import grid_of

MANY_BLOCKS = 256  # that fill the device
LONG_PIECE = 512  # terms of a tile that are worth a block of their own where there are few tiles
LONG_SUM = 256  # terms that are worth a block
LEAST = 32  # rows, columns and terms from which on tiles have work for most threads
LEAST_FOR_LIBRARY = 1 << 24  # multiplications; a call of cuBLAS takes 13 us, in which tiles do about as many


@dataclass(frozen=True)
class _Side:
    """One side of the products. load: an element, by batch, row and term, or batch, term and column.
    kind: its type.  by_terms: whether neighbouring terms are neighbours in memory, not neighbouring rows or columns."""

    load: Callable[[Any, Any, Any], ScalarValue]
    kind: ElementType
    by_terms: bool


def emit_grid_gemm(
    emit: GridLoops, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n]; operands are (array, batch, row and column strides)."""

    def position(operand: MatrixOperand, index: Sequence[Any]) -> Any:
        array, *strides = operand
        found: Any = array.offset
        for i, stride in zip(index, strides, strict=True):
            found = found + i * stride
        return found

    def factor(operand: MatrixOperand, *, by_terms: bool) -> _Side:
        array, kind = operand[0], operand[0].shape.dtype
        return _Side(lambda *index: emit.load(array.pointer, position(operand, index), kind), kind, by_terms)

    def store(value: ScalarValue, *index: Any) -> None:
        emit.store(c[0].pointer, position(c, index), value)

    left, right = factor(a, by_terms=a[3] == 1), factor(b, by_terms=b[2] == 1)
    _Products(emit, shape, c[0].shape.dtype, left, right, store).emit()


def matrix_product(
    emit: GridLoops, first: int, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> MatrixProduct | None:
    """What the launches from number `first` on have computed; None where no library should: where it is small, and
    where places aren't known before the kernel runs."""
    if min(shape[1:]) < LEAST or prod(shape) < LEAST_FOR_LIBRARY or not emit.is_outermost:
        return None
    factors = []
    for array, batch, row, column in (a, b, c):
        place = emit.place_of(array)
        if place is None or 1 not in (row, column):
            return None
        factors.append(Factor(array.shape.dtype, *place, batch, row, column))
    return MatrixProduct(first, len(emit.launches) - first, shape, *factors) if c[3] == 1 else None


def emit_grid_run_products(emit: GridLoops, products: RunProducts) -> None:
    """See ops/support/emit.py."""
    run, of_left = products.run, products.lhs.shape.dtype
    zero = emit.constant(0, of_left)

    def left(_: Any, row: Any, term: Any) -> ScalarValue:
        position, inside = products.source(row, term // run)
        array: Any = products.lhs
        value = emit.load(array.pointer, array.offset + position + term % run, of_left)
        return value if inside is None else emit.select(inside, value, zero)  # type: ignore[arg-type]

    def right(_: Any, term: Any, column: Any) -> ScalarValue:
        return products.weight(term // run, term % run, column)  # type: ignore[return-value]

    def store(value: ScalarValue, _: Any, row: Any, column: Any) -> None:
        target: Any = products.result
        emit.store(target.pointer, target.offset + products.target(row) + column, value)

    shape = 1, products.rows, products.columns, products.places * run
    factors = _Side(left, of_left, run > 1), _Side(right, products.weights, False)
    _Products(emit, shape, products.result.shape.dtype, *factors, store).emit()


class _Products:
    """shape: batch, rows, columns, terms.  kind: of the sums.  store: a value at (batch, row, column)."""

    def __init__(
        self,
        emit: GridLoops,
        shape: tuple[int, int, int, int],
        kind: ElementType,
        left: _Side,
        right: _Side,
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
                return (added(emit, carried[0], *self._factors((i, row, column), index[0])),)

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
        return [self.emit_code.binary("multiply", *self._factors(index, term))]

    def _factors(self, index: Sequence[Any], term: Any) -> tuple[ScalarValue, ScalarValue]:
        """Of a term of an element, in the type of the sums."""
        i, row, column = index
        factors = self.left.load(i, row, term), self.right.load(i, term, column)
        left, right = (self._converted(factor, self.kind) for factor in factors)
        return left, right

    def _converted(self, value: ScalarValue, kind: ElementType) -> ScalarValue:
        return value if value.element_type is kind else self.emit_code.convert(value, kind)

    def emit_tiles(self) -> None:
        """One block a tile, or several that take pieces of the sums.

        Elements beyond the edges count as zeros.
        """
        emit, (batch, m, n, k) = self.emit_code, self.shape
        builder = emit.builder
        grid = grid_of(builder)
        unit = self._matrix_unit()
        depth = DEPTH if unit is None else DEPTH * unit.word_terms
        across, down, runs = -(-n // SIZE), -(-m // SIZE), -(-k // depth)
        length = -(-runs // max(1, min(MANY_BLOCKS // (batch * down * across), k // LONG_PIECE)))
        pieces = -(-runs // length)
        parts = emit.scratch(Shape(self.kind, (pieces, batch, m, n))) if pieces > 1 else None
        with emit.blocks(pieces * batch * down * across, THREADS) as number:
            i, block = number // (down * across) % batch, number % (down * across)
            piece = number // (batch * down * across)
            first_row, first_column = (block // across) * SIZE, (block % across) * SIZE
            thread = emit.wrap_index(grid.emit_thread(builder), 0, THREADS - 1)
            tile: Tile = (
                Patches(emit, self.kind, thread) if unit is None else MatrixUnits(emit, self.left.kind, unit, thread)
            )
            with emit.loops((length,)) as (run,):
                start = (piece * length + run) * depth
                for part in range(SIZE * depth // THREADS):
                    place = thread + part * THREADS
                    # neighbouring threads load neighbours, whichever way the factor lies in memory
                    row, term = _apart(place, depth, by_terms=self.left.by_terms)
                    left = self._inside(self.left, i, (first_row + row, m), (start + term, k))
                    tile.put_left(row, term, self._converted(left, tile.factors))
                    column, term = _apart(place, depth, by_terms=self.right.by_terms)
                    right = self._inside(self.right, i, (start + term, k), (first_column + column, n))
                    tile.put_right(term, column, self._converted(right, tile.factors))
                grid.emit_barrier(builder)
                tile.multiply()
                grid.emit_barrier(builder)  # the next run goes to the same places
            for row, column, total in tile.sums():
                at = first_row + row, first_column + column
                is_row, is_column = (emit.index_compare("LT", p, size) for p, size in zip(at, (m, n)))
                with emit.when(emit.binary("and", is_row, is_column)):
                    if parts is None:
                        self.store(total, i, *at)
                    else:
                        parts.store((piece, i, *at), total)
        if parts is not None:
            self._add_parts(parts, pieces)

    def _matrix_unit(self) -> MatrixUnit | None:
        """The target's for these factors and sums."""
        unit = grid_of(self.emit_code.builder).matrix_unit(self.left.kind)
        return unit if unit is not None and unit.sums is self.kind and self.left.kind is self.right.kind else None

    def _add_parts(self, parts: MemoryArray, pieces: int) -> None:
        """What several blocks have summed for an element, in the order of the terms."""
        emit, (batch, m, n, _) = self.emit_code, self.shape
        with emit.loops((batch, m, n), independent=True) as index:

            def step(piece: Any, carried: tuple[ScalarValue, ...]) -> tuple[ScalarValue, ...]:
                return (emit.binary("add", carried[0], parts.load((piece[0], *index))),)

            first = parts.load((0, *index))
            following = emit.fold((pieces - 1,), (first,), lambda k, carried: step((k[0] + 1,), carried))
            self.store(following[0], *index)

    def _inside(self, factor: _Side, i: Any, *bounded: tuple[IndexExpression, int]) -> ScalarValue:
        """An element by (index, size) of both dimensions, 0 where it is beyond."""
        emit = self.emit_code
        index = [emit.index_clamp(0, position, size - 1) for position, size in bounded]
        value = factor.load(i, *index)
        for position, size in bounded:
            inside = emit.index_compare("LT", position, size)
            value = emit.select(inside, value, emit.constant(0, factor.kind))
        return value


def _apart(place: IndexExpression, depth: int, *, by_terms: bool) -> tuple[IndexExpression, IndexExpression]:
    """The row or column, and the term, of an element of a factor's tile by its number."""
    return (place // depth, place % depth) if by_terms else (place % SIZE, place // SIZE)


__all__ = ["emit_grid_gemm", "emit_grid_run_products", "matrix_product"]
