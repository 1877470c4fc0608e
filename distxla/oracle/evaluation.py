"""One device's evaluation of a computation in NumPy, instruction by instruction: `ops.support.evaluation`.

Transfers between devices, rounds of collectives and the end of a run go through `Peers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np

from distxla.errors import DistxlaError, ExecutionError, InternalError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.dynamic_shape import static_shape
from distxla.ir.effects import COMMUNICATING
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.ir.unwritten import empty
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.rng import INITIAL_STATE
from distxla.ops.support.collective_start_done import single_collective
from distxla.ops.support.executable import CollectiveOp, executable
from distxla.ops.support.run_time_sizes import fitted, has_dynamic_dimensions, nothing_received
from distxla.oracle.channel_values import Channels
from distxla.oracle.dynamic_values import DynamicValues, is_smaller_than_stated
from distxla.oracle.origins import Origins
from distxla.oracle.streams import ItemWait, Streams
from distxla.oracle.value_leaves import actual_shape, checked
from distxla.oracle.waits import Pending, Settled, Wait

Array = np.ndarray[Any, Any]


class Stopped(BaseException):
    """Unwinds a device's evaluation when the run is over for another reason."""


@dataclass
class Device:
    """A device's facts about itself. id: flattened.  origins: of NaN and Inf, where they are wanted."""

    id: int
    replica: int
    partition: int
    module: Module
    random_state: int = INITIAL_STATE
    dynamic_values: DynamicValues = field(default_factory=DynamicValues)
    origins: Origins | None = None

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether arrays of the program may have fewer elements than their shapes state."""
        return has_dynamic_dimensions(self.module)


@dataclass
class RunningLoop:
    """A loop that is in flight. iterations: begun so far."""

    instruction: Instruction
    iterations: int = 0


class Peers(Protocol):
    """All devices of a run, as one of them sees them."""

    counts: Counts
    streams: Streams
    channels: Channels

    def check(self) -> None:
        """Asked before every instruction; raises Stopped, or TimeLimitError."""

    def come(self, run: InstructionEvaluation, members: tuple[int, ...], operands: tuple[Any, ...]) -> Pending:
        """Reach the next round of an ordered group with `run`'s instruction, without waiting for the others."""

    def start(self, run: InstructionEvaluation, computation: str, arguments: tuple[Any, ...]) -> Pending:
        """Run a computation of the device beside the current one."""

    def wait(self, wait: Wait) -> None:
        """Block until the wait is ready."""

    @property
    def loops(self) -> list[RunningLoop]:
        """The loops around the caller's instruction, outermost first."""

    def note(self, device: Device, instruction: Instruction) -> None:
        """A device reaches a communicating instruction."""


class Watch(Protocol):
    """Sees every value of a run; computations of scalars that an op applies to elements are a part of that op."""

    def begin(self, device: Device, arguments: tuple[Any, ...]) -> None:
        """Asked once for each device before it begins."""

    def value(self, run: InstructionEvaluation, operands: Sequence[Any], value: Any) -> Any:
        """The value to go on with: `value`, the instruction's, or another one of its shape."""


@dataclass(frozen=True)
class InstructionEvaluation:
    """`ops.support.evaluation.Evaluation` for one instruction on one device."""

    world: Peers
    device: Device
    instruction: Instruction
    operand_shapes: tuple[Shape, ...]
    operands: tuple[Any, ...] = ()
    watch: Watch | None = None

    @property
    def shape(self) -> Shape:
        stated = self.instruction.shape
        pairs = tuple(zip(self.operands, self.operand_shapes))
        if not any(is_smaller_than_stated(value, shape) for value, shape in pairs):
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
        if computation == self.instruction.op.loop_body:
            self.world.loops[-1].iterations += 1
        return call(self.world, self.device, computation, arguments, watch=self.watch)

    def run_module(self, module: Module, *arguments: Any) -> Any:
        device = Device(self.device.id, self.replica, self.partition, module, origins=self.device.origins)
        return call(self.world, device, module.entry, arguments)

    def map(self, computation: str, *arguments: Any, result: str | None = None) -> tuple[Array, ...]:
        return map_elements(self.world, self.device, computation, arguments, result)

    def computation(self, name: str) -> Computation:
        return self.device.module[name]

    def advance_state(self, delta: int) -> int:
        state = self.device.random_state
        self.device.random_state = (state + delta) % (1 << 128)
        return state

    def join(self, operands: tuple[Any, ...]) -> Any:
        return self.finish(self.begin(operands))

    @property
    def exchange(self) -> InstructionEvaluation:
        return self

    def begin(self, operands: tuple[Any, ...]) -> Pending:
        op = cast(CollectiveOp, self.instruction.op)
        groups = op.device_groups(self.world.counts)
        members = next((group for group in groups if self.device.id in group), None)
        if members is None:
            raise InternalError(f"device {self.device.id} is in no group of {self.instruction.name}")
        if self.device.id in op.silent_devices(self.world.counts):
            zeros = tuple(map(nothing_received, operands, self.operand_shapes))
            return Settled(self, zeros if len(zeros) > 1 else zeros[0])
        pending = self.world.come(self, members, operands)
        if self.device.is_dynamic:
            self.world.wait(pending)  # as in compiled programs
        return pending

    def start(self, computation: str, *arguments: Any) -> Pending:
        if self.device.is_dynamic or single_collective(self.device.module[computation]) is None:
            return Settled(self, self.call(computation, *arguments))  # as in compiled programs
        return self.world.start(self, computation, arguments)

    def finish(self, pending: Pending) -> Any:
        self.world.wait(pending.awaited_by(self))
        return pending.result

    def give(self, item: Any) -> Array:
        key = self.instruction.op.stream
        assert key is not None
        return np.array(self.world.streams.from_device(self.device.id, key).give(item), np.uint32)

    def ask(self) -> Array:
        key = self.instruction.op.stream
        assert key is not None
        return np.array(self.world.streams.to_device(self.device.id, key).ask(), np.uint32)

    def take(self, ticket: Array) -> Any:
        key = self.instruction.op.stream
        assert key is not None
        stream = self.world.streams.to_device(self.device.id, key)
        self.world.wait(ItemWait(self, stream, int(ticket)))
        return stream.take(int(ticket), self)

    def send(self, value: Any) -> Array:
        return np.array(self.world.channels.send(self, value), np.uint32)

    def finish_send(self, ticket: Array) -> None:
        done = self.world.channels.sent(self, int(ticket))
        if done is not None:
            self.world.wait(done)

    def receive(self) -> Array:
        return np.array(self.world.channels.receive(self), np.uint32)

    def finish_receive(self, ticket: Array) -> Any:
        done = self.world.channels.received(self, int(ticket))
        if done is None:
            return None
        self.world.wait(done)
        return self.world.channels.take(done)


def call(
    world: Peers,
    device: Device,
    name: str,
    arguments: tuple[Any, ...],
    result: str | None = None,
    watch: Watch | None = None,
) -> Any:
    """The root's value of a computation that is run instruction by instruction in the order of its text.

    result: the instruction whose value is wanted instead.
    """
    computation = device.module[name]
    values: dict[str, Any] = {}
    for instruction in computation:
        world.check()
        if instruction.op.role.is_parameter:
            values[instruction.name] = arguments[instruction.op.number]  # type: ignore[attr-defined]
            continue
        shapes = tuple(computation[o].shape for o in instruction.operands)
        operands = [values[o] for o in instruction.operands]
        if device.origins is not None:
            device.origins.before(device.id, instruction, operands)
        try:
            run = InstructionEvaluation(world, device, instruction, shapes, watch=watch)
            with _known(world, device, instruction):
                if device.is_dynamic:
                    value = _dynamic_value(world, device, instruction, shapes, operands, watch)
                else:
                    value = checked(executable(instruction.op).evaluate(run, *operands), instruction.shape, instruction)
            values[instruction.name] = value = value if watch is None else watch.value(run, operands, value)
            if device.origins is not None:
                loops = [(loop.instruction.name, loop.iterations) for loop in world.loops]
                device.origins.after(device.id, device.module, instruction, operands, value, loops)
        except (DistxlaError, Stopped) as error:
            if isinstance(error, DistxlaError) and error.location is None:
                error.location = device.module.locate(instruction)
            raise
        except MemoryError as error:
            message = f"there is not enough memory for {instruction.name} ({instruction.shape})"
            raise ExecutionError(message, device.module.locate(instruction)) from error
        except Exception as error:
            message = f"evaluating {instruction.name} ({instruction.opcode}): {type(error).__name__}: {error}"
            raise InternalError(message, device.module.locate(instruction)) from error
    return values[result or computation.root]


@contextmanager
def _told(world: Peers, device: Device, instruction: Instruction) -> Iterator[None]:
    """The world hears of a loop, or of a communicating instruction, that begins."""
    if not instruction.op.role.is_loop:
        world.note(device, instruction)
        yield
        return
    world.loops.append(RunningLoop(instruction))
    yield
    world.loops.pop()


def _known(world: Peers, device: Device, instruction: Instruction) -> AbstractContextManager[None]:
    heard = instruction.op.role.is_loop or instruction.op.effects in COMMUNICATING
    return _told(world, device, instruction) if heard else nullcontext()


def _dynamic_value(
    world: Peers,
    device: Device,
    instruction: Instruction,
    stated: tuple[Shape, ...],
    operands: Sequence[Any],
    watch: Watch | None,
) -> Any:
    """The value of an instruction of a program with dynamic dimensions."""
    op, dynamic = instruction.op, device.dynamic_values
    shapes = [dynamic.shape(value, shape) for value, shape in zip(operands, stated, strict=True)]
    operands = fitted(op, shapes, operands)
    run = InstructionEvaluation(world, device, instruction, stated, tuple(operands), watch)
    value = checked(executable(op).evaluate(run, *operands), instruction.shape, instruction, dynamic=True)
    if op.lowering in (Lowering.ALIAS, Lowering.CONTROL, Lowering.CALL):
        return value  # made of arrays that are known already
    static = static_shape(instruction.shape)
    if not op.sets_dimension_sizes and not any(shape.is_dynamic for shape in shapes):
        return dynamic.note(value, static)
    return dynamic.note(value, op.dynamic_result(static, shapes, lambda name: device.module[name].program_shape))


def map_elements(
    world: Peers, device: Device, name: str, arguments: tuple[Any, ...], result: str | None = None
) -> tuple[Array, ...]:
    """The leaves of a scalar computation's results for all elements of equally shaped arrays.

    result: the instruction whose values are wanted instead of the root's.  Where all its ops work element by element
    they are run on the whole arrays at once; otherwise once an element.
    """
    computation, dims = device.module[name], arguments[0].shape
    root = computation[result or computation.root]
    leaves = tuple(root.shape.leaves())
    if _works_on_whole_arrays(device.module, computation):
        values: dict[str, Any] = {}
        for instruction in computation:
            if instruction.op.role.is_parameter:
                values[instruction.name] = arguments[instruction.op.number]  # type: ignore[attr-defined]
            else:
                operands = [values[o] for o in instruction.operands]
                values[instruction.name] = _on_whole_arrays(world, device, computation, instruction, operands)
        found = values[root.name] if root.shape.is_tuple else (values[root.name],)
        return tuple(np.broadcast_to(np.asarray(v, s.dtype.dtype), dims) for v, s in zip(found, leaves, strict=True))
    results = tuple(empty(dims, leaf.dtype.dtype) for leaf in leaves)
    for index in np.ndindex(dims):
        found = call(world, device, name, tuple(a[index] for a in arguments), result)
        for to, value in zip(results, found if root.shape.is_tuple else (found,), strict=True):
            to[index] = value
    return results


def _works_on_whole_arrays(module: Module, computation: Computation) -> bool:
    """Whether every instruction applies to arrays element by element its operation on scalars."""
    return all(
        not i.operands
        or i.op.elements.is_elementwise
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
    world: Peers, device: Device, computation: Computation, instruction: Instruction, operands: Sequence[Any]
) -> Any:
    op = instruction.op
    if op.lowering is Lowering.CALL:
        dims = np.broadcast_shapes(*(np.shape(o) for o in operands))
        whole = tuple(np.broadcast_to(o, dims) for o in operands)
        leaves = map_elements(world, device, op.called_computations[0], whole)
        return leaves if instruction.shape.is_tuple else leaves[0]
    if not op.elements.is_elementwise and _renames_a_scalar(computation, instruction):
        return np.ascontiguousarray(operands[0]).view(instruction.shape.dtype.dtype)
    shapes = tuple(computation[o].shape for o in instruction.operands)
    return executable(op).evaluate(InstructionEvaluation(world, device, instruction, shapes), *operands)
