"""Sorting by many threads at a time, for targets whose kernels run on a grid.

By keys: short runs are sorted by counting, for every element, those that come before it; then runs are merged, where an
element's place is its place in its own run and the number of those before it in the other run, which halving finds. No
two keys are equal, since an element's place in its line is the last part of its key.

By a comparator that has no keys: a thread sorts a short run as merge_sort.py does, and places in merged runs are found
in the same way. As the comparator may contradict itself, all comparisons that one thread would make to merge two runs
are made as well; where one decides otherwise than supposed, a thread merges these runs again. So the order is always
that of merge_sort.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distxla.ir.element_type import PRED, S32, S64, U64
from distxla.ir.shape import Shape
from distxla.ops.sorting.key_sort import KeyWord, Lines
from distxla.ops.sorting.merge_sort import BOTH_ENDS, Before, emit_merge, emit_merge_from_both_ends, emit_merge_sort
from distxla.ops.support.emit import Buffer, Index, IndexLike, IndexValue, KernelEmitter, Value

COUNTED_RUN = 64  # elements of the runs that are sorted by counting
MERGED_RUN = BOTH_ENDS  # of those that a thread sorts


# --- by keys ---------------------------------------------------------------------------------------------------------


def emit_grid_key_sort(
    emit: KernelEmitter,
    dims: Sequence[int],
    axis: int,
    words: Sequence[KeyWord],
    store: Callable[[Index, Index], None],
    kept: int | None = None,
) -> None:
    """As `emit_key_sort`. Of runs only the first `kept` elements are merged."""
    sort = _KeySort(emit, Lines(tuple(dims), axis), words, store, dims[axis] if kept is None else kept)
    sort.emit_packed()
    sort.emit_counted()
    if sort.size > COUNTED_RUN:
        sort.emit_merged()


class _KeySort:
    """columns: parts of the elements' keys, most significant first, of 64 bits each; of either of two states in turn,
    for all lines. The lower half of the last one is the element's place in its line."""

    def __init__(
        self,
        emit: KernelEmitter,
        lines: Lines,
        words: Sequence[KeyWord],
        store: Callable[[Index, Index], None],
        kept: int,
    ) -> None:
        self.emit, self.lines, self.words, self.store, self.kept = emit, lines, words, store, kept
        self.size = lines.dims[lines.axis]
        shape = Shape(U64, (2, lines.count, self.size))
        self.columns = [emit.scratch(shape, scattered=True) for _ in range((len(words) + 2) // 2)]

    def emit_packed(self) -> None:
        emit, half = self.emit, self.emit.constant(32, U64)
        with emit.loops((self.lines.count, self.size), independent=True) as (line, i):
            parts = [emit.convert(word.of(self.lines.place(line, i)), U64) for word in self.words]
            parts.append(emit.value_of(i, U64))
            if len(parts) % 2:
                parts.insert(0, emit.constant(0, U64))
            for column, high, low in zip(self.columns, parts[::2], parts[1::2]):
                column.store((0, line, i), emit.binary("or", emit.binary("shift-left", high, half), low))

    def emit_counted(self) -> None:
        """Sort the runs; results of lines that are one run are stored."""
        emit, run = self.emit, min(COUNTED_RUN, self.size)
        one, zero = emit.constant(1, S64), emit.constant(0, S64)
        with emit.loops((self.lines.count, self.size), independent=True) as (line, i):
            own, start = self._load(0, line, i), i // run * run

            def step(index: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
                other = start + index[0]
                before = self._before(self._load(0, line, emit.index_clamp(0, other, self.size - 1)), own)
                before = emit.binary("and", before, emit.index_compare("LT", other, self.size))
                return (emit.binary("add", carried[0], emit.select(before, one, zero)),)

            rank = emit.index_of(emit.fold((run,), (zero,), step)[0])
            with emit.when(emit.index_compare("LT", rank, self.kept)):
                if run == self.size:
                    self.store(self.lines.place(line, rank), self.lines.place(line, i))
                else:
                    self._store(1, line, start + rank, own)

    def emit_merged(self) -> None:
        """Merge neighbouring runs until a line is one."""
        emit = self.emit
        passes = _passes(self.size, COUNTED_RUN)
        with emit.rounds(passes) as number:
            width = _width(emit, COUNTED_RUN, number, self.size)
            source, target = (number + 1) % 2, number % 2
            most = emit.index_clamp(0, width, self.kept)
            with emit.loops((self.lines.count, self.size), independent=True) as (line, i):
                start = i // (width * 2) * (width * 2)
                is_second = emit.index_compare("GE", i - start, width)
                within = i - start - emit.index_select(is_second, width, 0)
                with emit.when(emit.index_compare("LT", within, most)):
                    own = self._load(source, line, i)
                    first = start + emit.index_select(is_second, 0, width)
                    count = emit.index_clamp(0, self.size - first, most)
                    passed = halved(
                        emit,
                        self.size,
                        count,
                        lambda k: self._before(self._load(source, line, _inside(emit, first + k, self.size)), own),
                    )
                    with emit.when(emit.index_compare("LT", within + passed, self.kept)):
                        self._store(target, line, start + within + passed, own)
        low = emit.constant((1 << 32) - 1, U64)
        with emit.loops((self.lines.count, self.kept), independent=True) as (line, i):
            packed = self.columns[-1].load(((passes + 1) % 2, line, i))
            place = emit.index_of(emit.bitcast(emit.binary("and", packed, low), S64))
            self.store(self.lines.place(line, i), self.lines.place(line, _inside(emit, place, self.size)))

    def _load(self, state: IndexLike, line: IndexLike, i: IndexLike) -> list[Value]:
        return [column.load((state, line, i)) for column in self.columns]

    def _store(self, state: IndexLike, line: IndexLike, i: IndexLike, key: Sequence[Value]) -> None:
        for column, part in zip(self.columns, key, strict=True):
            column.store((state, line, i), part)

    def _before(self, one: Sequence[Value], other: Sequence[Value]) -> Value:
        emit = self.emit
        result = emit.compare("LT", "UNSIGNED", one[-1], other[-1])
        for a, b in zip(reversed(one[:-1]), reversed(other[:-1])):
            tie = emit.binary("and", emit.compare("EQ", "UNSIGNED", a, b), result)
            result = emit.binary("or", emit.compare("LT", "UNSIGNED", a, b), tie)
        return result


# --- by a comparator -------------------------------------------------------------------------------------------------


def emit_grid_merge_sort(
    emit: KernelEmitter, axis: int, results: Sequence[Buffer], operands: Sequence[Buffer], before: Before
) -> None:
    """Sort all lines of `operands` along `axis` together into `results`. before: as of `emit_merge_sort`."""
    lines = Lines(operands[0].shape.dims, axis)
    sort = _MergeSort(emit, lines, operands, before)
    sort.emit_runs(operands)
    passes = _passes(sort.size, MERGED_RUN)
    if passes:
        sort.emit_merged(passes)
    with emit.loops((lines.count, sort.size), independent=True) as (line, i):
        for result, state in zip(results, sort.states):
            result.store(lines.place(line, i), state.load((passes % 2, line, i)))


class _MergeSort:
    """states: the elements of all lines, of either of two states in turn.  passed: for the elements of a run how many
    of the next one come before them.  doubtful: by pair of runs whether a comparison decided otherwise."""

    def __init__(self, emit: KernelEmitter, lines: Lines, operands: Sequence[Buffer], before: Before) -> None:
        self.emit, self.lines, self.before = emit, lines, before
        self.size = lines.dims[lines.axis]
        dims = (lines.count, self.size)
        self.states = [emit.scratch(Shape(o.shape.dtype, (2, *dims)), scattered=True) for o in operands]
        self.pairs = -(-self.size // (2 * MERGED_RUN))
        self.passed = emit.scratch(Shape(S32, dims), scattered=True)
        self.doubtful = emit.scratch(Shape(PRED, (lines.count, self.pairs)), scattered=True)

    def emit_runs(self, operands: Sequence[Buffer]) -> None:
        """A thread a run."""
        emit, (whole, rest) = self.emit, divmod(self.size, MERGED_RUN)
        for first, runs, length in ((0, whole, MERGED_RUN), (whole, 1, rest)):
            if not runs or not length:
                continue
            with emit.loops((self.lines.count, runs), independent=True) as (line, number):
                start = (number + first) * MERGED_RUN
                source, target = (self._run(state, line, start, length) for state in (0, 1))
                with emit.loops((length,)) as (i,):
                    for buffer, operand in zip(source, operands):
                        buffer.store((i,), operand.load(self.lines.place(line, start + i)))
                merged = emit_merge_sort(emit, source, target, self.before)
                if merged is not source:
                    with emit.loops((length,)) as (i,):
                        for to, of in zip(source, merged):
                            to.store((i,), of.load((i,)))

    def emit_merged(self, passes: int) -> None:
        """Merge neighbouring runs until a line is one. First runs of pairs are always whole."""
        emit = self.emit
        with emit.rounds(passes) as number:
            width = _width(emit, MERGED_RUN, number, self.size)
            source, target = number % 2, (number + 1) % 2
            with emit.loops((self.lines.count, self.size), independent=True) as (line, i):
                self._emit_search(source, line, i, width)
            with emit.loops((self.lines.count, self.size), independent=True) as (line, i):
                self._emit_placed(source, target, line, i, width)
            with emit.loops((self.lines.count, self.pairs), independent=True) as (line, pair):
                self._emit_again(source, target, line, pair, width)

    def _emit_search(self, source: IndexLike, line: IndexValue, i: IndexValue, width: IndexLike) -> None:
        """How many elements of its pair's second run come before an element of the first one."""
        emit = self.emit
        start, within, count = self._pair(i, width)
        with emit.when(emit.index_compare("LT", within, width)):
            own = self._load(source, line, i)
            second = start + width
            passed = halved(
                emit,
                self.size,
                count,
                lambda k: self.before(self._load(source, line, _inside(emit, second + k, self.size)), own),
            )
            self.passed.store((line, i), emit.value_of(passed, S32))
            with emit.when(emit.index_compare("EQ", within, 0)):
                self.doubtful.store((line, i // (width * 2)), emit.constant(False, PRED))

    def _emit_placed(
        self, source: IndexLike, target: IndexLike, line: IndexValue, i: IndexValue, width: IndexLike
    ) -> None:
        """Store an element where it belongs if the runs are sorted, and look whether a comparison says otherwise."""
        emit = self.emit
        start, within, count = self._pair(i, width)
        own = self._load(source, line, i)
        is_first = emit.index_compare("LT", within, width)
        with emit.when(is_first):
            passed = self._passed(line, i, count)
            # those passed by the element before it are passed by it, too; its own comparisons were made in the search
            previous = self._passed(line, _inside(emit, i - 1, self.size), count)
            is_less = emit.binary(
                "and", emit.index_compare("GT", within, 0), emit.index_compare("GT", previous, passed)
            )
            self._doubt(is_less, line, i // (width * 2))
            self._store(target, line, start + within + passed, own)
        with emit.when(emit.unary("not", is_first)):
            rank = within - width

            def goes_ahead(k: IndexLike) -> Value:
                passed = self._passed(line, _inside(emit, start + k, self.size), count)
                return emit.index_compare("LE", passed, rank)

            ahead = halved(emit, self.size, width, goes_ahead)
            # the back half of two whole runs is merged from the back, which compares with the element before it
            from_back = emit.binary(
                "and", emit.index_compare("EQ", count, width), emit.index_compare("GE", rank + ahead, width)
            )
            other = start + ahead - emit.index_select(from_back, 1, 0)
            passes = self.before(own, self._load(source, line, _inside(emit, other, self.size)))
            stays = emit.binary("and", emit.index_compare("LT", ahead, width), emit.unary("not", passes))
            self._doubt(emit.select(from_back, passes, stays), line, i // (width * 2))
            self._store(target, line, _inside(emit, start + rank + ahead, self.size), own)

    def _emit_again(
        self, source: IndexLike, target: IndexLike, line: IndexValue, pair: IndexValue, width: IndexLike
    ) -> None:
        """Merge a pair one element after the other, if there is a pair and its comparisons are in doubt."""
        emit, most = self.emit, self.size
        start = pair * (width * 2)
        count = emit.index_clamp(0, most - start - width, width)
        with (
            emit.when(emit.index_compare("LT", start + width, most)),
            emit.when(self.doubtful.load((line, pair))),
        ):
            of, to = (self._run(state, line, 0, most) for state in (source, target))
            is_whole = emit.index_compare("EQ", count, width)
            with emit.when(is_whole):
                emit_merge_from_both_ends(emit, of, to, start, (width, width), self.before, most)
            with emit.when(emit.unary("not", is_whole)):
                emit_merge(emit, of, to, start, (width, count), self.before, most)

    def _pair(self, i: IndexValue, width: IndexLike) -> tuple[IndexValue, IndexValue, IndexValue]:
        """Where an element's pair of runs begins, its place in the pair, and the elements of the second run."""
        start = i // (width * 2) * (width * 2)
        return start, i - start, self.emit.index_clamp(0, self.size - start - width, width)

    def _passed(self, line: IndexLike, i: IndexLike, count: IndexLike) -> IndexLike:
        return self.emit.index_clamp(0, self.emit.index_of(self.passed.load((line, i))), count)

    def _doubt(self, predicate: Value, line: IndexLike, pair: IndexLike) -> None:
        with self.emit.when(predicate):
            self.doubtful.store((line, pair), self.emit.constant(True, PRED))

    def _run(self, state: IndexLike, line: IndexLike, start: IndexLike, length: int) -> list[Buffer]:
        emit, offset = self.emit, (state * self.lines.count + line) * self.size + start
        return [emit.reshaped(s, Shape(s.shape.dtype, (length,)), offset) for s in self.states]

    def _load(self, state: IndexLike, line: IndexLike, i: IndexLike) -> list[Value]:
        return [s.load((state, line, i)) for s in self.states]

    def _store(self, state: IndexLike, line: IndexLike, i: IndexLike, element: Sequence[Value]) -> None:
        for s, value in zip(self.states, element, strict=True):
            s.store((state, line, i), value)


# --- both ------------------------------------------------------------------------------------------------------------


def _passes(size: int, run: int) -> int:
    """How often runs are merged until there is one."""
    return (-(-size // run) - 1).bit_length()


def _width(emit: KernelEmitter, run: int, number: IndexLike, size: int) -> IndexLike:
    """The length of the runs that round `number` merges."""
    doubled = emit.binary("shift-left", emit.constant(run, S64), emit.value_of(number, S64))
    return emit.index_clamp(run, emit.index_of(doubled), max(run, 2 * size))


def _inside(emit: KernelEmitter, i: IndexLike, size: int) -> IndexLike:
    return emit.index_clamp(0, i, size - 1)


def halved(emit: KernelEmitter, most: int, count: IndexLike, passes: Callable[[IndexLike], Value]) -> IndexLike:
    """How many of the numbers from 0 to `count`, at most `most`, pass: all that do are before all others."""

    def step(_: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        low, high = (emit.index_of(c) for c in carried)
        middle = (low + high) // 2
        searching, found = emit.index_compare("LT", low, high), passes(middle)
        is_above = emit.binary("and", searching, found)
        is_below = emit.binary("and", searching, emit.unary("not", found))
        return (
            emit.value_of(emit.index_select(is_above, middle + 1, low), S64),
            emit.value_of(emit.index_select(is_below, middle, high), S64),
        )

    bounds = (emit.constant(0, S64), emit.value_of(count, S64))
    low, _ = emit.fold((most.bit_length(),), bounds, step)
    return emit.index_clamp(0, emit.index_of(low), most)


__all__ = ["COUNTED_RUN", "emit_grid_key_sort", "emit_grid_merge_sort", "halved"]
