"""Whether values inside of a program that are declared the same on several devices are.

A checked program gives each such value to the driver as it is computed, by a host call; the reference shows it here,
too. The n-th values of an instruction are compared across devices, bit by bit, as soon as all of them are there, so
only what some devices have given and others have not is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from distxla.compiler.passes.placements import Placements, declared_values, same_devices
from distxla.errors import ReplicationError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.sharding import DECLARED_SHARDING
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.call import Call
from distxla.ops.control_flow import Conditional, While
from distxla.ops.custom_calls.custom_call import CustomCall
from distxla.ops.support.rewriter import Rewriter
from distxla.oracle.origins import Origins
from distxla.runtime.checks.replication import difference_text
from distxla.scheduler.replication import described_value, unsure_results
from distxla.wording import named

TARGET = "distxla.declared_value"  # of the host calls, with a number behind it
Key = tuple[str, str]  # names of computation and instruction
Loops = Sequence[tuple[str, int]]


@dataclass
class _Group:
    """What devices have given of one value. contents: each array once, with its devices.  when: in words.  serial: of
    the first device's values, this one's number."""

    contents: dict[bytes, list[int]] = field(default_factory=dict)
    when: str = ""
    serial: int = 0


class SameValues:
    """Compares the values of one program in each call."""

    def __init__(self, module: Module, counts: Counts) -> None:
        self._module, self._counts = module, counts
        self._paths = _paths(module)
        declared = declared_values(module, counts.partitions)
        self._values = {key: shards for key, shards in declared.items() if key[0] in self._paths}
        self._members: dict[tuple[Key, int], tuple[int, ...]] = {}
        self._lock = threading.Lock()
        self.begin()

    def __bool__(self) -> bool:
        return bool(self._values)

    def bound(self, assignment: Sequence[int] | None, devices: Collection[int]) -> SameValues:
        """This object, for calls on these devices. assignment: by the program's flattened ids; None for the same."""
        known = assignment or range(self._counts.devices)
        for key, shards in self._values.items():
            for group in same_devices(shards, self._counts.replicas):
                members = tuple(sorted(known[id_] for id_ in group if known[id_] in devices))
                self._members |= {(key, device): members for device in members if len(members) > 1}
        return self

    def giving(self) -> tuple[Module, Mapping[str, Callable[..., None]]]:
        """The module with a host call for each value, and their functions."""
        functions: dict[str, Callable[..., None]] = {}
        new = []
        for computation in self._module.computations:
            if not any(key[0] == computation.name for key in self._values):
                new.append(computation)
                continue
            rewriter = Rewriter(computation)
            for old in computation:
                rewriter.keep(rewriter.current(old))
                key = computation.name, old.name
                if key in self._values:
                    target = f"{TARGET}.{len(functions)}"
                    functions[target] = partial(self.see, key)
                    call = CustomCall(custom_call_target=target)
                    rewriter.add(old, call, Shape.tuple(()), (old.name,), f"{old.name}.declared")
            new.append(rewriter.finish())
        return self._module.with_computations(new), functions

    def begin(self) -> None:
        """A call begins: nothing has been given."""
        self._given: dict[tuple[Key, int], int] = {}
        self._serials: dict[int, int] = {}
        self._pending: dict[tuple[Key, tuple[int, ...], int], _Group] = {}
        self._found: list[tuple[Key, _Group]] = []

    def see(self, key: Key, array: Any, loops: Loops | None = None, *, device: int) -> None:
        """A device has computed a value. loops: with their iterations, outermost first, where they are known."""
        members = self._members.get((key, device))
        if members is None:
            return
        content = np.ascontiguousarray(array).tobytes()
        with self._lock:
            number = self._given[key, device] = self._given.get((key, device), 0) + 1
            serial = self._serials[device] = self._serials.get(device, 0) + 1
            place = key, members, number
            group = self._pending.setdefault(place, _Group())
            group.contents.setdefault(content, []).append(device)
            if device == members[0]:
                group.when, group.serial = self._when(key, number, loops), serial
            if sum(map(len, group.contents.values())) == len(members):
                del self._pending[place]
                if len(group.contents) > 1 and all(one[0] != key for one in self._found):
                    self._found.append((key, group))

    def see_instruction(self, instruction: Instruction, array: Any, loops: Loops, *, device: int) -> None:
        """The same on the reference, which tells the instruction."""
        for key in self._values:
            if key[1] == instruction.name and self._module[key[0]][key[1]].span == instruction.span:
                self.see(key, array, loops, device=device)

    def _when(self, key: Key, number: int, loops: Loops | None) -> str:
        if loops is None:
            path = self._paths[key[0]]
            if path == ():
                return ""
            if path is None or len(path) > 1:
                return f", when it is computed for the {_ordinal(number)} time"
            loops = [(path[0], number)]
        return "".join(f", in iteration {iteration} of {loop}" for loop, iteration in reversed(loops))

    def error(self, placements: Placements | None) -> ReplicationError | None:
        """Of the value that differed first. placements: of parameters, and of results, which are compared as such."""
        wanted = declared_values(self._module, self._counts.partitions, placements.results if placements else ())
        found = [(group.serial, key, group) for key, group in self._found if key in wanted]
        if not found:
            return None
        _, key, group = min(found, key=lambda one: one[:2])
        instruction = self._module[key[0]][key[1]]
        error = _error(self._module, instruction, group)
        if placements is not None:
            declared = {key: wanted[key]}
            for unsure in unsure_results(self._module, self._counts, placements.parameters, (), declared):
                error.add_note(f"{unsure.text}{'' if unsure.frame is None else f' ({unsure.frame})'}")
        return error


def _error(module: Module, instruction: Instruction, group: _Group) -> ReplicationError:
    contents = sorted((min(devices), content) for content, devices in group.contents.items())
    devices = tuple(sorted(device for some in group.contents.values() for device in some))
    here, there = contents[0], contents[1]
    differing = tuple(device for device in devices if device not in group.contents[here[1]])
    size = instruction.shape.dtype.byte_size
    wanted, other = (np.frombuffer(content, np.uint8) for _, content in (here, there))
    number = int(np.flatnonzero(wanted != other)[0]) // size
    ends = [(device, content[number * size :][:size]) for device, content in (there, here)]
    index, told = difference_text(instruction.shape, number, ends[0], ends[1])
    op_name = "" if instruction.metadata is None else instruction.metadata.op_name
    error = ReplicationError(
        f"{described_value(instruction.name, op_name)} is declared the same on {named(devices)}; "
        f"{named(differing)} {'has' if len(differing) == 1 else 'have'} another{group.when}: {told}",
        module.locate(instruction),
    )
    error.array, error.devices, error.differing, error.index = instruction.name, devices, differing, index
    return error


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _paths(module: Module) -> dict[str, tuple[str, ...] | None]:
    """The computations that the entry runs, each with the loops around it; None for one with several callers and one in
    a branch, whose n-th run is not the n-th iteration."""
    found: dict[str, tuple[str, ...] | None] = {module.entry: ()}
    pending = [module.entry]
    while pending:
        caller = pending.pop()
        for i in module[caller]:
            if not isinstance(i.op, Call | Conditional | While):
                continue
            path = found[caller]
            if path is not None:
                path = None if isinstance(i.op, Conditional) else (*path, i.name) if i.op.role.is_loop else path
            for called in i.op.called_computations:
                if called not in found or found[called] is not None:
                    found[called] = path if called not in found else None
                    pending.append(called)
    return found


class SeenByReference(Origins):
    """What the reference tells of every instruction, for SameValues.

    values: of the program of each device.  notes_origins: whether that of NaN and Inf is noted, too.
    """

    def __init__(self, values: Mapping[int, SameValues], *, notes_origins: bool) -> None:
        super().__init__()
        self._values, self._notes_origins = values, notes_origins

    def given(self, device: int, arguments: Sequence[Any]) -> None:
        if self._notes_origins:
            super().given(device, arguments)

    def before(self, device: int, instruction: Instruction, operands: Sequence[Any]) -> None:
        if self._notes_origins:
            super().before(device, instruction, operands)

    def after(
        self,
        device: int,
        module: Module,
        instruction: Instruction,
        operands: Sequence[Any],
        value: Any,
        loops: Loops,
    ) -> None:
        if self._notes_origins:
            super().after(device, module, instruction, operands, value, loops)
        if instruction.frontend_attributes and instruction.frontend_attribute(DECLARED_SHARDING) is not None:
            self._values[device].see_instruction(instruction, value, loops, device=device)


__all__ = ["SameValues", "SeenByReference"]
