"""Loop nests whose shape is decided after their body is known.

The body is written first, with the loops' indices as unknowns. Its accesses show which neighbouring dimensions are only
ever used together as one linear index: those become one loop. So an elementwise fusion is a single flat loop, a bias
add keeps two, without any analysis of the ops. A transposing access makes the nest walk in tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from llvmlite import ir

from distxla.compiler.lower.index import IndexCode, IndexExpression, LoopNest
from distxla.emit.native_function import I32, I64

TILE = 32
WRITTEN_OUT = 64  # instructions of a short loop that is replaced by copies of its body
FEW = 64  # iterations of a whole nest that stay scalar: vectors would save less than the call of the kernel takes


class SplitRequest(Exception):
    """A comparison in the body is decided by a loop's index: below `boundary` one way, from there on the other way."""

    def __init__(self, nest: LoopNest, dimension: int, boundary: int) -> None:
        super().__init__(dimension, boundary)
        self.nest = nest
        self.dimension = dimension
        self.boundary = boundary


class Nest:
    """Loops over dimension sizes, last fastest.

    ranges: (first, end) by dimension where only a part is walked.  parallel: the bodies may run in any order.
    splits: the body may raise SplitRequest for comparisons of an index with a constant.
    Use: `with`-free; `open()`, write the body, `close()`; the builder is then after the loops.
    """

    def __init__(
        self,
        code: IndexCode,
        dimension_sizes: Sequence[int],
        *,
        ranges: Sequence[tuple[int, int]] | None = None,
        parallel: bool = False,
        splits: bool = False,
        depth: int = 0,
    ) -> None:
        self.code = code
        self.builder = code.builder
        self.dimension_sizes = tuple(dimension_sizes)
        self.ranges = tuple(ranges) if ranges is not None else tuple((0, e) for e in dimension_sizes)
        self.parallel = parallel
        self.splits = splits
        self.depth = depth
        self.indices: list[IndexExpression] = []
        self.is_empty = any(end <= first for first, end in self.ranges)
        self._walked: list[int] = []
        self._requests: dict[tuple[int, int], ir.instructions.Instruction] = {}
        self._accesses: list[dict[int, int]] = []
        self._entry: ir.Block | None = None
        self._body: ir.Block | None = None

    def open(self) -> list[IndexExpression]:
        """Start the body; the index of every dimension."""
        for dimension, (first, end) in enumerate(self.ranges):
            if end - first <= 1 and not self.is_empty:
                self.indices.append(self.code.constant(first))
                continue
            atom = self.code.atom(first, max(first, end - 1))
            atom.nest, atom.dimension = self, dimension
            self._walked.append(dimension)
            self.indices.append(self.code.expression(atom))
        self._entry = self.builder.block
        self._body = self.builder.append_basic_block("body")
        self.builder.position_at_end(self._body)
        self.code.enter()
        return self.indices

    def runs(self, parts: list[tuple[int, int]]) -> list[tuple[ir.Value, int]]:
        """sum of index[d] * c over `parts` as few values with coefficients; each value is a run of dimensions.

        A run (s..t) is the linear index of the dimensions s..t.
        """
        coefficients = dict(parts)
        found: list[tuple[ir.Value, int]] = []
        waiting = sorted(coefficients, reverse=True)
        while waiting:
            last = first = waiting.pop(0)
            span = self.dimension_sizes[last]
            while waiting and self._before(first) == waiting[0] and self._is_full(first):
                if coefficients[waiting[0]] != coefficients[last] * span:
                    break
                first = waiting.pop(0)
                span *= self.dimension_sizes[first]
            found.append((self._request(first, last), coefficients[last]))
        return found[::-1]

    def note_access(self, index: IndexExpression) -> None:
        """Remember how an access strides, for the choice of tiles."""
        if self.parallel:
            self._accesses.append({a.dimension: c for a, c in index.terms if a.nest is self})

    def _before(self, dimension: int) -> int | None:
        position = self._walked.index(dimension)
        previous = self._walked[position - 1] if position else None
        # a dimension of which one index is walked separates its neighbours unless it has only that one
        if previous is not None and any(self.dimension_sizes[d] != 1 for d in range(previous + 1, dimension)):
            return None
        return previous

    def _is_full(self, dimension: int) -> bool:
        return self.ranges[dimension] == (0, self.dimension_sizes[dimension])

    def _request(self, first: int, last: int) -> ir.Value:
        value = self._requests.get((first, last))
        if value is None:
            assert self._body is not None
            zero = ir.Constant(I64, 0)
            value = ir.instructions.Instruction(self._body, I64, "add", [zero, zero], "i")
            self._requests[first, last] = value
        return value

    def _leave_body(self) -> tuple[ir.Block, ir.Block, ir.Block]:
        """End the body, and go back to where the loops begin. Its first and its last block, and the one behind them."""
        self.code.leave()
        builder, body = self.builder, self._body
        assert self._entry is not None
        assert body is not None
        end = builder.block
        for placeholder in reversed(self._requests.values()):
            body.instructions.insert(0, placeholder)
        done = builder.append_basic_block("done")
        builder.position_at_end(self._entry)
        return body, end, done

    def close(self) -> None:
        """Write the loops around the body; the builder is then after them."""
        builder, (body, end, done) = self.builder, self._leave_body()
        if self.is_empty:
            builder.branch(done)
            builder.position_at_end(end)
            builder.branch(done)
            builder.position_at_end(done)
            return
        loops = self._partition()
        values: dict[int, ir.Value] = {}
        closers: list[Callable[[], ir.instructions.Instruction]] = []
        for first, last in self._order(loops):
            first_index, end_index = self._bounds(first, last)
            values[first] = self._loop(first_index, end_index, 1, closers)
        tiles = self._tiles(loops)
        if tiles:
            steps = {}
            for first, last in tiles:
                low, high = self._bounds(first, last)
                steps[first] = (self._loop(low, high, TILE, closers), low, high)
            for first, _ in tiles:
                start, low, high = steps[first]
                if (high - low) % TILE == 0:
                    values[first] = builder.add(start, self._loop(0, TILE, 1, closers), flags=("nsw",))
                else:
                    left = builder.sub(ir.Constant(I64, high), start)
                    full = builder.icmp_signed("<", ir.Constant(I64, TILE), left)
                    count = builder.select(full, ir.Constant(I64, TILE), left)
                    values[first] = builder.add(start, self._loop(0, count, 1, closers), flags=("nsw",))
        builder.branch(body)
        self._resolve(loops, values)
        builder.position_at_end(end)
        hint = self._hint(loops, bool(tiles)) if end is body else None
        for number, close in enumerate(reversed(closers)):
            latch = close()
            if number == 0 and hint is not None:
                _annotate(latch, *hint)
        builder.branch(done)
        builder.position_at_end(done)

    def _hint(self, loops: list[tuple[int, int]], tiled: bool) -> tuple[str, int | None] | None:
        """Hints for LLVM on the innermost loop beyond vectorising it.

        It must not unroll by itself, which doubles the time to compile for loops of no importance; only short ones are
        written out. Bodies with elementary functions are long chains that wait for themselves: several iterations run
        side by side. A few iterations that are all there is to do aren't worth the time to vectorise them.
        """
        assert self._body is not None
        size = len(self._body.instructions)
        if tiled or not loops:
            return None
        length = self._length(loops[-1])
        if length * size <= WRITTEN_OUT:
            return "llvm.loop.unroll.full", None
        if self.parallel and size >= 24 and length >= 1024:
            return "llvm.loop.interleave.count", 4 if size < 160 else 2
        is_outermost = self.code.depth() == 1
        if is_outermost and prod(end - first for first, end in self.ranges) <= FEW:
            return "llvm.loop.vectorize.enable", 0
        return None

    def _partition(self) -> list[tuple[int, int]]:
        """Runs of walked dimensions such that every requested run is a union of them."""
        cuts = {s for s, _ in self._requests}
        for _, last in self._requests:
            after = [d for d in self._walked if d > last]
            if after:
                cuts.add(after[0])
        loops: list[tuple[int, int]] = []
        for dimension in self._walked:
            joined = (
                loops and dimension not in cuts and self._is_full(dimension) and self._before(dimension) is not None
            )
            if joined:
                loops[-1] = (loops[-1][0], dimension)
            else:
                loops.append((dimension, dimension))
        return loops

    def _tiles(self, loops: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The two runs to walk in tiles: one that some access strides by 1, and the last one, which it strides
        widely."""
        if not self.parallel or len(loops) < 2:
            return []
        inner = loops[-1]
        for access in self._accesses:
            if access.get(inner[1], 0) < 16:
                continue
            for run in loops[:-1]:
                if access.get(run[1]) == 1 and self._length(run) >= 8 and self._length(inner) >= 8:
                    return [run, inner]
        return []

    def crossed(self, least: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The run along which most accesses of the body go, and the last one, if these are two of `least` elements."""
        loops = self._partition()
        if len(loops) < 2:
            return None
        inner = loops[-1]
        counts = {run: sum(access.get(run[1]) == 1 for access in self._accesses) for run in loops}
        run = max(loops[:-1], key=lambda run: counts[run])
        long_enough = self._length(run) >= least and self._length(inner) >= least
        return (run, inner) if long_enough and counts[run] > counts[inner] else None

    def _order(self, loops: list[tuple[int, int]]) -> list[tuple[int, int]]:
        tiles = self._tiles(loops)
        return [run for run in loops if run not in tiles]

    def _length(self, run: tuple[int, int]) -> int:
        low, high = self._bounds(*run)
        return high - low

    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        span = prod(self.dimension_sizes[d] for d in range(first + 1, last + 1))
        low, high = self.ranges[first]
        return low * span, high * span

    def _loop(
        self, first: int, end: int | ir.Value, step: int, closers: list[Callable[[], ir.instructions.Instruction]]
    ) -> ir.Value:
        """Open one loop that runs at least once; the code that ends it is added to `closers`."""
        builder = self.builder
        before = builder.block
        header = builder.append_basic_block("loop")
        builder.branch(header)
        builder.position_at_end(header)
        index = builder.phi(I64, "index")
        index.add_incoming(ir.Constant(I64, first), before)
        limit = ir.Constant(I64, end) if isinstance(end, int) else end

        def close() -> ir.instructions.Instruction:
            following = builder.add(index, ir.Constant(I64, step), flags=("nuw", "nsw"))
            more = builder.icmp_signed("<", following, limit)
            out = builder.append_basic_block("out")
            index.add_incoming(following, builder.block)
            latch = builder.cbranch(more, header, out)
            builder.position_at_end(out)
            return latch

        closers.append(close)
        return index

    def _resolve(self, loops: list[tuple[int, int]], values: dict[int, ir.Value]) -> None:
        """Give every requested run its value: the loops it is made of, each times its stride within the run."""
        builder, body = self.builder, self._body
        assert body is not None
        position = len(self._requests)
        for (first, last), placeholder in self._requests.items():
            parts = [run for run in loops if first <= run[0] and run[1] <= last]
            total: ir.Value = ir.Constant(I64, 0)
            terms: list[ir.Value] = []
            builder.position_before(body.instructions[0]) if body.instructions else builder.position_at_start(body)
            for run in parts:
                stride = prod(self.dimension_sizes[d] for d in range(run[1] + 1, last + 1))
                value = values[run[0]]
                terms.append(value if stride == 1 else builder.mul(value, ir.Constant(I64, stride), flags=("nsw",)))
            for term in terms[:-1]:
                total = term if isinstance(total, ir.Constant) else builder.add(total, term, flags=("nsw",))
            placeholder.operands = [total, terms[-1]]
            position += 1


def _annotate(latch: ir.instructions.Instruction, key: str, number: int | None) -> None:
    """Give a loop's closing branch its metadata; the node names itself, as LLVM wants it."""
    module = latch.parent.module
    hint: list[Any] = [ir.MetaDataString(module, key)]
    if number is not None:
        hint.append(ir.Constant(I32, number))
    value = module.add_metadata(hint)
    node = ir.values.MDValue(module, (value,), name=str(len(module.metadata)))
    node.operands = (node, value)
    latch.set_metadata("llvm.loop", node)
