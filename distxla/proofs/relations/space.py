"""The devices of a program, and the relations of simple values on them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.proofs.relations.lines import Array, Lines, Pool
from distxla.proofs.relations.relation import NoRule, Parts, Relation
from distxla.proofs.relations.terms import ENDLESS, Axis, Term, Terms

LARGEST_CONSTANT = 1 << 22  # elements
LARGEST_INDEX = 1 << 53  # of known integers; larger ones could be taken for lines.NOWHERE


@dataclass(frozen=True)
class Doubt:
    """An instruction that takes a part for the whole.  why: in words."""

    instruction: Instruction
    why: str
    where: tuple[str, ...]


class Space:
    """What one side of a proof is made of. Both sides share pool and terms, so that equal values are one term.

    devices: 1 for the unsharded program.  alone: the program of each device is compared as it is with another one of
    as many devices: what collectives do isn't looked into.
    """

    def __init__(self, pool: Pool, terms: Terms, counts: Counts, *, alone: bool = False) -> None:
        self.pool, self.terms = pool, terms
        self.counts, self.alone = counts, alone
        self.devices = 1 if alone else counts.devices
        self.doubts: list[Doubt] = []
        self.ones = (1,) * self.devices

    # --- lines ---------------------------------------------------------------------------------------------------

    def range(self, count: int) -> Lines:
        return self.pool.range(self.devices, count)

    def lines(self, rows: Array) -> Lines:
        """rows: one for each device, or one for all."""
        if rows.ndim == 1:
            rows = np.broadcast_to(rows, (self.devices, rows.size))
        return self.pool.lines(rows)

    # --- values --------------------------------------------------------------------------------------------------

    def whole(self, term: Term) -> Relation:
        """The term itself, on every device."""
        axes = tuple(((d if n != 1 else -1, self.range(n)),) for d, n in enumerate(term.dims))
        return Relation(term, axes, term.dims)

    def symbol(self, key: Hashable, shape: Shape) -> Relation:
        """A value of which nothing is known but its name."""
        return self.whole(self.terms.term(key, shape.dtype, shape.dims))

    def splat(self, value: Any, element_type: ElementType, dims: tuple[int, ...] = ()) -> Relation:
        """An array of one number; value: a NumPy scalar of the element type's NumPy type."""
        value = np.asarray(value)
        if element_type.is_integer or element_type.kind == "pred":
            if abs(int(value)) < LARGEST_INDEX:
                return self.index(element_type, dims, {-1: self.lines(np.array([int(value)]))})
            return Relation(self.terms.term(("constant", value.tobytes()), element_type, ()), (), dims)
        if element_type.is_float and float(value) == 0 and not np.signbit(value.astype(np.float64)):
            return Relation(self.terms.term("zero", element_type, ()), (), dims)
        if element_type.is_float and np.isfinite(value.astype(np.float64)) and float(value) != 0:
            return Relation(self.terms.term("one", element_type, ()), (), dims, as_fraction(value[()]))
        return Relation(self.terms.term(("constant", value.tobytes()), element_type, ()), (), dims)

    def zero(self, element_type: ElementType, dims: tuple[int, ...]) -> Relation:
        return self.splat(np.zeros((), element_type.dtype), element_type, dims)

    def constant(self, array: Array, shape: Shape) -> Relation:
        """A constant array, the same on every device."""
        element_type = shape.dtype
        flat = array.reshape(-1)
        if flat.size and flat[:1].tobytes() * flat.size == flat.tobytes():
            return self.splat(flat[0], element_type, shape.dims)
        integer = element_type.is_integer or element_type.kind == "pred"
        if integer and array.ndim == 1 and _fits(array):
            return self.index(element_type, shape.dims, {0: self.lines(array.astype(np.int64))})
        if array.size > LARGEST_CONSTANT:
            raise NoRule(f"a constant of {array.size} elements")
        return self.symbol(("constant", array.tobytes()), shape)

    def index(self, element_type: ElementType, dims: tuple[int, ...], along: dict[int, Lines]) -> Relation:
        """Known integers: the sums of `along`, by dimension; -1 for what is added on a whole device."""
        axis = tuple(sorted(((d, lines) for d, lines in along.items() if lines.rows.any()), key=lambda part: part[0]))
        if not axis:
            axis = ((-1, self.lines(np.zeros(1, np.int64))),)
        return Relation(self.terms.term("index", element_type, (ENDLESS,)), (axis,), dims)

    def ids(self, element_type: ElementType, of: Sequence[int]) -> Relation:
        """A scalar that is of[d] on device d."""
        return self.index(element_type, (), {-1: self.lines(np.array(of).reshape(-1, 1))})

    # --- parts ---------------------------------------------------------------------------------------------------

    def with_columns(self, relation: Relation, kind: str, columns: frozenset[tuple[int, ...]]) -> Relation:
        """The same elements in these parts; whole where every device has each part equally often."""
        if kind in ("maximum", "minimum", "and", "or"):
            columns = frozenset(tuple(map(bool, column)) for column in columns)
            columns = frozenset(tuple(map(int, column)) for column in columns)
        if len(columns) == 1:
            (column,) = columns
            if column[0] > 0 and len(set(column)) == 1:
                scale = relation.scale * column[0] if kind == "add" else relation.scale
                return relation.changed(parts=None, scale=scale)
        return relation.changed(parts=Parts(kind, columns))

    def columns(self, relation: Relation) -> frozenset[tuple[int, ...]]:
        return frozenset([self.ones]) if relation.parts is None else relation.parts.columns


def _fits(array: Array) -> bool:
    return bool(array.size and abs(int(array.max())) < LARGEST_INDEX and abs(int(array.min())) < LARGEST_INDEX)


def as_fraction(value: Any) -> Fraction:
    """The fraction of the smallest denominator that rounds to this float: a third of a sum is the sum of thirds.

    value: finite, not 0, of any NumPy type of floats.
    """
    exact = Fraction(float(value))
    eps: Any = ml_dtypes.finfo(value.dtype).eps  # type: ignore[no-untyped-call]
    mantissa, exponent = math.frexp(abs(float(value)))
    half = Fraction(float(eps)) * Fraction(2) ** (exponent - 1) * Fraction(499, 1000)  # no two floats share a fraction
    low = abs(exact) - (half / 2 if mantissa == 0.5 else half)  # below a power of two floats are twice as dense
    return _simplest(low, abs(exact) + half) * (1 if exact > 0 else -1)


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of the smallest denominator in [low, high], of positive numbers."""
    whole = -(-low.numerator // low.denominator)
    if whole <= high:
        return Fraction(whole)
    floor = low.numerator // low.denominator
    return floor + 1 / _simplest(1 / (high - floor), 1 / (low - floor))


__all__ = ["Axis", "Doubt", "Space"]
