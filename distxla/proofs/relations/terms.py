"""Whole values of the unsharded program as expressions: equal expressions are one object."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from distxla.ir.element_type import ElementType
from distxla.lazy_dataclass import dataclass, field
from distxla.proofs.relations.lines import Lines

# Of one dimension of an array: which dimensions of a value go along it (-1: none, one index a device), and the index
# that each of them adds.
Axis = tuple[tuple[int, Lines], ...]
ENDLESS = -1


@dataclass(frozen=True, eq=False)
class Term:
    """key: what is computed, with all attributes that matter.  dims: dimension sizes, ENDLESS for one without end.

    operands: each with its axes, as seen from the dimensions of this term; behind these come the dimensions that a
    reduction takes together and those that the operation needs whole.
    """

    number: int
    key: Hashable
    element_type: ElementType
    dims: tuple[int, ...]
    operands: tuple[tuple[Term, tuple[Axis, ...]], ...] = field(repr=False)


class Terms:
    """All terms of one proof."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Term] = {}

    def term(
        self,
        key: Hashable,
        element_type: ElementType,
        dims: tuple[int, ...],
        operands: tuple[tuple[Term, tuple[Axis, ...]], ...] = (),
    ) -> Term:
        """The one term of this description."""
        full = (key, element_type.name, dims, tuple((t.number, axes) for t, axes in operands))
        found = self._known.get(full)
        if found is None:
            found = self._known[full] = Term(len(self._known), key, element_type, dims, operands)
        return found

    def __len__(self) -> int:
        return len(self._known)


def reached(terms: Iterator[Term]) -> set[Term]:
    """The terms and all that they are made of."""
    found: set[Term] = set()
    waiting = list(terms)
    while waiting:
        term = waiting.pop()
        if term not in found:
            found.add(term)
            waiting += [operand for operand, _ in term.operands]
    return found
