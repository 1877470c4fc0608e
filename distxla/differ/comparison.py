"""A sharded program beside its unsharded twin: both on the reference, on the same arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from distxla.differ.alignment import Twins
from distxla.differ.device_groups import devices_of
from distxla.differ.origin import Origin
from distxla.differ.program import Program, cut
from distxla.differ.proof import are_finite, proved
from distxla.differ.recording import Recorded, Recording
from distxla.differ.relations import relation
from distxla.differ.report import Comparison, FirstDifference, first_difference, value_relations
from distxla.differ.tolerance import Allowed, Perturbation, allowed
from distxla.differ.value_store import ValueStore
from distxla.errors import ArgumentError
from distxla.lazy_dataclass import dataclass, replace
from distxla.oracle.lockstep import run_reference

Array = np.ndarray[Any, Any]

PERTURBED_RUNS = 2
MEMORY = 4 << 30  # bytes of values that are held at a time


@dataclass(frozen=True)
class _ResultDifference:
    """A result that is not the unsharded one. devices: on which it differs."""

    leaf: int
    devices: tuple[int, ...]
    text: str


def compare_programs(
    sharded: Program,
    whole: Program,
    sharded_rows: Sequence[Sequence[Any]],
    rows: Sequence[Sequence[Any]],
    *,
    tolerance: float | None = None,
    memory: int = MEMORY,
    proof: bool = True,
) -> Comparison:
    """sharded_rows, rows: the arguments' leaves by device, as each program takes them.

    tolerance: relative to a value's largest element, in the place of what rounding is measured to do.  memory: bytes of
    values held at a time; the others are in a file.  proof: whether nothing is run where the results are proved to be
    equal for all inputs, and the numbers can't be otherwise; not done where there is a tolerance.
    Blocks. Raises ArgumentError where the programs have other results; the errors of the reference.
    """
    shown = proved(sharded, whole, sharded_rows, rows) if proof and tolerance is None else None
    if shown is not None and shown.covers_numbers and are_finite(rows):
        return Comparison(True, None, (), shown.relations(), shown.text, compared=False)
    with np.errstate(all="ignore"), ValueStore(memory) as store:
        found = _compared(sharded, whole, sharded_rows, rows, tolerance, store)
    return found if shown is None else replace(found, proof=shown.text)


def _compared(
    sharded: Program,
    whole: Program,
    sharded_rows: Sequence[Sequence[Any]],
    rows: Sequence[Sequence[Any]],
    tolerance: float | None,
    store: ValueStore,
) -> Comparison:
    ours, outs = recorded(sharded, sharded_rows, store, None)
    theirs, wanted = recorded(whole, rows, store, None)
    limits = Limits(() if tolerance is not None else moved_runs(whole, rows, store), tolerance)
    devices = devices_of(sharded.module, sharded.counts, sharded.text)
    twins = Twins(ours.arrays, theirs.arrays, devices, limits, is_each_devices=1 < sharded.count == whole.count)
    differing = list(_differing(sharded, outs, wanted, theirs, limits, twins))
    first = _first(differing, twins, ours, outs) if differing else None
    texts = tuple(difference.text for difference in differing)
    return Comparison(not differing, first, texts, value_relations(twins.pairs))


def moved_runs(whole: Program, rows: Sequence[Sequence[Any]], store: ValueStore) -> Iterator[Recording]:
    """Runs whose rounding is moved; of several devices one tells enough."""
    for seed in range(PERTURBED_RUNS if whole.count == 1 else 1):
        change = Perturbation(seed)
        moved_rows = [[change.argument(np.asarray(a)) for a in row] for row in rows]
        yield recorded(whole, moved_rows, store, change)[0]


def _first(
    differing: Sequence[_ResultDifference], twins: Twins, ours: Recording, outs: list[list[Any]]
) -> FirstDifference | None:
    """The earliest of the places where the results' differences begin."""
    findings = []
    for difference in differing:
        device = difference.devices[0]
        array = ours.maker(device, outs[device][difference.leaf])
        if array is not None:
            findings.append(Origin(twins).find(array))
    if not findings:
        return None
    one = min(findings, key=lambda f: (f.use or f.at).array.number)
    return first_difference(one.at, one.kind, one.line, one.hint, one.use)


def recorded(
    program: Program, rows: Sequence[Sequence[Any]], store: ValueStore, change: Perturbation | None
) -> tuple[Recording, list[list[Any]]]:
    """A run of the reference: all its arrays, and its results by device. rows: by device the arguments' leaves."""
    watch = Recording(store, None if change is None else change.value)
    outs = run_reference(program.module, rows, program.counts, watch=watch)
    if program.arguments:
        for array in watch.arrays:
            if array.argument is not None:
                array.argument = program.arguments[array.argument]
    return watch, outs


class Limits:
    """How far values may be apart, found when it is asked for.  moved: runs with moved rounding, taken one after the
    other when a value needs them."""

    def __init__(self, moved: Iterable[Recording], tolerance: float | None) -> None:
        self._runs, self._tolerance = moved, tolerance
        self._found: dict[int, Allowed] = {}

    @cached_property
    def _moved(self) -> list[Recording]:
        return list(self._runs)

    def least(self, value: Array) -> Allowed:
        """Of one device's value, as if the runs had moved nothing: what it allows the limit allows, too."""
        return allowed([value], self._tolerance)

    def __call__(self, array: Recorded) -> Allowed:
        """From the runs that went the same way, on all devices."""
        number = array.number
        if number not in self._found:
            others = [recording.arrays[number] for recording in self._moved if number < len(recording.arrays)]
            others = [o for o in others if _place(o) == _place(array)]  # each run has rewritten instructions of its own
            limits = [
                allowed([array.on(d), *(o.on(d) for o in others if d in o.values)], self._tolerance)
                for d in array.values
            ]
            self._found[number] = Allowed(
                max(each.distance for each in limits),
                max(each.elements for each in limits),
                max(each.spread for each in limits),
            )
        return self._found[number]


def _place(array: Recorded) -> tuple[str, int, tuple[int, ...]]:
    return array.instruction.name, array.leaf, array.iterations


def _differing(
    sharded: Program,
    outs: list[list[Any]],
    wanted: list[list[Any]],
    theirs: Recording,
    limits: Limits,
    twins: Twins,
) -> Iterator[_ResultDifference]:
    if len(outs[0]) != len(wanted[0]):
        raise ArgumentError(f"expected as many results of both programs, found {len(outs[0])} and {len(wanted[0])}")
    for leaf, target in enumerate(wanted[0]):
        if target is None:
            continue
        maker = theirs.maker(0, target)
        values = [row[leaf] for row in outs]
        if any(value is None for value in values):
            raise ArgumentError(f"{sharded.result(leaf)}: expected an array as in the unsharded program, found a token")
        targets = [row[leaf] for row in wanted]
        if twins.is_each_devices and all(
            _is_alike(a, b) and limits.least(b).fits(a, b) for a, b in zip(values, targets, strict=True)
        ):
            continue
        limit = allowed([target]) if maker is None else limits(maker)
        if twins.is_each_devices:
            yield from _differing_devices(sharded, leaf, values, targets, limit)
        else:
            yield from _difference(sharded, leaf, values, target, limit, twins)


def _is_alike(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(one.dtype == other.dtype)


def _differing_devices(
    sharded: Program, leaf: int, values: list[Any], targets: list[Any], limit: Allowed
) -> Iterator[_ResultDifference]:
    """Of two programs for as many devices."""
    pairs = list(zip(values, targets, strict=True))
    wrong = tuple(d for d, (a, b) in enumerate(pairs) if not _is_alike(a, b) or not limit.fits(a, b))
    if wrong:
        yield _ResultDifference(leaf, wrong, f"{sharded.result(leaf)} differs on {len(wrong)} of {len(values)} devices")


def _difference(
    sharded: Program, leaf: int, values: list[Any], target: Array, limit: Allowed, twins: Twins
) -> Iterator[_ResultDifference]:
    every = tuple(range(len(values)))
    if values[0].dtype != target.dtype:
        yield _ResultDifference(
            leaf, every, f"{sharded.result(leaf)}: expected {target.dtype}, found {values[0].dtype}"
        )
    elif sharded.results is None:
        found = relation(values, target, twins.devices, limit)
        if found is None or not found.is_complete:
            yield _ResultDifference(
                leaf, every, f"{sharded.result(leaf)}: {'differs' if found is None else found.text}"
            )
    elif sharded.results[leaf].shape.dims != target.shape:
        dims = list(sharded.results[leaf].shape.dims)
        yield _ResultDifference(
            leaf, every, f"{sharded.result(leaf)}: expected {list(target.shape)} as in the unsharded, found {dims}"
        )
    else:
        shards = sharded.results[leaf].shards
        parts = [shards.split(target, d % sharded.counts.partitions) for d in every]
        wrong = tuple(d for d in every if not limit.fits(values[d], parts[d]))
        if wrong:
            yield _ResultDifference(
                leaf, wrong, f"{sharded.result(leaf)} differs on {len(wrong)} of {len(every)} devices"
            )


__all__ = ["MEMORY", "Limits", "Program", "compare_programs", "cut", "moved_runs", "recorded"]
