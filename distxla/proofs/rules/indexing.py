"""Gather and scatter. Positions that are known are axes of the result; others need the dimension whole."""

from __future__ import annotations

import numpy as np

from distxla.ir.element_type import PRED
from distxla.ir.instruction import Instruction
from distxla.ops.gather import Gather
from distxla.ops.scatter import Scatter
from distxla.proofs.relations import indices, views
from distxla.proofs.relations.combining import Label
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.lines import Array
from distxla.proofs.relations.relation import Guarded, NoRule, Relation, Value
from distxla.proofs.rules.contractions import fingerprint, reducer
from distxla.proofs.rules.elementwise import compare_key
from distxla.proofs.rules.registry import rule


def component(inference: Inference, starts: Relation, vector_dim: int, number: int) -> Relation:
    """One of the numbers of each vector of starts, an array without the dimension of the vectors."""
    if vector_dim == len(starts.dims):
        return starts
    dims = tuple(n for d, n in enumerate(starts.dims) if d != vector_dim)
    if starts.pieces is not None and starts.pieces[0] == vector_dim:
        offset = number
        for piece in starts.pieces[1]:
            if offset < piece.dims[vector_dim]:
                return component(inference, piece, vector_dim, offset)
            offset -= piece.dims[vector_dim]
    one = views.taken(inference.space, starts, vector_dim, np.array([number]), ("one", number))
    found = views.renamed(one, lambda d: -1 if d == vector_dim else d - (d > vector_dim), dims)
    if starts.shifted is None:
        return found
    base, lines = starts.shifted
    return found.changed(shifted=(component(inference, base, vector_dim, number), lines))


def _positions(inference: Inference, part: Relation, size: int, along: int, dims: tuple[int, ...]) -> Relation:
    """Of each device the positions along dimension `along` of its part of an array, counted as `part` counts them."""
    space = inference.space
    rows = np.broadcast_to(np.arange(size), (space.devices, size))
    if part.shifted is not None:
        rows = rows + part.shifted[1].rows
    return space.index(part.element_type, dims, {along: space.lines(rows)})


def _known_along(inference: Inference, relation: Relation, room: int) -> tuple[int | None, Array] | None:
    """The dimension along which known starts differ, and they themselves, clamped; None where they aren't known."""
    if not relation.is_index or len(indices.along(relation)) > 1:
        return None
    dim = next(iter(indices.along(relation)), None)
    return dim, np.clip(indices.values(inference.space, relation, dim), 0, room)


def _counted_from_zero(inference: Inference, part: Relation) -> Relation:
    """Known starts, the same one for each update of a device, as zeros that are shifted."""
    known = indices.scalar(inference.space, part)
    if known is None:
        return part
    zero = inference.space.splat(part.element_type.dtype.type(0), part.element_type, part.dims)
    return part.changed(shifted=(zero, inference.space.lines(-known.reshape(-1, 1))))


@rule(Gather)
def gather(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    op = instruction.op
    assert isinstance(op, Gather)
    array, starts = operands
    shape, space = instruction.shape, inference.space
    if 0 in shape.dims or 0 in op.slice_sizes:
        raise NoRule("an array without elements")
    batch = [d for d in range(shape.rank) if d not in op.offset_dims]
    result: list[Label] = list(range(shape.rank))
    labels: list[Label] = [("array", d) for d in range(len(array.dims))]
    window = [d for d in range(len(array.dims)) if d not in (*op.collapsed_slice_dims, *op.operand_batching_dims)]
    made: dict[Label, int] = {}
    for d, at in zip(window, op.offset_dims, strict=True):
        if op.slice_sizes[d] == array.dims[d]:
            labels[d] = at
        else:
            result[at] = ("window", d)
            made[("window", d)] = op.slice_sizes[d]
    for d, s in zip(op.operand_batching_dims, op.start_indices_batching_dims, strict=True):
        labels[d] = batch[s - (s > op.index_vector_dim)]
    given: list[tuple[Relation, tuple[Label, ...]]] = []
    roles: list[object] = []
    guard: tuple[Relation, int] | None = None
    for number, d in enumerate(op.start_index_map):
        if array.dims[d] == op.slice_sizes[d] and isinstance(labels[d], int):
            continue
        part = component(inference, starts, op.index_vector_dim, number)
        known = _known_along(inference, part, array.dims[d] - op.slice_sizes[d])
        if known is not None and d in op.collapsed_slice_dims:
            along, rows = known
            key = ("gather", rows.tobytes())
            array = views.taken(space, array, d, rows, key).changed(assumed=array.assumed | part.assumed)
            labels[d] = "one" if along is None else batch[along]
            if along is None:
                array = views.renamed(array, lambda k, d=d: -1 if k == d else k, array.dims)  # type: ignore[misc]
            continue
        if d in op.collapsed_slice_dims:
            labels[d] = ("taken", d)
            if any(not lines.is_uniform for lines in array.lines_along(d)):
                if part.shifted is None or guard is not None:
                    raise NoRule("devices have different parts of a dimension in which it looks up positions")
                guard = (part, array.dims[d])
                starts_at = part.shifted[0]
            else:
                starts_at = _clamped(inference, part, array.dims[d] - 1)
            count = array.dims[d]
            counted = _positions(inference, starts_at if guard is None else part, count, 0, (count,))
            given += [(counted, (labels[d],)), (starts_at, tuple(batch))]
            roles.append("taken")
            continue
        given.append((part, tuple(batch)))
        roles.append((labels[d], op.slice_sizes[d]))
    whole = frozenset(label for label in labels if isinstance(label, tuple) and label[0] == "array")
    found = inference.structured(
        ("gather", tuple(roles)),
        shape.dtype,
        [(array, tuple(labels)), *given],
        tuple(result),
        shape.dims,
        linear=(0,),
        kind="add",
        whole=whole,
        made=made,
    )
    return found if guard is None else _guarded(inference, found, *guard, batch)


def _clamped(inference: Inference, part: Relation, highest: int) -> Relation:
    """The positions that a gather looks up: starts outside of an array are moved to its edge."""
    space, element_type = inference.space, part.element_type
    least, most = (space.splat(element_type.dtype.type(n), element_type, part.dims) for n in (0, highest))
    clamp = (inference.whole(part), least, most)
    return inference.arithmetic.pointwise(("clamp",), element_type, [clamp[1], clamp[0], clamp[2]], part.dims)


def _guarded(inference: Inference, found: Relation, part: Relation, count: int, batch: list[int]) -> Guarded:
    """With the conditions for positions inside of each device's part of the array."""
    assert part.shifted is not None
    space, arithmetic, dims = inference.space, inference.arithmetic, found.dims
    base = views.renamed(inference.whole(part.shifted[0]), lambda k: batch[k], dims)
    first = part.shifted[1].rows

    def compared(direction: str, by: int) -> Relation:
        edge = space.index(base.element_type, dims, {-1: space.lines(first + by)})
        return arithmetic.pointwise(compare_key(direction), PRED, [base, edge], dims)

    lower, above = (compared("GE", 0), compared("GT", -1)), (compared("LE", count - 1), compared("LT", count))
    below, beyond = (compared("LT", 0), compared("LE", -1)), (compared("GT", count - 1), compared("GE", count))
    inside = tuple(arithmetic.extreme("and", a, b, dims) for a in lower for b in above)
    outside = tuple(arithmetic.extreme("or", a, b, dims) for a in below for b in beyond)
    return Guarded(found, inside, outside)


@rule(Scatter)
def scatter(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    op = instruction.op
    assert isinstance(op, Scatter)
    if len(operands) > 3:
        raise NoRule("a scatter into several arrays")
    array, starts, updates = operands
    kind = reducer(inference.module, op.to_apply)
    shape = instruction.shape
    is_sum = kind == "add"
    places = [d for d in range(len(updates.dims)) if d not in op.update_window_dims]
    inner: list[Label] = [("place", d) for d in range(len(updates.dims))]
    outer: list[Label] = [("array", d) for d in range(shape.rank)]
    window = op._window_array_dims(shape.rank)
    for u, d in zip(op.update_window_dims, window, strict=True):
        if updates.dims[u] == array.dims[d]:
            inner[u] = outer[d] = d
        else:
            inner[u] = ("window", d)
    for d, s in zip(op.input_batching_dims, op.scatter_indices_batching_dims, strict=True):
        u = places[s - (s > op.index_vector_dim)]
        inner[u] = outer[d] = d
    parts: list[tuple[int, Relation]] = []
    counted: list[tuple[Relation, tuple[Label, ...]]] = []
    for number, d in enumerate(op.scatter_dims_to_operand_dims):
        part = component(inference, starts, op.index_vector_dim, number)
        if isinstance(outer[d], int):
            parts.append((-1, part))  # an update is dropped unless it starts at 0
            continue
        along = _identity(inference, part, array.dims[d]) if d in op.inserted_window_dims else None
        if along is not None and not isinstance(inner[places[along]], int):
            inner[places[along]] = outer[d] = d
            continue
        if d in op.inserted_window_dims:
            # a place of the array gets the updates whose start is its position; others, outside of it, are dropped
            outer[d] = d
            part = _counted_from_zero(inference, part)
            counted.append((_positions(inference, part, array.dims[d], 0, (array.dims[d],)), (d,)))
            part = part if part.shifted is None else part.shifted[0]
        parts.append((d, part))
    result: tuple[Label, ...] = tuple(d if isinstance(label, int) else ("result", d) for d, label in enumerate(outer))
    made: dict[Label, int] = {label: shape.dims[d] for d, label in enumerate(result) if not isinstance(label, int)}
    whole: set[Label] = {label for label in (*outer, *inner) if isinstance(label, tuple) and label[0] != "place"}
    if not is_sum:
        whole |= {label for label in inner if not isinstance(label, int)}
    at = tuple(inner[u] for u in places)
    given = [(updates, tuple(inner)), *counted, *((part, at) for _, part in parts)]
    roles = tuple("start" if d < 0 else "position" if isinstance(outer[d], int) else d for d, _ in parts)
    key = ("scatter", kind or fingerprint(inference.module, op.to_apply), roles)
    if not is_sum:
        given.append((array, tuple(outer)))
    found = inference.structured(
        (key, tuple(made)),
        shape.dtype,
        given,
        result,
        shape.dims,
        linear=(0,) if is_sum else (),
        kind="add" if is_sum else None,
        whole=frozenset(whole),
        made=made,
    )
    if is_sum:
        return inference.arithmetic.sum([(1, array), (1, found)], shape.dims)
    return found


def _identity(inference: Inference, part: Relation, size: int) -> int | None:
    """The dimension along which starts are 0, 1, .. size - 1 on each device; None where they aren't."""
    dims = indices.along(part) if part.is_index else set()
    if len(dims) != 1:
        return None
    (along,) = dims
    rows = indices.values(inference.space, part, along)
    is_identity = rows.shape[1] == size and bool((rows == np.arange(size)).all())
    return along if is_identity else None
