"""`GridLoops`: an op's loops and stores on a grid. Decides what runs in which launch, and what has no form for a grid.

The function is run by every launch of its kernel, with a number as argument that says which segment of the code the
launch runs, and how often it ran before (`rounds`). By it LLVM throws out what belongs to other segments:

    code in no nest                run again by every thread of every launch, as far as a launch needs its values;
                                   its stores to memory are made by one launch of one thread
    a nest of any order            a launch of its own, one iteration a thread
    a nest of a fixed order        run by one thread, as code in no nest is

A value that is read in no nest from memory that the kernel itself writes would be read again by later launches, when it
may be another one: such kernels have no form for a grid, as have calls of libraries and scratch memory that different
iterations of a nest would share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from llvmlite import ir

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.grid.launches import BLOCK, blocks_of
from distxla.compiler.lower.index import IndexCode, IndexExpression
from distxla.compiler.lower.kernels import KernelEmitter
from distxla.compiler.lower.loops import Nest
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.emit.native_function import I32, I64
from distxla.ir.element_type import PRED, U8, U16, U32, U64, ElementType
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.program.artifact import MatrixProduct
from distxla.targets.grid_module import grid_of

MOST_ALONE = 1 << 12  # iterations that a single thread may run: a kernel of the host is faster from there on
ROUND_SHIFT = 16  # bits of a launch's number that are its segment's; the others are the round's
BeginGrid = Callable[[], tuple[ir.Value, ir.Value, ir.Value]]
WORDS = {8: U64, 4: U32, 2: U16, 1: U8}


class NoGridFormError(Exception):
    """Why a kernel cannot be run on a grid."""


class GridNest(Nest):
    """A loop nest whose iterations are spread over all threads of a launch.

    One loop over all iterations: each thread begins with its number and walks on in steps of all threads.

    begin: emits (whether this launch runs the nest, this thread's number in the grid, number of threads) where the
    loop begins.
    """

    def __init__(
        self,
        code: IndexCode,
        dimension_sizes: Sequence[int],
        ranges: Sequence[tuple[int, int]] | None,
        begin: BeginGrid,
    ) -> None:
        super().__init__(code, dimension_sizes, ranges=ranges, parallel=True)
        self._begin = begin

    @property
    def iterations(self) -> int:
        return prod(end - first for first, end in self.ranges)

    @property
    def walked(self) -> tuple[int, ...]:
        """The dimensions with more than one index."""
        return tuple(self._walked)

    def close(self) -> None:
        builder, (body, end, done) = self.builder, self._leave_body()
        header = builder.append_basic_block("grid")
        runs = self._partition()
        total = ir.Constant(I64, self.iterations)
        is_run, first, step = self._begin()
        builder.cbranch(builder.and_(is_run, builder.icmp_unsigned("<", first, total)), header, done)
        before = builder.block
        builder.position_at_end(header)
        flat = builder.phi(I64, "flat")
        flat.add_incoming(first, before)
        values, rest = {}, flat
        for number in reversed(range(len(runs))):
            low, high = self._bounds(*runs[number])
            length = ir.Constant(I64, high - low)
            value = builder.urem(rest, length) if number else rest
            rest = builder.udiv(rest, length) if number else rest
            values[runs[number][0]] = builder.add(value, ir.Constant(I64, low), flags=("nuw", "nsw")) if low else value
        builder.branch(body)
        self._resolve(runs, values)
        builder.position_at_end(end)
        following = builder.add(flat, step, flags=("nuw", "nsw"))
        flat.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, total), header, done)
        builder.position_at_end(done)


class GridLoops(KernelEmitter):
    """A `KernelEmitter` whose independent loops are spread over threads.

    number: the function's argument that says which segment runs, and in its upper half in which round.  read_only:
    pointers to arrays that the kernel does not write.  arrays: pointers to its operands and results.  launches:
    (number, blocks, threads) of each, in their order.  products: as of LaunchedKernel.  part: emits which part of each
    nest's iterations a launch runs, and of how many; None: it runs all.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        module: Module,
        context: ir.Value,
        scratch: ir.Value,
        number: ir.Value,
        read_only: Sequence[ir.Value],
        arrays: Sequence[ir.Value] = (),
    ) -> None:
        super().__init__(builder, module, context, scratch)
        self.launches: list[tuple[int, int, int]] = []
        self.products: list[MatrixProduct] = []
        self._segment = builder.and_(number, ir.Constant(I32, (1 << ROUND_SHIFT) - 1))
        self._round = builder.zext(builder.lshr(number, ir.Constant(I32, ROUND_SHIFT)), I64)
        self.part: Callable[[], tuple[ir.Value, ir.Value]] | None = None
        self._segments = 0
        self._in_rounds = False
        self._read_only = list(read_only)
        self._arrays = tuple(arrays)
        self._scratch_offsets: list[tuple[ir.Value, int]] = []
        self._is_serial = False  # the last launch is one of a single thread
        self._read_for: int | None = None  # the only launch, a serial one, that may use what was read in no nest
        self._cooperating = False
        self._folds: list[int] = []  # iterations of those around the code that is emitted

    # --- launches

    def launch(self, blocks: int, threads: int) -> ir.Value:
        """Begin another launch; whether this is it, as i1."""
        return self._launch(blocks, threads, serial=False)

    def _launch(self, blocks: int, threads: int, *, serial: bool) -> ir.Value:
        """While other threads write, none may read again; one thread reads what the launches before have written."""
        number = self._segments
        if self._read_for is not None and (self._read_for < number or not serial):
            raise NoGridFormError("it reads in no loop what it writes, and uses it later")
        self.launches.append((number, blocks, threads))
        self._segments += 1
        self._is_serial = serial
        return self._is_launch()

    @contextmanager
    def blocks(self, count: int, threads: int = BLOCK) -> Iterator[IndexExpression]:
        """The with-body is run by the threads of one block together, for each of `count` numbers, in any order.

        All of them reach its barriers. Gives the number.
        """
        builder, grid = self.builder, grid_of(self.builder)
        is_launch = self.launch(count, threads)
        first, step = grid.emit_block(builder), grid.emit_blocks(builder)
        before = builder.block
        header, done = builder.append_basic_block("block"), builder.append_basic_block("done")
        limit = ir.Constant(I64, count)
        builder.cbranch(builder.and_(is_launch, builder.icmp_unsigned("<", first, limit)), header, done)
        builder.position_at_end(header)
        number = builder.phi(I64, "number")
        number.add_incoming(first, before)
        self._cooperating = True
        with self.region():
            yield self.wrap_index(number, 0, count - 1)
        self._cooperating = False
        following = builder.add(number, step, flags=("nuw", "nsw"))
        number.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, limit), header, done)
        builder.position_at_end(done)

    def _is_launch(self) -> ir.Value:
        return self.builder.icmp_unsigned("==", self._segment, ir.Constant(I32, self._segments - 1))

    @property
    def _grid_nest(self) -> GridNest | None:
        return self.nests[0] if self.nests and isinstance(self.nests[0], GridNest) else None

    @property
    def is_outermost(self) -> bool:
        """Whether launches that begin here are made once."""
        return not self.nests and not self._cooperating and not self._in_rounds

    @property
    def _is_spread(self) -> bool:
        """Whether several threads run the code here, each with indices of its own."""
        return self._cooperating or self._grid_nest is not None

    # --- loops

    def nest(
        self,
        dimension_sizes: Sequence[int],
        *,
        ranges: Sequence[tuple[int, int]] | None = None,
        parallel: bool = False,
        splits: bool = False,
    ) -> Nest:
        sizes = [end - first for first, end in ranges] if ranges is not None else list(dimension_sizes)
        if not parallel or self.nests or self._cooperating or 0 in sizes:
            return super().nest(dimension_sizes, ranges=ranges)

        def begin() -> tuple[ir.Value, ir.Value, ir.Value]:
            grid, builder = grid_of(self.builder), self.builder
            threads, block, blocks = (emit(builder) for emit in (grid.emit_threads, grid.emit_block, grid.emit_blocks))
            if self.part is not None:
                which, parts = self.part()
                block, blocks = builder.add(block, builder.mul(which, blocks)), builder.mul(blocks, parts)
            first = builder.add(builder.mul(block, threads), grid.emit_thread(builder))
            return is_launch, first, builder.mul(blocks, threads)

        iterations = prod(sizes)
        is_launch = self.launch(blocks_of(iterations), min(BLOCK, iterations))
        return GridNest(self.indices, dimension_sizes, ranges, begin)

    @contextmanager
    def loops(
        self,
        dimension_sizes: Sequence[int],
        *,
        ranges: Sequence[tuple[int, int]] | None = None,
        parallel: bool = False,
        independent: bool = False,
        splits: bool = False,
    ) -> Iterator[tuple[IndexExpression, ...]]:
        parallel = parallel or independent
        bounds = tuple(ranges) if ranges is not None else tuple((0, size) for size in dimension_sizes)
        if all(end - first == 1 for first, end in bounds) and not (parallel and not self.nests):
            yield tuple(self.index(first) for first, _ in bounds)  # no loop, so what is inside may be a launch
            return
        with super().loops(dimension_sizes, ranges=ranges, parallel=parallel) as indices:
            yield indices

    @contextmanager
    def rounds(self, count: int) -> Iterator[IndexExpression]:
        """The launches of the with-body are made `count` times over, with the same code."""
        if self.nests or self._cooperating or self._in_rounds:
            raise NoGridFormError("it makes launches in a loop")
        first, self._is_serial, self._in_rounds = len(self.launches), False, True
        yield self.wrap_index(self._round, 0, count - 1)
        body = self.launches[first:]
        for number in range(1, count):
            self.launches += [(segment | number << ROUND_SHIFT, blocks, threads) for segment, blocks, threads in body]
        self._is_serial, self._in_rounds = False, False

    def fold(
        self,
        dimension_sizes: Sequence[int],
        initial: tuple[ScalarValue, ...],
        body: Callable[[Sequence[IndexExpression | int], tuple[ScalarValue, ...]], tuple[ScalarValue, ...]],
    ) -> tuple[ScalarValue, ...]:
        self._folds.append(max(1, prod(dimension_sizes)))
        values = super().fold(dimension_sizes, initial, body)
        self._folds.pop()
        return values

    @contextmanager
    def tried(self) -> Iterator[list[Nest]]:
        """The code of the with-body is removed again; it must not store. Gives the nests around it, to add others."""
        builder = self.builder
        block, count = builder.block, len(builder.function.blocks)
        marker, depth, read_for, around = self.indices.depth(), len(self.nests), self._read_for, self._cooperating
        self._cooperating = True  # loads belong to no launch
        try:
            yield self.nests
        finally:
            del builder.function.blocks[count:]
            builder.position_at_end(block)
            self.indices.unwind(marker)
            del self.nests[depth:]
            self._read_for, self._cooperating = read_for, around

    # --- memory

    def load(self, pointer: ir.Value, index: IndexExpression | int, element_type: ElementType) -> ScalarValue:
        if not (self._is_spread or self._is_private(pointer) or any(pointer is known for known in self._read_only)):
            number = self._segments - self._is_serial
            self._read_for = number if self._read_for is None else min(self._read_for, number)
        return super().load(pointer, index, element_type)

    def store(self, pointer: ir.Value, index: IndexExpression | int, value: ScalarValue) -> None:
        if self._is_spread or self._is_private(pointer):
            self._require_apart(pointer, index)
            super().store(pointer, index, value)
            return
        if prod(end - first for nest in self.nests for first, end in nest.ranges) * prod(self._folds) > MOST_ALONE:
            raise NoGridFormError("a single thread would have to run its loops")
        if not self._is_serial:
            self._launch(1, 1, serial=True)
        with self.builder.if_then(self._is_launch()), self.region():
            super().store(pointer, index, value)

    def literal(self, literal: Literal) -> MemoryArray:
        made = super().literal(literal)
        self._read_only.append(made.pointer)
        return made

    def place_of(self, array: MemoryArray) -> tuple[int | None, int] | None:
        """The number among the kernel's operands and results, None for scratch memory, and the byte there at which the
        array begins. None where that isn't known before the kernel runs."""
        first = array.offset if isinstance(array.offset, int) else array.offset.constant
        if first is None:
            return None
        offset = first * array.shape.dtype.byte_size
        for number, pointer in enumerate(self._arrays):
            if array.pointer is pointer:
                return number, offset
        return next(((None, begin + offset) for place, begin in self._scratch_offsets if place is array.pointer), None)

    def scratch(self, shape: Shape, *, scattered: bool = False) -> MemoryArray:
        offset = self.scratch_bytes
        made = super().scratch(shape, scattered=scattered)
        self._scratch_offsets.append((made.pointer, offset))
        return made

    def _is_private(self, pointer: ir.Value) -> bool:
        return isinstance(pointer, ir.AllocaInstr)

    def _require_apart(self, pointer: ir.Value, index: IndexExpression | int) -> None:
        """NoGridFormError where iterations that run at the same time would use the same scratch memory."""
        nest = self._grid_nest
        if nest is None or self._is_private(pointer) or getattr(pointer, "name", "").split(".")[0] != "scratch":
            return
        terms = index.terms if isinstance(index, IndexExpression) else ()
        if not set(nest.walked) <= {atom.dimension for atom, _ in terms if atom.nest is nest}:
            raise NoGridFormError("iterations that run at the same time would share scratch memory")

    def copy(self, target: MemoryArray, source: MemoryArray) -> None:
        """In the widest words that fit; nothing where both are the same memory."""
        total = target.shape.byte_size
        if not total:
            return
        is_view = any(isinstance(a.offset, IndexExpression) or a.offset for a in (target, source))
        widest = min(8, target.shape.dtype.byte_size, source.shape.dtype.byte_size) if is_view else 8
        size = next(size for size in WORDS if size <= widest and total % size == 0)
        words = Shape(WORDS[size], (total // size,))
        to, origin = self.reshaped(target, words), self.reshaped(source, words)
        different = ScalarValue(PRED, self.builder.icmp_unsigned("!=", target.address(), source.address()))
        with self.when(different), self.loops(words.dims, parallel=True) as index:
            to.store(index, origin.load(index))


__all__ = ["GridLoops", "NoGridFormError"]
