"""Sums of products with register-sized tiles of the result, for convolutions and integer matrix products.

A tile is a few rows by a few vectors of columns, which stay in registers while the code walks over places and runs. A
step of it loads a vector or more of weights and multiplies them with one element of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

from llvmlite import ir

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import BufferEmitter
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_expression import float_constant, suffix
from distxla.compiler.lower.scalar_value import memory_type
from distxla.emit.native_function import I1, I32, I64, POINTER, VOID, declared
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import RunProducts
from distxla.targets.code import target_of
from distxla.targets.processor import Processor


@dataclass(frozen=True)
class Tile:
    """rows by vectors of `lanes` columns; `blocks` of them cover all columns."""

    rows: int
    vectors: int
    lanes: int
    blocks: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def choose_tile(processor: Processor, rows: int, columns: int, element_bytes: int) -> Tile:
    """The tile that wastes least of its registers."""
    lanes = processor.vector_bytes // element_bytes
    wanted = -(-columns // lanes)
    blocks = -(-wanted // max(processor.tile_rows))
    vectors = -(-wanted // blocks)
    most = processor.tile_rows[vectors]
    # the tiles of the last rows compute some of them twice: as few as possible
    best = min(range(max(1, (most + 1) // 2), most + 1), key=lambda r: (-(-rows // r) * (r + 1.0), -r))
    return Tile(min(best, rows), vectors, lanes, blocks)


def reads_in_place(processor: Processor, columns: int, steps: int, stride: int, element_bytes: int) -> bool:
    """Whether weights with rows `stride` elements apart are used where they are.

    That takes whole vectors, and rows that are not too far apart to stay in the cache beside each other.
    """
    tile = choose_tile(processor, 1, columns, element_bytes)
    whole = columns % tile.columns == 0
    return whole and (tile.blocks == 1 or steps * stride * element_bytes <= processor.weight_bytes)


def emit_run_products(emit: BufferEmitter, products: RunProducts) -> None:
    """See ops/support/emit.py's `RunProducts`."""
    processor = target_of(emit.builder).processor
    tile = choose_tile(processor, products.rows, products.columns, products.result.shape.dtype.byte_size)
    _RunProducts(emit, products, tile).emit_code()


class _RunProducts:
    def __init__(self, emit: BufferEmitter, products: RunProducts, tile: Tile) -> None:
        self.emit = emit
        self.builder = emit.builder
        self.processor = target_of(emit.builder).processor
        self.products = products
        # ops/support/emit.py speaks of protocols, whose implementation here takes its own classes only
        self.source: Any = products.source
        self.weight: Any = products.weight
        self.target: Any = products.target
        self.tile = tile
        self.lhs = cast(MemoryArray, products.lhs)
        self.result = cast(MemoryArray, products.result)
        self.element_type = self.result.shape.dtype
        self.scalar = memory_type(self.element_type)
        self.vector = ir.VectorType(self.scalar, tile.lanes)
        self.partial = products.columns % tile.columns != 0
        chunk_bytes = products.run * tile.columns * self.element_type.byte_size
        self.chunk = min(products.places, max(1, self.processor.weight_bytes // chunk_bytes))
        self.chunks = -(-products.places // self.chunk)

    def emit_code(self) -> None:
        emit, products, tile = self.emit, self.products, self.tile
        weights, first, block_stride, step_stride = self._weights()
        self.zeros = self._zeros()
        sums = [[emit.stack_slot(self.vector) for _ in range(tile.vectors)] for _ in range(tile.rows)]
        tiles = -(-products.rows // tile.rows)
        panel = self._panel(tiles)
        panels = -(-tiles // panel)
        with emit.loops([self.chunks, panels, tile.blocks, panel]) as (chunk, outer, block, inner):
            number = outer * panel + inner
            whole = tiles % panel == 0
            with nullcontext() if whole else emit.when(emit.index_compare("LT", number, tiles)):
                self._emit_tile(sums, number, block, chunk, (weights, first + block * block_stride, step_stride))

    def _emit_tile(
        self,
        sums: Sequence[Sequence[ir.Value]],
        number: IndexExpression,
        block: IndexExpression,
        chunk: IndexExpression,
        matrix: tuple[MemoryArray, Any, int],
    ) -> None:
        """Sum, add the stored sums of the chunks before, store. The last rows of the last tile may be the same row."""
        emit, tile = self.emit, self.tile
        rows = [emit.index_clamp(0, number * tile.rows + r, self.products.rows - 1) for r in range(tile.rows)]
        for row_sums in sums:
            for slot in row_sums:
                self.builder.store(self._zero(), slot)
        self._add_places(sums, rows, chunk, matrix)
        targets = [self._target(row, block) for row in rows]
        if self.chunks > 1:
            with emit.when(emit.index_compare("GT", chunk, 0)):
                self._add_stored(sums, targets, block)
        for row_sums, address in zip(sums, targets):
            for k, slot in enumerate(row_sums):
                self._store(self.builder.load(slot, typ=self.vector), address, block, k)

    def _panel(self, tiles: int) -> int:
        """Tiles whose rows stay in the cache while all blocks of columns go over them; panels are about equal."""
        if self.tile.blocks == 1:
            return tiles
        row_bytes = self.chunk * self.products.run * self.element_type.byte_size
        most = max(1, self.processor.panel_bytes // (row_bytes * self.tile.rows))
        return -(-tiles // -(-tiles // most))

    # --- weights ------------------------------------------------------------------------------------------------

    def _weights(self) -> tuple[MemoryArray, IndexExpression | int, int, int]:
        """Where the matrix is: an array, a position, strides of blocks and of steps; columns are padded to blocks."""
        emit, products, tile = self.emit, self.products, self.tile
        steps = products.places * products.run
        if products.weights_in_place is not None:
            buffer, position, stride = products.weights_in_place
            if reads_in_place(self.processor, products.columns, steps, stride, self.element_type.byte_size):
                return cast(MemoryArray, buffer), cast(Any, position), tile.columns, stride
        copy = emit.scratch(Shape(self.element_type, (tile.blocks, products.places, products.run, tile.columns)))
        last = products.columns - (tile.blocks - 1) * tile.columns
        inner = (products.places, products.run)
        for first, blocks, columns in ((0, tile.blocks - 1, tile.columns), (tile.blocks - 1, 1, last)):
            if blocks == 0:
                continue
            with emit.loops((blocks, *inner, columns), parallel=True) as (block, place, step, column):
                number = block + first
                copy.store((number, place, step, column), self.weight(place, step, number * tile.columns + column))
        if last != tile.columns:
            zero = emit.constant(0, self.element_type)
            with emit.loops((*inner, tile.columns - last)) as (place, step, column):
                copy.store((tile.blocks - 1, place, step, column + last), zero)
        return copy, 0, steps * tile.columns, tile.columns

    def _zeros(self) -> ir.Value:
        """A run of zeros, used where a predicate doesn't hold."""
        zeros = self.emit.scratch(Shape(self.element_type, (self.products.run,)))
        self.emit.fill(zeros, self.emit.constant(0, self.element_type))
        return zeros.pointer

    # --- a tile -------------------------------------------------------------------------------------------------

    def _add_places(
        self,
        sums: Sequence[Sequence[ir.Value]],
        rows: Sequence[IndexExpression],
        chunk: IndexExpression,
        matrix: tuple[MemoryArray, Any, int],
    ) -> None:
        """Add the products of this chunk's places to the sums."""
        emit, products = self.emit, self.products
        whole = products.places % self.chunk == 0
        with emit.loops([self.chunk]) as (within,):
            place = chunk * self.chunk + within
            inside = nullcontext() if whole else emit.when(emit.index_compare("LT", place, products.places))
            with inside:
                bounded = place if whole else emit.index_clamp(0, place, products.places - 1)
                runs = [self._run(row, bounded) for row in rows]
                weights, position, stride = matrix
                start = position + weights.offset + bounded * (products.run * stride)
                base = emit.element_pointer(weights.pointer, start, self.element_type)
                with emit.loops([products.run]) as (step,):
                    self._add_step(sums, runs, base, step, stride)

    def _run(self, row: IndexExpression, place: IndexExpression) -> ir.Value:
        """The address of the run that a row meets at a place."""
        emit = self.emit
        position, inside = self.source(row, place)
        address = emit.element_pointer(self.lhs.pointer, position + self.lhs.offset, self.element_type)
        if inside is None:
            return address
        return self.builder.select(inside.llvm, address, self.zeros)

    def _add_step(
        self,
        sums: Sequence[Sequence[ir.Value]],
        runs: Sequence[ir.Value],
        base: ir.Value,
        step: IndexExpression,
        stride: int,
    ) -> None:
        builder, emit = self.builder, self.emit
        weights = [
            builder.load(
                emit.element_pointer(base, step * stride + k * self.tile.lanes, self.element_type),
                typ=self.vector,
                align=self.element_type.byte_size,
            )
            for k in range(self.tile.vectors)
        ]
        for row_sums, run in zip(sums, runs):
            address = emit.element_pointer(run, step, self.element_type)
            element = self._broadcast(builder.load(address, typ=self.scalar))
            for slot, weight in zip(row_sums, weights):
                builder.store(self._multiply_add(element, weight, builder.load(slot, typ=self.vector)), slot)

    def _multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        builder = self.builder
        if not self.element_type.is_float:
            return builder.add(builder.mul(a, b), c)
        name = f"llvm.fma.v{self.tile.lanes}{suffix(self.scalar)}"
        return builder.call(declared(builder.module, name, self.vector, [self.vector] * 3), [a, b, c])

    def _broadcast(self, scalar: ir.Value) -> ir.Value:
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, self.tile.lanes), None))

    # --- the result ---------------------------------------------------------------------------------------------

    def _target(self, row: IndexExpression, block: IndexExpression) -> ir.Value:
        position = self.target(row)
        start = position + self.result.offset + block * self.tile.columns
        return self.emit.element_pointer(self.result.pointer, start, self.element_type)

    def _zero(self) -> ir.Value:
        lane = float_constant(self.scalar, 0.0) if self.element_type.is_float else ir.Constant(self.scalar, 0)
        return ir.Constant(self.vector, [lane] * self.tile.lanes)

    def _add_stored(
        self, sums: Sequence[Sequence[ir.Value]], targets: Sequence[ir.Value], block: IndexExpression
    ) -> None:
        """Add the sums that the chunks before have stored."""
        builder = self.builder
        add = builder.fadd if self.element_type.is_float else builder.add
        for row_sums, address in zip(sums, targets):
            for k, slot in enumerate(row_sums):
                builder.store(add(builder.load(slot, typ=self.vector), self._load(address, block, k)), slot)

    def _load(self, address: ir.Value, block: IndexExpression, k: int) -> ir.Value:
        place = self._vector_address(address, k)
        if not self.partial:
            return self.builder.load(place, typ=self.vector, align=self.element_type.byte_size)
        mask = self._mask(block, k)
        name = f"llvm.masked.load.v{self.tile.lanes}{suffix(self.scalar)}.p0"
        function = declared(self.builder.module, name, self.vector, [POINTER, I32, mask.type, self.vector])
        return self.builder.call(function, [place, ir.Constant(I32, self.element_type.byte_size), mask, self._zero()])

    def _store(self, value: ir.Value, address: ir.Value, block: IndexExpression, k: int) -> None:
        place = self._vector_address(address, k)
        if not self.partial:
            self.builder.store(value, place, align=self.element_type.byte_size)
            return
        mask = self._mask(block, k)
        name = f"llvm.masked.store.v{self.tile.lanes}{suffix(self.scalar)}.p0"
        function = declared(self.builder.module, name, VOID, [self.vector, POINTER, I32, mask.type])
        self.builder.call(function, [value, place, ir.Constant(I32, self.element_type.byte_size), mask])

    def _vector_address(self, address: ir.Value, k: int) -> ir.Value:
        return self.emit.element_pointer(address, k * self.tile.lanes, self.element_type)

    def _mask(self, block: IndexExpression, k: int) -> ir.Value:
        """Which lanes of the block's k-th vector are columns of the result."""
        builder, lanes = self.builder, self.tile.lanes
        left = builder.sub(
            ir.Constant(I64, self.products.columns), self.emit.i64(block * self.tile.columns + k * lanes)
        )
        kind = ir.VectorType(I64, lanes)
        undefined = ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(undefined, left, ir.Constant(I32, 0))
        limit = builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, lanes), None))
        mask = builder.icmp_signed("<", ir.Constant(kind, [ir.Constant(I64, i) for i in range(lanes)]), limit)
        assert mask.type == ir.VectorType(I1, lanes)
        return mask
