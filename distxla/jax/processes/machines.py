"""Which Ray nodes the JAX processes of an owner are on, where these are several machines'."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from distxla.errors import ArgumentError, ClusterError
from distxla.jax.processes.facts import AttachedMemory
from distxla.jax.processes.keeper import Keeper
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.jax.processes.owner_file import machine_of_process
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.world import Introduction, World
from distxla.runtime.hosts.nodes import Node
from distxla.wire.connection import Connection
from distxla.wire.network import ANSWER_S
from distxla.wording import processes_named

KEEP_S: Final = 60.0  # for the actors of other nodes to answer
_SLICE_S: Final = 0.05

Places = list[tuple[Node, int]]  # nodes, the owner's first, and how many processes each has, in the order of these


class Machines:
    """The nodes of the Ray that the owner joins, and which processes each of them has. Without an address in the
    settings there is this machine alone.

    The cluster starts its devices once all processes have their places.
    """

    def __init__(self, cluster: OwnedCluster, world: World, settings: OwnerSettings) -> None:
        self._cluster, self._world, self._settings = cluster, world, settings
        self._nodes: list[Node] = []  # the owner's first
        self._places: Places = []
        self._are_known, self._is_placed, self._is_closed = threading.Event(), threading.Event(), threading.Event()
        self._keepers: list[Any] = []
        self._machines = {machine_of_process(): [0]}  # indices of the nodes of each machine, as far as that is asked
        self._owner: dict[str, Any] = {}
        if settings.address is not None:
            cluster.hosts.layout = self._layout

    def listens_on(self) -> str:
        """The address of the owner's interface. With an address in the settings blocks until Ray is joined; raises what
        keeps it from that."""
        return self._settings.host if self._settings.address is None else self.nodes()[0].address

    def begin(self, address: tuple[str, int], secret: bytes, launched: bool) -> dict[str, str]:
        """The owner listens. launched: a launcher starts the processes. Gives the paths of files on other machines that
        tell where it listens, by machine. Blocks. ClusterError, ArgumentError."""
        if self._settings.address is None:
            return {}
        if not launched:
            return self._keep_on_all(address, secret)
        self._owner = {"address": address, "secret": secret.hex()}
        self._place_evenly(self._settings.processes_per_host)
        return {}

    def came(self, connection: Connection) -> None:
        """A process has connected."""
        if self._settings.address is not None:
            connection.require_answers(ANSWER_S)

    def memories(self, given: Sequence[Introduction]) -> list[AttachedMemory]:
        """Where each process finds its devices' memories. Blocks until these serve. given: of all processes.
        ClusterError where they can't."""
        if self._settings.address is not None and not self._is_placed.is_set():
            self._place_where_they_are(given)
        self._release()
        return [self._cluster.attached_memory(self._world.slice_of(process)) for process in range(len(given))]

    def watch(self, pids: Mapping[int, int], ended: Callable[[int, str, int | None], None]) -> None:
        """Have the ends of those processes told that are of other hosts: see hosts/users.py. pids: by process."""
        self._cluster.watch_hosts(ended)
        for process, pid in pids.items():
            if self.host_of(process):
                self._cluster.watch_user(process, pid, self._world.slice_of(process))

    def nodes(self) -> list[Node]:
        """All that are alive, the owner's first. Blocks until Ray is joined; raises what keeps it from that."""
        while not self._are_known.wait(_SLICE_S):
            if self._cluster.has_failed:
                self._cluster.wait_started()
        return self._nodes

    def _layout(self, nodes: list[Node]) -> list[tuple[Node, int]]:
        """See Hosts.layout."""
        self._nodes = nodes
        self._are_known.set()
        while not self._is_placed.wait(_SLICE_S):
            if self._is_closed.is_set():
                raise ClusterError("the cluster is closed")
        return [(node, count * self._world.local) for node, count in self._places]

    def close(self) -> None:
        """No process will be placed any more. Twice is fine."""
        self._is_closed.set()
        self._release()

    # --- places

    def _place_evenly(self, wanted: Sequence[int] | None = None) -> None:
        """Each node that has CPUs gets as many processes as the others, or one more. wanted: how many each node gets.
        ArgumentError where these are not as many as there are processes, or name more nodes than there are."""
        nodes, processes = self.nodes(), self._world.processes
        if wanted is None:
            indices = [k for k, node in enumerate(nodes) if node.cpus >= 1] or [0]
            counts = dict(zip(indices, shares(processes, len(indices))))
        else:
            if sum(wanted) != processes:
                raise ArgumentError(f"processes per host: {list(wanted)} are {sum(wanted)} processes, not {processes}")
            if len(wanted) > len(nodes):
                raise ArgumentError(
                    f"processes per host: {list(wanted)} are {len(wanted)} hosts, the Ray cluster has {len(nodes)}"
                )
            counts = dict(enumerate(wanted))
        self._place([(node, counts.get(k, 0)) for k, node in enumerate(nodes)])

    def _place_where_they_are(self, given: Sequence[Introduction]) -> None:
        """The processes have been started on their machines. ClusterError where one is on none of the nodes, or those
        of a machine don't follow each other."""
        places: Places = []
        seen: set[str] = set()
        for machine, group in groupby(range(len(given)), key=lambda process: given[process].machine):
            processes = list(group)
            if machine in seen:
                raise ClusterError(
                    f"{processes_named(processes)} and others before are on {given[processes[0]].host}, and there are "
                    "processes of another machine between: number those of a machine one after the other (SLURM: "
                    "--distribution=block; Open MPI: --map-by core)"
                )
            seen.add(machine)
            indices = self._machines.get(machine)
            if indices is None:
                raise ClusterError(
                    f"{processes_named(processes)} on {given[processes[0]].host}: that is no node of the Ray cluster "
                    f"at {given[0].address}"
                )
            places += zip((self._nodes[k] for k in indices), shares(len(processes), len(indices)))
        self._place(places)

    def _place(self, places: Places) -> None:
        own = self._nodes[0]
        if not places or places[0][0].id != own.id:
            places = [(own, 0), *places]
        self._places = [(node, count) for k, (node, count) in enumerate(places) if count or k == 0]
        self._is_placed.set()

    def hosts(self) -> list[tuple[Node, range]]:
        """The nodes that are used, the owner's first, and the processes of each."""
        found, begin = [], 0
        for node, count in self._places:
            found.append((node, range(begin, begin + count)))
            begin += count
        return found

    def host_of(self, process: int) -> int:
        """The index of the host that has a process; 0 while that is not known."""
        return next((k for k, (_, there) in enumerate(self.hosts()) if process in there), 0)

    def name_of(self, process: int) -> str:
        """The host of a process, as the cluster names it: `host 1 (name)`; "" where all are on one."""
        if len(self._places) < 2:
            return ""
        index = self.host_of(process)
        return f"host {index} ({self._places[index][0].name})"

    # --- actors on other nodes

    def _keep_on_all(self, address: tuple[str, int], secret: bytes) -> dict[str, str]:
        """Have a file on each other node that tells its processes of the owner, until `_release`: paths by machine.
        Blocks. ClusterError where a node doesn't answer."""
        others = self.nodes()[1:]
        self._make(others)
        answers: list[tuple[str, str]] = self._ask([one.keep.remote(address, secret) for one in self._keepers], others)
        for index, (machine, _) in enumerate(answers, start=1):
            self._machines.setdefault(machine, []).append(index)
        return dict(answers)

    def start_on_each(self, module: str, told: Mapping[str, Any]) -> None:
        """Start a module on each other node that has processes: see Keeper.start. told: but for `host`, the
        node's index, its `address`, and `owner`: address and secret. Blocks. ClusterError where it can't be started."""
        hosts = self.hosts()[1:]
        nodes = [node for node, _ in hosts]
        self._make(nodes)
        pending = [
            one.start.remote(module, {**told, "host": index, "address": node.address, "owner": self._owner})
            for index, (one, node) in enumerate(zip(self._keepers, nodes), start=1)
        ]
        self._ask(pending, nodes)
        self._release()

    def _release(self) -> None:
        """End the actors. Twice is fine."""
        keepers, self._keepers = self._keepers, []
        if keepers:
            self._cluster.hosts.session.kill(keepers)

    def _make(self, nodes: Sequence[Node]) -> None:
        session = self._cluster.hosts.session
        self._keepers = [one for node in nodes for one in session.create(Keeper, node.id, [()])]

    def _ask(self, pending: list[Any], nodes: Sequence[Node]) -> list[Any]:
        if not pending:
            return []
        return self._cluster.hosts.ask(pending, KEEP_S, [f"the node {node.name} ({node.address})" for node in nodes])


def shares(count: int, parts: int) -> list[int]:
    """As equal as can be, the larger ones first."""
    return [count // parts + (k < count % parts) for k in range(parts)]


__all__ = ["Machines", "shares"]
