"""How often devices execute each computation of a program in one run, as far as that is known before the run.

Every call site is looked at once, not once for each of its executions: a loop of a million iterations, and calls that
double thirty times, take no longer than others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.effects_order import effectful_computations
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.control_flow import Conditional, While
from distxla.scheduler.simulation.counted_loops import trip_count
from distxla.scheduler.simulation.deferred import CallFrame, Deferred, Given, RunState, force
from distxla.scheduler.simulation.loop_state import LoopState
from distxla.scheduler.simulation.static_values import Constant, Parts, PerDeviceConstant, Uniformity, Unknown, Value


@dataclass(frozen=True)
class _Call:
    """A call site. computation: the one that it executes, `times` times in each execution of its own; None: not known.

    devices: that take this call.
    """

    computation: str
    times: int | None
    devices: frozenset[int]
    arguments: Sequence[Deferred] | None = None


class ExecutionCounts:
    """Of one program, a verified module in the form that is executed."""

    def __init__(self, module: Module, devices: Iterable[int], counts: Counts) -> None:
        """devices: the flattened ids of those that run it; the counts are the whole run's."""
        self._module, self._world = module, RunState(counts)
        self._effectful = effectful_computations(module)
        self._everywhere = everywhere = frozenset(devices)
        self._counts: dict[str, dict[frozenset[int], int | None]] = {module.entry: {everywhere: 1}}
        self._arguments: dict[str, Sequence[Deferred] | None] = {module.entry: None}
        for computation in reversed(module.computations):  # called ones precede their callers
            if computation.name in self._counts:
                self._follow(computation, frozenset().union(*self._counts[computation.name]))

    def are_equal(self, computation: str) -> bool:
        """Whether all devices execute a computation equally often, or only the run tells of all."""
        return [*self._counts.get(computation, {})] in ([], [self._everywhere])

    def of_each(self, computation: str) -> int | None:
        """The executions by each device, of which all have equally many; None where only the run tells."""
        return self._counts.get(computation, {}).get(self._everywhere, 0)

    def of(self, computation: str) -> dict[int, int | None]:
        """By device the executions of a computation: None where only the run tells; devices that have none are left
        out, and so are all where the program never calls it."""
        found: dict[int, int | None] = {}
        for devices, times in self._counts.get(computation, {}).items():
            for device in devices:
                found[device] = _sum(found.get(device, 0), times)
        return {device: times for device, times in found.items() if times != 0}

    def _follow(self, computation: Computation, devices: frozenset[int]) -> None:
        """Add the executions of all that the computation calls."""
        if computation.name not in self._effectful:
            return
        arguments = self._arguments[computation.name]
        if arguments is None:
            arguments = [Given(self._unknown(p.shape, p)) for p in computation.parameters]
        frame = CallFrame(self._world, 0, self._module, computation, arguments, devices)
        mine = self._counts[computation.name]
        for instruction in computation:
            if self._effectful.isdisjoint(instruction.op.called_computations):
                continue
            for call in self._calls(frame, instruction):
                if call.computation in self._effectful:
                    self._add(call, mine)

    def _add(self, call: _Call, mine: dict[frozenset[int], int | None]) -> None:
        """mine: the executions of the call site's own computation."""
        is_first = call.computation not in self._counts
        counts = self._counts.setdefault(call.computation, {})
        for devices, times in mine.items():
            some = devices & call.devices
            if some:
                counts[some] = _sum(counts.get(some, 0), _product(times, call.times))
        # of several call sites the arguments are different ones
        self._arguments[call.computation] = call.arguments if is_first else None

    def _calls(self, frame: CallFrame, instruction: Instruction) -> Iterator[_Call]:
        op, devices = instruction.op, frame.devices
        if isinstance(op, While):
            count, state = self._iterations(frame, instruction)
            yield _Call(op.body, count, devices, [state])
            yield _Call(op.condition, None if count is None else count + 1, devices, [state])
        elif isinstance(op, Conditional):
            yield from self._branches(frame, instruction)
        else:
            arguments = [frame[name] for name in instruction.operands]
            for name in op.called_computations:
                yield _Call(name, 1, devices, arguments)

    def _iterations(self, frame: CallFrame, loop: Instruction) -> tuple[int | None, Deferred]:
        """The trip count, and the state of any iteration."""
        begin = frame.operand(loop)
        count = trip_count(frame, loop, begin)

        def general(shape: Shape, part: object, uniformity: Uniformity, cause: Instruction) -> Value:
            return self._unknown(shape, cause)

        state = LoopState.of(frame, loop, begin, frame.devices).in_any_iteration(general)
        return _stated_count(loop) if count is None else count, state

    def _branches(self, frame: CallFrame, instruction: Instruction) -> Iterator[_Call]:
        op, selector = instruction.op, force(frame.operand(instruction))
        assert isinstance(op, Conditional)
        if isinstance(selector, Constant):
            taken = {op.branch_of(selector.array): set(frame.devices)}
        elif isinstance(selector, PerDeviceConstant):
            taken = {}
            for device, value in selector.by_device.items():
                assert isinstance(value, Constant)
                taken.setdefault(op.branch_of(value.array), set()).add(device)
        else:
            for number, name in enumerate(op.branches):
                yield _Call(name, None, frame.devices, [frame[instruction.operands[1 + number]]])
            return
        for number, devices in sorted(taken.items()):
            yield _Call(op.branches[number], 1, frozenset(devices), [frame[instruction.operands[1 + number]]])

    def _unknown(self, shape: Shape, cause: Instruction) -> Value:
        if shape.elements is not None:
            return Parts(tuple(Given(self._unknown(element, cause)) for element in shape.elements))
        return Unknown(self._world.terms.fresh(), None, cause) if shape.is_array else Constant(None)


def _stated_count(loop: Instruction) -> int | None:
    """The trip count that XLA's compiler has found and written down, as in {"known_trip_count":{"n":"10"}}."""
    config = loop.backend_config or ""
    if "known_trip_count" not in config:
        return None
    try:
        return int(json.loads(config)["known_trip_count"]["n"])
    except (ValueError, LookupError, TypeError):
        return None


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _product(one: int | None, other: int | None) -> int | None:
    """None where it is not known; what is never executed executes nothing."""
    if 0 in (one, other):
        return 0
    return None if one is None or other is None else one * other
