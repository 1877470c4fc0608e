"""All hosts of a run: their replicas are started through Ray, watched, and taken down again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from distxla import clock
from distxla.collectives.transports.network_fault import NetworkFault
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.errors import ClusterError, DamagedMessageError, DistxlaError, ReplicaLostError
from distxla.machine.heap import Pages
from distxla.machine.memory_limits import Limit, free_memory, keep_arenas_few
from distxla.machine.processes import is_stopped
from distxla.program.artifact import CompiledProgram
from distxla.runtime.failures import stragglers
from distxla.runtime.hosts import commands
from distxla.runtime.hosts.budget import Budget, HostHeadroom
from distxla.runtime.hosts.gpus import NO_GPUS, GpuSharing
from distxla.runtime.hosts.local import LocalHost
from distxla.runtime.hosts.nodes import Facts, Node, alive_nodes, distribute, require_alike
from distxla.runtime.hosts.remote import RemoteHost
from distxla.runtime.hosts.remote_memory import RemoteMemory, RemotePages
from distxla.runtime.hosts.shared_headroom import COMMON_HEAP, DEVICES_HEAP, Promises, SharedHeadroom, held_part
from distxla.runtime.ray import access
from distxla.runtime.ray.session import RayHere, Session, SharedValue
from distxla.runtime.ray.versions import require_run
from distxla.runtime.replica.replica import Attachment, Identity, Replica
from distxla.runtime.replica.serve import support_program
from distxla.runtime.values.host import DeviceMemory, Host, Lost, ended_text
from distxla.runtime.values.shared_image import ImageSource, SharedImage, without_image
from distxla.time_limit import current_limit
from distxla.wire.handshake import connect, new_secret
from distxla.wire.network import network_of

if TYPE_CHECKING:
    from distxla.runtime.hosts.agent import Made

ATTACH_LIMIT_S = 120.0
ENDED_S = 0.3  # for the end of a replica, of which Ray has told, to be seen here
DAMAGE_S = 0.3  # for an agent to say that it ends because of a damaged message


class Hosts:
    """Everything that `start` begins, `close` takes down; both may run in different threads, one after the other.

    devices_per_host: devices of each Ray node, the driver's first; None: those of nodes.distribute.
    network_faults: gives the injected faults of messages between so many hosts (transports/network_fault.py); raises
    ArgumentError.  gpus: how the devices share them.  network: how hosts reach each other, as network_of takes it.
    values_apart: other processes, which have JAX's arrays, allocate them behind this one's part of each device's
    memory, and have the ends of the devices' streams.  slices: the devices of each such process; where all are on this
    host, they have calls of their own.
    closing: set by a thread that wants `start` to give up.  replicas: actors by flattened id.  identities: of the
    replicas.
    budget: how much memory the devices may have.  devices: of each host, by index.
    agent_actors, agents: the actors, and the connections to the agents of a run with several hosts, by index, the
    driver's own among them; else none.
    news: notified of every frame from agents.
    promises: of all heaps in this host's memories, where values are apart.
    layout: the nodes to use, the driver's first, and how many devices each takes, of all living ones; by default that
    of nodes.distribute. It may block until `closing` is set.
    attachments: where the memories of each host are.
    """

    def __init__(
        self,
        device_count: int,
        address: str | None,
        devices_per_host: Sequence[int] | None,
        closing: threading.Event,
        network_faults: Callable[[int], Sequence[NetworkFault]] = lambda hosts: (),
        device_memory: int | None = None,
        gpus: GpuSharing = NO_GPUS,
        values_apart: bool = False,
        slices: Sequence[range] = (),
        network: str | None = None,
    ) -> None:
        self._address, self._network = address, network_of(network)
        self.values_apart, self._slices = values_apart, slices
        self.promises: Promises | None = None
        self.layout: Callable[[list[Node]], list[tuple[Node, int]]] = self._by_room
        self.attachments: list[Attachment] = []
        self._devices_per_host = devices_per_host
        self._closing = closing
        self._network_faults = network_faults
        self._gpus = gpus
        self.session: Session = RayHere()
        self._holds_ray = False
        self._joined, self._distributed = threading.Event(), threading.Event()
        self._is_starting = True
        self._most_of_gpu = 0.0  # that a replica asks Ray for
        self._local: LocalHost | None = None
        self._names: list[str] = []  # of several hosts
        self.agent_actors: list[Any] = []
        self._memories: list[DeviceMemory] = []
        self.device_count = device_count
        self.budget = Budget(device_memory, values_apart=values_apart)
        self.devices: list[range] = []
        self.replicas: list[Any] = []
        self.identities: list[Identity] = []
        self.agents: list[RemoteHost] = []
        self.news = threading.Condition()

    # --- hosts and memories

    @property
    def local(self) -> LocalHost:
        """The driver's host; ClusterError before it is started and after it is closed."""
        if self._local is None:
            raise ClusterError("the cluster is closed")
        return self._local

    @property
    def remotes(self) -> list[RemoteHost]:
        """The hosts but for the driver's."""
        return self.agents[1:]

    @property
    def all(self) -> list[Host]:
        """Every host, by index."""
        return [self.local, *self.remotes]

    @property
    def pages(self) -> list[Pages]:
        """All device memories, to give parts of them back."""
        return [*self.local.memories.values(), *(RemotePages(remote, common=False) for remote in self.remotes)]

    @property
    def common_pages(self) -> list[Pages]:
        """The memory that the devices of a host share, of each host."""
        return [self.local.common, *(RemotePages(remote, common=True) for remote in self.remotes)]

    def memory(self, device: int) -> DeviceMemory:
        """A device's memory."""
        return self._memories[device]

    # --- start

    def prepare(self) -> None:
        """Checks before anything starts. ClusterError where the extra `distxla[run]` is not installed, OutOfMemoryError
        if all devices are to live on this host and their memories don't fit."""
        require_run("a cluster")
        if access.is_embedded(self._address):
            self.budget.settle_here(self.device_count, self._free_here)
            keep_arenas_few()

    def start(self) -> None:
        """Join or start Ray, start the replicas, and give them their memories. Blocks until all of them serve.

        Raises ClusterError where nodes are missing or do not fit, OutOfMemoryError where their memory doesn't.
        """
        self.session, self._holds_ray = access.acquire(self.device_count, self._address, self._closing)
        self._joined.set()
        placed = self.layout(alive_nodes(*self.session.nodes()))
        nodes, counts = [node for node, _ in placed], [count for _, count in placed]
        ends = [sum(counts[: i + 1]) for i in range(len(counts))]
        self.devices = [range(end - count, end) for count, end in zip(counts, ends)]
        self._distributed.set()
        faults = tuple(self._network_faults(len(nodes)))
        self._start_replicas(nodes)
        if len(nodes) == 1:
            self._start_here()
        else:
            self._start_everywhere(nodes, faults)
        self._is_starting = False
        access.started()
        self._memories = [
            *self.local.memories.values(),
            *(RemoteMemory(remote, d, self.budget.segment_bytes) for remote in self.remotes for d in remote.devices),
        ]

    def _by_room(self, nodes: list[Node]) -> list[tuple[Node, int]]:
        counts = distribute(self.device_count, self._gpus.rooms(nodes), self._devices_per_host)
        return [(node, count) for i, (node, count) in enumerate(zip(nodes, counts)) if count or i == 0]

    def wait_joined(self, starting: threading.Thread | None) -> bool:
        """Block until Ray is initialised in this process; False if `start`, in that thread, has ended without it."""
        while not self._joined.wait(0.05):  # in slices: Ctrl-C
            if starting is None or not starting.is_alive():
                return self._joined.is_set()
        return True

    def has_gpus_on_several(self, starting: threading.Thread | None) -> bool:
        """Whether devices of several hosts use GPUs. Blocks until that is known; False if `start`, in the thread
        `starting`, has ended without it."""
        if not self._gpus.used or access.is_embedded(self._address):
            return False
        while not self._distributed.wait(0.05):  # in slices: Ctrl-C
            if starting is None or not starting.is_alive():
                break
        return sum(map(bool, self.devices)) > 1

    def _start_replicas(self, nodes: Sequence[Node]) -> None:
        for node, devices in zip(nodes, self.devices):
            ranks, share = self._gpus.ranks(node, len(devices)), self._gpus.share(node, len(devices))
            self._most_of_gpu = max(self._most_of_gpu, share)
            self.replicas += self.session.create(Replica, node.id, list(zip(devices, ranks)), share)

    def _start_here(self) -> None:
        """All devices live on the driver's host: no agent, nothing listens."""
        if self.budget.limit is None:
            self.budget.settle_here(self.device_count, self._free_here)
        local = self._make_local(socket.gethostname())
        support = support_program()
        self.attachments = [attachment := local.attachment()]
        with SharedValue(self.session, without_image(support)) as light, self.shared_image(support) as images:
            pending = [replica.attach.remote(attachment, light.reference, images[0]) for replica in self.replicas]
            self.identities = self.ask(pending, ATTACH_LIMIT_S)
        local.begin(support, self.identities)

    def _start_everywhere(self, nodes: Sequence[Node], faults: tuple[NetworkFault, ...]) -> None:
        """An agent on every node; those of other nodes make the memories there."""
        from distxla.runtime.hosts.agent import Agent, RunShape  # and the transport between hosts

        self.agent_actors = [agent for node in nodes for agent in self.session.create(Agent, node.id, [()])]
        names = self._names = [f"host {i} ({node.name})" for i, node in enumerate(nodes)]
        asked = [agent.facts.remote(self._network.interface) for agent in self.agent_actors]
        facts: list[Facts] = self.ask(asked, ATTACH_LIMIT_S, names)
        mine = Facts.here(facts[0].address)
        for name, theirs in zip(names, facts):
            require_alike(mine, theirs, name)
        free: list[Callable[[], Limit]] = [self._free_here, *(partial(_as_it_was, fact.free) for fact in facts[1:])]
        rooms = [mine.room, *(fact.room for fact in facts[1:])]
        self.budget.settle(list(zip(names, self.devices, rooms, free)))
        local = self._make_local(names[0])
        secret, support = new_secret(), support_program()
        with SharedValue(self.session, support) as whole, SharedValue(self.session, without_image(support)) as light:
            made: list[Made] = self.ask(
                [
                    agent.make.remote(
                        RunShape(
                            index,
                            names[index],
                            facts[index].address,
                            tuple(self.devices),
                            self.budget.segment_bytes,
                            secret,
                            local.attachment() if index == 0 else None,
                            faults,
                            self._network,
                        ),
                        whole.reference,
                    )
                    for index, agent in enumerate(self.agent_actors)
                ],
                ATTACH_LIMIT_S,
                names,
            )
            pending = []
            self.attachments = [one.attachment or local.attachment() for one in made]
            with self.shared_image(support, whole) as images:
                for devices, attachment, image in zip(self.devices, self.attachments, images):
                    replicas = [self.replicas[device] for device in devices]
                    pending += [replica.attach.remote(attachment, light.reference, image) for replica in replicas]
                self.identities = self.ask(pending, ATTACH_LIMIT_S)
        by_host = [[self.identities[device] for device in devices] for devices in self.devices]
        addresses = [one.proxy_address for one in made]
        local.begin(support, by_host[0], self._on_local_loss)
        begun = [agent.begin.remote(identities, addresses) for agent, identities in zip(self.agent_actors, by_host)]
        for index, (one, name) in enumerate(zip(made, names)):
            connection = connect(one.address, secret, frames=commands.DRIVER_FRAMES, node=0)
            connection.require_answers(self._network.lost_after)
            pids = {identity.device: identity.pid for identity in by_host[index]}
            devices = self.devices[index] if index else range(0)
            self.agents.append(RemoteHost(index, name, devices, connection, pids, self.news, local.calls))
        self.ask(begun, ATTACH_LIMIT_S, names)
        for remote in self.remotes:
            remote.clock_ahead()

    @contextmanager
    def shared_image(self, program: CompiledProgram, whole: SharedValue | None = None) -> Iterator[list[ImageSource]]:
        """Every host holds the program's image in a file for its replicas during the with-body; locations by host.

        whole: the program in Ray's store; needed where there are agents. Blocks until all have it. Raises as `ask`.
        """
        agents = self.agent_actors[1:]
        with SharedImage(program) as shared:
            try:
                held = [agent.hold.remote(whole.reference) for agent in agents] if whole is not None else []
                yield [shared.source, *self.ask(held, ATTACH_LIMIT_S, self._names[1:])]
            finally:
                for agent in agents:
                    agent.let_go.remote()

    def _free_here(self) -> Limit:
        """Bytes that this host's devices may hold now: the free memory, plus the bytes they hold."""
        free = free_memory()
        return Limit(free.bytes + (self._local.resident_bytes() if self._local is not None else 0), free.source)

    def headroom(self, *, common: bool = False) -> HostHeadroom:
        """The headroom for the heap of the devices' memories; common: of the memory that they share."""
        local = self.local
        if self.promises is None:
            return HostHeadroom(local.devices, local.resident_bytes, self._free_here)
        segments = [local.common] if common else list(local.memories.values())
        part = range(local.common.size if common else self.budget.device_bytes)
        number = COMMON_HEAP if common else DEVICES_HEAP
        own = partial(held_part, segments, part)
        return SharedHeadroom(self.promises, number, local.devices, own, self._free_here)

    def _make_local(self, name: str) -> LocalHost:
        slices = self._slices if len(self.devices) == 1 else ()
        place = self.devices[0], self.device_count, self.budget.segment_bytes
        self._local = LocalHost(0, name, *place, slices)
        if self.values_apart:
            self.promises = Promises.carved(self._local.control)
        return self._local

    def _on_local_loss(self, device: int, pid: int) -> None:
        with self.news:
            self.news.notify_all()

    def ask(self, pending: list[Any], seconds: float, names: Sequence[str] = ()) -> list[Any]:
        """Answers of actors; their errors as ours. Ends early when the cluster is closed, or this thread's time limit
        has run out.

        names: of the hosts that are asked, for errors; of replicas none is needed.
        """
        begin, limit = clock.now(), current_limit()
        end, notice = begin + seconds, begin + stragglers.NOTICE_S
        while True:
            try:
                done, values = self.session.answers(pending, names)
            except ReplicaLostError as error:
                self._require_undamaged()
                if not names and (lost := self._lost_here()):
                    raise ReplicaLostError(f"{ended_text(lost)}; the cluster cannot be used any more") from error
                raise
            if values is not None:
                return values
            if self._closing.is_set():
                raise ClusterError("the cluster is closed")
            if self._is_starting:
                access.require_progress(done)
            if limit is not None and limit.is_over:
                raise limit.error()
            now = clock.now()
            stopped = stragglers.stopped_notices(self._stopped_here()) if now >= min(notice, end) else []
            if now > end:
                what = "hosts" if names else "replicas"
                missing = f"{len(pending) - done} of {len(pending)} {what}"
                reason = f": {'; '.join(stopped)}" if stopped else ""
                if self._is_starting and self._most_of_gpu and not names:
                    reason += f"; each asks Ray for {self._most_of_gpu:g} of a GPU: `ray status` shows which are free"
                raise ClusterError(f"{missing} did not answer within {seconds:g} s{reason}")
            if now >= notice:
                notice = begin + 2 * (notice - begin)
                stragglers.tell(stopped)

    def _stopped_here(self) -> dict[int, DeviceState]:
        """The devices of this host whose processes are stopped."""
        mine = [one for one in self.identities if one.device in self.devices[0] and is_stopped(one.pid)]
        return {one.device: DeviceState(one.device, Doing.STOPPED) for one in mine}

    def _lost_here(self) -> dict[int, Lost]:
        """The replicas of this host that have ended: of these more is known than Ray says. Blocks for ENDED_S."""
        if self._local is None:
            return {}
        local = self._local
        with self.news:
            self.news.wait_for(lambda: bool(local.lost), ENDED_S)
        return {device: replace(one, host="") for device, one in local.lost.items()}

    def _require_undamaged(self) -> None:
        """DamagedMessageError if an agent has ended because of one, which it reports first. Blocks for DAMAGE_S."""
        with self.news:
            if self.agents:
                self.news.wait_for(lambda: any(agent.damage for agent in self.agents), DAMAGE_S)
        for agent in self.agents:
            if agent.damage:
                raise DamagedMessageError(agent.damage)

    # --- the end

    def _kill(self, actors: Sequence[Any]) -> None:
        if actors:
            self.session.kill(actors)

    def close(self) -> None:
        """Take everything down; blocks until it is gone. It may be interrupted and called again."""
        if self._local is not None and not self._local.lost:
            with contextlib.suppress(DistxlaError):
                self._local.stop()
        for agent in self.agents:
            agent.bid_farewell()
        self._kill(self.replicas)
        self.replicas = []
        for agent in self.agents:
            agent.wait_ended()
        self._kill(self.agent_actors)
        self.agent_actors = []
        for agent in self.agents:
            agent.close()
        self.agents = []
        if self._local is not None and access.is_embedded(self._address):
            self._local.kill_processes()  # they end while Ray does
        elif self._local is not None:
            self._local.close_processes()
        if self._holds_ray:
            self._holds_ray = False
            access.release(self.session)
        if self._local is not None:
            self._local.close()
            self._local = None


def _as_it_was(free: Limit) -> Limit:
    """Returns `free`: another host is asked once, before devices take memory there."""
    return free
