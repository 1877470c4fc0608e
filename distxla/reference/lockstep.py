"""All devices of a run in lock step in one process, every op by its NumPy `evaluate`: the oracle.

Each device is a thread, but only one of them runs at any time: `_World.run` hands a device the baton, takes it back
when the device joins a collective or ends, and goes on with the next one in the order of their ids. So a run is
deterministic, ops are written as plain functions, and "everybody waits" is a state that can be seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from distxla.errors import (
    ArgumentError,
    CollectiveMismatchError,
    DeadlockError,
    TimeLimitError,
    UnsupportedOpError,
)
from distxla.ir.module import Module
from distxla.ops.op import CollectiveOp
from distxla.ops.rng import INITIAL_STATE
from distxla.reference.evaluation import Device, InstructionEvaluation, Stopped, call
from distxla.reference.values import leaves_of, parameter_values

Array = np.ndarray[Any, Any]


def run_reference(
    module: Module,
    args: Sequence[Sequence[Any]],
    *,
    replicas: int,
    partitions: int,
    time_limit: float | None = None,
) -> list[list[Array | None]]:
    """Run one SPMD module on all replicas x partitions devices.

    args: args[d][k] is leaf k of the entry's parameters on device d.  Returns outs[d][k], leaf k of the result (None
    for a token).  time_limit: seconds.  Raises what `run_programs` raises.
    """
    devices = range(replicas * partitions)
    if len(args) != len(devices):
        raise ArgumentError(f"there are {len(devices)} devices and arguments for {len(args)}")
    outs = run_programs(
        dict.fromkeys(devices, module),
        dict(enumerate(args)),
        replicas=replicas,
        partitions=partitions,
        time_limit=time_limit,
    )
    return [outs[device] for device in devices]


def run_programs(
    programs: Mapping[int, Module],
    args: Mapping[int, Sequence[Any]],
    *,
    replicas: int,
    partitions: int,
    time_limit: float | None = None,
    random_states: dict[int, int] | None = None,
) -> dict[int, list[Array | None]]:
    """Run a module a device; devices that share a group meet, whichever modules they run.

    programs and args: by flattened device id; args[d][k] as in `run_reference`.  The counts are the whole world's.
    random_states: by device where its random state is (the initial one where it isn't named); advanced by the run.

    Raises ArgumentError (counts, shapes, types), UnsupportedOpError before anything runs, DeadlockError when no device
    can go on, CollectiveMismatchError when members meet with different instructions, TimeLimitError.
    """
    for module in {id(m): m for m in programs.values()}.values():
        _check_executable(module)
    devices = {}
    for device, module in sorted(programs.items()):
        if not 0 <= device < replicas * partitions:
            raise ArgumentError(f"there is no device {device} among {replicas} x {partitions}")
        arguments = parameter_values(module, args.get(device, ()), device)
        devices[device] = _Device(device, *divmod(device, partitions), module)
        parameters = zip(arguments, module.entry_computation.parameters, strict=True)
        known = devices[device].dynamic_values
        devices[device].arguments = tuple(known.note(value, p.shape.without_layout()) for value, p in parameters)
        if random_states is not None:
            devices[device].random_state = random_states.get(device, INITIAL_STATE)
    deadline = None if time_limit is None else time.monotonic() + time_limit
    _World(devices, replicas, partitions, deadline, time_limit).run()
    if random_states is not None:
        random_states.update({device.id: device.random_state for device in devices.values()})
    return {i: list(leaves_of(d.result, d.module.entry_computation.root_instruction.shape)) for i, d in devices.items()}


@dataclass
class _Meeting:
    """What a waiting device brings: the instruction, its ordered group, its operands."""

    run: InstructionEvaluation
    members: tuple[int, ...]
    operands: tuple[Any, ...]

    @property
    def op(self) -> CollectiveOp:
        return cast(CollectiveOp, self.run.instruction.op)


@dataclass
class _Device(Device):
    """One device: a thread that runs only while it holds the baton."""

    arguments: tuple[Any, ...] = ()
    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    meeting: _Meeting | None = None
    answer: Any = None
    result: Any = None
    error: BaseException | None = None
    finished: bool = False


class _World:
    """Hands the baton round and completes groups whose members all wait."""

    def __init__(
        self,
        devices: dict[int, _Device],
        replicas: int,
        partitions: int,
        deadline: float | None,
        time_limit: float | None,
    ) -> None:
        self.devices, self.replicas, self.partitions = devices, replicas, partitions
        self.deadline, self.time_limit = deadline, time_limit
        self.stopped = False
        self.returned = threading.Semaphore(0)

    def run(self) -> None:
        """Blocks until every device has finished; raises the first error."""
        threads = [
            threading.Thread(target=self._main, args=(device,), name=f"reference device {device.id}", daemon=True)
            for device in self.devices.values()
        ]
        for thread in threads:
            thread.start()
        try:
            runnable = list(self.devices.values())
            while runnable:
                for device in runnable:
                    device.baton.release()
                    self.returned.acquire()
                    if device.error is not None:
                        raise device.error
                runnable = self._complete_groups()
            if waiting := [d for d in self.devices.values() if not d.finished]:
                raise DeadlockError(self._report(waiting))
        finally:
            self.stopped = True
            for device in self.devices.values():
                device.baton.release()
            for thread in threads:
                thread.join()

    def _main(self, device: _Device) -> None:
        """A device's thread."""
        device.baton.acquire()
        try:
            with np.errstate(all="ignore"):
                device.result = call(self, device, device.module.entry, device.arguments)
            device.finished = True
        except BaseException as error:
            device.error = error
        self.returned.release()

    def join(self, run: InstructionEvaluation, members: tuple[int, ...], operands: tuple[Any, ...]) -> Any:
        """Called in a device's thread: gives the baton back until the group is complete."""
        device = self.devices[run.device.id]
        device.meeting = _Meeting(run, members, operands)
        self.returned.release()
        device.baton.acquire()
        self.check()
        return device.answer

    def check(self) -> None:
        """Called before every instruction."""
        if self.stopped:
            raise Stopped
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimeLimitError(f"the time limit of {self.time_limit:g} s ran out in the reference")

    def _complete_groups(self) -> list[_Device]:
        """Evaluate every group whose members all wait in it; its members, which can go on now."""
        released: list[_Device] = []
        for device in self.devices.values():
            meeting = device.meeting
            if meeting is None or not all(self._waits_in(m, meeting.members) for m in meeting.members):
                continue
            group = [self.devices[m] for m in meeting.members]
            meetings = [cast(_Meeting, member.meeting) for member in group]
            _check_same(meetings)
            operands = [m.operands for m in meetings]
            with np.errstate(all="ignore"):
                answers = meeting.op.evaluate_group(meeting.members, operands, meetings[0].run)
            for member, answer in zip(group, answers, strict=True):
                member.answer, member.meeting = answer, None
            released += group
        return sorted(released, key=lambda d: d.id)

    def _waits_in(self, member: int, members: tuple[int, ...]) -> bool:
        device = self.devices.get(member)
        return device is not None and device.meeting is not None and device.meeting.members == members

    def _report(self, waiting: list[_Device]) -> str:
        lines = [f"{len(waiting)} of {len(self.devices)} devices can never progress"]
        for device in waiting:
            meeting = cast(_Meeting, device.meeting)
            missing = [m for m in meeting.members if not self._waits_in(m, meeting.members)]
            lines.append(f"  device {device.id} waits in {_name(meeting)} for {', '.join(map(str, missing))}")
        if done := [str(d.id) for d in self.devices.values() if d.finished]:
            lines.append(f"  finished: {', '.join(done)}")
        return "\n".join(lines)


def _check_executable(module: Module) -> None:
    """UnsupportedOpError for the first instruction that the entry can reach and that no evaluation exists for."""
    pending, seen = [module.entry], {module.entry}
    while pending:
        computation = module[pending.pop()]
        for instruction in computation:
            op = instruction.op
            why = op.evaluation_obstacle(instruction, [o.shape for o in computation.operands(instruction)])
            if why is not None:
                raise UnsupportedOpError(why, module.locate(instruction, "opcode"))
            for name in op.called_computations:
                if name not in seen:
                    seen.add(name)
                    pending.append(name)


def _check_same(meetings: Sequence[_Meeting]) -> None:
    """All members must have come with the same kind of collective and operands of the same shapes."""
    first = meetings[0]
    for other in meetings[1:]:
        same_shapes = [s.without_layout() for s in other.run.operand_shapes] == [
            s.without_layout() for s in first.run.operand_shapes
        ]
        if other.op.round_opcode != first.op.round_opcode or not same_shapes:
            ours, theirs = other.run.device.id, first.run.device.id
            raise CollectiveMismatchError(
                f"device {theirs} came with {_name(first)}, device {ours} with {_name(other)}",
                other.run.device.module.locate(other.run.instruction),
            )


def _name(meeting: _Meeting) -> str:
    """`all-reduce.7 (ring.hlo:14:3)`."""
    location = meeting.run.device.module.locate(meeting.run.instruction)
    name = meeting.run.instruction.name
    return f"{name} ({location})" if location else name


__all__ = ["run_programs", "run_reference"]
