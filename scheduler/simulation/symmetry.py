"""Devices that all execute the same trace, handled as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from distxla.collectives.channels import PAIRS, VALIDATION, ProgramTransfers, pair_up, payload_of, read_end
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.scheduler.simulation.communication import MOST_SENDS, Communication, CommunicationSite
from distxla.scheduler.simulation.traces import Act, Ticket, Trace, TraceEvent


@dataclass
class _Channel:
    """A stream of a channel in a trace: places of its sends, recvs and recv-dones, by the transfer's number.

    lag: by how many places a target has to be behind its source (0) and a source behind its target (1), at least, so
    that each event that a device waits for comes earlier.
    """

    pairs: str
    payload: Shape
    first: dict[bool, CommunicationSite] = field(default_factory=dict)
    starts: dict[bool, list[int]] = field(default_factory=lambda: {True: [], False: []})
    received: dict[int, int] = field(default_factory=dict)
    lag: list[int] = field(default_factory=lambda: [-(1 << 40)] * 2)

    def need(self, side: int, earlier: int, later: int) -> None:
        """One side's event at place `later` waits for the other side's event at place `earlier`."""
        self.lag[side] = max(self.lag[side], earlier - later + 1)


def advances_in_step(communication: Communication, trace: Trace) -> bool:
    """Whether devices that all execute this trace can do so by a clock, each as many places behind it as it has to be.

    Then no schedule of them deadlocks: every event that a device waits for is earlier by that clock. In rounds all
    members come at the same place, so they may be no places apart; of transfers that holds if the k-th send and the
    k-th recv of a channel name the same pairs, and then targets may have to be behind their sources, as in a pipeline.
    False says nothing.
    """
    channels = _channels(communication, trace)
    if channels is None:
        return False
    if all(lag <= 0 for channel in channels for lag in channel.lag):
        return True
    edges: list[tuple[int, int, int]] = []  # (device, device, by how many places the latter is behind at least)
    devices, _ = communication.programs[0]
    for channel in channels:
        ends = tuple(read_end(site.instruction) for site in channel.first.values())
        for transfer in pair_up([ProgramTransfers(devices, ends)], communication.counts):
            edges.append((transfer.source, transfer.target, channel.lag[0]))
            edges.append((transfer.target, transfer.source, channel.lag[1]))
    joined = {id(m): m for e in trace if isinstance(e, TraceEvent) for m in e.site.rendezvous_by_device[0].values()}
    for rendezvous in joined.values():
        for member in rendezvous.members[1:]:
            edges += [(rendezvous.members[0], member, 0), (member, rendezvous.members[0], 0)]
    return _is_feasible(devices, edges)


def _channels(communication: Communication, trace: Trace) -> Sequence[_Channel] | None:
    """The channels of a trace in which all devices do the same; None where that is unknown."""
    channels: dict[Hashable, _Channel] = {}
    numbers: dict[int, tuple[_Channel, int]] = {}  # of the transfer that a ticket names
    for place, event in enumerate(trace):
        if not isinstance(event, TraceEvent):
            return None
        if event.act in (Act.ROUND, Act.START, Act.DONE):
            continue
        if not isinstance(event.ticket, Ticket):
            return None
        if event.act in (Act.SEND, Act.RECV):
            instruction = event.site.instruction
            pairs = instruction.frontend_attribute(PAIRS)
            if pairs is None or instruction.frontend_attribute(VALIDATION) is not None:
                return None
            payload = payload_of(instruction).without_layout()
            channel = channels.setdefault(communication.channel_of(instruction), _Channel(pairs, payload))
            if (channel.pairs, channel.payload) != (pairs, payload):
                return None
            sends = event.act is Act.SEND
            channel.first.setdefault(sends, event.site)
            numbers[id(event.ticket)] = (channel, len(channel.starts[sends]))
            channel.starts[sends].append(place)
        elif id(event.ticket) not in numbers:
            return None
        elif event.act is Act.RECV_DONE:
            channel, number = numbers[id(event.ticket)]
            channel.received[number] = place
    for place, event in enumerate(trace):
        if isinstance(event, TraceEvent) and event.act in (Act.SEND_DONE, Act.RECV_DONE):
            channel, number = numbers[id(event.ticket)]
            receives = event.act is Act.RECV_DONE
            others = channel.starts[receives]
            if number >= len(others):
                return None
            channel.need(0 if receives else 1, others[number], place)
    for channel in channels.values():
        for number, place in enumerate(channel.starts[True][MOST_SENDS:]):
            if number not in channel.received:
                return None
            channel.need(1, channel.received[number], place)
    return list(channels.values())


def _is_feasible(devices: Iterable[int], edges: Sequence[tuple[int, int, int]]) -> bool:
    """Whether each device can be given a number so that over every edge it grows by at least what the edge says."""
    behind = dict.fromkeys(devices, 0)
    following: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one, other, lag in edges:
        following[one].append((other, lag))
    changed, rounds = list(behind), 0
    while changed:
        rounds += 1
        if rounds > len(behind):  # a longest path has fewer edges, so it goes round
            return False
        moved: dict[int, None] = {}
        for one in changed:
            for other, lag in following[one]:
                if behind[one] + lag > behind[other]:
                    behind[other] = behind[one] + lag
                    moved[other] = None
        changed = list(moved)
    return True
