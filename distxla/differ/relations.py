"""How a value of a sharded program is related to its twin, by their numbers: the same, a shard, a partial sum …"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from distxla.differ.device_groups import Devices, Grouping
from distxla.differ.tolerance import Allowed, is_inexact, largest, real
from distxla.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]
Offsets = tuple[tuple[int, ...], ...]

_MOST_OFFSETS: Final = 4096
_SAMPLE: Final = 6


@dataclass(frozen=True)
class Relation:
    """kind: same, shard, halo, part, permutation, or how devices' values make the whole: sum, mean, maximum, minimum;
    scaled: a multiple of the whole, or of a shard.

    text: in words.  over: for partial values, the groups of devices.  offsets: by device, where in the whole its values
    stand; None where each device has the whole.  times: of scaled ones.
    """

    kind: str
    text: str
    over: Grouping | None = None
    offsets: Offsets | None = None
    times: float = 1.0

    @property
    def is_partial(self) -> bool:
        return self.over is not None

    @property
    def is_complete(self) -> bool:
        """Whether the devices together have all of the whole, each its own part of it."""
        return self.over is None and self.kind in ("same", "shard", "halo")


SAME: Final = Relation("same", "the same")

_EXTREMES: Final = ("maximum", "minimum")
_MAKINGS: Final[tuple[tuple[str, str, Callable[[Array], Array]], ...]] = (
    ("sum", "partial sums", lambda stack: stack.sum(0)),
    ("mean", "local means", lambda stack: stack.mean(0)),
    ("maximum", "local maxima", lambda stack: stack.max(0)),
    ("minimum", "local minima", lambda stack: stack.min(0)),
)


def relation(values: Sequence[Array], whole: Array, devices: Devices, allowed: Allowed) -> Relation | None:
    """values: by device.  whole: the twin's. None where the numbers show no relation."""
    dims = values[0].shape
    if any(value.shape != dims or value.dtype != whole.dtype for value in values):
        return None
    if len(dims) != whole.ndim:
        if values[0].size != whole.size:
            return None
        whole = whole.reshape(dims)
    if dims == whole.shape and all(allowed.fits(value, whole) for value in _different(values)):
        return SAME
    offsets = _offsets(values, whole, allowed, 0.0)
    if offsets is not None:
        return placed_at(offsets, dims, whole.shape, devices)
    return (
        _partial(values, whole, devices, allowed)
        or _scaled(values, whole, devices, allowed)
        or _scaled_sums(values, whole, devices, allowed)
    )


def _different(values: Sequence[Array]) -> Iterable[Array]:
    return {id(value): value for value in values}.values()


def _partial(values: Sequence[Array], whole: Array, devices: Devices, allowed: Allowed) -> Relation | None:
    if whole.dtype.kind == "u":
        return None  # keys and bits of random numbers
    if whole.dtype.kind == "b":
        makings = [m for m in _MAKINGS if m[0] in _EXTREMES]
    elif is_inexact(whole.dtype):
        makings = [m for m in _MAKINGS if whole.dtype.kind != "c" or m[0] in ("sum", "mean")]
    else:
        makings = [m for m in _MAKINGS if m[0] != "mean"]
    wide = [_wide(value) for value in values]
    for grouping in devices.groupings:
        if _is_same_in_groups(values, grouping):
            continue
        for kind, words, make in makings:
            scale = max(map(largest, values)) if kind == "sum" and is_inexact(whole.dtype) else 0.0
            made: list[Array] = [whole] * len(values)
            for group in grouping.groups:
                one = make(np.stack([wide[d] for d in group])).astype(whole.dtype)
                for d in group:
                    made[d] = one
            if made[0].shape == whole.shape:
                offsets: Offsets | None = ((0,) * whole.ndim,) * len(made)
                if not all(allowed.fits(one, whole, scale) for one in _different(made)):
                    offsets = None
            else:
                offsets = _offsets(made, whole, allowed, scale)
            if offsets is not None:
                placed = placed_at(offsets, made[0].shape, whole.shape, devices)
                if not placed.is_complete or (kind in _EXTREMES and _is_chance(values, whole, grouping, allowed)):
                    continue
                more = "" if placed.kind == "same" else f", each {placed.text}"
                return Relation(kind, f"{words} over {grouping.name}{more}", grouping, placed.offsets)
    return None


def _is_same_in_groups(values: Sequence[Array], grouping: Grouping) -> bool:
    """Whether there is nothing to combine."""
    return all(np.array_equal(values[d], values[group[0]]) for group in grouping.groups for d in group[1:])


def _is_chance(values: Sequence[Array], whole: Array, grouping: Grouping, allowed: Allowed) -> bool:
    """Whether several devices of a group have all of the whole, and others something larger, or smaller."""
    if whole.dtype.kind == "b" or values[0].shape != whole.shape:
        return False
    return any(1 < sum(allowed.fits(values[d], whole) for d in group) < len(group) for group in grouping.groups)


def _scaled_sums(values: Sequence[Array], whole: Array, devices: Devices, allowed: Allowed) -> Relation | None:
    """As partial sums, of a multiple of the whole: by a number of devices."""
    if not _may_be_scaled(whole):
        return None
    wide = [_wide(value) for value in values]
    for grouping in devices.groupings:
        if _is_same_in_groups(values, grouping):
            continue
        made: list[Array] = [whole] * len(values)
        for group in grouping.groups:
            one = np.stack([wide[d] for d in group]).sum(0)
            for d in group:
                made[d] = one
        number = _multiple(max(map(largest, made)), whole, devices)
        if number is None:
            continue
        found = [(one / number).astype(whole.dtype) for one in made]
        same = {id(one): few for one, few in zip(made, found, strict=True)}
        scale = max(map(largest, values)) / number
        offsets = _offsets([same[id(one)] for one in made], whole, allowed, scale)
        if offsets is not None and (placed := placed_at(offsets, found[0].shape, whole.shape, devices)).is_complete:
            text = f"partial sums over {grouping.name}, of {number:.6g} times the whole"
            return Relation("sum", text, grouping, placed.offsets, number)
    return None


def _may_be_scaled(whole: Array) -> bool:
    return is_inexact(whole.dtype) and whole.dtype.kind != "c"


def _multiple(top: float, whole: Array, devices: Devices) -> float | None:
    """The number of devices, or its inverse, by which the largest value is that of the whole, about."""
    of = largest(whole)
    ratio = top / of if of else 0.0
    if not 0.0 < ratio < float("inf"):
        return None
    sizes = {size for size in range(2, devices.count + 1) if devices.count % size == 0}
    number = min({1.0 * n for n in sizes} | {1.0 / n for n in sizes}, key=lambda n: abs(n / ratio - 1), default=None)
    return number if number is not None and abs(number / ratio - 1) < 0.1 else None


def _wide(array: Array) -> Array:
    if array.dtype.kind in "fV":
        return real(array).astype(np.float64) if is_inexact(array.dtype) else array.astype(np.int64)
    return array.astype(np.complex128) if array.dtype.kind == "c" else array


def _offsets(values: Sequence[Array], whole: Array, allowed: Allowed, scale: float) -> Offsets | None:
    """By device, where in the whole its values stand; None where one's stand nowhere in it."""
    found: dict[int, tuple[int, ...] | None] = {}
    known: list[tuple[int, ...]] = []
    for value in values:
        if id(value) not in found:
            found[id(value)] = _offset(value, whole, allowed, scale, known)
        place = found[id(value)]
        if place is None:
            return None
        known.append(place)
    return tuple(known)


def _offset(
    value: Array, whole: Array, allowed: Allowed, scale: float, known: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    tried = set()
    for place in (*_candidates(value.shape, whole.shape, len(known)), *dict.fromkeys(known)):
        if place in tried:
            continue
        tried.add(place)
        if _stands_at(value, whole, place, allowed, scale):
            return place
    return None


def _candidates(part: tuple[int, ...], whole: tuple[int, ...], device: int) -> Iterable[tuple[int, ...]]:
    """Multiples of the part's size first; then, along one dimension, every place."""
    ranges = []
    for size, of in zip(part, whole, strict=True):
        if size == of:
            ranges.append(range(1))
        elif size < of and size > 0:
            ranges.append(range(0, of, size))
        else:
            return
    if np.prod([len(r) for r in ranges]) > _MOST_OFFSETS:
        return
    places = list(product(*ranges))
    yield from places[device:]
    yield from places[:device]
    cut = [d for d, r in enumerate(ranges) if len(r) > 1]
    if len(cut) == 1 and whole[cut[0]] <= _MOST_OFFSETS:
        for at in range(whole[cut[0]] - part[cut[0]] + 1):
            yield tuple(at if d == cut[0] else 0 for d in range(len(part)))


def _stands_at(value: Array, whole: Array, place: tuple[int, ...], allowed: Allowed, scale: float) -> bool:
    """Beyond the end of the whole the value may be anything: padding of the last shard."""
    beyond = [at + size - of for at, size, of in zip(place, value.shape, whole.shape, strict=True)]
    if any(more > 0 for more in beyond):
        value = value[tuple(slice(0, size - max(0, more)) for size, more in zip(value.shape, beyond, strict=True))]
    there = whole[tuple(slice(at, at + size) for at, size in zip(place, value.shape, strict=True))]
    if allowed.elements == 0 or is_inexact(value.dtype):
        corner = (slice(0, 1),) * max(0, value.ndim - 1) + (slice(0, _SAMPLE),) * min(1, value.ndim)
        if not allowed.fits(value[corner], there[corner], scale):
            return False
    return allowed.fits(value, there, scale)


def placed_at(offsets: Offsets, part: tuple[int, ...], whole: tuple[int, ...], devices: Devices) -> Relation:
    """The relation of parts that stand at these places."""
    cut = [d for d in range(len(part)) if part[d] != whole[d]]
    if not cut:
        return SAME
    words, is_in_order, has_halo = [], True, False
    for d in cut:
        places = [offset[d] for offset in offsets]
        step = min((b - a for a, b in zip(sorted(set(places)), sorted(set(places))[1:])), default=0)
        axes = devices.deciding(places)
        over = devices.named([devices.axes[k][0] for k in axes]) if axes else ""
        if step == 0 or max(places) + part[d] < whole[d] or min(places) > 0 or step > part[d]:
            what = f"the same part of dimension {d} everywhere" if step == 0 else f"some of dimension {d}"
            return Relation("part", what, None, offsets)
        numbers = [place // step for place in places]
        is_in_order &= devices.in_order(numbers, axes)
        has_halo |= step < part[d]
        words.append(f"dimension {d} over {over}")
    if len(set(offsets)) < np.prod([len({o[d] for o in offsets}) for d in cut]):
        return Relation("part", "some of it", None, offsets)
    text = ", ".join(words)
    if not is_in_order:
        return Relation("permutation", f"shards in another order: {text}", None, offsets)
    return (
        Relation("halo", f"a shard with a halo: {text}", None, offsets)
        if has_halo
        else Relation("shard", f"a shard: {text}", None, offsets)
    )


def _scaled(values: Sequence[Array], whole: Array, devices: Devices, allowed: Allowed) -> Relation | None:
    """Each device's value is the same multiple of the whole, or of a shard: by a number of devices."""
    if not _may_be_scaled(whole):
        return None
    number = _multiple(max(map(largest, values)), whole, devices)
    if number is None:
        return None
    scaled = (real(whole) * number).astype(whole.dtype)
    more = Allowed(allowed.distance * max(1.0, number), spread=allowed.spread * max(1.0, number))
    offsets: Offsets | None = None
    if values[0].shape != whole.shape:
        offsets = _offsets(values, scaled, more, 0.0)
    elif not all(more.fits(value, scaled) for value in _different(values)):
        return None
    if values[0].shape != whole.shape and offsets is None:
        return None
    placed = SAME if offsets is None else placed_at(offsets, values[0].shape, whole.shape, devices)
    what = "the whole" if offsets is None else placed.text
    return Relation("scaled", f"{number:.6g} times {what}", None, placed.offsets, number)


__all__ = ["SAME", "Relation", "placed_at", "relation"]
