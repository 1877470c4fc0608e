"""All devices of a run in lock step in one process, every op by its NumPy `evaluate`: the oracle.

Each device is a thread, but only one of them runs at any time: `_World.run` hands a device the token, takes it back
when the device has to wait or ends, and goes on with the next one that can, in the order of their ids. A collective, a
channel, a feed are such waits: objects that tell whether the device can go on (`oracle/waits.py`). So a run is
deterministic, ops are written as plain functions, and "all devices wait" is a state that can be seen.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distxla import clock
from distxla.diagnosis.diagnose import diagnose
from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event, Loop
from distxla.errors import (
    ArgumentError,
    CollectiveMismatchError,
    DistxlaError,
    TimeLimitError,
    UnsupportedOpError,
)
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.rng import INITIAL_STATE
from distxla.ops.support.executable import executable
from distxla.oracle.channel_values import Channels
from distxla.oracle.evaluation import Device, InstructionEvaluation, RunningLoop, Stopped, Watch, call
from distxla.oracle.origins import Origins
from distxla.oracle.streams import Streams
from distxla.oracle.stuck import Stuck
from distxla.oracle.value_leaves import leaves_of, parameter_values
from distxla.oracle.waits import Outcome, Pending, PendingComputation, Rounds, Wait
from distxla.rewrites.executed_form import executed_form

Array = np.ndarray[Any, Any]
EVENTS = 32  # of each device that a report keeps


def run_reference(
    module: Module,
    args: Sequence[Sequence[Any]],
    counts: Counts,
    *,
    time_limit: float | None = None,
    watch: Watch | None = None,
) -> list[list[Array | None]]:
    """Run one SPMD module on all devices of the counts.

    args: args[d][k] is leaf k of the entry's parameters on device d.  Returns outs[d][k], leaf k of the result (None
    for a token).  time_limit: seconds.  watch: sees every value.  Raises the errors of `run_programs`.
    """
    devices = range(counts.devices)
    if len(args) != len(devices):
        raise ArgumentError(f"there are {len(devices)} devices and arguments for {len(args)}")
    outs = run_programs(
        dict.fromkeys(devices, module),
        dict(enumerate(args)),
        counts,
        time_limit=time_limit,
        watch=watch,
    )
    return [outs[device] for device in devices]


def run_programs(
    programs: Mapping[int, Module],
    args: Mapping[int, Sequence[Any]],
    counts: Counts,
    *,
    time_limit: float | None = None,
    random_states: dict[int, int] | None = None,
    streams: Streams | None = None,
    watch: Watch | None = None,
    origins: Origins | None = None,
) -> dict[int, list[Array | None]]:
    """Run a module a device; devices that share a group meet, whichever modules they run.

    programs and args: by flattened device id; args[d][k] as in `run_reference`.  The counts are the whole world's.
    random_states: by device where its random state is (the initial one where it isn't named); advanced by the run.
    streams: to and from the host; without it infeeds have ended, and outfeeds are dropped. StreamEndError and
    ArgumentError where an infeed finds no item, or one of another type.  watch: sees every value, of the modules in the
    form that is executed.  origins: gets to know where NaN and Inf come from.

    Raises ArgumentError (counts, shapes, types), UnsupportedOpError and VerificationError (sends and recvs that can't
    be paired) before anything runs, DeadlockError when no device can go on, CollectiveMismatchError when devices meet
    with instructions that don't belong together, TimeLimitError.
    """
    executed = {key: executed_form(m) for key, m in {id(m): m for m in programs.values()}.items()}
    for module in executed.values():
        _check_executable(module)
    devices = {}
    for device, module in ((d, executed[id(m)]) for d, m in sorted(programs.items())):
        if not 0 <= device < counts.devices:
            raise ArgumentError(f"there is no device {device} among {counts.replicas} x {counts.partitions}")
        arguments = parameter_values(module, args.get(device, ()), device)
        devices[device] = _Device(device, *divmod(device, counts.partitions), module)
        parameters = zip(arguments, module.entry_computation.parameters, strict=True)
        known = devices[device].dynamic_values
        devices[device].arguments = tuple(known.note(value, p.shape.without_layout()) for value, p in parameters)
        if watch is not None:
            watch.begin(devices[device], devices[device].arguments)
        if origins is not None:
            devices[device].origins = origins
            origins.given(device, devices[device].arguments)
        if random_states is not None:
            devices[device].random_state = random_states.get(device, INITIAL_STATE)
    deadline = None if time_limit is None else clock.now() + time_limit
    world = _World(devices, counts, deadline, time_limit, streams or Streams(fed=False), watch)
    try:
        world.streams.begin(world.news)
        world.run()
    finally:
        world.streams.end()
    if random_states is not None:
        random_states.update({device.id: device.random_state for device in devices.values()})
    return {i: list(leaves_of(d.result, d.module.entry_computation.root_instruction.shape)) for i, d in devices.items()}


@dataclass
class _Device(Device):
    """One device and its result."""

    arguments: tuple[Any, ...] = ()
    result: Any = None


class _Fiber(threading.Thread):
    """A computation of a device: its program, or one beside it. Runs only while it holds the token.

    wait: the one for which it gave the token back; None before its first run.
    """

    def __init__(self, world: _World, device: _Device, computation: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(name=f"reference device {device.id}", daemon=True)
        self.device, self.outcome = device, Outcome()
        self.wait: Wait | None = None
        self.loops: list[RunningLoop] = []
        self.error: BaseException | None = None
        self._token = threading.Semaphore(0)
        self._world, self._computation, self._arguments = world, computation, arguments

    def run(self) -> None:
        self._token.acquire()
        try:
            with np.errstate(all="ignore"):
                world = self._world
                self.outcome.value = call(world, self.device, self._computation, self._arguments, watch=world.watch)
            self.outcome.finished = True
        except BaseException as error:
            self.error = error
        self._world.returned.release()

    def resume(self) -> None:
        """Called by the world: let it run until it gives the token back; raises its error."""
        self._token.release()
        self._world.returned.acquire()
        if self.error is not None:
            raise self.error

    def give_back(self, wait: Wait) -> None:
        """Called by itself: until the world hands it the token again."""
        self.wait = wait
        self._world.returned.release()
        self._token.acquire()

    @property
    def is_waiting(self) -> bool:
        return self.error is None and self.wait is not None and not self.wait.ready()

    @property
    def enclosing(self) -> tuple[Loop, ...]:
        """The loops around its current instruction, outermost first."""
        module = self.device.module
        return tuple(
            Loop(running.instruction.name, module.locate(running.instruction), running.iterations or None)
            for running in self.loops
        )

    def dismiss(self) -> None:
        """Called by the world when it has stopped."""
        self._token.release()
        self.join()


class _Begun(Wait):
    """Until a fiber has had its first run."""

    def __init__(self, fiber: _Fiber) -> None:
        self._fiber = fiber

    def ready(self) -> bool:
        return self._fiber.outcome.finished or self._fiber.wait is not None


class _World:
    """Hands the token round among the fibers of all devices that can go on."""

    def __init__(
        self,
        devices: dict[int, _Device],
        counts: Counts,
        deadline: float | None,
        time_limit: float | None,
        streams: Streams,
        watch: Watch | None,
    ) -> None:
        self.devices, self.counts = devices, counts
        self.deadline, self.time_limit = deadline, time_limit
        self.stopped = False
        self.returned = threading.Semaphore(0)
        self.news = threading.Event()  # set by outside threads that may have made a wait ready
        self.channels = Channels({d.id: d.module for d in devices.values()}, counts)
        self.streams, self.watch = streams, watch
        self._rounds = Rounds()
        self._last: dict[int, Instruction] = {}
        self._places: dict[tuple[int, int], str | None] = {}  # by device and instruction
        self._executions: Counter[tuple[int, str]] = Counter()
        self._events: defaultdict[int, deque[Event]] = defaultdict(lambda: deque(maxlen=EVENTS))
        self._fibers: list[_Fiber] = []

    def run(self) -> None:
        """Blocks until every device has finished; raises the first error."""
        try:
            programs = [self._begin(d, d.module.entry, d.arguments) for d in self.devices.values()]
            runnable = list(self._fibers)
            while runnable:
                for fiber in runnable:
                    fiber.resume()
                self._fibers = [fiber for fiber in self._fibers if not fiber.outcome.finished]
                runnable = self._ready()
        except DistxlaError as error:
            if error.diagnosis is None and any(fiber.is_waiting for fiber in self._fibers):
                modules = {device.id: device.module for device in self.devices.values()}
                error.diagnosis = diagnose(error, self._states(), None, modules)
            raise
        finally:
            self.stopped = True
            for fiber in self._fibers:
                fiber.dismiss()
        for fiber in programs:
            fiber.device.result = fiber.outcome.value

    def _begin(self, device: _Device, computation: str, arguments: tuple[Any, ...]) -> _Fiber:
        fiber = _Fiber(self, device, computation, arguments)
        self._fibers.append(fiber)
        fiber.start()
        return fiber

    def _ready(self) -> list[_Fiber]:
        """The fibers that can go on, in the order of their devices; none when all have finished.

        Blocks where only something from outside helps; DeadlockError where nothing helps some of them.
        """
        while self._fibers:
            self.news.clear()
            ready = [fiber for fiber in self._fibers if fiber.wait is None or fiber.wait.ready()]
            if ready:
                return sorted(ready, key=lambda fiber: fiber.device.id)
            stuck = Stuck.of([(fiber.device.id, fiber.wait, fiber.outcome) for fiber in self._fibers])
            if stuck is not None:
                raise stuck.error(self._states(), {device.id: device.module for device in self.devices.values()})
            self.news.wait(0.05)
            self.check()
        return []

    def wait(self, wait: Wait) -> None:
        """Called in a fiber: gives the token back until `wait` is ready."""
        fiber = threading.current_thread()
        assert isinstance(fiber, _Fiber)
        if not wait.ready():
            fiber.give_back(wait)
        self.check()

    def come(self, run: InstructionEvaluation, members: tuple[int, ...], operands: tuple[Any, ...]) -> Pending:
        """Called in a fiber: enter the next round of an ordered group, without waiting for the others."""
        try:
            return self._rounds.come(run, members, operands)
        finally:
            events, wanted = self._events[run.device.id], self._rounds.wanted
            if wanted is not None and events and events[-1].instruction == run.instruction.name:
                events[-1] = replace(events[-1], round=wanted.round.number)

    def start(self, run: InstructionEvaluation, computation: str, arguments: tuple[Any, ...]) -> Pending:
        """Called in a fiber: run a computation beside it; returns when that waits for the first time or has ended."""
        fiber = self._begin(self.devices[run.device.id], computation, arguments)
        self.wait(_Begun(fiber))
        return PendingComputation(run, fiber.outcome)

    @property
    def loops(self) -> list[RunningLoop]:
        fiber = threading.current_thread()
        assert isinstance(fiber, _Fiber)
        return fiber.loops

    def note(self, device: Device, instruction: Instruction) -> None:
        """Called in a fiber: its device reaches a communicating instruction."""
        count = self._executions[device.id, instruction.name] = self._executions[device.id, instruction.name] + 1
        self._last[device.id] = instruction
        where = self._where(device, instruction)
        if where is not None:
            iteration = self.loops[-1].iterations if self.loops else 0
            self._events[device.id].append(
                Event(instruction.name, instruction.opcode, count, iteration=iteration, computation=where)
            )

    def _where(self, device: Device, instruction: Instruction) -> str | None:
        """The name of the computation of an instruction in which the device has a part; None where it has none."""
        key = device.id, id(instruction)
        if key not in self._places:
            holder = device.module.holder_of(instruction)
            is_idle = holder is not None and self.channels.is_idle(device.id, instruction, holder)
            self._places[key] = None if is_idle else "" if holder is None else holder.name
        return self._places[key]

    def check(self) -> None:
        """Called before every instruction."""
        if self.stopped:
            raise Stopped
        if self.deadline is not None and clock.now() > self.deadline:
            raise TimeLimitError(f"the time limit of {self.time_limit:g} s ran out in the reference")

    def _states(self) -> dict[int, DeviceState]:
        """Every device's state, in its first fiber that waits."""
        found = {}
        for device in self.devices.values():
            events = tuple(self._events[device.id])
            last = self._last.get(device.id)
            place = ("", "", None) if last is None else (last.name, last.opcode, device.module.locate(last))
            found[device.id] = DeviceState(device.id, Doing.ENDED, device.module.name, *place, events=events)
        for fiber in reversed(self._fibers):
            device = fiber.device
            if fiber.error is not None:
                found[device.id] = self._failed(fiber, found[device.id])
                continue
            if fiber.wait is None or fiber.wait.waiter is None or not fiber.is_waiting:
                if not fiber.outcome.finished:
                    events = tuple(self._events[device.id])
                    doing = Doing.NOT_BEGUN if fiber.wait is None and not events else Doing.COMPUTES
                    found[device.id] = DeviceState(device.id, doing, device.module.name, events=events)
                continue
            found[device.id] = replace(fiber.wait.state(), loops=fiber.enclosing, events=tuple(self._events[device.id]))
        return found

    def _failed(self, fiber: _Fiber, ended: DeviceState) -> DeviceState:
        """The state of a device whose fiber has an error. ended: the same as one that has ended."""
        wanted = self._rounds.wanted
        if isinstance(fiber.error, TimeLimitError) or not isinstance(fiber.error, Exception):  # it was interrupted
            return replace(ended, doing=Doing.COMPUTES)
        if not isinstance(fiber.error, CollectiveMismatchError) or wanted is None or wanted.device != ended.device:
            return replace(ended, doing=Doing.FAILED)  # in the last that it reached
        came = replace(wanted.state(), doing=Doing.ARRIVED, waits_for=(), missing=())
        return replace(came, loops=fiber.enclosing, events=ended.events)


def _check_executable(module: Module) -> None:
    """UnsupportedOpError for the first instruction that the entry can reach and that no evaluation exists for."""
    pending, seen = [module.entry], {module.entry}
    while pending:
        computation = module[pending.pop()]
        for instruction in computation:
            op = instruction.op
            why = executable(op).evaluation_obstacle(instruction, [o.shape for o in computation.operands(instruction)])
            if why is not None:
                raise UnsupportedOpError(why, module.locate(instruction, "opcode"))
            for name in op.called_computations:
                if name not in seen:
                    seen.add(name)
                    pending.append(name)


__all__ = ["run_programs", "run_reference"]
