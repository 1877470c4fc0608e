"""What is proved of two programs before they run: that they are equal for all inputs, and how their values lie."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from distxla.differ.alignment import CONSTANT
from distxla.differ.device_groups import Devices, devices_of
from distxla.differ.program import Program
from distxla.differ.recording import PASSING
from distxla.differ.relations import SAME, placed_at
from distxla.differ.report import NO_TWIN, ValueRelation
from distxla.differ.source_lines import frames, written_as
from distxla.differ.tolerance import is_inexact, real
from distxla.errors import ArgumentError
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.nested_values import flat_leaves
from distxla.proofs.coordinates import coordinates
from distxla.proofs.deduction import Deduction
from distxla.proofs.prove import Deduced, Sharded, deduce
from distxla.proofs.relations.relation import Parts, Relation
from distxla.proofs.relations.terms import Term
from distxla.proofs.verdict import Outcome

_EXACT_BITS: Final = 32  # narrower floats round by so much that their numbers are looked at, too
_MOST_TRIED: Final = 8  # values of one term that are tried as the twin of one value
_EXTREMES: Final = {"maximum": "local maxima", "minimum": "local minima", "or": "local maxima", "and": "local minima"}

Rows = Sequence[Sequence[Any]]
Named = tuple[Instruction, Relation]


class Proof:
    """That the results are equal for all inputs, as real numbers are."""

    def __init__(self, deduced: Deduced, devices: Devices) -> None:
        self._deduced, self._devices = deduced, devices
        self.text = deduced.verdict.text

    @cached_property
    def covers_numbers(self) -> bool:
        """Whether finite arguments can't show what the proof leaves out: the rounding of narrow floats, and what a
        program does beside its results."""
        return all(
            instruction.op.effects in (Effects.PURE, Effects.COLLECTIVE)
            and not any(leaf.is_array and leaf.dtype.is_float and leaf.dtype.bits < _EXACT_BITS for leaf in leaves)
            for module in (self._deduced.own.module, self._deduced.whole.module)
            for computation in module.reached()
            for instruction in computation
            for leaves in (tuple(instruction.shape.leaves()),)
        )

    def relations(self) -> tuple[ValueRelation, ...]:
        """Of the sharded program's values, one entry an instruction and leaf, as far as they are known."""
        return tuple(_Relations(self._deduced, self._devices).run())


def proved(sharded: Program, whole: Program, sharded_rows: Rows, rows: Rows) -> Proof | None:
    """The proof that both programs have the same results; None where it isn't found. Runs nothing.

    sharded_rows, rows: the arguments' leaves by device. Where the sharded program's are not the parts of the others
    that the proof takes them for, there is none.
    """
    is_alone = 1 < sharded.count == whole.count
    if sharded.arguments != whole.arguments or not (is_alone or whole.count == 1):
        return None
    if is_alone and (sharded.counts != whole.counts or not _are_cut_alike(sharded, whole)):
        return None
    own = Sharded(sharded.module, sharded.counts, sharded.parameters, sharded.results)
    try:
        deduced = deduce(own, whole.module, is_alone=is_alone)
    except ArgumentError:  # it doesn't say how the parameters are cut, or takes others: running both tells more
        return None
    if deduced.verdict.outcome is not Outcome.EQUAL or not _are_parts(deduced, sharded_rows, rows):
        return None
    return Proof(deduced, devices_of(sharded.module, sharded.counts, sharded.text))


def are_finite(rows: Rows) -> bool:
    return all(bool(np.isfinite(real(a)).all()) for row in rows for a in map(np.asarray, row) if is_inexact(a.dtype))


def _are_cut_alike(one: Program, other: Program) -> bool:
    return one.parameters is None or other.parameters is None or one.parameters == other.parameters


def _are_parts(deduced: Deduced, sharded_rows: Rows, rows: Rows) -> bool:
    """Whether each device's arguments are the parts of the whole ones that the proof is about."""
    for device, row in enumerate(sharded_rows):
        wholes = rows[device] if len(rows) > 1 else rows[0]
        if len(row) != len(wholes) or len(row) != len(deduced.places):
            return False
        for value, given, at in zip(row, wholes, deduced.places, strict=True):
            part = given if value is None or given is None or at is None else at.split(np.asarray(given), device)
            if not (part is value or _is_equal(np.asarray(value), np.asarray(part))):
                return False
    return True


def _is_equal(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes())


class _Relations:
    """In words: of each value of the sharded program, what it is of the unsharded program's."""

    def __init__(self, deduced: Deduced, devices: Devices) -> None:
        self._own, self._whole, self._devices = deduced.own, deduced.whole, devices
        self._by_term: defaultdict[Term, list[Named]] = defaultdict(list)
        self._by_name: defaultdict[tuple[Term, Any], list[Named]] = defaultdict(list)
        for instruction, _, relation in _recorded(self._whole):
            if isinstance(relation, Relation):
                self._by_term[relation.term].append((instruction, relation))
                self._by_name[relation.term, _name(self._whole.module, instruction)].append((instruction, relation))

    def run(self) -> Iterator[ValueRelation]:
        module, seen = self._own.module, set()
        for instruction, _, relation in _recorded(self._own):
            if isinstance(relation, Relation):
                if id(relation) in seen:
                    continue  # the operand itself, as a copy gives it
                seen.add(id(relation))
            twin, text = self._found(instruction, relation) if isinstance(relation, Relation) else (None, NO_TWIN)
            at = frames(module, instruction)
            yield ValueRelation(instruction.name, twin, at[0].line if at else None, text)

    def _found(self, instruction: Instruction, relation: Relation) -> tuple[str | None, str]:
        """The twin's name, and the relation to it."""
        is_known = relation.is_index or relation.constant is not None
        name = _name(self._own.module, instruction)
        named = [] if is_known and name[1] is None else self._by_name.get((relation.term, name), [])
        others = [] if is_known else self._by_term.get(relation.term, [])
        for twin, whole in [*named[:_MOST_TRIED], *others[:_MOST_TRIED]]:
            text = self._text(relation, whole)
            if text is not None:
                return twin.name, text
        is_constant = is_known and all(lines.is_uniform for axis in relation.axes for _, lines in axis)
        return None, CONSTANT.text if is_constant else NO_TWIN

    def _text(self, own: Relation, whole: Relation) -> str | None:
        """None where the value has other elements than the whole's, or otherwise placed ones."""
        if own.assumed or whole.assumed or whole.scale == 0:
            return None
        placed = self._placed(own, whole)
        if placed is None:
            return None
        ratio = Fraction(own.scale) / whole.scale
        if own.parts == whole.parts:  # without parts; or of two programs for as many devices, with the same ones
            if ratio == 1:
                return placed
            return f"{float(ratio):.6g} times {'the whole' if placed == SAME.text else placed}"
        if own.parts is None or whole.parts is not None:
            return None
        parts = _parts(own.parts, ratio, self._devices)
        return parts if parts is None or placed == SAME.text else f"{parts}, each {placed}"

    def _placed(self, own: Relation, whole: Relation) -> str | None:
        count = self._own.space.devices
        rows = coordinates(own, whole, count)
        if rows is None:
            return None
        firsts, dims = [], []
        for along, n, size in zip(rows, own.dims, whole.dims, strict=True):
            if along is not None and (along != along[:, :1] + np.arange(n)).any():
                return None
            firsts.append((0,) * count if along is None or n == 0 else tuple(map(int, along[:, 0])))
            dims.append(n if along is None else size)  # along a dimension without rows the whole repeats
        offsets = tuple(tuple(first[device] for first in firsts) for device in range(count))
        return placed_at(offsets, own.dims, tuple(dims), self._devices).text


def _parts(parts: Parts, ratio: Fraction, devices: Devices) -> str | None:
    """`partial sums over 'model'`; None where no groups of devices have all of them."""
    for grouping in devices.groupings:
        having = {sum(column[d] for d in group) for column in parts.columns for group in grouping.groups}
        if parts.kind in _EXTREMES:
            if 0 not in having and ratio == 1:
                return f"{_EXTREMES[parts.kind]} over {grouping.name}"
        elif parts.kind == "add" and len(having) == 1 and 0 not in having:
            times = ratio * having.pop()
            if times == len(grouping.groups[0]):
                return f"local means over {grouping.name}"
            more = "" if times == 1 else f", of {float(times):.6g} times the whole"
            return f"partial sums over {grouping.name}{more}"
    return None


def _recorded(deduction: Deduction) -> Iterable[tuple[Instruction, int, Any]]:
    """The leaves' values of those instructions of which a run would record the arrays."""
    entry = set(map(id, deduction.module.entry_computation.parameters))
    for instruction, value in deduction.values():
        if instruction.op.lowering in PASSING and id(instruction) not in entry:
            continue
        shapes = instruction.shape.leaves()
        for leaf, (shape, each) in enumerate(zip(shapes, flat_leaves(value), strict=False)):
            is_scalar = isinstance(each, Relation) and each.dims != shape.dims  # of a computation of scalars
            if shape.is_array and not is_scalar:
                yield instruction, leaf, each


def _name(module: Module, instruction: Instruction) -> tuple[str, str | None, str]:
    """What an instruction and its twin have in common where both come from one source line."""
    at = frames(module, instruction)
    return written_as(instruction), at[0].line if at else None, instruction.opcode


__all__ = ["Proof", "are_finite", "proved"]
