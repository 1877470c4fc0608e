"""Which elements of a whole array the devices' arrays hold, where both are known as elements of one term."""

from __future__ import annotations

import numpy as np

from distxla.proofs.relations.lines import NOWHERE, Array, is_nowhere
from distxla.proofs.relations.relation import Relation
from distxla.proofs.relations.terms import Axis

Coordinates = list[Array | None]


def coordinates(own: Relation, whole: Relation, devices: int) -> Coordinates | None:
    """Of each dimension, rows[d, j]: the index in the whole array of element j of device d; None for a dimension along
    which the whole array repeats. None altogether where the devices' elements aren't elements of it. Scales and parts
    are not compared.

    own: of so many devices.  whole: of one.
    """
    if own.term is not whole.term or len(own.dims) != len(whole.dims):
        return None
    found: Coordinates = [None] * len(own.dims)
    by_dim: dict[int, list[int]] = {}
    for k, axis in enumerate(whole.axes):
        along = [d for d, _ in axis if d >= 0]
        if len(along) > 1:
            if not _several(own, whole, k, along, devices, found):
                return None
        elif along:
            by_dim.setdefault(along[0], []).append(k)
        elif not _is_at(own.axes[k], whole.axes[k], devices):
            return None
    for dim, axes in by_dim.items():
        rows = _looked_up(own, whole, dim, axes, devices)
        if rows is None or found[dim] is not None:
            return None
        found[dim] = rows
    return found


def _total(axis: Axis, dim: int, devices: int) -> Array | None:
    """The indices along a dimension with what is added for a whole device; None if other dimensions count, too."""
    total = np.zeros((devices, 1), np.int64)
    for d, lines in axis:
        if d not in (dim, -1):
            return None
        total = np.where(is_nowhere(lines.rows) | is_nowhere(total), NOWHERE, lines.rows + total)
    return total


def _is_at(own: Axis, whole: Axis, devices: int) -> bool:
    wanted, got = _total(whole, -1, 1), _total(own, -1, devices)
    if got is None:  # along a dimension, but always the same
        if any((lines.rows != lines.rows[:, :1]).any() for _, lines in own):
            return False
        got = sum((lines.rows[:, :1] for _, lines in own), np.zeros((devices, 1), np.int64))
    return wanted is not None and bool((got == wanted).all())


def _looked_up(own: Relation, whole: Relation, dim: int, axes: list[int], devices: int) -> Array | None:
    """Where the combinations of indices of a dimension are in the whole array."""
    count = own.dims[dim]
    wanted: list[Array] = []
    there: list[Array] = []
    for k in axes:
        got, of_whole = _total(own.axes[k], dim, devices), _total(whole.axes[k], dim, 1)
        if got is None or of_whole is None:
            return None
        wanted.append(np.broadcast_to(got, (devices, count)).reshape(-1))
        there.append(of_whole[0])
    if len(axes) == 1:
        places, keys = there[0], wanted[0]
    else:
        both = np.concatenate([np.stack(there), np.stack(wanted)], axis=1)
        _, numbers = np.unique(both, axis=1, return_inverse=True)
        numbers = numbers.reshape(-1)
        places, keys = numbers[: there[0].size], numbers[there[0].size :]
    order = np.argsort(places, kind="stable")
    if not order.size:
        return None
    at = np.minimum(np.searchsorted(places[order], keys), order.size - 1)
    found = order[at]
    if not np.array_equal(places[found], keys):
        return None
    rows: Array = found.reshape(devices, count)
    return rows


def _several(own: Relation, whole: Relation, k: int, along: list[int], devices: int, found: Coordinates) -> bool:
    """An axis that several dimensions of the whole array share, as digits of its index: into `found`."""
    theirs = {d: lines.rows[0] for d, lines in whole.axes[k] if d >= 0}
    mine = dict(own.axes[k])
    others = [axis for n, axis in enumerate(whole.axes) if n != k]
    if any(d in theirs for axis in others for d, _ in axis) or any(d >= 0 and d not in theirs for d in mine):
        return False
    if any(lines.has_zeros for _, lines in (*own.axes[k], *whole.axes[k])):
        return False
    start = sum((lines.rows[:, 0] for lines in mine.values()), np.zeros(devices, np.int64))
    rest = start - sum(int(lines.rows[0, 0]) for _, lines in whole.axes[k])
    for dim in sorted(along, key=lambda d: -int((theirs[d] - theirs[d][0]).max())):
        steps = theirs[dim] - theirs[dim][0]
        if (np.diff(steps) <= 0).any():
            return False
        first = np.clip(np.searchsorted(steps, rest, side="right") - 1, 0, None)
        rest = rest - steps[first]
        rows = mine[dim].rows if dim in mine else np.zeros((devices, own.dims[dim]), np.int64)
        wanted = rows - rows[:, :1] + steps[first][:, None]
        at = np.minimum(np.searchsorted(steps, wanted), steps.size - 1)
        if not np.array_equal(steps[at], wanted):
            return False
        found[dim] = at
    return not rest.any()


def lies_at(own: Relation, whole: Relation, firsts: Array) -> bool:
    """Whether device d has the block of the whole array that begins at firsts[d], one index for each dimension."""
    devices = firsts.shape[0]
    for mine, theirs in zip(own.axes, whole.axes, strict=True):
        due: dict[int, Array] = {}
        for d, lines in theirs:
            if d < 0:
                due[d] = np.broadcast_to(lines.rows, (devices, 1))
            else:
                positions = firsts[:, d : d + 1] + np.arange(own.dims[d])
                due[d] = lines.rows[0][np.minimum(positions, lines.count - 1)]
        if not _adds_up_alike({d: lines.rows for d, lines in mine}, due, devices):
            return False
    return True


def _adds_up_alike(mine: dict[int, Array], due: dict[int, Array], devices: int) -> bool:
    """Whether the sums of two sets of rows along dimensions are the same at each place."""
    if mine.keys() == due.keys() and all(_is_equal(mine[d], due[d]) for d in mine):
        return True
    if any(is_nowhere(rows).any() for rows in (*mine.values(), *due.values())):
        return False
    none = np.zeros((devices, 1), np.int64)
    for d in mine.keys() | due.keys():
        one, other = mine.get(d, none), due.get(d, none)
        if not _is_equal(one - one[:, :1], other - other[:, :1]):
            return False
    first, second = (sum((r[:, :1] for r in rows.values()), none) for rows in (mine, due))
    return _is_equal(first, second)


def _is_equal(one: Array, other: Array) -> bool:
    return bool((one == other).all())
