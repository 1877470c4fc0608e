"""Counter-based random bits: Threefry-2x32 and Philox-4x32, on NumPy arrays and in generated code.

Each maps a key and a counter, which numbers the blocks, to a block of 32-bit words; one implementation serves both, on
anything with the operators of unsigned integers. How blocks become an array follows XLA, so that programs repeat their
results there:

    Threefry  state u64[2] = (key, counter). One dimension of the array is halved: the first even one, else the longest.
              Block number i, counted over the halved array, gives the neighbours 2j and 2j+1 in that dimension. 64-bit
              elements take a block each.
    Philox    state u64[3] = (key, counter, counter's upper half); u64[2] leaves the upper half at the key. The array is
              filled in row-major order, four 32-bit elements a block or two 64-bit ones.

Narrower elements are the lowest bits of a 32-bit word, and floats have the bits of an unsigned integer. The next state
counts on by the blocks taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from distxla.ir.element_type import ELEMENT_TYPES, U32, U64, ElementType
from distxla.ir.shape import Shape
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value

# Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011)
_THREEFRY_PARITY = 0x1BD11BDA
_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


# --- one block ------------------------------------------------------------------------------------------------------


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Twenty rounds over a block of two 32-bit words."""
    keys = (*key, key[0] ^ key[1] ^ _THREEFRY_PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for injection in range(1, 6):
        for distance in _THREEFRY_ROTATIONS[(injection - 1) % 2]:
            x = x + y
            y = (y << distance | y >> (32 - distance)) ^ x
        x = x + keys[injection % 3]
        y = y + keys[(injection + 1) % 3] + injection
    return x, y


def philox(key: tuple[Any, Any], counter: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Ten rounds over a block of four 32-bit words."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        first, second = widen(a) * _PHILOX_MULTIPLIERS[0], widen(c) * _PHILOX_MULTIPLIERS[1]
        (first_low, first_high), (second_low, second_high) = halves(first), halves(second)
        a, b, c, d = second_high ^ b ^ k, second_low, first_high ^ d ^ m, first_low
        k, m = k + _PHILOX_KEY_STEPS[0], m + _PHILOX_KEY_STEPS[1]
    return a, b, c, d


def widen(word: Any) -> Any:
    """A 32-bit word as a 64-bit one."""
    return word.converted(U64) if isinstance(word, UnsignedExpr) else word.astype(np.uint64)


def halves(word: Any) -> tuple[Any, Any]:
    """The lower and the upper 32 bits of a 64-bit word."""
    if isinstance(word, UnsignedExpr):
        return word.converted(U32), (word >> 32).converted(U32)
    return word.astype(np.uint32), (word >> np.uint64(32)).astype(np.uint32)


def joined(low: Any, high: Any) -> Any:
    """A 64-bit word of its halves."""
    return widen(low) | widen(high) << 32


class UnsignedExpr:
    """An unsigned integer of generated code with the operators that the rounds need; ints mix in."""

    def __init__(self, emit: KernelEmitter, value: Value) -> None:
        self.emit = emit
        self.value = value

    def converted(self, element_type: ElementType) -> UnsignedExpr:
        """The lowest bits, or zeros above."""
        return UnsignedExpr(self.emit, self.emit.convert(self.value, element_type))

    def _binary(self, opcode: str, other: UnsignedExpr | int) -> UnsignedExpr:
        right = self.emit.constant(other, self.value.element_type) if isinstance(other, int) else other.value
        return UnsignedExpr(self.emit, self.emit.binary(opcode, self.value, right))

    def __add__(self, other: UnsignedExpr | int) -> UnsignedExpr:
        return self._binary("add", other)

    def __mul__(self, other: UnsignedExpr | int) -> UnsignedExpr:
        return self._binary("multiply", other)

    def __xor__(self, other: UnsignedExpr | int) -> UnsignedExpr:
        return self._binary("xor", other)

    def __or__(self, other: UnsignedExpr | int) -> UnsignedExpr:
        return self._binary("or", other)

    def __lshift__(self, other: UnsignedExpr | int) -> UnsignedExpr:
        return self._binary("shift-left", other)

    def __rshift__(self, other: UnsignedExpr | int) -> UnsignedExpr:
        return self._binary("shift-right-logical", other)


# --- arrays of NumPy ------------------------------------------------------------------------------------------------


def threefry_array(state: Any, shape: Shape) -> tuple[Any, Any]:
    """The next state, and the bits as an array of `shape`."""
    key = halves(state[:1])
    if shape.dtype.bits == 64:
        counter = np.arange(shape.size, dtype=np.uint64) + state[1]
        bits = joined(*threefry(key, halves(counter)))
    else:
        dims = shape.dims or (1,)
        axis, half = _halved(dims)
        counter = np.arange(prod(half), dtype=np.uint64) + state[1]
        words = [word.reshape(half) for word in threefry(key, halves(counter))]
        neighbours = np.stack(words, axis + 1).reshape(*half[:axis], 2 * half[axis], *half[axis + 1 :])
        bits = neighbours[tuple(slice(dimension_size) for dimension_size in dims)]
    return np.array([state[0], _advanced(state[1], counter.size)]), _lowest_bits(bits, shape.dtype).reshape(shape.dims)


def philox_array(state: Any, shape: Shape) -> tuple[Any, Any]:
    """The next state, and the bits as an array of `shape`."""
    taken = philox_blocks(shape)
    low = np.arange(taken, dtype=np.uint64) + state[1]
    high = np.where(low < state[1], np.uint64(1), np.uint64(0)) + (state[2] if len(state) == 3 else state[0])
    words: tuple[Any, ...] = philox(halves(state[:1]), (*halves(low), *halves(high)))
    if shape.dtype.bits == 64:
        words = (joined(*words[:2]), joined(*words[2:]))
    bits = np.stack(words, 1).reshape(-1)[: shape.size]
    following = [state[0], _advanced(state[1], taken)]
    if len(state) == 3:
        following.append(_advanced(state[2], int(following[1] < state[1])))
    return np.array(following), _lowest_bits(bits, shape.dtype).reshape(shape.dims)


def _lowest_bits(words: Any, element_type: ElementType) -> Any:
    """As many of the lowest bits as an element has, as elements."""
    bits = (words & words.dtype.type((1 << element_type.bits) - 1)).astype(f"uint{8 * element_type.byte_size}")
    if element_type.is_float:
        return bits.view(element_type.dtype)
    if element_type.is_signed:
        unused = 8 * element_type.byte_size - element_type.bits
        bits = (bits << unused).view(f"int{8 * element_type.byte_size}") >> unused
    return bits.astype(element_type.dtype)


def _advanced(word: Any, blocks: int) -> Any:
    """The sum as u64, modulo 2^64."""
    return np.uint64((int(word) + blocks) % (1 << 64))


# --- generated code -------------------------------------------------------------------------------------------------


def emit_threefry(emit: KernelEmitter, following: Buffer | None, bits: Buffer, state: Buffer) -> None:
    """Fill `bits`, and `following` with the next state."""
    key, start = (UnsignedExpr(emit, state.load((i,))) for i in range(2))
    shape = bits.shape

    def block(number: IndexLike) -> tuple[Any, Any]:
        return threefry(halves(key), halves(start + UnsignedExpr(emit, emit.value_of(number, U64))))

    if shape.dtype.bits == 64:
        blocks = shape.size
        flat = emit.reshaped(bits, Shape(shape.dtype, (blocks,)))
        with emit.loops((blocks,), independent=True) as (i,):
            _store(emit, flat, (i,), joined(*block(i)))
    else:
        dims = shape.dims or (1,)
        axis, half = _halved(dims)
        blocks = prod(half)
        target = emit.reshaped(bits, Shape(shape.dtype, dims))
        # The last place of an odd dimension has no neighbour: it is filled on its own.
        for first, count, words in ((0, dims[axis] // 2, 2), (dims[axis] // 2, dims[axis] % 2, 1)):
            if count == 0:
                continue
            with emit.loops((*half[:axis], count, *half[axis + 1 :]), independent=True) as found:
                index = [*found[:axis], found[axis] + first, *found[axis + 1 :]]
                for word, value in enumerate(block(_row_major(index, half))[:words]):
                    _store(emit, target, [*index[:axis], index[axis] * 2 + word, *index[axis + 1 :]], value)
    if following is not None:
        following.store((0,), key.value)
        following.store((1,), (start + blocks).value)


def emit_philox(emit: KernelEmitter, following: Buffer | None, bits: Buffer, state: Buffer) -> None:
    """Fill `bits`, and `following` with the next state."""
    shape = bits.shape
    words = state.shape.dims[0]
    key, start = (UnsignedExpr(emit, state.load((i,))) for i in range(2))
    upper = UnsignedExpr(emit, state.load((2,))) if words == 3 else key
    flat = emit.reshaped(bits, Shape(shape.dtype, (shape.size,)))

    def counted_on(blocks: UnsignedExpr | int) -> tuple[UnsignedExpr, UnsignedExpr]:
        low = start + blocks
        wrapped = emit.convert(emit.compare("LT", "UNSIGNED", low.value, start.value), U64)
        return low, upper + UnsignedExpr(emit, wrapped)

    def block(number: IndexLike) -> Sequence[Any]:
        low, high = counted_on(UnsignedExpr(emit, emit.value_of(number, U64)))
        found = philox(halves(key), (*halves(low), *halves(high)))
        return (joined(*found[:2]), joined(*found[2:])) if shape.dtype.bits == 64 else found

    each = 2 if shape.dtype.bits == 64 else 4
    whole, rest = divmod(shape.size, each)
    with emit.loops((whole,), independent=True) as (i,):
        for word, value in enumerate(block(i)):
            _store(emit, flat, (i * each + word,), value)
    if rest:
        for word, value in enumerate(block(whole)[:rest]):
            _store(emit, flat, (whole * each + word,), value)
    if following is not None:
        low, high = counted_on(philox_blocks(shape))
        for place, part in enumerate((key, low, high)[:words]):
            following.store((place,), part.value)


def _store(emit: KernelEmitter, buffer: Buffer, index: Index, word: UnsignedExpr) -> None:
    element_type = buffer.shape.dtype
    if not element_type.is_float:
        buffer.store(index, emit.convert(word.value, element_type))
        return
    bits = emit.convert(word.value, ELEMENT_TYPES[f"u{element_type.bits}"])
    buffer.store(index, emit.bitcast(bits, element_type))


def _row_major(index: Index, dims: Sequence[int]) -> IndexLike:
    number: IndexLike = 0
    for i, dimension_size in zip(index, dims, strict=True):
        number = number * dimension_size + i
    return number


def _halved(dims: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """The dimension that Threefry halves, and the dimension sizes of the halved array."""
    axis = next((d for d, dimension_size in enumerate(dims) if dimension_size % 2 == 0), None)
    if axis is None:
        axis = dims.index(max(dims))
    return axis, (*dims[:axis], (dims[axis] + 1) // 2, *dims[axis + 1 :])


def philox_blocks(shape: Shape) -> int:
    """How many blocks Philox takes for an array of `shape`."""
    each = 2 if shape.dtype.bits == 64 else 4
    return (shape.size + each - 1) // each
