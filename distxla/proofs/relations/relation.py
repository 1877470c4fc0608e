"""`Relation`: how an array of a sharded program is related to the unsharded program's values."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.lazy_dataclass import dataclass, field, replace
from distxla.proofs.relations.lines import Lines
from distxla.proofs.relations.terms import ENDLESS, Axis, Term

ONE: Final = Fraction(1)
Column = tuple[int, ...]


class NoRule(Exception):
    """The relation of an instruction's result can't be inferred; the message says why."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A value that the devices have in parts, T = part 1 + part 2 + .., which are still to be taken together.

    kind: the opcode that takes them together: "add", "maximum", "minimum", "and", "or".  columns: of each part, how
    often each device has it; parts of the same distribution are one. With ((1, 0), (0, 1)) device 0 has one part and
    device 1 the other; the parts of ((0, 0), ..) are nowhere.
    """

    kind: str
    columns: frozenset[Column]

    @property
    def is_missing_some(self) -> bool:
        """Whether there are parts that no device has."""
        return any(not any(column) for column in self.columns)

    def described(self) -> str:
        what = {"add": "sum", "maximum": "maximum", "minimum": "minimum"}.get(self.kind, f"`{self.kind}`")
        return f"a partial {what}"


@dataclass(frozen=True, slots=True)
class Relation:
    """Element j of device d is scale * term[i], where each axis of the term says which i.

    term: the whole value.  axes: one for each dimension of the term.  dims: of the device's array; dimensions that no
    axis names repeat the value.  parts: None where each device has the whole of its elements.
    assumed: numbers of the doubts (Space.doubts) under which it holds.  pieces: of a concatenation of unlike arrays,
    its dimension and the arrays.  shifted: the array from which known integers have been taken, and those, by device.
    """

    term: Term
    axes: tuple[Axis, ...]
    dims: tuple[int, ...]
    scale: Fraction = ONE
    parts: Parts | None = None
    assumed: frozenset[int] = frozenset()
    pieces: tuple[int, tuple[Relation, ...]] | None = field(default=None, compare=False)
    shifted: tuple[Relation, Lines] | None = field(default=None, compare=False)

    @property
    def element_type(self) -> ElementType:
        return self.term.element_type

    @property
    def is_index(self) -> bool:
        """Whether its elements are known integers (or truth values): the sums of its axis's indices."""
        return self.term.key == "index" and self.parts is None and self.scale == 1

    @property
    def is_zero(self) -> bool:
        """Whether all elements are 0, whatever the inputs."""
        if self.term.key == "zero":
            return True
        if self.is_index:
            return all(not lines.rows.any() for _, lines in self.axes[0])
        return bool(self.parts is not None and self.parts.columns and not any(map(any, self.parts.columns)))

    @property
    def constant(self) -> Fraction | None:
        """The number that all elements are; None where it isn't known or not finite."""
        if self.term.key == "one" and self.parts is None:
            return self.scale
        if self.term.key == "zero":
            return Fraction(0)
        return None

    def changed(self, **changes: Any) -> Relation:
        return replace(self, **{"pieces": None, "shifted": None, **changes})

    def lines_along(self, dim: int) -> list[Lines]:
        """The lines of all axes along a dimension."""
        return [lines for axis in self.axes for along, lines in axis if along == dim]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The value of an instruction for which there is no rule.  why: in words.  path: names of enclosing calls."""

    instruction: Instruction
    why: str


@dataclass(frozen=True, slots=True)
class Guarded:
    """Elements that a device took of its part of an array by positions which may lie outside of it.

    relation: what they are where the positions lie inside, zeros elsewhere.  inside, outside: the conditions that say
    which of them do, in all the ways in which programs ask for it.
    """

    relation: Relation
    inside: tuple[Relation, ...]
    outside: tuple[Relation, ...]

    @property
    def dims(self) -> tuple[int, ...]:
        return self.relation.dims


Value = Any  # Relation | Unknown | Guarded | tuple of values | None (tokens)


def united(relations: Iterable[Relation]) -> frozenset[int]:
    """The doubts of all of them."""
    found: frozenset[int] = frozenset()
    for relation in relations:
        if relation.assumed:
            found |= relation.assumed
    return found


__all__ = ["ENDLESS", "ONE", "Column", "Guarded", "NoRule", "Parts", "Relation", "Unknown", "Value", "united"]
