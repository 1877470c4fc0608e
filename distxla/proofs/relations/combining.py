"""The term that an operation makes of its operands, and how the devices' arrays lie in it.

An operation says by labels which dimensions go together: those of a product [m,k] x [k,n] are ("m", "k"), ("k", "n")
and ("m", "n"). A label of the result and of operands: the operation is the same at every index of it, so that devices
may have any of them. One of operands alone is reduced: devices that have some of its indices have a part. `whole`: the
operation depends on the position; every device must have the same ones. `made`: of the result alone.

Labels of `whole` and `made` are a part of the term's key; so they must name the role of the dimension.

The dimensions of the term are numbered by the distinct combinations of indices that the devices have of the operands.
So the term doesn't depend on how it is cut.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import ElementType
from distxla.lazy_dataclass import dataclass, field
from distxla.proofs.relations.lines import Lines, is_nowhere
from distxla.proofs.relations.relation import ENDLESS, NoRule, Relation, united
from distxla.proofs.relations.space import Space
from distxla.proofs.relations.terms import Axis

Label = Hashable


@dataclass(frozen=True)
class _Hidden:
    """The label of indices that differ from device to device along no dimension of its array."""

    lines: Lines


Columns = frozenset[tuple[int, ...]]
IDEMPOTENT = ("maximum", "minimum", "and", "or")


@dataclass(frozen=True)
class Operation:
    """key: names it with all attributes that matter beside the labels.  kind: how reduced labels are taken together.

    operands: relations with a label for each dimension.  result: labels.  dims: dimension sizes of the device's result.
    linear: numbers of operands whose zeros make the result zero.
    """

    key: Hashable
    element_type: ElementType
    operands: tuple[tuple[Relation, tuple[Label, ...]], ...]
    result: tuple[Label, ...]
    dims: tuple[int, ...]
    kind: str | None = None
    linear: frozenset[int] = frozenset()
    whole: frozenset[Label] = frozenset()
    made: Mapping[Label, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Combined:
    """relation: the result with scale 1.  kind and columns: the parts in which devices have it; a multiplicity of a
    sum that all devices share is in `times`."""

    relation: Relation
    columns: Columns
    times: int


def combined(space: Space, operation: Operation) -> Combined:
    """The relation of the result to its term; scales and parts of the operands are not looked at."""
    return _Combination(space, operation).run()


class _Combination:
    def __init__(self, space: Space, operation: Operation) -> None:
        self.space, self.operation = space, operation
        # (operand, axis): its parts, by label; None: an index that is the same on all devices
        self.kept = [label for label in operation.result if label not in operation.made]
        self.position: dict[Label, int] = {label: k for k, label in enumerate(operation.result)}
        self.hidden = {lines for r, _ in operation.operands for axis in r.axes for d, lines in axis if d < 0}
        self.axes: list[list[list[tuple[Label | None, Lines]]]] = [
            [[(self.label(d, lines, labels), lines) for d, lines in axis] for axis in relation.axes]
            for relation, labels in operation.operands
        ]
        self.dims: list[int] = []  # of the term
        self.result_axes: list[Axis] = []
        self.access: list[list[list[tuple[int, Lines]]]] = [[[] for _ in axes] for axes in self.axes]
        self.columns: Columns = frozenset([space.ones])
        self.times = 1
        self.extra: list[Hashable] = []  # sizes of the dimensions that the term's key must tell

    def run(self) -> Combined:
        operation, position = self.operation, self.position
        done: set[Label | None] = set()
        inner: list[tuple[Label, str]] = []
        for k, axes in enumerate(self.axes):
            for b, axis in enumerate(axes):
                for label, _ in axis:
                    if label in done:
                        continue
                    if label is not None and label not in position and not isinstance(label, _Hidden):
                        if all(label != other for other, _ in inner):
                            inner.append((label, "whole" if label in operation.whole else "reduced"))
                        continue
                    group = self.whole_axis_labels(k, b)
                    if group is not None:
                        done |= group
                        self.keep_axis(k, b, position)
                    else:
                        done.add(label)
                        self.keep(label, position)
        self.make(position)
        outer = len(self.dims)
        for number, (label, how) in enumerate(inner):
            if how == "whole":
                self.extra.append((label, outer + number))
            (self.take_whole if how == "whole" else self.reduce)(label, outer + number)
        self.repeat(inner)
        return self.finish()

    def label(self, dim: int, lines: Lines, labels: Sequence[Label]) -> Label | None:
        """Of a part of an axis. Where one operand has a dimension of one element and another one has the same index
        without a dimension, both have the label of the index."""
        if lines.is_uniform:
            return None if dim < 0 else labels[dim]
        if dim < 0:
            return _Hidden(lines)
        if lines.count == 1 and lines in self.hidden and labels[dim] in self.kept:
            self.position.setdefault(_Hidden(lines), self.position[labels[dim]])
            return _Hidden(lines)
        return labels[dim]

    # --- dimensions of the term ----------------------------------------------------------------------------------

    def whole_axis_labels(self, k: int, b: int) -> set[Label | None] | None:
        """The labels of axis b of operand k, if every axis that has any of them is the same axis, and all of them are
        kept: then the axis is a dimension of the term as it is."""
        axis = self.axes[k][b]
        size = self.operation.operands[k][0].term.dims[b]
        labels = {label for label, _ in axis}
        if size == ENDLESS or any(lines.has_zeros for _, lines in axis):
            return None
        if None in labels or any(label not in self.kept and not isinstance(label, _Hidden) for label in labels):
            return None
        for other, axes in enumerate(self.axes):
            touching = [c for c, parts in enumerate(axes) if any(label in labels for label, _ in parts)]
            if not touching:
                continue
            if len(touching) > 1 or axes[touching[0]] != axis:
                return None
            if self.operation.operands[other][0].term.dims[touching[0]] != size:
                return None
        return labels

    def keep_axis(self, k: int, b: int, position: Mapping[Label, int]) -> None:
        axis = self.axes[k][b]
        size = self.operation.operands[k][0].term.dims[b]
        for other, axes in enumerate(self.axes):
            for c, parts in enumerate(axes):
                if parts == axis:
                    self.access[other][c].append((len(self.dims), self.space.pool.range(1, size)))
        along = [(position.get(at, -1), lines) for at, lines in axis]
        self.result_axes.append(tuple(sorted(along, key=_by_dim)))
        self.dims.append(size)

    def places(self, label: Label | None) -> list[tuple[int, int, Lines]]:
        """(operand, axis, lines) of every part along a label."""
        return [
            (k, b, lines)
            for k, axes in enumerate(self.axes)
            for b, axis in enumerate(axes)
            for at, lines in axis
            if at == label
        ]

    def keep(self, label: Label | None, position: Mapping[Label, int]) -> None:
        places = self.places(label)
        if label is None:
            for k, b, lines in places:
                self.access[k][b].append((-1, self.space.pool.lines(lines.rows[:1])))
            return
        values, numbers = self.distinct(tuple(lines for _, _, lines in places))
        is_one = values[0].count == 1
        for (k, b, _), row in zip(places, values, strict=True):
            self.access[k][b].append((-1 if is_one else len(self.dims), row))
        if is_one:
            return
        self.result_axes.append(((position.get(label, -1), numbers),))
        self.dims.append(values[0].count)

    def distinct(self, together: tuple[Lines, ...]) -> tuple[list[Lines], Lines]:
        """The distinct combinations of indices in order, a row for each of the lines; the number of each element."""

        def make() -> tuple[list[Lines], Lines]:
            pool = self.space.pool
            shape = together[0].rows.shape
            if len(together) == 1:
                values, numbers = np.unique(together[0].rows.reshape(-1), return_inverse=True)
                values = values[None]
            else:
                stacked = np.stack([lines.rows.reshape(-1) for lines in together])
                values, numbers = np.unique(stacked, axis=1, return_inverse=True)
            return [pool.lines(row[None]) for row in values], pool.lines(numbers.reshape(shape))

        return self.space.pool.once((together, "distinct"), make)  # type: ignore[no-any-return]

    def make(self, position: Mapping[Label, int]) -> None:
        for label, size in self.operation.made.items():
            self.extra.append(label)
            self.result_axes.append(((position[label] if size != 1 else -1, self.space.range(size)),))
            self.dims.append(size)

    def take_whole(self, label: Label, number: int) -> None:
        for k, b, lines in self.places(label):
            if not lines.is_uniform:
                raise NoRule("devices have different parts of a dimension that it needs whole")
            self.access[k][b].append((number, self.space.pool.lines(lines.rows[:1])))

    def reduce(self, label: Label, number: int) -> None:
        kind = self.operation.kind
        if kind is None:
            raise NoRule("a dimension is reduced in no known way")
        places = self.places(label)
        zeroing = tuple(kind == "add" and k in self.operation.linear for k, _, _ in places)
        values, columns = self.cells(tuple(lines for _, _, lines in places), zeroing)
        for (k, b, _), row in zip(places, values, strict=True):
            self.access[k][b].append((number, row))
        self.columns = products(self.columns, columns)

    def cells(self, together: tuple[Lines, ...], zeroing: tuple[bool, ...]) -> tuple[list[Lines], Columns]:
        """The distinct combinations of indices that are reduced, and how often devices have them.

        zeroing: of which lines a zero adds nothing to a sum.
        """

        def make() -> tuple[list[Lines], Columns]:
            values, numbers = self.distinct(together)
            devices, count = self.space.devices, values[0].count if values else 0
            times = np.zeros((count, devices), np.int64)
            np.add.at(times, (numbers.rows.reshape(-1), np.repeat(np.arange(devices), numbers.count)), 1)
            rows = np.stack([v.rows[0] for v in values])
            if any(zeroing):
                inside = ~is_nowhere(rows[np.array(zeroing)]).any(axis=0)
                rows, times = rows[:, inside], times[inside]
            columns = frozenset(map(tuple, np.unique(times, axis=0).tolist()))
            return [self.space.pool.lines(row[None]) for row in rows], columns

        return self.space.pool.once((together, "cells", zeroing), make)  # type: ignore[no-any-return]

    def repeat(self, inner: Sequence[tuple[Label, str]]) -> None:
        """Labels along which every operand repeats its value."""
        named = {label for label, _ in inner} | set(self.operation.result)
        seen: set[Label] = set()
        for relation, labels in self.operation.operands:
            for label, size in zip(labels, relation.dims, strict=True):
                if label in self.operation.whole:
                    if label not in seen:
                        self.extra.append((label, size))
                elif label not in named and label not in seen and self.operation.kind not in IDEMPOTENT:
                    if self.operation.kind != "add":
                        raise NoRule("a repeated value is reduced in no known way")
                    self.times *= size
                seen.add(label)

    def finish(self) -> Combined:
        operation = self.operation
        operands = tuple(
            (relation.term, tuple(tuple(sorted(axis, key=_by_dim)) for axis in access))
            for (relation, _), access in zip(operation.operands, self.access, strict=True)
        )
        key = (operation.key, operation.kind, tuple(self.extra)) if self.extra else (operation.key, operation.kind)
        term = self.space.terms.term(key, operation.element_type, tuple(self.dims), operands)
        assumed = united(relation for relation, _ in operation.operands)
        return Combined(
            Relation(term, tuple(self.result_axes), operation.dims, assumed=assumed), self.columns, self.times
        )


def _by_dim(part: tuple[int, Any]) -> int:
    return part[0]


def products(left: Columns, right: Columns) -> Columns:
    """The parts of a product: one for each part of either."""
    if len(left) == 1 and all(n == 1 for n in next(iter(left))):
        return right
    if len(right) == 1 and all(n == 1 for n in next(iter(right))):
        return left
    return frozenset(tuple(a * b for a, b in zip(one, other, strict=True)) for one in left for other in right)


__all__ = ["Columns", "Combined", "Label", "Operation", "combined", "products"]
