"""What the threads of a block do with a tile of products: each a patch of its own, or warps by matrix units.

Both take the tile's factors from shared memory, `depth` terms at a time, and keep the sums in registers.
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
from distxla.targets.grid_module import grid_of

SIZE = 64  # rows and columns of a tile
THREADS = 256  # of its block
PATCH = 4  # rows and columns of a thread's patch
SIDE = SIZE // PATCH  # threads along either side of a tile
ROWS, COLUMNS, TERMS = 16, 8, 16  # of what a matrix unit multiplies at once
WARPS_DOWN = SIZE // ROWS
UNITS_ACROSS = SIZE * WARPS_DOWN * WARP // THREADS // COLUMNS  # that a warp computes one after the other
PADDING = 8  # elements between rows in shared memory, so that a warp's reads are of different banks

Sum = tuple[IndexExpression, IndexExpression, ScalarValue]  # row and column in the tile


class Tile(Protocol):
    """The work of one thread. `put_*` go to shared memory, which a barrier completes before `multiply`.

    factors: the type of what is put.  depth: the terms for which there is room.
    """

    factors: ElementType
    depth: int

    def put_left(self, row: IndexExpression, term: IndexExpression, value: ScalarValue) -> None: ...
    def put_right(self, term: IndexExpression, column: IndexExpression, value: ScalarValue) -> None: ...
    def multiply(self) -> None:
        """Add the products of what was put to the sums."""

    def sums(self) -> Iterator[Sum]:
        """Those of this thread."""


class Patches:
    """A thread computes PATCH x PATCH sums by itself, of any type."""

    depth = 16

    def __init__(self, emit: GridLoops, kind: ElementType, thread: IndexExpression) -> None:
        self.factors = kind
        self._emit = emit
        self._left, self._right = (SharedArray(emit, kind, SIZE * self.depth) for _ in range(2))
        self._row, self._column = (thread // SIDE) * PATCH, (thread % SIDE) * PATCH
        self._totals = [[Slots(emit, [kind]) for _ in range(PATCH)] for _ in range(PATCH)]
        for slots in (slot for row in self._totals for slot in row):
            slots.store([emit.constant(0, kind)])

    def put_left(self, row: IndexExpression, term: IndexExpression, value: ScalarValue) -> None:
        self._left.store(term * SIZE + row, value)

    def put_right(self, term: IndexExpression, column: IndexExpression, value: ScalarValue) -> None:
        self._right.store(term * SIZE + column, value)

    def multiply(self) -> None:
        for step in range(self.depth):
            rows = [self._left.load(self._row + (step * SIZE + r)) for r in range(PATCH)]
            columns = [self._right.load(self._column + (step * SIZE + c)) for c in range(PATCH)]
            for own, x in zip(self._totals, rows):
                for slots, y in zip(own, columns):
                    slots.store([added(self._emit, slots.load()[0], x, y)])

    def sums(self) -> Iterator[Sum]:
        for r, own in enumerate(self._totals):
            for c, slots in enumerate(own):
                yield self._row + r, self._column + c, slots.load()[0]


class MatrixUnits:
    """Each warp multiplies ROWS rows with UNITS_ACROSS times COLUMNS columns; sums of 16-bit floats in f32.

    Which elements a lane gives and gets is PTX's `mma.m16n8k16`: neighbouring terms, two in a word.
    """

    depth = 2 * TERMS

    def __init__(self, emit: GridLoops, factors: ElementType, thread: IndexExpression) -> None:
        self.factors = factors
        self._emit = emit
        self._left, self._right = (SharedArray(emit, factors, SIZE * self._stride) for _ in range(2))
        warp, lane = thread // WARP, thread % WARP
        self._row, self._column = warp % WARPS_DOWN * ROWS, warp // WARPS_DOWN * (UNITS_ACROSS * COLUMNS)
        self._group, self._pair = lane // 4, lane % 4 * 2
        self._totals = [Slots(emit, [F32] * 4) for _ in range(UNITS_ACROSS)]
        for slots in self._totals:
            slots.store([emit.constant(0, F32)] * 4)

    @property
    def _stride(self) -> int:
        return self.depth + PADDING

    def put_left(self, row: IndexExpression, term: IndexExpression, value: ScalarValue) -> None:
        self._left.store(row * self._stride + term, value)

    def put_right(self, term: IndexExpression, column: IndexExpression, value: ScalarValue) -> None:
        self._right.store(column * self._stride + term, value)

    def multiply(self) -> None:
        builder = self._emit.builder
        grid = grid_of(builder)
        for step in range(0, self.depth, TERMS):
            first = self._row + self._group
            left = [self._pair_of(self._left, first + down, step + on) for on in (0, 8) for down in (0, 8)]
            for number, slots in enumerate(self._totals):
                column = self._column + self._group + number * COLUMNS
                right = [self._pair_of(self._right, column, step + on) for on in (0, 8)]
                before = [value.llvm for value in slots.load()]
                after = grid.emit_matrix_product(builder, self.factors, left, right, before)
                slots.store([ScalarValue(F32, register) for register in after])

    def _pair_of(self, array: SharedArray, line: IndexExpression, term: int) -> ir.Value:
        """The terms `term` + the lane's pair of a row or column, in a word."""
        return array.load_word(line * self._stride + self._pair + term)

    def sums(self) -> Iterator[Sum]:
        for number, slots in enumerate(self._totals):
            for place, value in enumerate(slots.load()):
                row = self._row + self._group + place // 2 * 8
                yield row, self._column + self._pair + (number * COLUMNS + place % 2), value


def added(emit: GridLoops, total: ScalarValue, x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """total + x * y, of f32 and f64 rounded once."""
    if total.element_type in (F32, F64):
        return emit.multiply_add(x, y, total)
    return emit.binary("add", total, emit.binary("multiply", x, y))


__all__ = ["SIZE", "THREADS", "MatrixUnits", "Patches", "Tile", "added"]
