"""The plan that a seed draws (hosts, programs, calls, a fault), and the check of its results."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from distxla.errors import ClusterError, DistxlaError, ExecutionError, ReplicaLostError, TimeLimitError
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.cluster import Cluster
from tests.simulation import cases
from tests.simulation.cases import Case
from tests.simulation.runs import Outcome, World, simulate
from tests.simulation.scheduler import Process

HOSTS = {2: [(2,), (1, 1)], 3: [(3,), (1, 2), (1, 1, 1)], 4: [(4,), (2, 2), (1, 3)]}
FAULTS = (
    *["none"] * 4,
    *["kill a replica"] * 3,
    "stop a replica",
    "interrupt",
    "time limit",
)
FAULTS_BETWEEN_HOSTS = (
    *FAULTS,
    *["kill an agent"] * 2,
    *["break a connection"] * 2,
    "stop an agent",
    "silence a connection",
    *["damage a byte"] * 2,
)
LOSSES = {
    "kill a replica",
    "kill an agent",
    "break a connection",
    "silence a connection",
    "damage a byte",
}  # that no call survives
ABORTS = ("interrupt", "time limit")  # which leave items in streams, so that later calls find other ones
NOTICED_S = 5.0  # until the kernel gives a silent connection up
DEVICE_MEMORY = 256 << 20  # bytes; sparse
LONGEST_S = 60.0  # of virtual time, that any call may take


@dataclass(frozen=True)
class Plan:
    """A run that a seed determines."""

    hosts: tuple[int, ...]
    calls: tuple[tuple[str, int], ...]  # case and runs within the call
    fault: str
    at: int  # steps after the call with the fault has begun
    call: int  # which call that is
    victim: float

    @property
    def devices(self) -> int:
        return sum(self.hosts)

    def __str__(self) -> str:
        calls = ", ".join(f"{name}{f' x{times}' if times > 1 else ''}" for name, times in self.calls)
        fault = "" if self.fault == "none" else f"; {self.fault} {self.at} steps into call {self.call}"
        return f"hosts {list(self.hosts)}: {calls}{fault}"


def draw(seed: int, names: Callable[[int], list[str]] = cases.names) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"plan {seed}")
    devices = rng.choice((2, 2, 3, 4))
    hosts = rng.choice(HOSTS[devices])
    chosen = [rng.choice(names(devices)) for _ in range(rng.choice((1, 2)))]
    calls = tuple((rng.choice(chosen), rng.choice((1, 1, 2, 5))) for _ in range(rng.choice((1, 2, 3))))
    fault = rng.choice(FAULTS if len(hosts) == 1 else FAULTS_BETWEEN_HOSTS)
    if fault in ABORTS and any(cases.feeds(name) for name, _ in calls):
        fault = "kill a replica"
    at = int(2 ** (rng.random() * 12))
    return Plan(hosts, calls, fault, at, rng.randrange(len(calls)), rng.random())


def drawn_for(seed: int, names: Sequence[str], hosts: tuple[int, ...], faults: Sequence[str]) -> Plan:
    """A plan of a seed with these programs, hosts and faults."""
    rng = random.Random(f"plan {seed}")
    calls = tuple((rng.choice(names), rng.choice((1, 2, 5))) for _ in range(3))
    return Plan(hosts, calls, rng.choice(faults), int(2 ** (rng.random() * 12)), rng.randrange(3), rng.random())


def simulate_seed(seed: int, *, logs: bool = False, plan: Plan | None = None) -> Outcome:
    """Run the plan of a seed. The outcome's complaint names the plan."""
    plan = plan or draw(seed)
    for name, _ in plan.calls:
        cases.programs(name, plan.devices)  # compiled before, once a process
    often = not plan.fault.startswith(("silence", "stop"))  # seconds in which nothing happens
    outcome = simulate(seed, partial(_scenario, plan), plan.hosts, looks_often=often, logs=logs)
    if outcome.complaint:
        outcome.complaint = f"seed {seed} ({plan}): {outcome.complaint}"
    return outcome


def measured(seed: int) -> tuple[int, str, float, int]:
    """(seed, complaint, seconds of processor time, digest) of a seed; for processes of a pool."""
    begin = time.process_time()
    outcome = simulate_seed(seed)
    return seed, outcome.complaint, time.process_time() - begin, outcome.digest


def _scenario(plan: Plan, world: World) -> None:
    with Cluster(replicas=plan.devices, devices_per_host=plan.hosts, device_memory=DEVICE_MEMORY) as cluster:
        cluster.wait_started()
        _Calls(plan, world, cluster).make()
    _require_nothing_open(world)


class _Calls:
    """The calls of a run, one after the other. lost: whether a process or a connection is gone for good."""

    def __init__(self, plan: Plan, world: World, cluster: Cluster) -> None:
        self.plan, self.world, self.cluster = plan, world, cluster
        self.executables: dict[str, list[Executable]] = {}
        self.faulted = False
        self.wanted: list[deque[np.ndarray]] = [deque() for _ in range(plan.devices)]  # items to come out of outfeeds

    def make(self) -> None:
        for number, (name, repeat) in enumerate(self.plan.calls):
            case = cases.case(name, self.plan.devices)
            self._call(case, 1 if case.items else repeat, is_here=number == self.plan.call)
        self.world.run.drop_faults()

    def _arm(self) -> None:
        """Let the fault happen some steps from now."""
        plan, world = self.plan, self.world
        what, _, whom = plan.fault.partition(" ")
        network, main = world.edges.network, world.run.current
        actions: dict[str, Callable[[], object]] = {
            "kill": lambda: [world.run.kill(process) for process in self._victims(whom)],
            "stop": lambda: [world.run.stop(process, self._long()) for process in self._victims(whom)],
            "break": lambda: network.break_one(plan.victim),
            "silence": lambda: network.silence_one(plan.victim, NOTICED_S),
            "interrupt": lambda: world.run.interrupt(main),
            "damage": lambda: network.damage_soon(plan.victim),
        }
        if what in actions:
            world.run.fault(plan.at, lambda: self._cause(actions[what]))

    def _cause(self, action: Callable[[], object]) -> None:
        self.faulted = True
        action()

    def _victims(self, whom: str) -> list[Process]:
        """The process that is hit, if it lives."""
        kind = whom.rpartition(" ")[2]
        all_ = [a.process for a in self.world.edges.actors.actors if a.process.name.startswith(kind)]
        return [process for process in all_ if process.is_alive][int(self.plan.victim * len(all_)) :][:1]

    def _long(self) -> int:
        """Nanoseconds of a stop or a limit: 0.1 ms to 2 s."""
        return int(10 ** (5 + 4.3 * self.world.random.random()))

    def _executables(self, case: Case) -> list[Executable]:
        found = self.executables.get(case.name)
        if found is None:
            programs = cases.programs(case.name, self.plan.devices)
            found = [
                Executable(self.cluster, program, devices, 0.0, True, module=module)
                for program, (devices, module) in zip(programs, case.parts, strict=True)
            ]
            # the order in which they communicate is not looked at: some of them deadlock on purpose
            found[0].together[tuple(one.serial for one in found)] = [None] * len(found)
            self.executables[case.name] = found
        return found

    def _call(self, case: Case, repeat: int, *, is_here: bool) -> None:
        world = self.world
        begun = world.run.now
        limit = self._long() / 1e9 if is_here and self.plan.fault == "time limit" else None
        feeders = []
        try:
            executables = self._executables(case)
            rows = [[case.arguments[d] for d in one.devices] for one in executables]
            feeders = self._feed(case)
            if is_here:
                self._arm()
            outs = self.cluster.call(list(zip(executables, rows, strict=True)), repeat=repeat, time_limit=limit)
            if self.plan.fault == "interrupt":
                world.run.drop_faults()
            wrong = [
                text
                for one, leaves in zip(executables, outs, strict=True)
                for d, row in zip(one.devices, leaves, strict=True)
                if case.results is not None and (text := case.wrong(d, [np.asarray(leaf) for leaf in row]))
            ]
        except KeyboardInterrupt:
            world.run.note(f"{case.name} was interrupted")
            if self.plan.fault != "interrupt":
                raise
        except TimeLimitError as error:
            world.run.note(f"{case.name}: {error}")
            if limit is None:
                world.complain(f"{case.name}: without a limit: {error}")
        except DistxlaError as error:
            self._judge_error(case, error)
        else:
            world.run.note(f"{case.name} ended well")
            if case.results is None:
                world.complain(f"{case.name} ended well, and cannot")
            if wrong:
                world.complain(wrong[0])
        if self.plan.fault == "interrupt":
            world.run.drop_faults()
        for feeder in feeders:
            feeder.join(LONGEST_S)
            if feeder.is_alive():
                world.complain(f"{case.name}: a thread that feeds or drains a device waits for ever")
        if world.run.now - begun > LONGEST_S * 1e9:
            world.complain(f"{case.name} took {(world.run.now - begun) / 1e9:.1f} s")

    def _judge_error(self, case: Case, error: DistxlaError) -> None:
        world = self.world
        world.run.note(f"{case.name}: {type(error).__name__}: {error}")
        if isinstance(error, case.errors):
            return
        losses = LOSSES | ({"interrupt"} if len(self.plan.hosts) > 1 else set())  # of a connection, amid a frame
        if not self.faulted or self.plan.fault not in losses:
            world.complain(f"{case.name}: without a loss: {type(error).__name__}: {error}")
        elif not isinstance(error, ReplicaLostError | ClusterError):
            world.complain(f"{case.name}: after a loss: {type(error).__name__}: {error}")

    def _feed(self, case: Case) -> list:
        """Threads that feed and drain the devices."""
        threads = []
        for device in range(self.plan.devices) if case.items else ():
            for target in (self._put, self._get):
                thread = self.world.edges.threads.thread(target=target, args=(case, device), name=f"feed-{device}")
                thread.start()
                threads.append(thread)
        return threads

    def _put(self, case: Case, device: int) -> None:
        try:
            infeed = self.cluster.infeed(device)
            for item in case.items:
                infeed.put(item)
        except DistxlaError as error:
            self._judge_stream(case, error)

    def _get(self, case: Case, device: int) -> None:
        try:
            outfeed = self.cluster.outfeed(device)
            wanted = self.wanted[device]  # those of a call that was lost may come after it
            wanted.extend(case.given[device])
            while wanted:
                have = outfeed.get()
                want = wanted.popleft()
                if have.tobytes() != want.tobytes():
                    self.world.complain(f"{case.name}: device {device} gave {have}, not {want}")
        except DistxlaError as error:
            self._judge_stream(case, error)

    def _judge_stream(self, case: Case, error: DistxlaError) -> None:
        self.world.run.note(f"{case.name}: a stream: {type(error).__name__}: {error}")
        if not self.faulted or self.plan.fault not in LOSSES:
            self.world.complain(f"{case.name}: a stream, without a loss: {type(error).__name__}: {error}")
        elif not isinstance(error, ReplicaLostError | ClusterError | ExecutionError):
            self.world.complain(f"{case.name}: a stream: {type(error).__name__}: {error}")


def _require_nothing_open(world: World) -> None:
    """After the end of a cluster the driver has nothing open."""
    driver = world.run.current.process
    left = [sock for sock in world.edges.network.sockets if sock.process is driver and not sock.closed]
    if left:
        world.complain(f"{len(left)} sockets are left open")
    if count := world.edges.machine.open_descriptors():
        world.complain(f"{count} descriptors of processes are left open")
