"""What the threads of a block do with a tile of products: each a patch of its own, or warps by matrix units.

Both take the tile's factors from shared memory, DEPTH terms or words of them at a time, and keep the sums in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from llvmlite import ir

from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.shared_array import SharedArray
from distxla.compiler.lower.grid.warps import WARP
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.reduction import Slots
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.element_type import F32, F64, ElementType
from distxla.targets.grid import MatrixUnit
from distxla.targets.grid_module import grid_of

SIZE = 64  # rows and columns of a tile
THREADS = 256  # of its block
PATCH = 4  # rows and columns of a thread's patch
SIDE = SIZE // PATCH  # threads along either side of a tile
LINE = SIZE + PATCH  # elements between terms in shared memory, so that a warp's stores are spread over its banks
WARP_ROWS, WARP_COLUMNS = 16, 32  # of the tile's part that a warp computes by matrix units
WARPS_DOWN = SIZE // WARP_ROWS
DEPTH = 16  # terms, or words of terms for matrix units, between barriers
PADDING = 4  # words (MatrixUnit.word_terms) between rows there, so that a warp's loads are of different banks

Sum = tuple[IndexExpression, IndexExpression, ScalarValue]  # row and column in the tile


class Tile(Protocol):
    """The work of one thread. `put_*` go to shared memory, which a barrier completes before `multiply`.

    factors: the type of what is put.
    """

    factors: ElementType

    def put_left(self, row: IndexExpression, term: IndexExpression, value: ScalarValue) -> None: ...
    def put_right(self, term: IndexExpression, column: IndexExpression, value: ScalarValue) -> None: ...
    def multiply(self) -> None:
        """Add the products of what was put to the sums."""

    def sums(self) -> Iterator[Sum]:
        """Those of this thread."""


class Patches:
    """A thread computes PATCH x PATCH sums by itself, of any type."""

    def __init__(self, emit: GridLoops, kind: ElementType, thread: IndexExpression) -> None:
        self.factors = kind
        self._emit = emit
        self._left, self._right = (SharedArray(emit, kind, LINE * DEPTH) for _ in range(2))
        self._row, self._column = (thread // SIDE) * PATCH, (thread % SIDE) * PATCH
        self._totals = [[Slots(emit, [kind]) for _ in range(PATCH)] for _ in range(PATCH)]
        for slots in (slot for row in self._totals for slot in row):
            slots.store([emit.constant(0, kind)])

    def put_left(self, row: IndexExpression, term: IndexExpression, value: ScalarValue) -> None:
        self._left.store(term * LINE + row, value)

    def put_right(self, term: IndexExpression, column: IndexExpression, value: ScalarValue) -> None:
        self._right.store(term * LINE + column, value)

    def multiply(self) -> None:
        for step in range(DEPTH):
            rows = self._left.load_neighbours(self._row + step * LINE, PATCH)
            columns = self._right.load_neighbours(self._column + step * LINE, PATCH)
            for own, x in zip(self._totals, rows):
                for slots, y in zip(own, columns):
                    slots.store([added(self._emit, slots.load()[0], x, y)])

    def sums(self) -> Iterator[Sum]:
        for r, own in enumerate(self._totals):
            for c, slots in enumerate(own):
                yield self._row + r, self._column + c, slots.load()[0]


class MatrixUnits:
    """Each warp multiplies WARP_ROWS rows with WARP_COLUMNS columns, by a unit that the target has for the factors."""

    def __init__(self, emit: GridLoops, factors: ElementType, unit: MatrixUnit, thread: IndexExpression) -> None:
        self.factors = factors
        self._emit, self._unit = emit, unit
        self._stride = (DEPTH + PADDING) * unit.word_terms
        self._left, self._right = (SharedArray(emit, factors, SIZE * self._stride) for _ in range(2))
        warp, lane = thread // WARP, thread % WARP
        self._row, self._column = warp % WARPS_DOWN * WARP_ROWS, warp // WARPS_DOWN * WARP_COLUMNS
        self._group, self._place = lane // 4, lane % 4
        kinds = [unit.sums] * len(unit.sum_offsets)
        self._totals = {
            (down, across): Slots(emit, kinds)
            for down in range(0, WARP_ROWS, unit.rows)
            for across in range(0, WARP_COLUMNS, unit.columns)
        }
        for slots in self._totals.values():
            slots.store([emit.constant(0, unit.sums)] * len(kinds))

    def put_left(self, row: IndexExpression, term: IndexExpression, value: ScalarValue) -> None:
        self._left.store(row * self._stride + term, value)

    def put_right(self, term: IndexExpression, column: IndexExpression, value: ScalarValue) -> None:
        self._right.store(column * self._stride + term, value)

    def multiply(self) -> None:
        builder, unit = self._emit.builder, self._unit
        grid = grid_of(builder)
        first_row, first_column = self._row + self._group, self._column + self._group
        for step in range(0, DEPTH * unit.word_terms, unit.terms):
            lefts = {
                down: [self._word(self._left, first_row + (down + by), step + on) for by, on in unit.left_offsets]
                for down in range(0, WARP_ROWS, unit.rows)
            }
            rights = {
                across: [self._word(self._right, first_column + across, step + on) for on in unit.right_offsets]
                for across in range(0, WARP_COLUMNS, unit.columns)
            }
            for (down, across), slots in self._totals.items():
                before = [value.llvm for value in slots.load()]
                after = grid.emit_matrix_product(builder, self.factors, lefts[down], rights[across], before)
                slots.store([ScalarValue(unit.sums, register) for register in after])

    def _word(self, array: SharedArray, line: IndexExpression, term: int) -> ir.Value:
        """This lane's word of a row or column, by the first term of the step's words."""
        place = line * self._stride + (self._place * self._unit.word_terms + term)
        return array.load_word(place) if self._unit.word_terms == 2 else array.load(place).llvm

    def sums(self) -> Iterator[Sum]:
        for (down, across), slots in self._totals.items():
            for (by, aside), value in zip(self._unit.sum_offsets, slots.load(), strict=True):
                row = self._row + self._group + (down + by)
                yield row, self._column + self._place * 2 + (across + aside), value


def added(emit: GridLoops, total: ScalarValue, x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """total + x * y, of f32 and f64 rounded once."""
    if total.element_type in (F32, F64):
        return emit.multiply_add(x, y, total)
    return emit.binary("add", total, emit.binary("multiply", x, y))


__all__ = ["SIZE", "THREADS", "MatrixUnits", "Patches", "Tile", "added"]
