"""How far results are from others that are taken as right: leaf by leaf, device by device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import ElementType
from distxla.lazy_dataclass import dataclass
from distxla.wording import counted, listed

Array = np.ndarray[Any, Any]

# Relative to the magnitudes in a leaf: whole programs round many times, in another order than the other side.
TOLERANCES = {"f64": 1e-9, "c128": 1e-9, "f32": 1e-4, "c64": 1e-4, "f16": 2e-2, "bf16": 5e-2}
NARROW_FLOAT_TOLERANCE = 0.3
MOST_ROWS = 40


@dataclass(frozen=True)
class Difference:
    """One leaf on one device.

    largest: the largest absolute difference (inf where a NaN or an infinity is on one side only).  relative: that
    over the largest finite magnitude of the other side.  differing: elements beyond the tolerance, of `size`.  at: the
    worst one's index; got and wanted: its values.  item: of outfeed items, the number; None for results.  label: what
    the user calls the leaf, as `params['b1']`; None where that isn't known.
    """

    leaf: int
    device: int
    element: ElementType
    tolerance: float
    largest: float
    relative: float
    differing: int
    size: int
    at: tuple[int, ...]
    got: Any
    wanted: Any
    item: int | None = None
    label: str | None = None

    @property
    def name(self) -> str:
        """`params['b1']`, `out3`, `outfeed5.0`."""
        if self.label is not None:
            return self.label
        return f"out{self.leaf}" if self.item is None else f"outfeed{self.item}.{self.leaf}"

    @property
    def row(self) -> tuple[str, ...]:
        """Its row in a table, but for the device: equal where devices have the same."""
        place = f"{list(self.at)}: {self.got!s} instead of {self.wanted!s}"
        numbers = f"{self.largest:.3g}", f"{self.relative:.2g}", f"{self.tolerance:.1g}"
        return self.name, self.element.name, *numbers, f"{self.differing}/{self.size}", place

    @property
    def fits(self) -> bool:
        return self.differing == 0


def tolerance_of(element: ElementType) -> float:
    """0 for integers and predicates: they must be equal."""
    if not (element.is_float or element.is_complex):
        return 0.0
    return TOLERANCES.get(element.name, NARROW_FLOAT_TOLERANCE)


def compare(
    got: Array,
    wanted: Array,
    element: ElementType,
    *,
    leaf: int,
    device: int,
    tolerance: float | None = None,
    item: int | None = None,
    label: str | None = None,
) -> Difference:
    """|got - wanted| <= tolerance * (|wanted| + the largest finite |wanted|), NaN equal to NaN; arrays of one shape.

    tolerance: None for the element type's own; integers and predicates are always compared exactly.
    """
    limit = tolerance_of(element) if tolerance is None or tolerance_of(element) == 0 else tolerance
    wide = np.complex128 if element.is_complex else np.float64
    with np.errstate(all="ignore"):
        if tolerance_of(element) == 0.0:
            wrong = np.asarray(got != wanted)
            distance = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
            scale = float(np.max(np.abs(wanted.astype(np.float64)), initial=0.0))
        else:
            a, b = got.astype(wide), wanted.astype(wide)
            finite = np.isfinite(b)
            scale = float(np.max(np.abs(b), initial=0.0, where=finite))
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            distance = np.where(same, 0.0, np.abs(a - b))
            distance = np.where(np.isnan(distance), np.inf, distance)
            wrong = ~same & ~(finite & (distance <= limit * (np.abs(b) + scale)))
        rank = np.where(wrong, distance + 1, 0.0) if wrong.any() else distance
    worst = np.unravel_index(int(np.argmax(rank)), got.shape) if got.size else ()
    largest = float(distance[worst]) if got.size else 0.0
    relative = largest / scale if scale else (0.0 if largest == 0 else float("inf"))
    at = tuple(int(i) for i in worst)
    x, y = (got[worst], wanted[worst]) if got.size else (None, None)
    return Difference(
        leaf, device, element, limit, largest, relative, int(wrong.sum()), got.size, at, x, y, item, label
    )


def missing(present: Array, element: ElementType, *, leaf: int, device: int, item: int, got: bool) -> Difference:
    """An outfeed item that one side only has: `present`. got: whether that is our side."""
    at = (0,) * present.ndim
    sample = present[at] if present.size else None
    a, b = (sample, "no such item") if got else ("no such item", sample)
    infinite = float("inf")
    count = present.size
    return Difference(leaf, device, element, 0.0, infinite, infinite, max(1, count), count, at, a, b, item)


def _counts(differences: Sequence[Difference]) -> str:
    """`24 arrays, 3 leaves on 8 devices`."""
    leaves = len({(d.item, d.leaf) for d in differences})
    devices = counted(len({d.device for d in differences}), "device")
    return f"{counted(len(differences), 'array')}, {'1 leaf' if leaves == 1 else f'{leaves} leaves'} on {devices}"


def lines(differences: Sequence[Difference], against: str) -> Iterable[str]:
    """A sentence, and a table of the elements beyond the tolerance."""
    bad = [d for d in differences if not d.fits]
    if not differences:
        yield f"{against}: no leaf in common"
        return
    if not bad:
        worst = max(differences, key=lambda d: d.relative)
        where = f"{worst.name} on device {worst.device}"
        yield (
            f"agrees with {against} within tolerance: {_counts(differences)}; "
            f"largest difference {worst.largest:.3g} ({worst.relative:.2g} of the leaf's largest value, {where})"
        )
        return
    yield f"differs from {against} in {len(bad)} of {counted(len(differences), 'array')}"
    rows: dict[tuple[str, ...], list[int]] = {}  # with the devices that have it, in the order of the first of them
    for d in bad:
        rows.setdefault(d.row, []).append(d.device)
    shown = [(row, listed(devices)) for row, devices in list(rows.items())[:MOST_ROWS]]
    width = max(6, *(len(row[0]) for row, _ in shown))
    wide = max(6, *(len(devices) for _, devices in shown))
    head = (
        f"{'leaf':{width}} {'device':>{wide}} {'type':8} {'largest':>10} {'relative':>9} {'limit':>8} {'beyond it':>15}"
    )
    yield f"  {head}  worst"
    for (name, element, largest, relative, limit, count, place), devices in shown:
        numbers = f"{largest:>10} {relative:>9} {limit:>8} {count:>15}"
        yield f"  {name:{width}} {devices:>{wide}} {element:8} {numbers}  {place}"
    if len(rows) > MOST_ROWS:
        yield f"  … and {len(rows) - MOST_ROWS} more"
