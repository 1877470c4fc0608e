"""Products of integers of 8 bits as floats, where so many of them can be summed without rounding.

Some processors multiply vectors of f32 several times as fast as they widen and multiply integers.
"""

from __future__ import annotations

from typing import Any

from distxla.compiler.lower import contraction
from distxla.compiler.lower.buffer_emitter import BufferEmitter, MatrixOperand
from distxla.ir.element_type import F32, S32, ElementType
from distxla.ir.shape import Shape
from distxla.ops.support.emit import Factors
from distxla.targets.processor import Processor

MANY_TERMS = 256  # that a sum must hold exactly
MANY_PRODUCTS = 1 << 18  # from which on it pays to convert the factors
MOST_PARTS = 16  # of a sum; each has code of its own


def choose_factors(
    processor: Processor, shape: tuple[int, int, int], types: tuple[ElementType, ElementType], sums: ElementType
) -> Factors:
    """f32 for large products of integers of 8 bits, the type of the sums for all others. shape: (m, n, k)."""
    m, n, k = shape
    exact = _terms_exact_in_f32(*types) if processor.floats_beat_bytes and sums.is_integer else 0
    if exact >= MANY_TERMS and k <= MOST_PARTS * exact and min(m, n) > 1 and m * n * k >= MANY_PRODUCTS:
        return Factors(F32, exact)
    return Factors(sums)


def _terms_exact_in_f32(lhs: ElementType, rhs: ElementType) -> int:
    """How many products of two integers can be summed in f32 without rounding; 0 for wide types."""
    if not (lhs.is_integer and rhs.is_integer) or max(lhs.bits, rhs.bits) > 8:
        return 0
    largest = [1 << (t.bits - 1) if t.is_signed else (1 << t.bits) - 1 for t in (lhs, rhs)]
    return (1 << 24) // (largest[0] * largest[1])


def emit_exact_products(
    emit: BufferEmitter,
    shape: tuple[int, int, int, int],
    a: MatrixOperand,
    b: MatrixOperand,
    c: MatrixOperand,
    terms: int,
) -> None:
    """c = a b with factors in f32 and integer sums: `terms` products a sum of floats at most, which are then added."""
    batch, m, n, k = shape
    wide = c[0].shape.dtype
    total = emit.reshaped(c[0], Shape(wide, (c[0].shape.size,)))
    part = emit.scratch(Shape(F32, (batch, m, n)))
    for first in range(0, k, terms):
        count = min(terms, k - first)
        left, right = _from(emit, a, first * a[3]), _from(emit, b, first * b[2])
        contraction.emit_gemm(emit, (batch, m, n, count), left, right, (part, m * n, n, 1))
        with emit.loops((batch, m, n)) as index:
            i, row, column = index
            place: Any = (i * c[1] + row * c[2] + column * c[3],)
            # through s32: sums may be negative where the result's type is unsigned, and wrap
            value = emit.convert(emit.convert(part.load(index), S32), wide)
            total.store(place, value if first == 0 else emit.binary("add", total.load(place), value))


def _from(emit: BufferEmitter, operand: MatrixOperand, skipped: int) -> MatrixOperand:
    """The operand from an element on."""
    array = operand[0]
    return (emit.reshaped(array, Shape(array.shape.dtype, (array.shape.size - skipped,)), skipped), *operand[1:])
