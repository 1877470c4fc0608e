"""Calls of several JAX processes' devices by their owner, in one simulated run: what a seed draws, and its check.

Several tasks of the owner call sets of processes at the same time. Some sets have processes in common; then one call
waits for the other. Where no other task calls a set, its calls may be issued as its processes do, and be taken over.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distxla.collectives.protocols import control_block as control_words
from distxla.errors import ClusterError, DistxlaError, ReplicaLostError
from distxla.jax.processes import owned_cluster
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.runtime.arrays.executable import Executable
from tests.simulation import cases
from tests.simulation.cases import Case
from tests.simulation.runs import Outcome, World, simulate
from tests.simulation.scenarios import DEVICE_MEMORY, LONGEST_S
from tests.simulation.scheduler import Process

DEVICES = 4
SLICES = [(2, 2), (1, 3), (1, 1, 2), (1, 1, 1, 1)]
FAULTS = (*["none"] * 3, "kill a replica", "stop a replica", *["stop a call"] * 2)
STOPPED = "the call is to stop"


@dataclass(frozen=True)
class User:
    """A task's calls. takes_over: whether its processes issue them."""

    members: tuple[int, ...]
    calls: tuple[str, ...]
    takes_over: bool


@dataclass(frozen=True)
class Plan:
    slices: tuple[int, ...]
    users: tuple[User, ...]
    fault: str
    at: int  # steps after the first call has begun
    victim: float

    def devices(self, members: Sequence[int]) -> tuple[int, ...]:
        ends = [sum(self.slices[: k + 1]) for k in range(len(self.slices))]
        return tuple(d for k in members for d in range(ends[k] - self.slices[k], ends[k]))

    def __str__(self) -> str:
        users = "; ".join(
            f"{list(user.members)}{' by themselves' * user.takes_over}: {', '.join(user.calls)}" for user in self.users
        )
        return f"slices {list(self.slices)}: {users}{'' if self.fault == 'none' else f'; {self.fault} at {self.at}'}"


def names(devices: int) -> list[str]:
    """Of the cases for so many devices of which these are all that a program knows."""
    return [
        name for name in cases.names(devices) if not cases.feeds(name) and len(cases.case(name, devices).parts) == 1
    ]


def draw(seed: int, faults: Sequence[str] = FAULTS) -> Plan:
    """The plan of a seed. faults: what may go wrong."""
    rng = random.Random(f"slices {seed}")
    slices, fault = rng.choice(SLICES), rng.choice(faults)
    users: list[tuple[int, ...]] = []
    for _ in range(rng.choice((2, 3))):
        members: tuple[int, ...] = ()
        while sum(slices[k] for k in members) < 2:
            members = tuple(sorted(rng.sample(range(len(slices)), rng.randint(1, len(slices)))))
        users.append(members)
    found = []
    for members in users:
        known = names(sum(slices[k] for k in members))
        alone = sum(not set(members).isdisjoint(others) for others in users) == 1
        calls = [rng.choice(known) for _ in range(rng.choice((1, 2, 3)))]
        if fault == "stop a replica":  # whose device is late in a call that fails
            calls[0] = rng.choice([name for name in known if name in cases.DOOMED])
        found.append(User(members, tuple(calls), alone and rng.random() < 0.5))
    return Plan(slices, tuple(found), fault, int(2 ** (rng.random() * 12)), rng.random())


def simulate_seed(seed: int, faults: Sequence[str] = FAULTS, *, logs: bool = False) -> Outcome:
    """Run the plan of a seed. The outcome's complaint names the plan."""
    plan = draw(seed, faults)
    for user in plan.users:
        for name in user.calls:
            cases.programs(name, len(plan.devices(user.members)))  # compiled before, once a process
    often = plan.fault != "stop a replica"  # in seconds of which nothing happens
    outcome = simulate(seed, partial(_scenario, plan), (DEVICES,), looks_often=often, logs=logs)
    if outcome.complaint:
        outcome.complaint = f"seed {seed} ({plan}): {outcome.complaint}"
    return outcome


def _scenario(plan: Plan, world: World) -> None:
    ends = [sum(plan.slices[: k + 1]) for k in range(len(plan.slices))]
    slices = [range(end - count, end) for count, end in zip(plan.slices, ends, strict=True)]
    with _simulated_threads(world), OwnedCluster(slices, device_memory=DEVICE_MEMORY) as cluster:
        cluster.wait_started()
        world.headers = [part.offset for part in cluster.hosts.local.slices]
        _Calls(plan, world, cluster).make()


@contextmanager
def _simulated_threads(world: World) -> Iterator[None]:
    kept = owned_cluster.threading
    owned_cluster.threading = world.edges.threads.threading  # type: ignore[assignment]
    try:
        yield
    finally:
        owned_cluster.threading = kept


class _Calls:
    """lost: whether a replica was killed.  stop: the members whose call is to stop."""

    def __init__(self, plan: Plan, world: World, cluster: OwnedCluster) -> None:
        self.plan, self.world, self.cluster = plan, world, cluster
        self.lost = False
        self.stop: tuple[int, ...] | None = None
        cluster.stop_reason = self._stop_reason

    def make(self) -> None:
        threads = [
            self.world.edges.threads.thread(target=self._call_all, args=(user,), name=f"user-{k}")
            for k, user in enumerate(self.plan.users)
        ]
        self._arm()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST_S)
            if thread.is_alive():
                self.world.complain(f"a task waits for ever: {thread}")
        self.world.run.drop_faults()

    def _arm(self) -> None:
        actions: dict[str, Callable[[], None]] = {
            "kill a replica": self._kill,
            "stop a replica": self._stop_replica,
            "stop a call": self._stop,
        }
        if (action := actions.get(self.plan.fault)) is not None:
            self.world.run.fault(self.plan.at, action)

    def _kill(self) -> None:
        self.lost = True
        self.world.run.kill(self._victim())

    def _stop_replica(self) -> None:
        """For 10 ms to 2 s: its device is late in what fails meanwhile."""
        self.world.run.stop(self._victim(), int(10 ** (7 + 2.3 * self.world.random.random())))

    def _victim(self) -> Process:
        replicas = [a.process for a in self.world.edges.actors.actors if a.process.name.startswith("replica")]
        return replicas[int(self.plan.victim * len(replicas))]

    def _stop(self) -> None:
        self.stop = self.plan.users[int(self.plan.victim * len(self.plan.users))].members

    def _stop_reason(self, members: Sequence[int]) -> DistxlaError | None:
        return ClusterError(STOPPED) if self.stop == tuple(members) else None

    def _call_all(self, user: User) -> None:
        devices = self.plan.devices(user.members)
        for name in user.calls:
            case = cases.case(name, len(devices))
            program, module = cases.programs(name, len(devices))[0], case.parts[0][1]
            made = Executable(self.cluster, program.assigned(devices, DEVICES), devices, 0.0, True, module=module)
            made.together[made.serial,] = [None]  # some of them deadlock on purpose
            begun = self.world.run.now
            self._call(user, case, made)
            if self.world.run.now - begun > LONGEST_S * 1e9:
                self.world.complain(f"{name} took {(self.world.run.now - begun) / 1e9:.1f} s")
            del made  # it is unloaded while others run

    def _call(self, user: User, case: Case, made: Executable) -> None:
        world = self.world
        outs: list[Any] = []

        def place(found: Sequence[Executable]) -> list[Any]:
            self._require_idle(case.name, made.devices)
            kept = made.place_arguments([case.arguments[d] for d in range(len(made.devices))])
            outs.append(made.place_results())
            return [made, kept, outs]

        try:
            has_channels = any(spec.of_channels for spec in made.program.communicators)
            if user.takes_over and not has_channels:  # which the owner connects
                self._take_over(user, made, place)
            else:
                self.cluster.issue_on(user.members, [made], place)
            wrong = [
                text
                for d, row in enumerate(outs[0])
                if case.results is not None and (text := case.wrong(d, [np.asarray(leaf) for leaf in row]))
            ]
        except DistxlaError as error:
            self._judge(case, user, error)
        else:
            world.run.note(f"{case.name} on {list(user.members)} ended well")
            if case.results is None:
                world.complain(f"{case.name} ended well, and cannot")
            if wrong:
                world.complain(wrong[0])

    def _require_idle(self, name: str, devices: Sequence[int]) -> None:
        """A call of these devices is about to begin, and may write where its arguments and results are."""
        control = self.cluster.hosts.local.control
        for part in self.cluster.hosts.local.slices:
            mine = [device for device in part.devices if device in devices]
            runs = [d for d in mine if control.record(d, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN]
            if not self.lost and runs:
                self.world.complain(f"{name} begins while devices {runs} are in another call")
            if not self.lost and mine and part.is_aborted:
                self.world.complain(f"{name} begins although the last call of devices {mine} is not cleared up")

    def _take_over(self, user: User, made: Executable, place: Callable[..., list[Any]]) -> None:
        """As processes issue a call; the owner takes it over when some have started it."""
        cluster = self.cluster
        cluster.settle(user.members)
        cluster.load(made, range(DEVICES))
        kept = place([made])
        parts = {}
        try:
            for member in user.members:
                cluster.hold(member)
                part = cluster.hosts.local.slices[member]
                ticket = part.issue({d: made.number or 0 for d in made.devices if d in part.devices}, 1)
                parts[member] = ticket.sequence, ticket.target
                if self.world.random.random() < 0.5:
                    part.start()
            cluster.take_over(parts, made.devices, kept)
        finally:
            for member in user.members:
                cluster.let_go(member)

    def _judge(self, case: Case, user: User, error: DistxlaError) -> None:
        self.world.run.note(f"{case.name} on {list(user.members)}: {type(error).__name__}: {error}")
        if isinstance(error, case.errors):
            return
        if self.stop == user.members and STOPPED in error.message:
            return
        if not self.lost or not isinstance(error, ReplicaLostError | ClusterError):
            self.world.complain(f"{case.name} on {list(user.members)}: {type(error).__name__}: {error}")
