"""Element-wise arithmetic of relations: sums and products by their rules, anything else of whole values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction

from distxla.ir.element_type import ElementType
from distxla.proofs.relations.combining import Operation, combined, products
from distxla.proofs.relations.relation import ONE, Relation
from distxla.proofs.relations.space import Space

Doubting = Callable[[Relation, str], Relation]


class Arithmetic:
    """doubted: what to do where a part is taken for the whole; gives the relation to go on with."""

    def __init__(self, space: Space, doubted: Doubting) -> None:
        self.space, self.doubted = space, doubted

    # --- the forms -----------------------------------------------------------------------------------------------

    def pointwise(
        self, key: Hashable, element_type: ElementType, operands: Sequence[Relation], dims: tuple[int, ...]
    ) -> Relation:
        """An operation on elements of the same position; a scalar operand goes with all. Scales, parts: ignored."""
        labels = tuple(range(len(dims)))
        given = tuple((o, labels[len(labels) - len(o.dims) :] if o.dims else ()) for o in operands)
        return combined(self.space, Operation(key, element_type, given, labels, dims)).relation

    def unscaled(self, relation: Relation) -> Relation:
        """The same value with scale 1."""
        if relation.scale == ONE:
            return relation
        bare = relation.changed(scale=ONE, parts=None)
        made = self.pointwise(("scale", relation.scale), relation.element_type, [bare], relation.dims)
        return made.changed(parts=relation.parts)

    def as_whole(self, relation: Relation, what: str) -> Relation:
        """With scale 1, and none but whole values; what: the operation, for the doubt about parts."""
        if relation.parts is not None:
            relation = self.doubted(relation, f"{relation.parts.described()} is {what}")
        return self.unscaled(relation)

    def of_wholes(
        self, key: Hashable, element_type: ElementType, operands: Sequence[Relation], dims: tuple[int, ...], what: str
    ) -> Relation:
        """Any function of elements of the same position."""
        return self.pointwise(key, element_type, [self.as_whole(o, what) for o in operands], dims)

    # --- sums ----------------------------------------------------------------------------------------------------

    def sum(self, terms: Sequence[tuple[int, Relation]], dims: tuple[int, ...]) -> Relation:
        """The sum of arrays of one type, each times 1 or -1."""
        element_type = terms[0][1].element_type
        given = [(sign, self._summable(r)) for sign, r in terms]
        left = [(sign, r) for sign, r in given if not r.is_zero]
        if not left:
            return given[0][1]
        if len(left) == 1 and left[0][0] == 1:
            return left[0][1]
        if len(left) == 1 and element_type.is_float:
            return left[0][1].changed(scale=-left[0][1].scale)
        found = [(sign * r.scale, r) for sign, r in left]
        if len(found) == 2 and _same(found[0][1], found[1][1]) and found[0][0] + found[1][0] != 0:
            return found[0][1].changed(scale=found[0][0] + found[1][0])
        found.sort(key=lambda item: item[1].term.number)
        lead = found[0][0]
        if not element_type.is_float:
            lead = ONE
        key = ("add", tuple(factor / lead for factor, _ in found))
        relation = self.pointwise(key, element_type, [r for _, r in found], dims).changed(scale=lead)
        columns = frozenset(c for _, r in found for c in self.space.columns(r))
        if all(r.parts is None for _, r in found):
            return relation
        return self.space.with_columns(relation, "add", columns)

    def _summable(self, relation: Relation) -> Relation:
        """Parts of a sum may be added; other parts may not."""
        if relation.parts is not None and relation.parts.kind != "add":
            return self.doubted(relation, f"{relation.parts.described()} is added")
        return relation

    # --- products ------------------------------------------------------------------------------------------------

    def product(self, left: Relation, right: Relation, dims: tuple[int, ...]) -> Relation:
        """Element by element. A part times a part is a part of the product; those that no device has are missing."""
        element_type = left.element_type
        if element_type.is_float:
            for one, other in ((left, right), (right, left)):
                if (factor := one.constant) not in (None, 0):
                    assert factor is not None
                    return self.times(other, factor).changed(dims=dims)
        first, second = sorted((self._summable(left), self._summable(right)), key=lambda r: r.term.number)
        relation = self.pointwise("multiply", element_type, [first, second], dims)
        return self.multiplied(relation, (first, second), "multiplied by another one")

    def multiplied(self, relation: Relation, factors: Sequence[Relation], what: str) -> Relation:
        """A result that is linear in each factor, with their scales and parts."""
        scale, columns = relation.scale, frozenset([self.space.ones])
        for factor in factors:
            scale *= factor.scale
            columns = products(columns, self.space.columns(factor))
        relation = relation.changed(scale=scale)
        if all(factor.parts is None for factor in factors):
            return relation
        if any(not any(column) for column in columns) and sum(f.parts is not None for f in factors) > 1:
            # each device has its part of one times its part of the other; parts of different devices never meet
            whole = [f for f in factors if f.parts is not None]
            doubt = self.doubted(whole[0], f"{whole[0].parts.described()} is {what}")  # type: ignore[union-attr]
            return relation.changed(assumed=relation.assumed | doubt.assumed)
        return self.space.with_columns(relation, "add", columns)

    def times(self, relation: Relation, factor: Fraction) -> Relation:
        """A float array times a constant other than 0."""
        parts = relation.parts
        if parts is not None and parts.kind != "add" and not (factor > 0 and parts.kind in ("maximum", "minimum")):
            relation = self.doubted(relation, f"{parts.described()} is multiplied")
        return relation.changed(scale=relation.scale * factor)

    def quotient(self, left: Relation, right: Relation, dims: tuple[int, ...]) -> Relation:
        element_type = left.element_type
        if not element_type.is_float:
            return self.of_wholes("divide", element_type, [left, right], dims, "divided")
        if (factor := right.constant) not in (None, 0):
            assert factor is not None
            return self.times(left, 1 / factor).changed(dims=dims)
        if right.parts is not None:
            right = self.doubted(right, f"{right.parts.described()} is a divisor")
        left = self._summable(left)
        relation = self.pointwise("divide", element_type, [left, right], dims)
        return self.multiplied(relation.changed(scale=1 / right.scale), [left], "divided")

    # --- extremes, and, or ---------------------------------------------------------------------------------------

    def extreme(self, opcode: str, left: Relation, right: Relation, dims: tuple[int, ...]) -> Relation:
        """maximum, minimum, and, or: of parts of the same kind, too."""
        given = [
            r if r.parts is None or r.parts.kind == opcode else self.doubted(r, f"{r.parts.described()} is used")
            for r in (left, right)
        ]
        if _same(given[0], given[1]):
            return given[0]
        scale = ONE
        is_float = left.element_type.is_float  # of integers multiples wrap, and have other bits
        if is_float and given[0].scale == given[1].scale and given[0].scale > 0:
            scale = given[0].scale
        else:
            given = [self.unscaled(r) for r in given]
        given.sort(key=lambda r: r.term.number)
        bare = [r.changed(parts=None, scale=ONE) for r in given]
        relation = self.pointwise(opcode, left.element_type, bare, dims).changed(scale=scale)
        if all(r.parts is None for r in given):
            return relation
        columns = frozenset(c for r in given for c in self.space.columns(r))
        return self.space.with_columns(relation, opcode, columns)

    def joint(self, key: Hashable, by: Relation, choices: Sequence[Relation], dims: tuple[int, ...]) -> Relation:
        """One of several values, chosen at each position (or for all) by a whole value; so it is linear in them."""
        by = self.as_whole(by, "a condition")
        parts = [c for c in choices if c.parts is not None]
        if parts and any(c.parts is None or c.parts.kind != parts[0].parts.kind for c in choices if not c.is_zero):  # type: ignore[union-attr]
            choices = [self.as_whole(c, "chosen beside a whole value") if c.parts is not None else c for c in choices]
        scales = {c.scale for c in choices if not c.is_zero}
        scale = scales.pop() if len(scales) == 1 else ONE
        if scales or scale == ONE:
            choices, scale = [self.unscaled(c) for c in choices], ONE
        bare = [c.changed(scale=ONE, parts=None) for c in choices]
        relation = self.pointwise(key, choices[0].element_type, [by, *bare], dims).changed(scale=scale)
        if not any(c.parts is not None for c in choices):
            return relation
        kind = next(c.parts.kind for c in choices if c.parts is not None)
        columns = frozenset(c for r in choices if kind != "add" or not r.is_zero for c in self.space.columns(r))
        return self.space.with_columns(relation, kind, columns)


def _same(left: Relation, right: Relation) -> bool:
    return left.term is right.term and left.axes == right.axes and left.parts == right.parts and left.dims == right.dims


__all__ = ["Arithmetic"]
