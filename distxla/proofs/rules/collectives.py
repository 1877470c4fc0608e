"""Collectives: what each device gets of the others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from functools import reduce

import numpy as np

from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ops.all_gather import AllGather, AllGatherDone, AllGatherStart
from distxla.ops.all_reduce import AllReduce, AllReduceDone
from distxla.ops.all_to_all import AllToAll
from distxla.ops.collective_broadcast import CollectiveBroadcast
from distxla.ops.collective_permute import CollectivePermute, CollectivePermuteDone, CollectivePermuteStart
from distxla.ops.reduce_scatter import ReduceScatter
from distxla.ops.support.executable import CollectiveOp
from distxla.proofs.relations import indices, views
from distxla.proofs.relations.combining import IDEMPOTENT
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.lines import Array, Lines, is_nowhere
from distxla.proofs.relations.relation import NoRule, Relation, Value
from distxla.proofs.relations.space import LARGEST_INDEX, Space
from distxla.proofs.rules.contractions import fingerprint, reducer
from distxla.proofs.rules.registry import Infer, rule

Groups = tuple[tuple[int, ...], ...]


def moved(space: Space, relation: Relation, sources: tuple[int, ...]) -> Relation:
    """Device d has what device sources[d] has in `relation`; zeros where that is -1."""
    has_zeros = -1 in sources
    columns = space.columns(relation)
    if relation.is_zero:
        return relation
    if relation.parts is not None and sources != tuple(range(space.devices)):
        raise NoRule(f"{relation.parts.described()} goes to other devices")  # then columns don't tell which part it is
    if has_zeros and not relation.axes:
        shifted = frozenset(tuple(c[s] if s >= 0 else 0 for s in sources) for c in columns)
        return space.with_columns(relation, "add", shifted)
    axes = tuple(tuple((d, space.pool.moved(lines, sources)) for d, lines in axis) for axis in relation.axes)
    return relation.changed(axes=tuple(views.without_zeros(space, axis) for axis in axes))


def _groups(inference: Inference, instruction: Instruction) -> Groups:
    op, space = instruction.op, inference.space
    assert isinstance(op, CollectiveOp)
    if op.silent_devices(space.counts):
        raise NoRule("devices that are in no group")
    return op.device_groups(space.counts)


def _group_of(groups: Groups) -> dict[int, tuple[int, ...]]:
    return {device: group for group in groups for device in group}


def _member_sources(groups: Groups, devices: int) -> list[tuple[int, ...]]:
    """For each position in a group, the member there, by device."""
    of = _group_of(groups)
    sizes = {len(group) for group in groups}
    if len(sizes) != 1:
        raise NoRule("groups of different sizes")
    return [tuple(of[d][k] for d in range(devices)) for k in range(sizes.pop())]


def _positions(groups: Groups, devices: int) -> Array:
    of = _group_of(groups)
    return np.array([of[d].index(d) for d in range(devices)])


def _alone(infer: Infer) -> Infer:
    """Where each device's program is looked at for itself, a collective is some function of its operands."""

    def inferred(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
        if not inference.space.alone:
            return infer(inference, instruction, operands)
        if any(not isinstance(operand, Relation) for operand in operands):
            raise NoRule("slices that are written into another array")
        shapes = [(s.dtype, s.dims) for s in instruction.shape.leaves()]
        found = inference.opaque(_key(inference, instruction), operands, shapes)
        if isinstance(instruction.op, AllGatherStart | CollectivePermuteStart):
            return (tuple(operands), found[len(operands) :][0])
        return found if instruction.shape.is_tuple else found[0]

    return inferred


def _key(inference: Inference, instruction: Instruction) -> Hashable:
    op, space = instruction.op, inference.space
    assert isinstance(op, CollectiveOp)
    groups = op.device_groups(space.counts)
    pairs = op.device_pairs(space.counts)
    to_apply = getattr(op, "to_apply", None)
    applied = None if to_apply is None else fingerprint(inference.module, to_apply)
    return (op.round_opcode, groups, pairs, getattr(op, "dimensions", None), applied)


# --- reductions ------------------------------------------------------------------------------------------------------


def summed(inference: Inference, operand: Relation, kind: str, groups: Groups) -> Relation:
    """What all members of a group have after they have taken their operands together."""
    space = inference.space
    if kind not in ("add", *IDEMPOTENT):
        raise NoRule(f"there is no rule for a reduction by {kind}")
    if operand.is_index and not indices.along(operand):
        return _of_numbers(space, operand, kind, groups)
    if operand.parts is not None and operand.parts.kind != kind:
        operand = inference.doubted(operand, f"{operand.parts.described()} is reduced by {kind}")
    if kind != "add" and operand.scale < 0:
        operand = inference.arithmetic.unscaled(operand)
    columns = space.columns(operand)
    if not _is_same_in_groups(operand, groups):
        if kind == "add" and columns == frozenset([space.ones]):
            placed = _placed_together(space, operand, groups)
            if placed is not None:
                return placed
        return _of_different(inference, operand, kind, groups)
    operand = operand.changed(parts=None)
    of = _group_of(groups)
    together = frozenset(tuple(sum(c[g] for g in of[d]) for d in range(space.devices)) for c in columns)
    return space.with_columns(operand, kind, together)


def _of_numbers(space: Space, operand: Relation, kind: str, groups: Groups) -> Relation:
    numbers, of = indices.scalar(space, operand), _group_of(groups)
    assert numbers is not None
    ways: dict[str, Callable[[int, int], int]] = {
        "add": operator.add,
        "maximum": max,
        "or": operator.or_,
        "minimum": min,
        "and": operator.and_,
    }
    take, element_type = ways[kind], operand.element_type
    found = [_wrapped(reduce(take, (int(numbers[g]) for g in of[d])), element_type) for d in range(space.devices)]
    if max(map(abs, found)) >= LARGEST_INDEX:
        raise NoRule("large integers that are reduced")
    rows = np.array(found).reshape(-1, 1)
    return space.index(operand.element_type, operand.dims, {-1: space.lines(rows)}).changed(assumed=operand.assumed)


def _wrapped(number: int, element_type: ElementType) -> int:
    """The integer of the type that has the number's last bits."""
    if not element_type.is_integer:
        return number
    half = 1 << element_type.bits - 1 if element_type.is_signed else 0
    return (number + half) % (1 << element_type.bits) - half


def _is_same_in_groups(relation: Relation, groups: Groups) -> bool:
    lines = {line for axis in relation.axes for _, line in axis if not line.is_uniform}
    return all(_is_same(line, groups) for line in lines)


def _is_same(lines: Lines, groups: Groups) -> bool:
    return all((lines.rows[list(group)] == lines.rows[group[0]]).all() for group in groups)


def _placed_together(space: Space, operand: Relation, groups: Groups) -> Relation | None:
    """The sum of arrays that are zero but in places of which no other member has one; None of others."""
    of = _group_of(groups)
    axes = []
    changed = 0
    for axis in operand.axes:
        parts = []
        for d, lines in axis:
            if not _is_same(lines, groups):
                there = ~is_nowhere(lines.rows)
                if d < 0 or any((there[list(group)].sum(axis=0) > 1).any() for group in groups):
                    return None
                changed += 1
                lines = space.lines(np.stack([lines.rows[list(of[k])].max(axis=0) for k in range(space.devices)]))
            parts.append((d, lines))
        axes.append(tuple(parts))
    return operand.changed(axes=tuple(axes)) if changed == 1 else None


def _of_different(inference: Inference, operand: Relation, kind: str, groups: Groups) -> Relation:
    """Of members that have different elements of the array: they are placed along a new dimension, which is reduced."""
    space = inference.space
    one = views.renamed(operand, lambda d: d + 1, (1, *operand.dims))
    pieces = [moved(space, one, sources) for sources in _member_sources(groups, space.devices)]
    together = views.joined(space, pieces, 0)
    labels = tuple(range(len(together.dims)))
    if kind != "add" and together.parts is not None:
        raise NoRule("members of a group have parts of different elements")
    linear = (0,) if kind == "add" else ()
    return inference.structured(
        "reduce", operand.element_type, [(together, labels)], labels[1:], operand.dims, linear=linear, kind=kind
    )


@rule(AllReduce)
@_alone
def all_reduce(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, AllReduce)
    groups = _groups(inference, instruction)
    kind = reducer(inference.module, instruction.op.to_apply) or "an unknown computation"
    found = tuple(summed(inference, o, kind, groups) for o in operands)
    return found if instruction.shape.is_tuple else found[0]


@rule(ReduceScatter)
@_alone
def reduce_scatter(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, ReduceScatter)
    groups, dim, space = _groups(inference, instruction), instruction.op.dimension, inference.space
    kind = reducer(inference.module, instruction.op.to_apply) or "an unknown computation"
    positions = _positions(groups, space.devices)
    found = []
    for operand, shape in zip(operands, instruction.shape.leaves(), strict=True):
        size = shape.dims[dim]
        total = summed(inference, operand, kind, groups)
        found.append(views.rows_of_devices(space, total, dim, positions * size, size))
    return tuple(found) if instruction.shape.is_tuple else found[0]


# --- movement --------------------------------------------------------------------------------------------------------


def _results(instruction: Instruction, operands: Sequence[Relation], found: Sequence[Relation]) -> Value:
    """The value of a collective with these results, or of its start, which has the operands beside them."""
    if not instruction.op.start_done.starts_pair:
        return tuple(found) if instruction.shape.is_tuple else found[0]
    return (operands[0], found[0]) if len(operands) == 1 else (tuple(operands), tuple(found))


@rule(AllGather, AllGatherStart)
@_alone
def all_gather(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, AllGather)
    space = inference.space
    sources = _member_sources(_groups(inference, instruction), space.devices)
    dim = instruction.op.dimension
    found = [views.joined(space, [moved(space, o, s) for s in sources], dim) for o in operands]
    return _results(instruction, operands, found)


@rule(AllGatherDone, CollectivePermuteDone)
def second(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return operands[0][1]


@rule(AllReduceDone)
def done(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return operands[0]


@rule(AllToAll)
@_alone
def all_to_all(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, AllToAll)
    op, space = instruction.op, inference.space
    groups = _groups(inference, instruction)
    sources, positions = _member_sources(groups, space.devices), _positions(groups, space.devices)
    if op.is_tuple_form:
        return tuple(picked(space, [moved(space, o, s) for o in operands], positions) for s in sources)
    (operand,) = operands
    size = operand.dims[op.dimension] // len(sources)
    pieces = [
        views.rows_of_devices(space, moved(space, operand, s), op.dimension, positions * size, size) for s in sources
    ]
    return views.joined(space, pieces, op.dimension)


def picked(space: Space, relations: Sequence[Relation], numbers: Array) -> Relation:
    """Device d has what it has in relations[numbers[d]]."""
    first = relations[0]
    alike = all(
        r.term is first.term and r.scale == first.scale and r.parts == first.parts and r.dims == first.dims
        for r in relations
    )
    if not alike:
        raise NoRule("arrays of different values")
    axes = []
    for given in zip(*(r.axes for r in relations), strict=True):
        parts = [dict(axis) for axis in given]
        found = []
        for d in sorted({d for axis in parts for d in axis}):
            count = next(axis[d].count for axis in parts if d in axis)
            rows = [axis[d].rows if d in axis else np.zeros((space.devices, count), np.int64) for axis in parts]
            found.append((d, space.lines(np.stack([rows[n][k] for k, n in enumerate(numbers)]))))
        axes.append(views.without_zeros(space, tuple(found)))
    return first.changed(axes=tuple(axes))


@rule(CollectiveBroadcast)
@_alone
def collective_broadcast(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    if len(operands) > 1:
        raise NoRule("a root that is known only at run time, or several operands")
    sources = _member_sources(_groups(inference, instruction), inference.space.devices)[0]
    return moved(inference.space, operands[0], sources)


@rule(CollectivePermute, CollectivePermuteStart)
@_alone
def collective_permute(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    op, space = instruction.op, inference.space
    assert isinstance(op, CollectivePermute)
    if op.is_sliced:
        raise NoRule("slices that are written into another array")
    source_of = {target: source for source, target in op.device_pairs(space.counts)}
    sources = tuple(source_of.get(d, -1) for d in range(space.devices))
    return _results(instruction, operands, [moved(space, operand, sources) for operand in operands])
