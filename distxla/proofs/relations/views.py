"""Operations that only say where elements lie: they change the axes of a relation, never its term."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod

import numpy as np

from distxla.proofs.relations.lines import NOWHERE, Array, Lines, is_nowhere
from distxla.proofs.relations.relation import NoRule, Relation, united
from distxla.proofs.relations.space import Space
from distxla.proofs.relations.terms import Axis


def renamed(relation: Relation, new: Callable[[int], int], dims: tuple[int, ...]) -> Relation:
    """Dimension d of the array is new(d) of the result; -1 for one of size 1 that is dropped."""
    return relation.changed(
        axes=tuple(_sorted((d if d < 0 else new(d), lines) for d, lines in axis) for axis in relation.axes), dims=dims
    )


def _sorted(parts: object) -> Axis:
    return tuple(sorted(parts, key=lambda part: part[0]))  # type: ignore[call-overload]


def transposed(relation: Relation, order: Sequence[int]) -> Relation:
    """Dimension d of the result is order[d] of the array."""
    return renamed(relation, lambda d: tuple(order).index(d), tuple(relation.dims[d] for d in order))


def broadcast(relation: Relation, dimensions: Sequence[int], dims: tuple[int, ...]) -> Relation:
    """Dimension d of the array is dimensions[d] of the result."""
    return renamed(relation, lambda d: dimensions[d], dims)


def taken(space: Space, relation: Relation, dim: int, positions: Array, key: Hashable) -> Relation:
    """Along a dimension the elements at these positions, one row for all devices or one a device; NOWHERE gives 0.

    key: equal for equal positions.
    """
    if relation.is_zero:
        return _resized(relation, dim, positions.shape[-1])
    axes = tuple(
        tuple((d, space.pool.taken(lines, key, positions) if d == dim else lines) for d, lines in axis)
        for axis in relation.axes
    )
    if is_nowhere(positions).any() and not any(d == dim for axis in relation.axes for d, _ in axis):
        if not axes:
            raise NoRule("zeros beside an array of one number")
        zeros = space.lines(np.where(is_nowhere(positions), NOWHERE, 0))
        axes = (_sorted([*axes[0], (dim, zeros)]), *axes[1:])
    axes = tuple(without_zeros(space, axis) for axis in axes)
    return _resized(relation.changed(axes=axes), dim, positions.shape[-1])


def _resized(relation: Relation, dim: int, size: int) -> Relation:
    return relation.changed(dims=(*relation.dims[:dim], size, *relation.dims[dim + 1 :]))


def without_zeros(space: Space, axis: Axis) -> Axis:
    """Without parts that add nothing, and with those that add the same along a dimension as ones of the whole device;
    index 0 where none is left. A dimension of one element keeps its index: it may be a part of a longer one."""
    kept = []
    fixed = np.zeros((space.devices, 1), np.int64)
    for d, lines in axis:
        if d < 0 or (lines.is_constant and lines.count > 1 and not lines.has_zeros):
            fixed = np.where(is_nowhere(lines.rows[:, :1]) | is_nowhere(fixed), NOWHERE, fixed + lines.rows[:, :1])
        elif lines.rows.any() or lines.count == 0:
            kept.append((d, lines))
    if fixed.any() or not kept:
        kept.insert(0, (-1, space.lines(fixed)))
    return tuple(kept)


def sliced(space: Space, relation: Relation, dim: int, start: int, limit: int, stride: int = 1) -> Relation:
    if (start, limit, stride) == (0, relation.dims[dim], 1):
        return relation
    return taken(space, relation, dim, np.arange(start, limit, stride), ("slice", start, limit, stride))


def rows_of_devices(space: Space, relation: Relation, dim: int, starts: Array, size: int) -> Relation:
    """size elements along a dimension from starts[d] on, of device d."""
    positions = starts.reshape(-1, 1) + np.arange(size)
    return taken(space, relation, dim, positions, ("from", tuple(starts.tolist()), size))


# --- joining ---------------------------------------------------------------------------------------------------------


def joined(space: Space, pieces: Sequence[Relation], dim: int) -> Relation:
    """The pieces one behind the other along a dimension. NoRule where they aren't of one term, or don't lie in it so
    that only their distance differs."""
    zeros = [p.is_zero and p.term.key != "index" for p in pieces]
    first = next((p for p, is_zero in zip(pieces, zeros, strict=True) if not is_zero), pieces[0])
    size = sum(p.dims[dim] for p in pieces)
    dims = (*first.dims[:dim], size, *first.dims[dim + 1 :])
    if all(zeros):
        return first.changed(dims=dims)
    for p, is_zero in zip(pieces, zeros, strict=True):
        alike = p.term is first.term and p.scale == first.scale and p.parts == first.parts
        if not alike and not is_zero:
            raise NoRule("arrays of different values")
    if not first.axes and any(zeros):
        raise NoRule("zeros beside an array of one number")
    axes = []
    sizes = [p.dims[dim] for p in pieces]
    empty = [_zero_devices(space, p) for p in pieces]
    for k in range(len(first.axes)):
        given = [None if is_zero else p.axes[k] for p, is_zero in zip(pieces, zeros, strict=True)]
        axes.append(_joined_axis(space, given, sizes, dim, empty, takes_zeros=k == _zero_axis(first, dim)))
    return first.changed(axes=tuple(axes), dims=dims, assumed=united(pieces))


def _zero_axis(relation: Relation, dim: int) -> int:
    """The axis that says which elements along a dimension are zeros."""
    return next((k for k, axis in enumerate(relation.axes) if any(d == dim for d, _ in axis)), 0)


def _zero_devices(space: Space, relation: Relation) -> Array:
    """On which devices all elements come from nowhere."""
    found = np.zeros(space.devices, bool)
    for axis in relation.axes:
        for _, lines in axis:
            if lines.has_zeros:
                found |= is_nowhere(lines.rows).all(axis=1)
    return found


def _joined_axis(
    space: Space,
    given: Sequence[Axis | None],
    sizes: Sequence[int],
    dim: int,
    empty: Sequence[Array],
    *,
    takes_zeros: bool,
) -> Axis:
    """given: the axis of each piece, None of zeros.  empty: of each piece the devices that have only zeros in it.

    Where pieces lie at a distance in another dimension, the distance becomes one along `dim`.
    """
    there = [dict(axis) for axis in given if axis is not None]
    blank = [e for axis, e in zip(given, empty, strict=True) if axis is not None]
    others = sorted({d for axis in there for d in axis if d != dim})
    kept: list[tuple[int, Lines]] = []
    shifts = [np.zeros((space.devices, 1), np.int64) for _ in there]
    for d in others:
        rows = [axis[d].rows if d in axis else None for axis in there]
        count = next(r.shape[1] for r in rows if r is not None)
        full = _filled([np.zeros((space.devices, count), np.int64) if r is None else r for r in rows], blank)
        if all(np.array_equal(r, full[0]) for r in full[1:]):
            kept.append((d, space.lines(full[0])))
            continue
        if any(is_nowhere(r).any() for r in full) or count == 0:
            raise NoRule("arrays that lie in different places")
        least = np.min([r[:, :1] for r in full], axis=0)
        for k, r in enumerate(full):
            shift = r[:, :1] - least
            if not np.array_equal(r - shift, full[0] - (full[0][:, :1] - least)):
                raise NoRule("arrays that lie in different places")
            shifts[k] = shifts[k] + shift
        kept.append((d, space.lines(full[0] - (full[0][:, :1] - least))))
    waiting = iter(zip(there, shifts, blank, strict=True))
    pieces = []
    for axis, size in zip(given, sizes, strict=True):
        if axis is None:
            pieces.append(np.full((space.devices, size), NOWHERE if takes_zeros else 0))
            continue
        own, shift, is_blank = next(waiting)
        along = own[dim].rows if dim in own else np.zeros((space.devices, size), np.int64)
        along = np.where(is_nowhere(along), NOWHERE, along + shift)
        pieces.append(np.where(is_blank[:, None], NOWHERE if takes_zeros else 0, along))
    together = np.concatenate(pieces, axis=1)
    if together.any() or not kept:
        kept.append((dim, space.lines(together)))
    return without_zeros(space, _sorted(kept))


def _filled(rows: list[Array], empty: Sequence[Array]) -> list[Array]:
    """The rows of each piece, with those of another piece on devices on which it has nothing but zeros."""
    found = []
    for r, is_empty in zip(rows, empty, strict=True):
        if is_empty.any():
            r = r.copy()
            for device in np.flatnonzero(is_empty):
                r[device] = next((o[device] for o, e in zip(rows, empty, strict=True) if not e[device]), 0)
        found.append(r)
    return found


# --- reshape ---------------------------------------------------------------------------------------------------------


def reshaped(
    space: Space,
    relation: Relation,
    dims: tuple[int, ...],
    of_whole: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Relation:
    """of_whole: the dimension sizes of operand and result in the unsharded program, where they are known: they tell
    which dimensions go together, and which of the new ones is cut."""
    if dims == relation.dims:
        return relation
    if prod(dims) == 0:
        raise NoRule("an array without elements")
    old_sizes, sizes = of_whole or (relation.dims, dims)
    axes: list[list[tuple[int, Lines]]] = [[part for part in axis if part[0] < 0] for axis in relation.axes]
    for old, new in _groups(old_sizes, sizes):
        if prod(relation.dims[d] for d in old) != prod(dims[d] for d in new):
            raise NoRule("a reshape that splits a dimension across the devices' parts")
        for k, axis in enumerate(relation.axes):
            parts = {d: lines for d, lines in axis if d in old}
            if parts:
                axes[k] += _regrouped(space, parts, relation.dims, old, dims, new, sizes)
    return relation.changed(axes=tuple(without_zeros(space, _sorted(a)) for a in axes), dims=dims)


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of dimensions of both that have the same number of elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        left, right, a, b = [i], [j], old[i], new[j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                left.append(i)
                a *= old[i]
                i += 1
            else:
                right.append(j)
                b *= new[j]
                j += 1
        groups.append((left, right))
    rest = list(range(i, len(old))), list(range(j, len(new)))  # of size 1
    if groups:
        groups[-1] = (groups[-1][0] + rest[0], groups[-1][1] + rest[1])
    elif rest[0] or rest[1]:
        groups.append(rest)
    return groups


def _regrouped(
    space: Space,
    parts: dict[int, Lines],
    old_dims: tuple[int, ...],
    old: Sequence[int],
    new_dims: tuple[int, ...],
    new: Sequence[int],
    sizes: tuple[int, ...],
) -> list[tuple[int, Lines]]:
    """The parts of one axis along the dimensions `new`, into which the dimensions `old` go."""
    old_sizes, new_sizes = tuple(old_dims[d] for d in old), tuple(new_dims[d] for d in new)
    given = tuple(parts.get(d) for d in old)
    whole_sizes = tuple(sizes[d] for d in new)
    key = ("regrouped", given, old_sizes, new_sizes, whole_sizes)
    made = space.pool.once(key, lambda: _regroup(space, given, old_sizes, new_sizes, whole_sizes))
    if made is None:
        raise NoRule("a reshape that splits a dimension across the devices' parts")
    return [(-1 if k < 0 else new[k], lines) for k, lines in made]


def _regroup(
    space: Space,
    given: Sequence[Lines | None],
    old_sizes: tuple[int, ...],
    new_sizes: tuple[int, ...],
    whole_sizes: tuple[int, ...],
) -> list[tuple[int, Lines]] | None:
    devices = space.devices
    flat = np.zeros((devices, *old_sizes), np.int64)
    zeros = np.zeros((devices, *old_sizes), bool)
    for k, lines in enumerate(given):
        if lines is not None:
            shape = [devices] + [1] * len(old_sizes)
            shape[k + 1] = old_sizes[k]
            flat = flat + np.where(is_nowhere(lines.rows), 0, lines.rows).reshape(shape)
            zeros = zeros | is_nowhere(lines.rows).reshape(shape)
    rows, empty = flat.reshape(devices, -1), zeros.reshape(devices, -1)
    long = [k for k, n in enumerate(new_sizes) if n > 1]
    if not new_sizes:
        return [(-1, space.lines(np.where(empty, NOWHERE, rows)))]
    if len(long) <= 1 and len(new_sizes) == 1:
        return [(0, space.lines(np.where(empty, NOWHERE, rows)))]
    if empty.any():
        if len(long) != 1:
            return None
        return [(long[0], space.lines(np.where(empty, NOWHERE, rows)))]
    return _split(space, rows.reshape(devices, *new_sizes), new_sizes, whole_sizes)


def _split(
    space: Space, cube: Array, new_sizes: tuple[int, ...], whole_sizes: tuple[int, ...]
) -> list[tuple[int, Lines]] | None:
    """cube[d, i, j, ..] as a sum of rows along each dimension."""
    devices, rank = space.devices, len(new_sizes)
    origin = cube.reshape(devices, -1)[:, :1]
    total = np.zeros_like(cube) + origin.reshape([devices] + [1] * rank)
    found: list[Array] = []
    for k in range(rank):
        along = cube[(slice(None), *(slice(None) if d == k else 0 for d in range(rank)))] - origin
        found.append(along)
        shape = [devices] + [1] * rank
        shape[k + 1] = new_sizes[k]
        total = total + along.reshape(shape)
    if not np.array_equal(total, cube):
        return None
    for k, share in _shares(origin, found, new_sizes, whole_sizes):
        found[k] = found[k] + share
    return [(k, space.lines(along)) for k, along in enumerate(found) if along.any()] or [(0, space.lines(found[0]))]


def _shares(
    origin: Array, found: Sequence[Array], new_sizes: tuple[int, ...], whole_sizes: tuple[int, ...]
) -> list[tuple[int, Array]]:
    """Which dimension each device's first index belongs to."""
    cut = [k for k, (n, whole) in enumerate(zip(new_sizes, whole_sizes)) if n != whole]
    if len(cut) > 1:
        digits, rest = [], origin
        for k in range(len(new_sizes)):
            stride = prod(whole_sizes[k + 1 :])
            digits.append((k, rest // stride * stride))
            rest = rest % stride
        return digits
    if cut:
        return [(cut[0], origin)]
    moving = next((k for k, along in enumerate(found) if along.any()), None)
    if moving is None:  # an index of the device: it goes with a dimension of one element, if there is any
        moving = max((k for k, n in enumerate(new_sizes) if n == 1), default=0)
    return [(moving, origin)]
