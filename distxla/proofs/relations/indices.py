"""Known integers: what depends on no input, such as iotas, ids of devices and the partitioner's tables of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.shape import Shape
from distxla.ops.support.executable import executable
from distxla.proofs.relations.lines import Array, is_nowhere
from distxla.proofs.relations.relation import Relation, united
from distxla.proofs.relations.space import LARGEST_INDEX, Space


def along(relation: Relation) -> set[int]:
    """The dimensions on which the elements depend."""
    return {d for d, lines in relation.axes[0] if d >= 0}


def values(space: Space, relation: Relation, dim: int | None) -> Array:
    """values[d, j]: the elements on device d, which depend on one dimension at most; dim: that one."""
    count = 1 if dim is None else relation.dims[dim]
    found = np.zeros((space.devices, count), np.int64)
    empty = np.zeros((space.devices, count), bool)
    for _, lines in relation.axes[0]:
        found = found + np.where(is_nowhere(lines.rows), 0, lines.rows)
        empty = empty | is_nowhere(lines.rows)
    return np.where(empty, 0, found)


def scalar(space: Space, relation: Relation) -> Array | None:
    """The number that each device has in all elements; None where they differ or aren't known."""
    if not relation.is_index:
        return None
    dims = along(relation)
    if len(dims) > 1:
        return None
    rows = values(space, relation, dims.pop() if dims else None)
    return rows[:, 0] if (rows == rows[:, :1]).all() else None


def computed(space: Space, instruction: Instruction, operands: Sequence[Relation]) -> Relation | None:
    """The result of an element-wise instruction of constants; None where it isn't a known integer or a constant."""
    result = instruction.shape.dtype
    if all(o.is_index for o in operands):
        return _of_indices(space, instruction, operands, result)
    scalars = [_number(space, o) for o in operands]
    if any(s is None for s in scalars) or result.is_complex:
        return None
    found = _evaluated(instruction, scalars, operands)
    return space.splat(found.reshape(-1)[0], result, instruction.shape.dims).changed(assumed=united(operands))


def _of_indices(
    space: Space, instruction: Instruction, operands: Sequence[Relation], result: ElementType
) -> Relation | None:
    dims = set().union(*(along(o) for o in operands))
    is_integer = result.is_integer or result.kind == "pred"
    if len(dims) > 1:
        is_sum = instruction.op.elements.is_sum and result.is_integer  # of predicates `add` is `or`
        return _sum_of_indices(space, instruction, operands) if is_sum else None
    dim = dims.pop() if dims else None
    rows = [np.asarray(values(space, o, dim)) for o in operands]
    count = max(r.shape[1] for r in rows)
    typed = [np.broadcast_to(r, (space.devices, count)).astype(o.element_type.dtype) for r, o in zip(rows, operands)]
    if not is_integer:
        if dim is not None or any((t != t[:1]).any() for t in typed) or result.is_complex:
            return None
        found = _evaluated(instruction, [t[0, 0] for t in typed], operands)
        return space.splat(found.reshape(-1)[0], result, instruction.shape.dims).changed(assumed=united(operands))
    found = _evaluated(instruction, typed, operands)
    if np.abs(found.astype(np.float64)).max(initial=0) >= LARGEST_INDEX:
        return None
    at = -1 if dim is None else dim
    made = space.index(result, instruction.shape.dims, {at: space.lines(found.astype(np.int64))})
    return made.changed(assumed=united(operands))


def _sum_of_indices(space: Space, instruction: Instruction, operands: Sequence[Relation]) -> Relation | None:
    """a[i] + b[j], which depends on two dimensions."""
    parts: dict[int, Array] = {}
    for operand in operands:
        for d, lines in operand.axes[0]:
            if lines.has_zeros:
                return None
            parts[d] = parts[d] + lines.rows if d in parts else lines.rows
    element_type = instruction.shape.dtype
    high = 1 << element_type.bits - element_type.is_signed
    low = -high if element_type.is_signed else 0
    largest = sum(int(r.max(initial=0)) for r in parts.values())
    least = sum(int(r.min(initial=0)) for r in parts.values())
    if largest >= min(high, LARGEST_INDEX) or least < max(low, -LARGEST_INDEX):
        return None
    made = space.index(instruction.shape.dtype, instruction.shape.dims, {d: space.lines(r) for d, r in parts.items()})
    return made.changed(assumed=united(operands))


def _number(space: Space, relation: Relation) -> Any:
    """The NumPy scalar that all elements of all devices are; None where they aren't one."""
    dtype = relation.element_type.dtype
    if relation.constant is not None and relation.element_type.is_float:
        return np.array(float(relation.constant)).astype(dtype)
    is_bits = isinstance(relation.term.key, tuple) and relation.term.key[0] == "constant" and relation.parts is None
    if is_bits and not relation.term.dims:
        return np.frombuffer(relation.term.key[1], dtype)[0] if relation.scale == 1 else None  # type: ignore[index]
    found = scalar(space, relation)
    if found is None or (found != found[0]).any():
        return None
    return np.array(found[0]).astype(dtype)


def _evaluated(instruction: Instruction, operands: Sequence[Any], relations: Sequence[Relation]) -> Array:
    arrays = [np.asarray(o) for o in operands]
    dims = np.broadcast_shapes(*(a.shape for a in arrays))
    run = SimpleNamespace(
        instruction=instruction,
        shape=Shape(instruction.shape.dtype, dims),
        operand_shapes=tuple(Shape(r.element_type, a.shape) for r, a in zip(relations, arrays)),
    )
    found: Array = np.asarray(executable(instruction.op).evaluate(run, *(np.broadcast_to(a, dims) for a in arrays)))
    return found
