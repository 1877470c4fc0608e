"""Which array of the unsharded run each array of the sharded one stands for: its twin, and its relation to it.

Twins are found by name (op_name, source line, opcode, iterations of loops, order), then by order among what is left,
then by value; a collective or a movement that has no counterpart has its operand's twin, an operand without one that of
the twin's.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np

from distxla.differ.device_groups import Devices
from distxla.differ.matching import matched_in_order
from distxla.differ.op_kinds import keeps_whole, takes_parts
from distxla.differ.recording import Recorded
from distxla.differ.relations import SAME, Relation, relation
from distxla.differ.source_lines import frames, primitive, written_as
from distxla.differ.tolerance import Allowed
from distxla.ir.op import Op
from distxla.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]

_MOST_TRIED: Final = 24  # arrays that one array's values are compared with

CONSTANT: Final = Relation("constant", "made of constants")
MOVED: Final = Relation("moved", "parts of right values")


class Limits(Protocol):
    """How far an array of the unsharded run may be from its twin."""

    def __call__(self, array: Recorded, /) -> Allowed: ...

    def least(self, value: Array, /) -> Allowed:
        """A narrower limit, of one device's value, that is found without further runs."""


@dataclass(eq=False)
class ArrayPair:
    """An array of the sharded run.  twin: that of the unsharded run, where there is one.

    relation: None where the numbers show none, or where there is no twin.  by: how the twin was found: name, order,
    value, operand, use.
    """

    array: Recorded
    twin: Recorded | None = None
    relation: Relation | None = None
    by: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the values are as they should be, as far as their twin tells."""
        return self.relation is not None


class Twins:
    """sharded, whole: all arrays of both runs, in order.  allowed: limits of arrays of the second.

    is_each_devices: both programs are for as many devices, each of which has a twin of its own in the other.
    """

    def __init__(
        self,
        sharded: Sequence[Recorded],
        whole: Sequence[Recorded],
        devices: Devices,
        allowed: Limits,
        *,
        is_each_devices: bool = False,
    ) -> None:
        self.is_each_devices = is_each_devices
        self.devices = devices
        self.whole, self.allowed = whole, allowed
        self.pairs = [ArrayPair(array) for array in sharded]
        self._taken: set[int] = set()
        self._near = 0  # the twin of the last array that had one
        names = self._by_name()
        order = self._by_order(names)
        self.depends_on_arguments = _dependent(sharded, _is_given)
        self.depends_on_device = _dependent(sharded, lambda op: op.role.is_device_id)
        for pair in self.pairs:
            self._settle(pair, names.get(pair.array.number), order.get(pair.array.number))
        for pair in reversed(self.pairs):
            self._settle_operands(pair)
        for pair in self.pairs:
            self._settle_movement(pair)

    def relation(self, array: Recorded, twin: Recorded) -> Relation | None:
        """Between any array of the sharded run and any of the other."""
        if len(array.values) != self.devices.count or array.dtype != twin.dtype:
            return None
        if self.is_each_devices:
            return SAME if self._is_same(array, twin) else None
        values, whole = array.arrays(), twin.on(min(twin.values))
        if array.dims == twin.dims and all(np.array_equal(value, whole) for value in values):
            return SAME
        return relation(values, whole, self.devices, self.allowed(twin))

    def _is_same(self, array: Recorded, twin: Recorded) -> bool:
        if array.dims != twin.dims or array.values.keys() != twin.values.keys():
            return False
        pairs = [(array.on(device), twin.on(device)) for device in array.values]
        pairs = [(ours, theirs) for ours, theirs in pairs if not np.array_equal(ours, theirs)]
        if all(self.allowed.least(theirs).fits(ours, theirs) for ours, theirs in pairs):
            return True
        limit = self.allowed(twin)
        return all(limit.fits(ours, theirs) for ours, theirs in pairs)

    def operands(self, array: Recorded) -> list[ArrayPair]:
        return [self.pairs[n] for n in array.made_of]

    def _settle(self, pair: ArrayPair, named: Recorded | None, ordered: Recorded | None) -> None:
        array = pair.array
        if named is not None:
            self._set(pair, named, self.relation(array, named), "name")
            if pair.relation is not None:
                return
        number = array.number
        if named is None and not self.depends_on_arguments[number] and not self.depends_on_device[number]:
            pair.relation = CONSTANT
            return
        for by, twin in self._others(array, ordered, named is not None):
            found = self.relation(array, twin)
            if found is not None and (found.times == 1 or by == "order" or array.instruction.op.is_collective):
                self._set(pair, twin, found, by)
                return
        if named is not None:
            return
        moved = next((o.twin for o in self.operands(array) if o.twin is not None), None)
        if array.instruction.op.is_collective and moved is not None:
            self._set(pair, moved, None, "operand")
        elif ordered is not None:
            self._set(pair, ordered, None, "order")

    def _settle_operands(self, pair: ArrayPair) -> None:
        """Operands without a twin, or with a doubtful one, have the operand of the twin as theirs."""
        if pair.twin is None or pair.array.instruction.opcode != pair.twin.instruction.opcode:
            return
        ours, theirs = self.operands(pair.array), pair.twin.made_of
        if len(ours) != len(theirs):
            return
        for operand, number in zip(ours, theirs, strict=True):
            if operand.relation is None and operand.by != "name":
                twin = self.whole[number]
                found = self.relation(operand.array, twin)
                if found is not None or operand.twin is None:
                    operand.twin, operand.relation, operand.by = twin, found, "use"

    def _settle_movement(self, pair: ArrayPair) -> None:
        """What only takes parts of a right array, and the same ones on all devices, is right where it has no twin."""
        if pair.relation is None and pair.by not in ("name", "use") and takes_parts(pair.array.instruction.op):
            data, places = self.operands(pair.array)[:1], self.operands(pair.array)[1:]
            if not data or data[0].relation is None or data[0].relation.is_partial:
                return
            if not any(self.depends_on_device[place.array.number] for place in places):
                pair.twin, pair.relation = None, MOVED

    def _set(self, pair: ArrayPair, twin: Recorded, found: Relation | None, by: str) -> None:
        pair.twin, pair.relation, pair.by = twin, found, by
        if found is not None and by != "operand":
            self._near = twin.number

    def _others(self, array: Recorded, ordered: Recorded | None, has_name: bool) -> Iterator[tuple[str, Recorded]]:
        """Twins that are tried, the likeliest first."""
        if ordered is not None:
            yield "order", ordered
        if not has_name:
            for operand in self.operands(array):
                if operand.twin is not None and operand.twin.dtype == array.dtype and keeps_whole(array.instruction.op):
                    yield "operand", operand.twin
            for twin in self._similar(array):
                yield "value", twin

    def _similar(self, array: Recorded) -> Iterable[Recorded]:
        """Arrays of the same opcode, the nearest ones first."""
        alike = self._alike.get(_likeness(array), [])
        after = bisect(alike, self._near, key=lambda twin: twin.number)
        before = after - 1
        for _ in range(_MOST_TRIED):
            if before < 0 and after >= len(alike):
                return
            is_before = after >= len(alike) or (
                before >= 0 and self._near - alike[before].number <= alike[after].number - self._near
            )
            twin = alike[before] if is_before else alike[after]
            before, after = (before - 1, after) if is_before else (before, after + 1)
            if twin.number not in self._taken:
                yield twin

    def _by_name(self) -> dict[int, Recorded]:
        """By number of the sharded array."""
        waiting: defaultdict[Any, list[Recorded]] = defaultdict(list)
        self._alike: defaultdict[Any, list[Recorded]] = defaultdict(list)
        for twin in self.whole:
            self._alike[_likeness(twin)].append(twin)
            if (name := _name(twin)) is not None:
                waiting[name].append(twin)
        found = {}
        queues = {name: iter(twins) for name, twins in waiting.items()}
        for pair in self.pairs:
            queue = queues.get(_name(pair.array))
            named = None if queue is None else next(queue, None)
            if named is not None:
                found[pair.array.number] = named
                self._taken.add(named.number)
        return found

    def _by_order(self, named: dict[int, Recorded]) -> dict[int, Recorded]:
        ours = [pair.array for pair in self.pairs if pair.array.number not in named]
        theirs = [twin for twin in self.whole if twin.number not in self._taken]
        programs = [pair.array for pair in self.pairs], self.whole
        have_names = all(any(written_as(array.instruction) for array in arrays) for arrays in programs)
        own, others = ([_token(array, by_name=have_names) for array in arrays] for arrays in (ours, theirs))
        pairs = matched_in_order(own, others)
        return {ours[a].number: theirs[b] for a, b in pairs}


def _name(array: Recorded) -> Any:
    """What an array and its twin have in common where both come from one source; None without a source line."""
    if array.argument is not None:
        return "argument", array.argument
    place = frames(array.module, array.instruction)
    if not place:
        return None
    return written_as(array.instruction), place[0].line, array.instruction.opcode, array.leaf, array.iterations


def _likeness(array: Recorded) -> Any:
    return array.instruction.opcode, len(array.dims), array.dtype


def _token(array: Recorded, *, by_name: bool) -> Any:
    """by_name: of programs that both have names of operations, which only then tell values of one opcode apart."""
    opcode = array.instruction.opcode
    if not by_name:
        return opcode, array.leaf, len(array.dims)
    is_backward = "transpose(" in written_as(array.instruction)
    return primitive(array.instruction), opcode, array.leaf, is_backward, len(array.dims)


def _is_given(op: Op) -> bool:
    """Whether the value comes from outside."""
    return op.role.is_parameter or op.advances_state or op.role.given_by_caller


def _dependent(arrays: Sequence[Recorded], begins: Callable[[Op], bool]) -> list[bool]:
    """Whether each array is made of the result of such an op, however indirectly."""
    found: list[bool] = []
    for array in arrays:
        found.append(begins(array.instruction.op) or any(found[n] for n in array.made_of))
    return found


__all__ = ["CONSTANT", "MOVED", "ArrayPair", "Twins"]
