"""The wording that `check`, the reference and the cluster share: devices, rounds, transfers, mismatches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_RANGES = 16  # of devices that a sentence lists
MOST_IN_CYCLE = 12  # devices up to which a cycle is written out


def counted(count: int, what: str) -> str:
    """`1 process`, `2 processes`, `2 arrays`, `2 entries`."""
    if count == 1:
        return f"1 {what}"
    if what.endswith("y") and what[-2] not in "aeiou":
        return f"{count} {what[:-1]}ies"
    return f"{count} {what}{'es' if what.endswith('s') else 's'}"


def named(devices: Iterable[int]) -> str:
    """`device 3`, `devices 0, 2-5`."""
    found = sorted(set(devices))
    return f"device{'' if len(found) == 1 else 's'} {listed(found)}"


def processes_named(processes: Iterable[int]) -> str:
    """`process 3`, `processes 0 and 1`, `processes 0, 2-5`: JAX processes."""
    found = sorted(set(processes))
    if len(found) == 2:
        return f"processes {found[0]} and {found[1]}"
    return f"process{'' if len(found) == 1 else 'es'} {listed(found)}"


def listed(devices: Iterable[int]) -> str:
    """`0, 1`, `0-6, 9`; never more than a line."""
    found = sorted(set(devices))
    runs = _runs(found)
    texts = [", ".join(map(str, r)) if len(r) < 2 or r[1] == r[0] + 1 else f"{r[0]}-{r[1]}" for r in runs]
    more = f", … ({len(found)} in all)" if len(texts) > MOST_RANGES else ""
    return ", ".join(texts[:MOST_RANGES]) + more


def ranges(ids: Sequence[int]) -> str:
    """(0, 1, 2, 5) -> `0-2,5`: all of them, in their order."""
    return ",".join("-".join(map(str, run)) for run in _runs(ids))


def _runs(ids: Sequence[int]) -> list[list[int]]:
    """Ids that follow one another, as their first and last one."""
    found: list[list[int]] = []
    for i in ids:
        if found and found[-1][-1] == i - 1:
            found[-1][1:] = [i]
        else:
            found.append([i])
    return found


def chain(cycle: Sequence[int]) -> str:
    """`0 -> 2 -> 1 -> 0`; of a long cycle the ends."""
    if len(cycle) > MOST_IN_CYCLE:
        parts = [*map(str, cycle[:5]), f"... {len(cycle) - 7} more ...", *map(str, cycle[-2:])]
    else:
        parts = [*map(str, cycle)]
    return " -> ".join([*parts, str(cycle[0])])


def round_called(members: Iterable[int], number: int | None = None) -> str:
    """number: from 1; None in sentences about every run of a program, since it may depend on the run."""
    return f"{'a round' if number is None else f'round {number}'} of {named(members)}"


def transfer_called(source: int, target: int, channel: int) -> str:
    return f"a transfer from device {source} to device {target} on channel {channel}"


def mismatch_of(what: str, one: tuple[int, str], other: tuple[int, str], differing: str) -> str:
    """In a sentence: two devices reached `what`, a round or a transfer, with instructions that don't belong together.

    one, other: device and the place of its instruction.  differing: signature.differences of them, in this order.
    """
    text = f"{what}: device {one[0]} enters with {one[1]}, device {other[0]} with {other[1]}"
    return text + (f"; they differ in {differing}" if differing else "")


__all__ = [
    "chain",
    "counted",
    "listed",
    "mismatch_of",
    "named",
    "processes_named",
    "ranges",
    "round_called",
    "transfer_called",
]
