"""The communicating instructions of a program: the devices that take part in each, and the sender of each value.

A program is simulated in two modes. In synchronous mode a permute waits for all devices that its pairs join, in one
sequence of rounds with the collectives of the same devices, and a send's slot is free when its value was received. The
reference behaves like this. In buffered mode a permute waits for its own source only, and a slot is free when the recv
was executed. That is the least that compiled programs wait for. A program that ends in synchronous mode ends in every
executor; one that does not end in buffered mode ends in none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property

from distxla.collectives.channels import (
    ProgramTransfers,
    channels_called,
    instruction_ends,
    is_end,
    joined_keys,
    pair_up,
    read_end,
    read_ends,
)
from distxla.collectives.signature import differences, signature, summary
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.location import Location
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.support.executable import CollectiveOp

MOST_ROUNDS = 8  # of a group that may be in flight on a device; one more ends the oldest first
MOST_PERMUTES = 4
MOST_SENDS = 8  # in flight between two devices, until one more waits


@dataclass(frozen=True)
class Rendezvous:
    """A group of devices that execute rounds together. pairs: of a permute, (source, target).

    limit: rounds that may be in flight on a device.
    """

    members: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    limit: int = MOST_ROUNDS

    @cached_property
    def source(self) -> dict[int, int]:
        """The source of each device that receives."""
        return {target: source for source, target in self.pairs}

    @cached_property
    def target(self) -> dict[int, int]:
        return dict(self.pairs)

    def awaited(self, device: int) -> tuple[int, ...]:
        """The members that must have entered a round before this member can leave it."""
        if not self.pairs:
            return self.members
        return (self.source[device],) if device in self.source else ()

    def released_by(self, device: int) -> tuple[int, ...]:
        """The members that must have entered a round before this member may enter the one `limit` rounds later."""
        return (*self.awaited(device), *((self.target[device],) if device in self.target else ()))


@dataclass(frozen=True, eq=False)
class Edge:
    """A point-to-point edge: transfers from one device to another on a stream of a channel. One object for each edge.
    ids: how messages name the channels."""

    channel: int
    stream: int
    source: int
    target: int
    ids: str


_Bounds = tuple[int, int] | None
Edges = Mapping[int, tuple[Edge, _Bounds]]
_Mapping = dict[int, tuple[Edge, _Bounds]]


@dataclass(eq=False)
class CommunicationSite:
    """A communicating instruction of a program.

    program: its number among the run's.  instruction: as the program names it.  acting: the same, or of an async-start
    the collective that it begins, with the shapes of its operands.
    """

    program: int
    module: Module
    instruction: Instruction
    acting: Instruction
    operands: tuple[Shape, ...]
    rendezvous_by_device: tuple[Mapping[int, Rendezvous], Mapping[int, Rendezvous]] = field(
        default=({}, {})
    )  # synchronous, buffered
    pair_up: Callable[[CommunicationSite], Edges] | None = None  # of sends and recvs

    @cached_property
    def edges(self) -> Edges:
        """By device: where it sends to or receives from, and the bounds of executions that transfer."""
        return {} if self.pair_up is None else self.pair_up(self)

    @property
    def location(self) -> Location | None:
        return self.module.locate(self.instruction)

    @cached_property
    def signature(self) -> int:
        return signature(self.module, self.acting, self.operands)

    @cached_property
    def summary(self) -> tuple[tuple[str, str], ...]:
        return summary(self.module, self.acting, self.operands)

    def differing(self, other: CommunicationSite) -> list[str]:
        """The names of the facets in `difference`; of operands "operands' type" or "operands' shape"."""
        mine, theirs = dict(self.summary), dict(other.summary)
        found = [name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)]
        if "opcode" in found:  # the others differ because of it
            return ["opcode"]
        leaves = [[leaf for shape in site.operands for leaf in shape.leaves()] for site in (self, other)]
        are_shaped_alike = [leaf.dims for leaf in leaves[0]] == [leaf.dims for leaf in leaves[1]]
        what = f"operands' {'type' if are_shaped_alike else 'shape'}"
        return [what if name == "operands" else name for name in found]

    def difference(self, other: CommunicationSite) -> str:
        return differences(self.summary, other.summary)

    @cached_property
    def behaviour(self) -> Hashable:
        """Equal for instructions that do the same on every device."""
        if self.edges:
            edges = sorted((device, id(edge), bounds or ()) for device, (edge, bounds) in self.edges.items())
            return self.instruction.shape.without_layout(), tuple(edges)
        return self.signature, tuple(sorted((d, m.members, m.pairs) for d, m in self.rendezvous_by_device[1].items()))

    def leads(self, device: int, edge: Edge) -> bool:
        """Whether the device sends or receives on that edge in it."""
        return device in self.edges and self.edges[device][0] == edge

    def peers(self, device: int) -> tuple[int, ...]:
        """The devices that take part in it with this one."""
        if device in self.edges:
            edge = self.edges[device][0]
            return edge.source, edge.target
        rendezvous = self.rendezvous_by_device[0].get(device)
        return () if rendezvous is None else rendezvous.members

    def __str__(self) -> str:
        where = self.location
        return f"{self.instruction.name} ({where})" if where else self.instruction.name


class Communication:
    """The sites of all programs of a run, with the devices that take part in each."""

    def __init__(self, programs: Sequence[tuple[Iterable[int], Module]], counts: Counts) -> None:
        """programs: each with the flattened ids of its devices; verified together."""
        self.programs = [(tuple(sorted(devices)), module) for devices, module in programs]
        self.counts = counts
        self._sites: dict[tuple[int, int], CommunicationSite] = {}
        self._tables: dict[Hashable, tuple[Mapping[int, Rendezvous], Mapping[int, Rendezvous]]] = {}

    def site(
        self, program: int, instruction: Instruction, acting: Instruction, operands: tuple[Shape, ...]
    ) -> CommunicationSite:
        """The one site of an instruction."""
        key = (program, id(instruction))
        if key not in self._sites:
            op = acting.op
            rendezvous_by_device = self._rendezvous_by_device(op) if isinstance(op, CollectiveOp) else ({}, {})
            self._sites[key] = CommunicationSite(
                program,
                self.programs[program][1],
                instruction,
                acting,
                operands,
                rendezvous_by_device,
                self._edges_of if is_end(acting) else None,
            )
        return self._sites[key]

    @property
    def counts_rounds_equally(self) -> bool:
        """Whether both modes have the same rounds, for the sites so far: no permute joins devices."""
        return not any(rendezvous.pairs for _, buffered in self._tables.values() for rendezvous in buffered.values())

    def _rendezvous_by_device(self, op: CollectiveOp) -> tuple[Mapping[int, Rendezvous], Mapping[int, Rendezvous]]:
        by_pairs = isinstance(op, CollectivePermute)
        who = op.source_target_pairs if isinstance(op, CollectivePermute) else getattr(op, "replica_groups", None)
        key = (by_pairs, op.group_mode, who, op.covers_all, op.is_sliced)
        if key not in self._tables:
            groups = op.device_groups(self.counts)
            silent = op.silent_devices(self.counts)
            synchronous: dict[int, Rendezvous] = {}
            buffered: dict[int, Rendezvous] = {}
            pairs: tuple[tuple[int, int], ...] = ()
            if isinstance(op, CollectivePermute) and not op.slice_sizes:
                pairs = op.device_pairs(self.counts)
            for group in groups:
                if len(group) < 2 or group[0] in silent:
                    continue
                mine = set(group)
                limit = MOST_PERMUTES if by_pairs else MOST_ROUNDS
                near = tuple((s, t) for s, t in pairs if s in mine) if pairs else ()
                synchronous.update(dict.fromkeys(group, self._shared(Rendezvous(group))))
                buffered.update(dict.fromkeys(group, self._shared(Rendezvous(group, near, limit))))
            self._tables[key] = (synchronous, buffered)
        return self._tables[key]

    def _shared(self, rendezvous: Rendezvous) -> Rendezvous:
        """Equal rendezvous are one object, so that looking them up costs no comparison."""
        found = self._tables.setdefault(rendezvous, ({0: rendezvous}, {}))
        return found[0][0]

    def _edges_of(self, site: CommunicationSite) -> Edges:
        return self._paired.get((site.program, id(site.acting)), {})

    def channel_of(self, instruction: Instruction) -> tuple[int, int]:
        """The channel and the stream of a send or recv; of joined channels the one that they were made."""
        key = read_end(instruction).key
        return self._joined.get(key, key)

    @cached_property
    def _joined(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        sides = [ProgramTransfers(devices, read_ends(module)) for devices, module in self.programs]
        return joined_keys(sides, self.counts)

    @cached_property
    def _paired(self) -> dict[tuple[int, int], _Mapping]:
        """(program, instruction) -> device -> its edge and the bounds of executions that transfer."""
        instructions: dict[int, int] = {}  # by the identity of an end: comparing ends compares all their pairs
        sides = []
        for devices, module in self.programs:
            ends = list(instruction_ends(module))
            instructions.update((id(end), id(instruction)) for instruction, end in ends)
            sides.append(ProgramTransfers(devices, tuple(end for _, end in ends)))
        # instructions that name the same pairs share a mapping, and transfers that they make share routes
        shared: dict[Hashable, _Mapping] = defaultdict(dict)
        result: dict[tuple[int, int], _Mapping] = {}
        touched: dict[int, list[tuple[_Mapping, _Bounds]]] = {}
        for transfer in pair_up(sides, self.counts) if instructions else ():
            ids = channels_called(transfer.channels)
            edge = Edge(transfer.channel, transfer.stream, transfer.source, transfer.target, ids)
            for device, routes in ((transfer.source, transfer.sends), (transfer.target, transfer.recvs)):
                if id(routes) not in touched:
                    kinds: dict[int, tuple[_Mapping, _Bounds]] = {}
                    for route in routes:
                        end = route.end
                        mapping = shared[route.program, end.key, end.sends, end.pairs, end.bounds]
                        result[route.program, instructions[id(end)]] = mapping
                        kinds[id(mapping)] = (mapping, route.bounds)
                    touched[id(routes)] = list(kinds.values())
                for mapping, bounds in touched[id(routes)]:
                    mapping[device] = (edge, bounds)
        return result


__all__ = ["MOST_SENDS", "Communication", "CommunicationSite", "Edge", "Rendezvous"]
