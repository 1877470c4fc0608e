"""A stand-in for Ray: actors are simulated processes, calls are answered after a while."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

from distxla.collectives.protocols import control_block as control_words
from distxla.runtime.replica.replica import Replica
from tests.simulation.scheduler import Process, Scheduler, Task

LONGEST_CALL_NS = 300_000


class RayError(Exception):
    """Ray's errors."""


class RayTaskError(RayError):
    """An actor's method raised `cause`."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class RayActorError(RayError):
    """The actor has ended."""


class Reference:
    """An object that is there, or will be."""

    def __init__(self) -> None:
        self.is_ready = False
        self.value: Any = None
        self.error: RayError | None = None


class Actors:
    """The Ray of a run. hosts: names of its nodes, the driver's first, and how many CPUs each has."""

    def __init__(self, run: Scheduler, hosts: Sequence[tuple[str, int]]) -> None:
        self.run, self._hosts = run, hosts
        self.actors: list[Actor] = []
        self._waiters: list[Task] = []
        self.module = self._module()

    def put(self, value: Any) -> Reference:
        reference = Reference()
        reference.value, reference.is_ready = value, True
        return reference

    def settle(self, reference: Reference, value: Any = None, error: RayError | None = None) -> None:
        if not reference.is_ready:
            reference.value, reference.error, reference.is_ready = value, error, True
            self.run.wake(self._waiters)

    def wait(
        self, pending: Sequence[Reference], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Reference], list[Reference]]:
        run = self.run
        end = None if timeout is None else run.now + int(timeout * 1e9)
        while sum(r.is_ready for r in pending) < num_returns and (end is None or run.now < end):
            run.block((self._waiters,), None if end is None else end - run.now, "waits for actors")
        return [r for r in pending if r.is_ready], [r for r in pending if not r.is_ready]

    def get(self, reference: Any, timeout: float | None = None) -> Any:
        if isinstance(reference, list):
            return [self.get(one, timeout) for one in reference]
        self.wait([reference], 1, timeout)
        if reference.error is not None:
            raise reference.error
        return reference.value

    def kill(self, actor: Any) -> None:
        self.run.kill(actor.actor.process)

    def _remote(self, **options: Any) -> Any:
        def wrap(kind: type, **options: Any) -> Any:
            strategy = options.get("scheduling_strategy")
            node = strategy.node_id if strategy is not None else "node-0"
            return SimpleNamespace(
                remote=lambda *arguments: self._start(kind, node, arguments),
                options=lambda **others: wrap(kind, **options, **others),
            )

        return lambda kind: wrap(kind, **options)

    def _start(self, kind: type, node: str, arguments: tuple[Any, ...]) -> Handle:
        name = f"{kind.__name__.lower()}-{len(self.actors)}"
        actor = Actor(self, self.run.process(name), kind, arguments, node)
        self.actors.append(actor)
        return Handle(actor)

    def _node_of(self, process: Process) -> str:
        return next((actor.node for actor in self.actors if actor.process is process), "node-0")

    def _module(self) -> ModuleType:
        ray: Any = ModuleType("ray")
        context = SimpleNamespace(get_node_id=lambda: self._node_of(self.run.current.process))
        ray.put, ray.get, ray.wait, ray.kill, ray.remote = self.put, self.get, self.wait, self.kill, self._remote
        ray.is_initialized = lambda: True
        ray.get_runtime_context = lambda: context
        ray.nodes = lambda: [
            {
                "NodeID": f"node-{k}",
                "Alive": True,
                "NodeManagerAddress": f"10.0.0.{k + 1}",
                "NodeManagerHostname": name,
                "Resources": {"CPU": float(cpus)},
            }
            for k, (name, cpus) in enumerate(self._hosts)
        ]
        ray.exceptions = ModuleType("ray.exceptions")
        ray.exceptions.RayError, ray.exceptions.RayTaskError = RayError, RayTaskError
        ray.exceptions.RayActorError = RayActorError
        ray.util = ModuleType("ray.util")
        ray.util.get_node_ip_address = lambda: f"10.0.0.{int(context.get_node_id()[5:]) + 1}"
        ray.util.scheduling_strategies = ModuleType("ray.util.scheduling_strategies")
        ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy = lambda node_id, soft: SimpleNamespace(
            node_id=node_id, soft=soft
        )
        return ray

    @contextmanager
    def imported(self) -> Iterator[None]:
        """`import ray` gives this one."""
        names = [name for name in sys.modules if name == "ray" or name.startswith("ray.")]
        kept = {name: sys.modules.pop(name) for name in names}
        ray: Any = self.module
        sys.modules.update(
            {
                "ray": ray,
                "ray.exceptions": ray.exceptions,
                "ray.util": ray.util,
                "ray.util.scheduling_strategies": ray.util.scheduling_strategies,
            }
        )
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name == "ray" or name.startswith("ray.")]:
                del sys.modules[name]
            sys.modules.update(kept)


class Actor:
    """An actor's process: it makes the object, then answers calls one by one."""

    def __init__(self, owner: Actors, process: Process, kind: type, arguments: tuple[Any, ...], node: str) -> None:
        self.owner, self.process, self.node = owner, process, node
        self._kind, self._arguments = kind, arguments
        self.object: Any = None
        self._calls: deque[tuple[str, tuple[Any, ...], Reference]] = deque()
        self._in_flight: list[Reference] = []
        self._waiters: list[Task] = []
        self._last = 0
        process.on_end.append(self._end)
        owner.run.spawn(process, "main", self._serve)

    def call(self, name: str, arguments: tuple[Any, ...]) -> Reference:
        reference = Reference()
        if not self.process.is_alive:
            self.owner.settle(reference, error=RayActorError(f"{self.process.name} has ended"))
            return reference
        self._in_flight.append(reference)
        run = self.owner.run

        def arrive() -> None:
            self._calls.append((name, arguments, reference))
            run.wake(self._waiters)

        self._last = max(self._last, run.now + int(run.random.random() * LONGEST_CALL_NS))
        run.after(self._last - run.now, arrive)  # in the order of the calls
        run.step()
        return reference

    def _serve(self) -> None:
        self.object = self._kind(*self._arguments)
        while True:
            while not self._calls:
                self.owner.run.block((self._waiters,), None, "waits for calls")
            name, arguments, reference = self._calls.popleft()
            values = [a.value if isinstance(a, Reference) else a for a in arguments]
            try:
                if name == "unload":
                    _require_not_running(self.object, *values)
                value, error = getattr(self.object, name)(*values), None
            except UnloadedWhileItRuns as found:  # going on would end this process
                self.owner.run.failures.append(f"{self.process.name}: {found}")
                value = error = None
            except Exception as found:
                value, error = None, RayTaskError(found)
            self._in_flight.remove(reference)
            self.owner.settle(reference, value, error)

    def _end(self, process: Process) -> None:
        for reference in self._in_flight:
            self.owner.settle(reference, error=RayActorError(f"{self.process.name} has ended"))


class UnloadedWhileItRuns(Exception):
    """A program's code was to be unmapped while its device is in it."""


def _require_not_running(actor: Any, number: int) -> None:
    if not isinstance(actor, Replica):
        return
    control, device = actor._control, actor._device
    runs = control.record(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN
    if runs and control.record(device, control_words.R_COMMAND_PROGRAM) == number:
        raise UnloadedWhileItRuns(f"program {number} is unloaded while it runs")


class Handle:
    """A handle of an actor, in its owner."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self.actor.call(name, arguments))
