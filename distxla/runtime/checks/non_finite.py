"""The error of a call whose results have NaN or Inf, from what its devices have noted (program/watch_report.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distxla.compiler.plan.watch_plan import aligned
from distxla.errors import DistxlaError, NonFiniteError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.oracle.origins import Origin, Origins, appears, cause_text, results_text
from distxla.program.watch_report import (
    E_CAUSE,
    E_ITERATIONS,
    E_SENT,
    E_SENT_ITERATIONS,
    ENTRY_WORDS,
    LOOP_DEPTHS,
    UNKNOWN,
    W_NOTED,
    W_SNAPSHOT,
    WatchedStep,
    WatchReport,
)
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.values.host import DeviceMemory

HALVES = {"NaN": 0, "Inf": 1}
Memories = Mapping[int, DeviceMemory]


@dataclass(frozen=True)
class _Found:
    """Where an array's NaN or Inf comes from. number: the origin, as in the report.  key: earlier ones are less."""

    device: int
    number: int
    key: tuple[int, ...]
    iterations: tuple[int, ...] = ()


class _Sent(NamedTuple):
    """An operand of a collective that had any when it was sent. key, device: earlier ones are less.  origin: the
    operand's.  is_unknown: nobody has looked whether it had any."""

    key: tuple[int, ...]
    device: int
    origin: int
    is_unknown: bool


class _Noted:
    """One device's report."""

    def __init__(self, watch: WatchReport, device: int, words: NDArray[np.uint32]) -> None:
        self.watch, self.device, self.report = watch, device, words

    def origin(self, shadow: int, half: int) -> int:
        return int(self.report[self.watch.shadows + 2 * shadow + half])

    def entry(self, step: int, word: int) -> int:
        return int(self.report[self.watch.entries + ENTRY_WORDS * step + word])

    def found(self, number: int, half: int, *, sent: bool = False) -> _Found:
        """An origin, with its place in the order of execution."""
        step = number - 1
        if step >= len(self.watch.steps):
            return _Found(self.device, number, (0, number))
        watched = self.watch.steps[step]
        first = E_SENT_ITERATIONS if sent else E_ITERATIONS + half * LOOP_DEPTHS
        iterations = tuple(self.entry(step, first + k) for k in range(min(len(watched.loops), LOOP_DEPTHS)))
        key: list[int] = [1]
        for position, iteration in zip(watched.order, iterations):
            key += [position, iteration]
        return _Found(self.device, number, (*key, watched.order[-1]), iterations)


class NonFinite:
    """What the devices of one executable noted in a call. memories: of its devices."""

    def __init__(self, executable: Executable, memories: Memories) -> None:
        watch, arena = executable.program.debug.watch, executable.arena
        assert watch is not None
        assert arena is not None
        self.executable, self.watch, self.memories = executable, watch, memories
        self._arena = arena.offset
        self.noted: dict[int, _Noted] = {}
        self._sent_of: dict[int, dict[int, list[_Sent]]] = {}
        self._arguments_have: dict[tuple[int, int, int], bool] = {}
        for device in executable.devices:
            if self._words(device, 1)[W_NOTED]:
                self.noted[device] = _Noted(watch, device, self._words(device, watch.words))

    def _words(self, device: int, count: int) -> NDArray[np.uint32]:
        read = self.memories[device].read(self._arena + self.watch.offset, 4 * count)
        return np.frombuffer(read.tobytes(), np.uint32)

    def error(self) -> NonFiniteError | None:
        """The first NaN of those in the results, else the first Inf that no constant or argument had."""
        for kind in HALVES:
            reached = dict(self._reached(kind))
            for found in sorted({*reached.values()}, key=lambda found: (found.key, found.device)):
                error = self._error(kind, self._resolved(found, HALVES[kind]), reached)
                if error is not None:
                    return error
        return None

    def _reached(self, kind: str) -> Iterator[tuple[tuple[int, int], _Found]]:
        """(leaf of the result, device), and where its first comes from."""
        for device, noted in self.noted.items():
            for leaf, shadow in self.watch.results.items():
                number = noted.origin(shadow, HALVES[kind])
                if number and self._has(device, leaf, kind):
                    yield (leaf, device), noted.found(number, HALVES[kind])

    def _has(self, device: int, leaf: int, kind: str) -> bool:
        """Whether a result has any: a step that overwrites a part of an array may have overwritten it."""
        values = self._result(device, leaf)
        return bool((np.isnan(values) if kind == "NaN" else np.isinf(values)).any())

    def _result(self, device: int, leaf: int) -> NDArray[Any]:
        executable = self.executable
        row = executable.devices.index(device)
        place = int(executable.call_area[row, len(executable.parameters) + leaf])
        return self._array(device, place, executable.results[leaf])

    def _array(self, device: int, place: int, shape: Shape) -> NDArray[Any]:
        data = self.memories[device].read(place, shape.byte_size)
        return np.frombuffer(data.tobytes(), shape.dtype.dtype).reshape(shape.dims)

    def _resolved(self, found: _Found, half: int) -> _Found:
        """Where it comes from if a collective has it from another device."""
        sent = self._sent(half)
        everywhere = sorted(one for of_step in sent.values() for one in of_step)
        seen: set[tuple[int, int]] = set()
        while self._communicates(found.number - 1):
            seen.add((found.device, found.number))
            candidates = chain(sent.get(found.number - 1, ()), everywhere)
            first = next((one for one in candidates if self._may_have_sent(one, found.device, half, seen)), None)
            if first is None:
                break  # made by the collective itself: a sum that overflows
            found = self.noted[first.device].found(first.origin, half)
        return found

    def _communicates(self, step: int) -> bool:
        return step < len(self.watch.steps) and self.watch.steps[step].communicates

    def _may_have_sent(self, one: _Sent, receiver: int, half: int, seen: set[tuple[int, int]]) -> bool:
        if one.device == receiver or (one.device, one.origin) in seen:
            return False
        if not one.is_unknown:
            return True
        return self._argument_has(one.device, one.origin - 1 - len(self.watch.steps), half)

    def _sent(self, half: int) -> dict[int, list[_Sent]]:
        """What the devices have sent that has any, by step, in the order of execution. Looked up once."""
        if half not in self._sent_of:
            numbers = [k for k, step in enumerate(self.watch.steps) if step.communicates]
            places = self.watch.entries + ENTRY_WORDS * np.array(numbers, np.int64) + E_SENT + half
            found: dict[int, list[_Sent]] = {}
            for device, noted in self.noted.items():
                origins = noted.report[places]
                for k in np.flatnonzero(origins).tolist():
                    number, origin = numbers[k], int(origins[k])
                    key = noted.found(number + 1, half, sent=True).key
                    one = _Sent(key, device, origin & (UNKNOWN - 1), bool(origin & UNKNOWN))
                    found.setdefault(number, []).append(one)
            self._sent_of[half] = {number: sorted(of_step) for number, of_step in found.items()}
        return self._sent_of[half]

    # --- the message

    def _error(self, kind: str, found: _Found, reached: Mapping[tuple[int, int], _Found]) -> NonFiniteError | None:
        """None for an Inf that a constant or an argument had."""
        results = results_text(kind, sorted(reached))
        step = found.number - 1
        behind = step - len(self.watch.steps)
        if behind >= 0:
            if kind == "Inf":
                return None
            if behind >= self.watch.parameters:
                name = self.watch.constants[behind - self.watch.parameters]
                return self._made(kind, found, f"the constant {name} has NaN; {results}", name, *self._place("", name))
            where = self._first_of_argument(found.device, behind)
            return self._made(
                kind, found, f"arg{behind} has NaN on device {found.device}{where}; {results}", f"arg{behind}"
            )
        watched = self.watch.steps[step]
        inner = self._inside(watched, step, found, kind)
        if inner is not None and inner.is_given:
            if kind == "Inf":
                return None
            text = f"the constant {inner.name} has NaN; {results}"
            return self._made(kind, found, text, inner.name, *self._place(watched.fused, inner.name))
        if inner is None:
            name, place = watched.instruction, self._place(watched.computation, watched.instruction)
            opcode = watched.opcode
        else:
            name, place, opcode = inner.name, self._place(watched.fused, inner.name), inner.opcode
        name = place[1].name if place[1] is not None else name
        text = f"{appears(kind, name, opcode, found.device, self._loops(found))}, whose operands have none"
        error = self._made(kind, found, "; ".join(filter(None, (text, results))), name, *place)
        self._add_notes(error, watched, step, found, kind, inner)
        return error

    def _made(
        self,
        kind: str,
        found: _Found,
        message: str,
        name: str,
        module: Module | None = None,
        instruction: Instruction | None = None,
    ) -> NonFiniteError:
        location = None if module is None or instruction is None else module.locate(instruction)
        error = NonFiniteError(message, location)
        error.kind, error.instruction, error.device, error.iterations = kind, name, found.device, self._loops(found)
        if module is not None and instruction is not None:
            error.source = module.frame(instruction)
        return error

    def _add_notes(
        self, error: NonFiniteError, watched: WatchedStep, step: int, found: _Found, kind: str, inner: Origin | None
    ) -> None:
        if inner is None and watched.fused and watched.snapshot >= 0:
            error.add_note(f"{watched.instruction} computes several instructions at once: one of them is the first")
        if inner is not None and inner.cause is not None and kind == "NaN":
            error.add_note(cause_text(self._named(watched, inner.cause, found)))
            return
        cause = self.noted[found.device].entry(step, E_CAUSE) if kind == "NaN" else 0
        if cause:
            number = cause & (UNKNOWN - 1)
            earlier = self._resolved(self.noted[found.device].found(number, 1), HALVES["Inf"])
            error.add_note(cause_text(self._origin(earlier)))

    def _named(self, watched: WatchedStep, inner: Origin, found: _Found) -> Origin:
        """An instruction within a fusion, by its name in the text, where and when the fusion was."""
        instruction = self._place(watched.fused, inner.name)[1]
        name = inner.name if instruction is None else instruction.name
        return Origin(name, inner.opcode, inner.is_given, found.device, loops=self._loops(found))

    def _origin(self, found: _Found) -> Origin:
        """Of an Inf."""
        behind = found.number - 1 - len(self.watch.steps)
        if behind >= self.watch.parameters:
            return Origin(self.watch.constants[behind - self.watch.parameters], "constant", True)
        if behind >= 0:
            return Origin(f"arg{behind}", "parameter", True)
        watched = self.watch.steps[found.number - 1]
        inner = self._inside(watched, found.number - 1, found, "Inf")
        if inner is not None:
            return self._named(watched, inner, found)
        instruction = self._place(watched.computation, watched.instruction)[1]
        name = watched.instruction if instruction is None else instruction.name
        return Origin(name, watched.opcode, False, found.device, loops=self._loops(found))

    def _loops(self, found: _Found) -> tuple[tuple[str, int], ...]:
        step = found.number - 1
        loops = self.watch.steps[step].loops if step < len(self.watch.steps) else ()
        return tuple((self.watch.loops[loop], n) for loop, n in zip(loops, found.iterations))

    def _place(self, computation: str, name: str) -> tuple[Module | None, Instruction | None]:
        """The instruction of the text that was compiled; by its name alone without a computation."""
        module = self.executable.module
        if not computation:
            computation = next((c for c, known in self.watch.origins if known == name), "")
        place = self.watch.origins.get((computation, name))
        if module is None or place is None or place[0] not in module.by_name:
            return None, None
        return module, module[place[0]].by_name.get(place[1])

    def _argument(self, device: int, leaf: int) -> NDArray[Any]:
        executable = self.executable
        place = int(executable.call_area[executable.devices.index(device), leaf])
        return self._array(device, place, executable.parameters[leaf])

    def _argument_has(self, device: int, leaf: int, half: int) -> bool:
        key = device, leaf, half
        if key not in self._arguments_have:
            self._arguments_have[key] = bool((np.isinf if half else np.isnan)(self._argument(device, leaf)).any())
        return self._arguments_have[key]

    def _first_of_argument(self, device: int, leaf: int) -> str:
        found = np.argwhere(np.isnan(self._argument(device, leaf)))
        return f", first at {found[0].tolist()}" if len(found) and found[0].size else ""

    # --- fusions

    def _inside(self, watched: WatchedStep, step: int, found: _Found, kind: str) -> Origin | None:
        """Which instruction of a fusion made it: evaluated by the reference, on the operands that the step had."""
        program = self.executable.program.module
        if not watched.fused or program is None:
            return None
        if watched.snapshot < 0:
            return self._alone(program, watched)
        noted = self.noted[found.device]
        if watched.shares_snapshot and noted.report[W_SNAPSHOT] != step + 1:
            return None
        try:
            return evaluated(
                program, watched, list(self._operands(found.device, watched)), self._ids(found.device), kind
            )
        except DistxlaError:
            return None  # the fusion as a whole is named

    def _alone(self, program: Module, watched: WatchedStep) -> Origin | None:
        """The instruction of a fusion of one."""
        for instruction in reversed(program[watched.fused].instructions):
            if not instruction.op.role.is_parameter:
                return Origin(instruction.name, instruction.opcode, instruction.op.role.is_constant)
        return None

    def _ids(self, device: int) -> tuple[int, int, int]:
        program = self.executable.program
        return program.logical(device), program.counts.replicas, program.counts.partitions

    def _operands(self, device: int, watched: WatchedStep) -> Iterator[NDArray[Any] | None]:
        place = self._arena + watched.snapshot
        for shape in watched.operands:
            yield self._array(device, place, shape) if shape.is_array else None
            place += aligned(shape)


def evaluated(
    program: Module, watched: WatchedStep, operands: Sequence[Any], ids: tuple[int, int, int], kind: str
) -> Origin | None:
    """The origin in the results of a fused computation. ids: the device's, replicas, partitions."""
    from distxla.oracle.lockstep import run_programs

    device, replicas, partitions = ids
    origins = Origins()
    module = program.replace(
        computations=program.reached(watched.fused), entry=watched.fused, header=(), entry_layout=None, source=None
    )
    outs = run_programs({device: module}, {device: operands}, Counts(replicas, partitions), origins=origins)
    for leaf in outs[device]:
        if leaf is not None and (found := origins.of(leaf, kind)) is not None:
            return found
    return None


__all__ = ["NonFinite", "evaluated"]
