"""Comparisons of results: between devices, and with the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from distxla.cli.comparison import Difference, compare, lines
from distxla.errors import ArgumentError
from distxla.ir.element_type import element_type_of, held_number
from distxla.oracle.lockstep import run_programs
from distxla.runtime.arrays.executable import Executable, rows_of
from distxla.scheduler.communication_order import order_communication
from distxla.testing.named_leaves import named_leaves
from distxla.time_limit import seconds_left


def assert_same_on_all_devices(outs: Any, *, leaves: Sequence[int] | None = None, tolerance: float = 0.0) -> None:
    """Every device has the values of the first one.

        outs = step(args)
        assert_same_on_all_devices(outs)
        assert_same_on_all_devices({"params": params, "state": state})

    outs: outs[d][k], as an Executable returns it, or one array or pytree a device; or an array of distxla.jax or of
    JAX, or any pytree of them: then the shards that are the same part of an array are compared, and leaves that are no
    such arrays are left out.  leaves: the k that are compared, all by default, counted over the pytree.  tolerance:
    |a - b| <= tolerance * (|b| + the largest finite |b|), NaN equal to NaN; integers and predicates are always compared
    exactly.  Blocks while results are fetched. AssertionError with a table of what differs, in which leaves have their
    path, as `params['b1']`; ArgumentError where there is nothing to compare.
    """
    whole = named_leaves(outs)
    if any(_shards(leaf) is not None for _, leaf in whole):
        found = []
        for k in _chosen(leaves, len(whole)):
            name, leaf = whole[k]
            if (shards := _shards(leaf)) is not None:
                found += _between_shards(shards, tolerance, k, name or None)
        if not found:
            raise ArgumentError("outs: every device has another part of each array, so there is nothing to compare")
        _require(found, "the first device with the same part")
        return
    if not isinstance(outs, Iterable) or isinstance(outs, Mapping):
        raise ArgumentError(f"outs: expected the results of each device, found {type(outs).__name__}")
    rows = [_row(row) for row in outs]
    if len(rows) < 2:
        raise ArgumentError(f"outs: expected the results of at least 2 devices, found those of {len(rows)}")
    if len(counts := {len(row) for row in rows}) > 1:
        raise ArgumentError(f"outs: expected as many leaves on each device, found {sorted(counts)}")
    if len({tuple(name for name, _ in row) for row in rows}) > 1:
        raise ArgumentError("outs: expected a pytree of the same structure on each device")
    found = []
    for k in _chosen(leaves, counts.pop()):
        name, first = rows[0][k]
        if not _has_elements(first):
            continue
        wanted = np.asarray(first)
        found += [_difference(row[k][1], wanted, k, d, tolerance, name or None) for d, row in enumerate(rows[1:], 1)]
    _require(found, f"device {_device(rows[0][0][1], 0)}" if rows[0] else "device 0")


def _chosen(leaves: Sequence[int] | None, count: int) -> Sequence[int]:
    """ArgumentError for numbers of leaves that are none."""
    for k in leaves or ():
        if not 0 <= k < count:
            raise ArgumentError(f"leaves: expected numbers from 0 to {count - 1}, found {k}")
    return range(count) if leaves is None else leaves


def _row(row: Any) -> list[tuple[str, Any]]:
    """The leaves of a device. Those of a flat list have no other name than their number."""
    if isinstance(row, list | tuple) and all(_is_leaf(value) for value in row):
        return [("", value) for value in row]
    return named_leaves(row)


def _is_leaf(value: Any) -> bool:
    return value is None or hasattr(value, "dtype") or isinstance(value, bool | int | float | complex)


def _shards(leaf: Any) -> Sequence[Any] | None:
    return getattr(leaf, "shards", None) or getattr(leaf, "addressable_shards", None)


def _between_shards(shards: Sequence[Any], tolerance: float, leaf: int, label: str | None) -> list[Difference]:
    """Each shard beside the first one of the same part; none where all parts differ."""
    first: dict[str, np.ndarray[Any, Any]] = {}
    found = []
    for place, shard in enumerate(shards):
        part, values = repr(shard.index), np.asarray(shard.data)
        if part in first:
            found.append(_difference(values, first[part], leaf, _device(shard, place), tolerance, label))
        else:
            first[part] = values
    return found


def assert_matches_reference(
    executable: Executable,
    args: Sequence[Any] = (),
    outs: Sequence[Sequence[Any]] | None = None,
    *,
    tolerance: float | None = None,
) -> None:
    """The executable's results are those of the reference, which computes all devices in NumPy.

        step = cluster.compile(module)
        assert_matches_reference(step, args)

    args: as for the executable.  outs: its results for them; where they are not given, it is called.  tolerance: as for
    assert_same_on_all_devices; None for the element type's own (f32 1e-4).  Blocks; large programs take long in NumPy.
    AssertionError with a table of what differs; ArgumentError for a program whose module is not known; the errors of a
    call, and of the reference.
    """
    module, devices = executable.module, executable.devices
    if module is None:
        raise ArgumentError(f"{executable}: its module is not known, so there is no reference")
    rows = [
        [_argument(executable, value, k, device) for k, value in enumerate(row)]
        for device, row in zip(devices, rows_of(args, devices), strict=True)
    ]
    if outs is None:
        outs = executable(args)
    counts = executable.program.counts
    logical = devices if executable.program.assignment is None else range(len(devices))
    (module,) = order_communication([(logical, module)], counts).modules  # as a call executes it
    reference = run_programs(
        dict.fromkeys(devices, module), dict(zip(devices, rows, strict=True)), counts, time_limit=seconds_left()
    )
    found = [
        _difference(got, np.asarray(wanted), k, device, tolerance)
        for device, row in zip(devices, outs, strict=True)
        for k, (got, wanted) in enumerate(zip(row, reference[device], strict=True))
        if wanted is not None
    ]
    _require(found, "the reference")


def assert_matches_unsharded(
    sharded: Any, unsharded: Any, *args: Any, tolerance: float | None = None, proof: bool = True
) -> None:
    """A sharded JAX function has the results of its unsharded form, by proof or by a run of both on the reference; no
    cluster.

        assert_matches_unsharded(sharded_step, step, params, batch)

    The arguments are those of `distxla.jax.compare`.  Blocks; large programs take long in NumPy. AssertionError that
    says where the values go wrong, and how; the errors of `compare`.
    """
    from distxla.jax.comparing import compare as compare_values

    found = compare_values(sharded, unsharded, *args, tolerance=tolerance, proof=proof)
    if not found.same:
        raise AssertionError(str(found))


def _argument(executable: Executable, value: Any, k: int, device: int) -> Any:
    """What the device takes: its shard of an array that is given whole, a number as an array of the right type."""
    if executable.whole is not None:
        value = executable._shard(value, k, device)
    if isinstance(value, bool | int | float | complex) and k < len(executable.parameters):
        return held_number(value, executable.parameters[k].dtype)
    return value


def _difference(
    got: Any, wanted: np.ndarray[Any, Any], leaf: int, place: int, tolerance: float | None, label: str | None = None
) -> Difference:
    """place: the device, where the array itself does not say it.  label: of the leaf, beside its number."""
    array, device = np.asarray(got), _device(got, place)
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        raise AssertionError(
            f"leaf {label or leaf} on device {device}: expected {wanted.dtype}{list(wanted.shape)}, "
            f"found {array.dtype}{list(array.shape)}"
        )
    element = element_type_of(wanted.dtype)
    return compare(array, wanted, element, leaf=leaf, device=device, tolerance=tolerance, label=label)


def _device(value: Any, place: int) -> int:
    found = getattr(value, "device", place)
    return found if isinstance(found, int) else place


def _has_elements(value: Any) -> bool:
    """Not a token."""
    shape = getattr(value, "hlo_shape", None)
    return value is not None and (shape is None or shape.is_array)


def _require(found: list[Difference], against: str) -> None:
    if not found:
        raise ArgumentError("outs: expected results, found none with elements")
    if not all(each.fits for each in found):
        raise AssertionError("\n".join(lines(found, against)))
