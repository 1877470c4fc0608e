"""Index arithmetic that simplifies while it is written down.

An index of the generated code is an affine sum of atoms with bounds that are known at compile time. Because reshapes
and broadcasts only add, multiply and divide by constants, a linear index that is taken apart and put together again
becomes itself, and comparisons that always hold become constants. LLVM instructions appear only when an address is
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, Protocol, TypeVar

from llvmlite import ir

from distxla.emit.native_function import I32, I64

LOWEST, HIGHEST = -(2**63), 2**63 - 1

T = TypeVar("T")
Terms = tuple[tuple["Atom", int], ...]


class LoopNest(Protocol):
    """Loops whose indices are atoms: `loops.Nest`.

    depth: number of loops around it.  ranges: (first, end) by dimension.  splits: a comparison with a constant may ask
    for a split of the loops.
    """

    depth: int
    ranges: tuple[tuple[int, int], ...]
    splits: bool

    def runs(self, parts: list[tuple[int, int]]) -> list[tuple[ir.Value, int]]:
        """sum of index[d] * c over `parts` (d, c) as few values with coefficients."""


class Atom:
    """Something that an index is made of; compared by identity.

    low, high: inclusive bounds.  A loop's atom has `nest` and `dimension`; a quotient has `dividend` and `divisor`;
    any other has its LLVM `value`.
    """

    __slots__ = ("dimension", "dividend", "divisor", "high", "key", "low", "nest", "value")

    def __init__(self, key: int, low: int, high: int) -> None:
        self.key = key
        self.low = low
        self.high = high
        self.value: ir.Value | None = None
        self.nest: LoopNest | None = None
        self.dimension = 0
        self.dividend: IndexExpression | None = None
        self.divisor = 0


class IndexCode:
    """Creates atoms and turns expressions into i64 values, each once per region of dominance."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self._count = 0
        self._quotients: dict[tuple[Terms, int, int], Atom] = {}
        self.known_bounds: dict[Terms, tuple[int, int]] = {}
        self._values: list[dict[Any, Any]] = [{}]

    def atom(self, low: int, high: int) -> Atom:
        self._count += 1
        return Atom(self._count, low, high)

    def constant(self, value: int) -> IndexExpression:
        return IndexExpression(self, (), value, value, value)

    def expression(self, atom: Atom) -> IndexExpression:
        return IndexExpression(self, ((atom, 1),), 0, atom.low, atom.high)

    def of_value(self, value: ir.Value, low: int = LOWEST, high: int = HIGHEST) -> IndexExpression:
        """An i64 of the generated code that is known to be in [low, high]."""
        atom = self.atom(low, high)
        atom.value = value
        return self.expression(atom)

    def quotient(self, dividend: IndexExpression, divisor: int) -> Atom:
        key = (dividend.terms, dividend.offset, divisor)
        atom = self._quotients.get(key)
        if atom is None:
            atom = self._quotients[key] = self.atom(max(0, dividend.low) // divisor, max(0, dividend.high) // divisor)
            atom.dividend, atom.divisor = dividend, divisor
        return atom

    def enter(self) -> None:
        """Values computed from here to `leave` do not dominate the code after it."""
        self._values.append({})

    def leave(self) -> None:
        self._values.pop()

    def depth(self) -> int:
        """How many regions are entered; for `unwind`."""
        return len(self._values)

    def unwind(self, depth: int) -> None:
        """Forget the regions beyond `depth`: their code was taken back."""
        del self._values[depth:]

    def remembered(self, key: Any, make: Callable[[], T]) -> T:
        """The value that `make` gave for `key` in a region that dominates this one, or gives now."""
        for values in reversed(self._values):
            if key in values:
                found: T = values[key]
                return found
        made = make()
        self._values[-1][key] = made
        return made

    def value(self, index: IndexExpression | int) -> ir.Value:
        """The index as an i64 in the current block."""
        if isinstance(index, int):
            return ir.Constant(I64, index)
        if not index.terms:
            return ir.Constant(I64, index.offset)
        return self.remembered((index.terms, index.offset), lambda: self._sum(index))

    def _sum(self, index: IndexExpression) -> ir.Value:
        total: ir.Value | None = None
        for value, coefficient in self._factors(index.terms):
            term = value if coefficient == 1 else self._scaled(value, coefficient)
            total = term if total is None else self._added(total, term)
        assert total is not None
        if index.offset:
            total = self.builder.add(total, ir.Constant(I64, index.offset), flags=("nsw",))
        return total

    def _scaled(self, value: ir.Value, coefficient: int) -> ir.Value:
        constant = ir.Constant(I64, coefficient)
        return self.remembered((id(value), coefficient), lambda: self.builder.mul(value, constant, flags=("nsw",)))

    def _added(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.remembered((id(left), "+", id(right)), lambda: self.builder.add(left, right, flags=("nsw",)))

    def _factors(self, terms: Terms) -> list[tuple[ir.Value, int]]:
        """LLVM values with coefficients, outer loops first; loops that are walked as one become one value."""
        nests: dict[LoopNest, list[tuple[int, int]]] = {}
        rest: list[tuple[ir.Value, int]] = []
        for atom, coefficient in terms:
            if atom.nest is not None:
                nests.setdefault(atom.nest, []).append((atom.dimension, coefficient))
            elif atom.dividend is not None:
                rest.append((self._quotient_value(atom), coefficient))
            else:
                assert atom.value is not None
                rest.append((atom.value, coefficient))
        loops: list[tuple[ir.Value, int]] = []
        for nest, parts in sorted(nests.items(), key=lambda item: item[0].depth):
            loops.extend(nest.runs(parts))
        return rest + loops

    def _quotient_value(self, atom: Atom) -> ir.Value:
        return self.remembered(atom, lambda: self._divide(atom))

    def _divide(self, atom: Atom) -> ir.Value:
        assert atom.dividend is not None
        value, divisor = self.value(atom.dividend), atom.divisor
        if divisor & (divisor - 1) == 0:
            return self.builder.lshr(value, ir.Constant(I64, divisor.bit_length() - 1))
        if atom.dividend.high < 2**31:
            # 32-bit division by a constant vectorises, the 64-bit one does not
            narrow = self.builder.trunc(value, I32)
            return self.builder.zext(self.builder.udiv(narrow, ir.Constant(I32, divisor)), I64)
        return self.builder.udiv(value, ir.Constant(I64, divisor))


class IndexExpression:
    """terms: (atom, coefficient) by age of the atom.  The value is their sum plus `offset`, within [low, high]."""

    __slots__ = ("code", "high", "low", "offset", "terms")

    def __init__(self, code: IndexCode, terms: Terms, offset: int, low: int, high: int) -> None:
        self.code = code
        self.terms = terms
        self.offset = offset
        self.low = low
        self.high = high

    @property
    def constant(self) -> int | None:
        return None if self.terms else self.offset

    def _of(self, other: IndexExpression | int) -> IndexExpression:
        return other if isinstance(other, IndexExpression) else self.code.constant(int(other))

    def _combined(self, terms: dict[Atom, int], offset: int, low: int, high: int) -> IndexExpression:
        kept = tuple(sorted(((a, c) for a, c in terms.items() if c), key=lambda t: t[0].key))
        if not kept:
            return self.code.constant(offset)
        bound_low, bound_high = bounds(self.code, kept)
        return IndexExpression(self.code, kept, offset, max(low, bound_low + offset), min(high, bound_high + offset))

    def __add__(self, other: IndexExpression | int) -> IndexExpression:
        if isinstance(other, int):
            return self.shifted(other) if other else self
        if not other.terms:
            return self.shifted(other.offset)
        if not self.terms:
            return other.shifted(self.offset)
        terms = dict(self.terms)
        for atom, coefficient in other.terms:
            terms[atom] = terms.get(atom, 0) + coefficient
        return self._combined(terms, self.offset + other.offset, self.low + other.low, self.high + other.high)

    __radd__ = __add__

    def shifted(self, by: int) -> IndexExpression:
        return IndexExpression(self.code, self.terms, self.offset + by, self.low + by, self.high + by)

    def __sub__(self, other: IndexExpression | int) -> IndexExpression:
        return self + self._of(other) * -1

    def __rsub__(self, other: IndexExpression | int) -> IndexExpression:
        return self._of(other) + self * -1

    def __mul__(self, other: IndexExpression | int) -> IndexExpression:
        factor = other if isinstance(other, int) else other.constant
        if factor is None:
            assert isinstance(other, IndexExpression)
            if not self.terms:
                return other * self.offset
            code = self.code
            corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
            product = code.builder.mul(code.value(self), code.value(other), flags=("nsw",))
            return code.of_value(product, max(LOWEST, min(corners)), min(HIGHEST, max(corners)))
        if factor == 1:
            return self
        if factor == 0:
            return self.code.constant(0)
        low, high = self.low * factor, self.high * factor
        terms = tuple((a, c * factor) for a, c in self.terms)
        return IndexExpression(self.code, terms, self.offset * factor, min(low, high), max(low, high))

    __rmul__ = __mul__

    def _split(self, divisor: int) -> tuple[IndexExpression, IndexExpression]:
        """(whole, rest) with self == whole * divisor + rest; the rest has no term that the divisor divides."""
        whole: dict[Atom, int] = {}
        rest: dict[Atom, int] = {}
        for atom, coefficient in self.terms:
            if coefficient % divisor == 0:
                whole[atom] = coefficient // divisor
            else:
                rest[atom] = coefficient
        q, r = divmod(self.offset, divisor)
        huge = (LOWEST, HIGHEST)
        return self._combined(whole, q, *huge), self._combined(rest, r, *huge)

    def _divided(self, divisor: int) -> tuple[IndexExpression, IndexExpression]:
        """Quotient and remainder by a positive constant."""
        if self.low >= 0 and self.high < divisor:
            return self.code.constant(0), self
        whole, rest = self._split(divisor)
        if rest.low >= 0 and rest.high < divisor:
            return whole, rest
        if rest.low < 0:
            whole, rest = self.code.constant(0), self
        common = gcd(divisor, *(c for _, c in rest.terms))
        part, small = rest, divisor
        if common > 1:
            terms = tuple((a, c // common) for a, c in rest.terms)
            part = IndexExpression(
                self.code, terms, rest.offset // common, max(0, rest.low // common), max(0, rest.high // common)
            )
            small = divisor // common
        if (
            len(part.terms) == 1
            and part.offset == 0
            and part.terms[0][1] == 1
            and part.terms[0][0].dividend is not None
        ):
            inner = part.terms[0][0]
            assert inner.dividend is not None
            part, small = inner.dividend, inner.divisor * small
        if small == 1:
            quotient = part
        else:
            quotient = self.code.expression(self.code.quotient(part, small))
        total = whole + quotient
        remainder = rest - quotient * divisor
        limit = (max(0, remainder.low), min(divisor - 1, remainder.high))
        self.code.known_bounds[remainder.terms] = (limit[0] - remainder.offset, limit[1] - remainder.offset)
        return total, IndexExpression(self.code, remainder.terms, remainder.offset, *limit)

    def __floordiv__(self, other: IndexExpression | int) -> IndexExpression:
        divisor = other if isinstance(other, int) else other.constant
        if divisor is None:
            code = self.code
            value = code.builder.udiv(code.value(self), code.value(other))
            return code.of_value(value, 0, max(0, self.high))
        return self._divided(divisor)[0]

    def __mod__(self, other: IndexExpression | int) -> IndexExpression:
        divisor = other if isinstance(other, int) else other.constant
        if divisor is None:
            assert isinstance(other, IndexExpression)
            code = self.code
            value = code.builder.urem(code.value(self), code.value(other))
            return code.of_value(value, 0, max(0, min(self.high, other.high - 1)))
        return self._divided(divisor)[1]

    def __repr__(self) -> str:
        parts = [f"{c}*a{a.key}" for a, c in self.terms] + [str(self.offset)]
        return f"<{' + '.join(parts)} in [{self.low}, {self.high}]>"


def bounds(code: IndexCode, terms: Terms) -> tuple[int, int]:
    """Bounds of the sum of `terms`: from the atoms, or tighter ones that were seen when it became a remainder."""
    low = high = 0
    for atom, c in terms:
        if c > 0:
            low, high = low + c * atom.low, high + c * atom.high
        else:
            low, high = low + c * atom.high, high + c * atom.low
    known = code.known_bounds.get(terms)
    if known is not None:
        low, high = max(low, known[0]), min(high, known[1])
    return low, high
