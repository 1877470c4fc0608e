"""The places of elements after a bitcast between tiled layouts.

A tile T(8,128) cuts the two fastest dimensions into blocks of 8 x 128 elements, which follow one another; further
tiles, as (2,1), cut the blocks. Dimension sizes are padded to whole tiles. So a place in memory is a row of digits,
each of which counts a part of one dimension: for f32[16,256]{1,0:T(8,128)}, slowest first,

    dimension 0 by 8, dimension 1 by 128, dimension 0 by 1, dimension 1 by 1

A bitcast lets the digits of its operand be those of its result; what is padding on one side may be an element on the
other. Source: XLA, "Tiled layout"; xla/layout.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of a place in memory: floor(index / weight) mod size. Dimensions that tiles add have numbers below 0."""

    dimension: int
    weight: int
    size: int


@dataclass(frozen=True, slots=True)
class Move:
    """A part of a source dimension that becomes a part of a target dimension; parts as in `Digit`."""

    source: int
    source_weight: int
    target: int
    target_weight: int
    size: int


class UnknownPlaces(ValueError):
    """Elements whose places tiles don't determine, or that have none on the other side."""


def moved_by_tiles(source: Shape, target: Shape) -> tuple[Move, ...] | None:
    """The fate of the operand's dimensions in a bitcast, by source dimension, slowest part first; None where tiles make
    no difference to the order that minor_to_major alone gives.

    Raises UnknownPlaces.
    """
    if not (_is_tiled(source) and _is_tiled(target)) or source.size < 2 or source.is_dynamic or target.is_dynamic:
        return None
    moves = _moves(source, target, _tiled(source), _tiled(target))
    plain = _matched(_plain(source), _plain(target))
    if moves is None:
        raise UnknownPlaces
    if plain is not None and _keys(moves) == _keys(_merged(plain)):
        return None
    return moves


@dataclass(frozen=True, slots=True)
class InMemory:
    """An array as it lies in memory.

    added: dimensions of size 1 that tiles put in front.  padded: sizes of all dimensions, in whole tiles.  parts: sizes
    of all digits, by dimension, slowest first.  order: the digits' numbers among those, in the order of memory.
    """

    added: int
    padded: tuple[int, ...]
    parts: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements, padding included."""
        return prod(self.padded)

    @property
    def stored(self) -> tuple[int, ...]:
        """Sizes of all digits in the order of memory."""
        return tuple(self.parts[k] for k in self.order)

    @property
    def back(self) -> tuple[int, ...]:
        """The permutation from the order of memory."""
        return tuple(self.order.index(k) for k in range(len(self.order)))


def in_memory(shape: Shape, *, tiled: bool) -> InMemory | None:
    """The array's place in memory, by its tiles or by minor_to_major alone; None where that isn't known."""
    digits = _tiled(shape) if tiled else _plain(shape)
    if digits is None:
        return None
    dimensions = sorted({*range(shape.rank), *(digit.dimension for digit in digits)})
    grouped = sorted(range(len(digits)), key=lambda k: (digits[k].dimension, -digits[k].weight))
    padded = []
    for dimension in dimensions:
        size = 1
        for digit in sorted((d for d in digits if d.dimension == dimension), key=lambda d: (d.weight, d.size)):
            if digit.weight != size:
                return None  # padding within a tile
            size *= digit.size
        padded.append(size)
    return InMemory(
        sum(dimension < 0 for dimension in dimensions),
        tuple(padded),
        tuple(digits[k].size for k in grouped),
        tuple(grouped.index(k) for k in range(len(digits))),
    )


def rebuilt(source: Shape, target: Shape) -> tuple[InMemory, InMemory] | None:
    """Both sides of a bitcast in memory, where an element of one side is padding or a part of an element on the other.

    None where each element is one element of the other side.

    Raises UnknownPlaces, also where they have not as many bytes.
    """
    if source.dtype.bits == target.dtype.bits and source.size == target.size:
        try:
            moved_by_tiles(source, target)
        except UnknownPlaces:
            pass
        else:
            return None
    tiled = _is_tiled(source) and _is_tiled(target)
    sides = in_memory(source, tiled=tiled), in_memory(target, tiled=tiled)
    if sides[0] is None or sides[1] is None or source.is_dynamic or target.is_dynamic:
        raise UnknownPlaces
    if sides[0].size * source.dtype.byte_size != sides[1].size * target.dtype.byte_size:
        raise UnknownPlaces
    return sides[0], sides[1]


def target_order(moves: Sequence[Move]) -> tuple[int, ...]:
    """The numbers of the moves in the order of the target's dimensions, slowest part first."""
    return tuple(sorted(range(len(moves)), key=lambda k: (moves[k].target, -moves[k].target_weight)))


def _is_tiled(shape: Shape) -> bool:
    return shape.layout is not None and bool(shape.layout.tiles)


def _plain(shape: Shape) -> list[Digit]:
    """Slowest first, as all digits."""
    return [Digit(d, 1, shape.dims[d]) for d in reversed(shape.minor_to_major())]


def _tiled(shape: Shape) -> list[Digit] | None:
    digits = _plain(shape)
    for tile in shape.layout.tiles if shape.layout else ():
        if any(dimension_size < 1 for dimension_size in tile):
            return None  # `*` joins dimensions
        digits = [*(Digit(k, 1, 1) for k in range(len(digits) - len(tile), 0)), *digits]
        cut = digits[len(digits) - len(tile) :]
        blocks = [Digit(d.dimension, d.weight * t, -(-d.size // t)) for d, t in zip(cut, tile, strict=True)]
        inside = [Digit(d.dimension, d.weight, t) for d, t in zip(cut, tile, strict=True)]
        digits = [*digits[: len(digits) - len(tile)], *blocks, *inside]
    return digits


def _matched(source: Sequence[Digit], target: Sequence[Digit]) -> list[tuple[Digit, Digit]] | None:
    """Digits of equal sizes, fastest first, cut where the other side's are smaller; None where they don't divide."""
    ours, theirs = ([d for d in digits if d.size != 1] for digits in (source, target))
    found = []
    while ours and theirs:
        a, b = ours.pop(), theirs.pop()
        size = min(a.size, b.size)
        if a.size % size or b.size % size:
            return None
        for digit, rest in ((a, ours), (b, theirs)):
            if digit.size > size:
                rest.append(Digit(digit.dimension, digit.weight * size, digit.size // size))
        found.append((Digit(a.dimension, a.weight, size), Digit(b.dimension, b.weight, size)))
    return None if ours or theirs else found


def _moves(
    source: Shape, target: Shape, from_digits: Sequence[Digit] | None, to_digits: Sequence[Digit] | None
) -> tuple[Move, ...] | None:
    """None where an element would be padding on the other side, or that is unknown."""
    matched = None if from_digits is None or to_digits is None else _matched(from_digits, to_digits)
    if matched is None or from_digits is None or to_digits is None:
        return None
    pairs = []
    for a, b in matched:
        # a digit that is zero in every element only counts padding
        counts = [d.dimension >= 0 and s.dims[d.dimension] > d.weight for d, s in ((a, source), (b, target))]
        if counts[0] != counts[1]:
            return None
        if counts[0]:
            pairs.append((a, b))
    moves = _merged(pairs)
    whole = {(m.source, m.target) for m in moves if m.source_weight == m.target_weight == 1}
    padded = [_padded(shape, digits) for shape, digits in ((source, from_digits), (target, to_digits))]
    result = []
    for move in moves:
        if move.source in padded[0] or move.target in padded[1]:
            # then one dimension is another one as a whole
            dimension_size = source.dims[move.source]
            if (move.source, move.target) not in whole or dimension_size != target.dims[move.target]:
                return None
            if sum(m.source == move.source or m.target == move.target for m in moves) != 1:
                return None
            move = Move(move.source, 1, move.target, 1, dimension_size)
        result.append(move)
    return tuple(result)


def _padded(shape: Shape, digits: Sequence[Digit]) -> set[int]:
    """The dimensions that tiles make longer."""
    return {
        d
        for d, dimension_size in enumerate(shape.dims)
        if prod(digit.size for digit in digits if digit.dimension == d) > dimension_size
    }


def _merged(pairs: Sequence[tuple[Digit, Digit]]) -> tuple[Move, ...]:
    """By source dimension, slowest first, with parts joined that stay adjacent."""
    moves: list[Move] = []
    for a, b in sorted(pairs, key=lambda pair: (pair[0].dimension, pair[0].weight)):
        last = moves[-1] if moves else None
        if (
            last is not None
            and (last.source, last.target) == (a.dimension, b.dimension)
            and a.weight == last.source_weight * last.size
            and b.weight == last.target_weight * last.size
        ):
            moves[-1] = Move(last.source, last.source_weight, last.target, last.target_weight, last.size * a.size)
        else:
            moves.append(Move(a.dimension, a.weight, b.dimension, b.weight, a.size))
    return tuple(sorted(moves, key=lambda m: (m.source, -m.source_weight)))


def _keys(moves: Sequence[Move]) -> set[tuple[int, int, int, int]]:
    return {(m.source, m.source_weight, m.target, m.target_weight) for m in moves}


__all__ = ["InMemory", "Move", "UnknownPlaces", "in_memory", "moved_by_tiles", "rebuilt", "target_order"]
