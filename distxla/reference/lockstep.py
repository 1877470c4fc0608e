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
from functools import cached_property
from typing import Any, cast

import numpy as np

from distxla.errors import (
    ArgumentError,
    CollectiveMismatchError,
    DeadlockError,
    DistxlaError,
    ExecutionError,
    InternalError,
    TimeLimitError,
    UnsupportedOpError,
)
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.collective import GroupedCollective
from distxla.ops.op import CollectiveOp, Lowering
from distxla.ops.rng import INITIAL_STATE
from distxla.ops.run_time_extents import fitted, has_dynamic_dimensions, nothing_received, static_shape
from distxla.reference.dynamic_values import DynamicValues, has_extents_of_its_own
from distxla.reference.values import actual_shape, checked, leaves_of, parameter_values

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
        devices[device] = _Device(device, *divmod(device, partitions), module, ())
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

    run: _Evaluation
    op: CollectiveOp
    members: tuple[int, ...]
    operands: tuple[Any, ...]


class _Stopped(BaseException):
    """Unwinds a device's thread when the run is over for another reason."""


@dataclass
class _Device:
    """One device: a thread that runs only while it holds the baton."""

    id: int
    replica: int
    partition: int
    module: Module
    arguments: tuple[Any, ...]
    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    meeting: _Meeting | None = None
    answer: Any = None
    result: Any = None
    error: BaseException | None = None
    finished: bool = False
    random_state: int = INITIAL_STATE
    dynamic_values: DynamicValues = field(default_factory=DynamicValues)

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether arrays of the program may have fewer elements than their shapes state."""
        return has_dynamic_dimensions(self.module)


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

    def join(self, device: _Device, meeting: _Meeting) -> Any:
        """Called in a device's thread: gives the baton back until the group is complete."""
        device.meeting = meeting
        self.returned.release()
        device.baton.acquire()
        self.check()
        return device.answer

    def check(self) -> None:
        """Called before every instruction."""
        if self.stopped:
            raise _Stopped
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


@dataclass(frozen=True)
class _Evaluation:
    """`ops.evaluation.Evaluation` for one instruction on one device."""

    world: _World
    device: _Device
    instruction: Instruction
    operand_shapes: tuple[Shape, ...]
    operands: tuple[Any, ...] = ()

    @property
    def shape(self) -> Shape:
        stated = self.instruction.shape
        pairs = tuple(zip(self.operands, self.operand_shapes))
        if not any(has_extents_of_its_own(value, shape) for value, shape in pairs):
            return static_shape(stated) if stated.is_dynamic else stated
        actual = tuple(actual_shape(value, shape) for value, shape in pairs)
        op = self.instruction.op
        return op.run_time_shape(stated, self.operand_shapes, actual, lambda c: self.device.module[c].program_shape)

    @property
    def replica(self) -> int:
        return self.device.replica

    @property
    def partition(self) -> int:
        return self.device.partition

    def call(self, computation: str, *arguments: Any) -> Any:
        return call(self.world, self.device, computation, arguments)

    def map(self, computation: str, *arguments: Any) -> tuple[Array, ...]:
        return map_elements(self.world, self.device, computation, arguments)

    def advance_state(self, delta: int) -> int:
        state = self.device.random_state
        self.device.random_state = (state + delta) % (1 << 128)
        return state

    def join(self, operands: tuple[Any, ...]) -> Any:
        op = cast(CollectiveOp, self.instruction.op)
        groups = op.device_groups(self.world.replicas, self.world.partitions)
        members = next((group for group in groups if self.device.id in group), None)
        if members is None:
            raise InternalError(f"device {self.device.id} is in no group of {self.instruction.name}")
        if isinstance(op, GroupedCollective):
            silent = op.silent_devices(self.world.replicas, self.world.partitions)
            if self.device.id in silent:
                zeros = tuple(map(nothing_received, operands, self.operand_shapes))
                return zeros if self.shape.is_tuple else zeros[0]
        return self.world.join(self.device, _Meeting(self, op, members, operands))


def call(world: _World, device: _Device, name: str, arguments: tuple[Any, ...]) -> Any:
    """The root's value of a computation that is run instruction by instruction in the order of its text."""
    computation = device.module[name]
    values: dict[str, Any] = {}
    for instruction in computation:
        world.check()
        if instruction.op.is_parameter:
            values[instruction.name] = arguments[instruction.op.number]  # type: ignore[attr-defined]
            continue
        shapes = tuple(computation[o].shape for o in instruction.operands)
        operands = [values[o] for o in instruction.operands]
        try:
            if device.is_dynamic:
                values[instruction.name] = _dynamic_value(world, device, instruction, shapes, operands)
                continue
            run = _Evaluation(world, device, instruction, shapes)
            value = instruction.op.evaluate(run, *operands)
            values[instruction.name] = checked(value, instruction.shape, instruction)
        except (DistxlaError, _Stopped) as error:
            if isinstance(error, DistxlaError) and error.location is None:
                error.location = device.module.locate(instruction)
            raise
        except MemoryError as error:
            message = f"there is not enough memory for {instruction.name} ({instruction.shape})"
            raise ExecutionError(message, device.module.locate(instruction)) from error
        except Exception as error:
            message = f"evaluating {instruction.name} ({instruction.opcode}): {type(error).__name__}: {error}"
            raise InternalError(message, device.module.locate(instruction)) from error
    return values[computation.root]


def _dynamic_value(
    world: _World, device: _Device, instruction: Instruction, stated: tuple[Shape, ...], operands: Sequence[Any]
) -> Any:
    """The value of an instruction of a program with dynamic dimensions."""
    op, dynamic = instruction.op, device.dynamic_values
    shapes = [dynamic.shape(value, shape) for value, shape in zip(operands, stated, strict=True)]
    operands = fitted(op, shapes, operands)
    run = _Evaluation(world, device, instruction, stated, tuple(operands))
    value = checked(op.evaluate(run, *operands), instruction.shape, instruction, dynamic=True)
    if op.lowering in (Lowering.ALIAS, Lowering.CONTROL, Lowering.CALL):
        return value  # made of arrays that are known already
    static = static_shape(instruction.shape)
    if not op.sets_extents and not any(shape.is_dynamic for shape in shapes):
        return dynamic.note(value, static)
    return dynamic.note(value, op.dynamic_result(static, shapes, lambda name: device.module[name].program_shape))


def map_elements(world: _World, device: _Device, name: str, arguments: tuple[Any, ...]) -> tuple[Array, ...]:
    """The leaves of a scalar computation's results for all elements of equally shaped arrays.

    Where all its ops work element by element they are run on the whole arrays at once; otherwise once an element.
    """
    computation, dims = device.module[name], arguments[0].shape
    root = computation.root_instruction
    leaves = tuple(root.shape.leaves())
    if _works_on_whole_arrays(device.module, computation):
        values: dict[str, Any] = {}
        for instruction in computation:
            if instruction.op.is_parameter:
                values[instruction.name] = arguments[instruction.op.number]  # type: ignore[attr-defined]
            else:
                operands = [values[o] for o in instruction.operands]
                values[instruction.name] = _on_whole_arrays(world, device, computation, instruction, operands)
        found = values[root.name] if root.shape.is_tuple else (values[root.name],)
        return tuple(np.broadcast_to(np.asarray(v, s.dtype.dtype), dims) for v, s in zip(found, leaves, strict=True))
    results = tuple(np.empty(dims, leaf.dtype.dtype) for leaf in leaves)
    for index in np.ndindex(dims):
        found = call(world, device, name, tuple(a[index] for a in arguments))
        for result, value in zip(results, found if root.shape.is_tuple else (found,), strict=True):
            result[index] = value
    return results


def _works_on_whole_arrays(module: Module, computation: Computation) -> bool:
    """Whether every instruction does to arrays element by element what it does to scalars."""
    return all(
        not i.operands
        or i.op.is_elementwise
        or _renames_a_scalar(computation, i)
        or (i is computation.root_instruction and i.shape.is_tuple and i.op.lowering is Lowering.ALIAS)
        or (i.op.lowering is Lowering.CALL and _works_on_whole_arrays(module, module[i.op.called_computations[0]]))
        for i in computation
    )


def _renames_a_scalar(computation: Computation, instruction: Instruction) -> bool:
    """Whether it gives a scalar's bytes another type or shape of one element (bitcast, reshape)."""
    operands = [computation[o].shape for o in instruction.operands]
    scalars = all(s.is_array and s.rank == 0 for s in (*operands, instruction.shape))
    return len(operands) == 1 and scalars and instruction.op.is_view(instruction.shape, operands)


def _on_whole_arrays(
    world: _World, device: _Device, computation: Computation, instruction: Instruction, operands: Sequence[Any]
) -> Any:
    op = instruction.op
    if op.lowering is Lowering.CALL:
        dims = np.broadcast_shapes(*(np.shape(o) for o in operands))
        whole = tuple(np.broadcast_to(o, dims) for o in operands)
        leaves = map_elements(world, device, op.called_computations[0], whole)
        return leaves if instruction.shape.is_tuple else leaves[0]
    if not op.is_elementwise and _renames_a_scalar(computation, instruction):
        return np.ascontiguousarray(operands[0]).view(instruction.shape.dtype.dtype)
    shapes = tuple(computation[o].shape for o in instruction.operands)
    return op.evaluate(_Evaluation(world, device, instruction, shapes), *operands)


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
