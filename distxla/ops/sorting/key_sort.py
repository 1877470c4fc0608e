"""Emitted code that sorts lines by keys which are unsigned words: networks for short lines, radix sort for long ones.

Both only permute: they find for every place in a line the place of the element that belongs there. Words are sorted
from the least significant one on, each time stably, together with the places they came from, in one 64-bit integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from distxla.ir.element_type import F32, PRED, S32, S64, U8, U32, U64, ElementType, element_type
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value
from distxla.ops.support.total_order import OWN_ORDER

LONGEST_NETWORK = 64  # elements of a line; the code for longer ones takes longer to compile than to radix sort them
# A bit above the places. Without it LLVM 22 knows that their half holds nothing else, takes the half's value for the
# word's, and leaves the key in an index: f[3] of 16-bit keys with a second array was enough.
PLACE_MARKER = 1 << 31
LONGEST_LINE = 1 << 31  # places must fit into half of a 64-bit integer
RADIX_BITS = ((1 << 13, 11), (0, 8))  # elements of a line from which on digits have so many bits


@dataclass(frozen=True)
class KeyWord:
    """Up to 32 bits of a key. of: its value (u32, smaller ones first) for the element at an index of the operands."""

    bits: int
    of: Callable[[Index], Value]


def key_words(
    emit: KernelEmitter, key: Callable[[Index], Value], element: ElementType, comparison: str, descending: bool
) -> list[KeyWord]:
    """The words of a key of type `element`, most significant first. comparison: how `compare` orders such keys.

    -0 and 0 are one key where FLOAT compares them, and NaNs come last in either direction.
    """
    wide = element.is_float and element.bits < 16 and not _has_own_order(element, comparison)
    bits = 1 if element is PRED else 32 if wide else element.bits

    def ordered(index: Index) -> Value:
        value = _ordered_bits(emit, key(index), comparison, descending)
        return emit.unary("not", value) if descending else value

    if bits <= 32:
        # The complement of a narrow number must not reach beyond its bits.
        mask = emit.constant((1 << bits) - 1, U32)
        return [KeyWord(bits, lambda index: emit.binary("and", emit.convert(ordered(index), U32), mask))]
    half = emit.constant(32, U64)

    def high(index: Index) -> Value:
        return emit.convert(emit.binary("shift-right-logical", ordered(index), half), U32)

    return [KeyWord(32, high), KeyWord(32, lambda index: emit.convert(ordered(index), U32))]


def _has_own_order(element: ElementType, comparison: str) -> bool:
    """Whether a narrow float is ordered by its code, since the f32 that it is loses the payloads of NaNs."""
    return comparison == "TOTALORDER" and element in OWN_ORDER


def _ordered_bits(emit: KernelEmitter, value: Value, comparison: str, descending: bool) -> Value:
    """An unsigned integer that is smaller where the value is."""
    element = value.element_type
    if element is PRED:
        return emit.convert(value, U8)
    if element.is_integer:
        if not element.is_signed:
            return value
        unsigned = element_type(f"u{element.bits}")
        sign = emit.constant(1 << (element.bits - 1), unsigned)
        return emit.binary("xor", emit.bitcast(value, unsigned), sign)
    if element.bits < 16 and not _has_own_order(element, comparison):
        value, element = emit.convert(value, F32), F32
    if comparison == "FLOAT":
        is_nan = emit.compare("NE", "FLOAT", value, value)
        zero = emit.constant(0, element)
        value = emit.select(emit.compare("EQ", "FLOAT", value, zero), zero, value)
    unsigned, signed = element_type(f"u{element.bits}"), element_type(f"s{element.bits}")
    bits = emit.bitcast(value, unsigned)
    negative = emit.compare("LT", "SIGNED", emit.bitcast(bits, signed), emit.constant(0, signed))
    ones, sign = emit.constant((1 << element.bits) - 1, unsigned), emit.constant(1 << (element.bits - 1), unsigned)
    ordered = emit.binary("xor", bits, emit.select(negative, ones, sign))
    if comparison == "FLOAT":
        ordered = emit.select(is_nan, emit.constant(0, unsigned) if descending else ones, ordered)
    return ordered


def emit_key_sort(
    emit: KernelEmitter,
    dims: Sequence[int],
    axis: int,
    words: Sequence[KeyWord],
    store: Callable[[Index, Index], None],
    kept: int | None = None,
) -> None:
    """Sort all lines along `axis` of arrays with dimension sizes `dims`, none of them 0, by keys of `words`.

    store(target, source): called for every place of a line with the index of the element that belongs there.
    kept: how many places of each line are wanted; None for all.
    """
    size = dims[axis]
    kept = size if kept is None else kept
    lines = Lines(tuple(dims), axis)
    if size <= LONGEST_NETWORK:
        _emit_networks(emit, lines, words, store, kept)
    else:
        _emit_radix_sorts(emit, lines, words, store, kept)


@dataclass(frozen=True)
class Lines:
    dims: tuple[int, ...]
    axis: int

    @property
    def count(self) -> int:
        return prod(self.dims) // self.dims[self.axis]

    def place(self, line: IndexLike, i: IndexLike) -> list[IndexLike]:
        """The index of element i of a line; lines are numbered in row-major order of the other dimensions."""
        index: list[IndexLike] = [0] * len(self.dims)
        others = [d for d in range(len(self.dims)) if d != self.axis and self.dims[d] != 1]
        for d in reversed(others[1:]):
            index[d] = line % self.dims[d]
            line = line // self.dims[d]
        if others:
            index[others[0]] = line
        index[self.axis] = i
        return index


# --- short lines -----------------------------------------------------------------------------------------------------


def _emit_networks(
    emit: KernelEmitter, lines: Lines, words: Sequence[KeyWord], store: Callable[[Index, Index], None], kept: int
) -> None:
    """Lines side by side go through a sorting network: the same comparisons for all of them.

    A word and the element's place in its line make one signed number, so no two are equal.
    """
    size = lines.dims[lines.axis]
    rows = 1 << max(0, size - 1).bit_length()
    lanes = min(emit.tuning.lanes, lines.count, max(1, emit.tuning.cached_bytes // (8 * rows)))
    packed = emit.scratch(Shape(S64, (rows, lanes)))
    # Where the elements that are being sorted come from, once more than one word has been.
    orders = [emit.scratch(Shape(S32, (size, lanes))) for _ in range(min(2, len(words) - 1))]
    shift, marker, low = emit.constant(32, S64), emit.constant(PLACE_MARKER, S64), emit.constant(rows - 1, S64)
    bias, last = emit.constant(1 << 31, U32), emit.constant((1 << 63) - 1, S64)
    order: Buffer | None = None

    def comes_from(row: IndexLike, lane: IndexLike) -> IndexLike:
        return row if order is None else emit.index_of(order.load((row, lane)))

    with emit.loops((-(-lines.count // lanes),)) as (block,):

        def line(lane: IndexLike) -> IndexLike:
            number = block * lanes + lane
            # Lines that are there sort the last line again, and store it again.
            return number if lines.count % lanes == 0 else emit.index_clamp(0, number, lines.count - 1)

        for number, word in enumerate(reversed(words)):
            with emit.loops((size, lanes)) as (row, lane):
                bits = word.of(lines.place(line(lane), comes_from(row, lane)))
                high = emit.convert(emit.bitcast(emit.binary("xor", bits, bias), S32), S64)
                marked = emit.binary("or", emit.value_of(row, S64), marker)
                value = emit.binary("or", emit.binary("shift-left", high, shift), marked)
                packed.store((row, lane), value)
            with emit.loops((rows - size, lanes)) as (row, lane):
                packed.store((row + size, lane), last)
            _emit_network(emit, packed)
            if number < len(words) - 1:
                following = orders[number % 2]
                with emit.loops((size, lanes)) as (row, lane):
                    place = emit.index_of(emit.binary("and", packed.load((row, lane)), low))
                    value = emit.value_of(place, S32) if order is None else order.load((place, lane))
                    following.store((row, lane), value)
                order = following
        with emit.loops((kept, lanes)) as (row, lane):
            place = emit.index_of(emit.binary("and", packed.load((row, lane)), low))
            source = comes_from(place, lane)
            number_of_line = line(lane)
            store(lines.place(number_of_line, row), lines.place(number_of_line, source))


def _emit_network(emit: KernelEmitter, packed: Buffer) -> None:
    """Sort the columns of s64[2^m, lanes]: Batcher's odd-even merge sort."""
    rows, lanes = packed.shape.dims
    for run, distance, pairs, start in _network(rows):
        blocks = rows // (2 * run)
        with emit.loops((blocks, pairs, distance, lanes)) as (block, pair, i, lane):
            row = block * (2 * run) + pair * (2 * distance) + start + i
            first, second = packed.load((row, lane)), packed.load((row + distance, lane))
            packed.store((row, lane), emit.binary("minimum", first, second))
            packed.store((row + distance, lane), emit.binary("maximum", first, second))


def _network(rows: int) -> Iterator[tuple[int, int, int, int]]:
    """The steps (run, distance, pairs, start): of every 2 * run rows, pairs of ranges of `distance` rows, from `start`
    on one behind another, are compared row by row."""
    run = 1
    while run < rows:
        yield run, run, 1, 0
        distance = run // 2
        while distance:
            yield run, distance, run // distance - 1, distance
            distance //= 2
        run *= 2


# --- long lines ------------------------------------------------------------------------------------------------------


def _emit_radix_sorts(
    emit: KernelEmitter, lines: Lines, words: Sequence[KeyWord], store: Callable[[Index, Index], None], kept: int
) -> None:
    """One line after the other, digit by digit from the lowest; the places travel with the words."""
    size = lines.dims[lines.axis]
    wide = next(bits for longest, bits in RADIX_BITS if size >= longest)
    source, target = (emit.scratch(Shape(U64, (size,))) for _ in range(2))
    most = max(-(-word.bits // wide) for word in words)
    starts = emit.scratch(Shape(S64, (most, 1 << wide)))
    low, half, one, zero = (
        emit.constant((1 << 32) - 1, U64), emit.constant(32, U64), emit.constant(1, S64), emit.constant(0, S64),
    )  # fmt: skip

    def place_of(packed: Value) -> IndexLike:
        return emit.index_of(emit.bitcast(emit.binary("and", packed, low), S64))

    with emit.loops((lines.count,)) as (line,):
        for number, word in enumerate(reversed(words)):
            passes = max(1, -(-word.bits // wide))
            digit_bits = -(-word.bits // passes)
            mask = emit.constant((1 << digit_bits) - 1, U64)

            def digit(packed: Value, which: int, mask: Value = mask, bits: int = digit_bits) -> IndexLike:
                shifted = emit.binary("shift-right-logical", packed, emit.constant(32 + which * bits, U64))
                return emit.index_of(emit.bitcast(emit.binary("and", shifted, mask), S64))

            with emit.loops((passes, 1 << digit_bits)) as (which, d):
                starts.store((which, d), zero)
            with emit.loops((size,)) as (i,):
                place = place_of(source.load((i,))) if number else i
                bits = emit.convert(word.of(lines.place(line, place)), U64)
                packed = emit.binary("or", emit.binary("shift-left", bits, half), emit.value_of(place, U64))
                source.store((i,), packed)
                for p in range(passes):
                    at = (p, digit(packed, p))
                    starts.store(at, emit.binary("add", starts.load(at), one))

            def step(d: Index, totals: tuple[Value, ...]) -> tuple[Value, ...]:
                following = []
                for p, total in enumerate(totals):
                    count = starts.load((p, d[0]))
                    starts.store((p, d[0]), total)
                    following.append(emit.binary("add", total, count))
                return tuple(following)

            emit.fold((1 << digit_bits,), (zero,) * passes, step)
            for p in range(passes):
                with emit.loops((size,)) as (i,):
                    packed = source.load((i,))
                    at = (p, digit(packed, p))
                    free = starts.load(at)
                    starts.store(at, emit.binary("add", free, one))
                    target.store((emit.index_of(free),), packed)
                source, target = target, source
        with emit.loops((kept,)) as (i,):
            store(lines.place(line, i), lines.place(line, place_of(source.load((i,)))))
