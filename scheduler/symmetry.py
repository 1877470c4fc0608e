"""Devices that all do the same, handled as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from distxla.collectives.channels import PAIRS, PIPELINE, VALIDATION, payload_of
from distxla.ir.shape import Shape
from distxla.ops.channel import Recv, Send
from distxla.scheduler.communication import MOST_SENDS, Site
from distxla.scheduler.traces import Act, Event, Ticket, Trace


def advances_in_step(trace: Trace) -> bool:
    """Whether devices that all execute this trace can do so event by event, all one event and then all the next.

    Then no schedule of them deadlocks. Each event must need only what stands before it in the trace: of rounds that is
    so, since all members come to each at the same place; of a transfer if the k-th send and the k-th recv of a channel
    name the same pairs. False says nothing: chains may go on although a device waits where its neighbour does not.
    """
    starts: dict[tuple[Hashable, bool], list[int]] = defaultdict(list)  # (channel, sends) -> places of starts
    pairs: dict[Hashable, tuple[str, Shape]] = {}
    numbers: dict[int, tuple[Hashable, int]] = {}  # of the ticket that a start gives
    received: dict[tuple[Hashable, int], int] = {}
    waits: list[tuple[int, Hashable, int, bool]] = []  # place, channel, number of the transfer, whether for its send
    for place, event in enumerate(trace):
        if not isinstance(event, Event):
            return False
        if event.act in (Act.MEET, Act.BEGIN, Act.END):
            continue
        ticket = event.ticket
        if not isinstance(ticket, Ticket):
            return False
        if event.act in (Act.SEND, Act.RECV):
            key = _channel(event.site)
            stated = event.site.instruction.frontend_attribute(PAIRS)
            if event.site.instruction.frontend_attribute(VALIDATION) is not None or stated is None:
                return False
            payload = payload_of(event.site.instruction).without_layout()
            if pairs.setdefault(key, (stated, payload)) != (stated, payload):
                return False
            mine = starts[key, event.act is Act.SEND]
            numbers[id(ticket)] = (key, len(mine))
            mine.append(place)
        elif id(ticket) in numbers:
            key, number = numbers[id(ticket)]
            receives = event.act is Act.RECV_DONE
            waits.append((place, key, number, receives))
            if receives:
                received[key, number] = place
        else:
            return False
    for place, key, number, for_send in waits:
        others = starts[key, for_send]
        if number >= len(others) or others[number] > place:
            return False
    for (key, sends), places in starts.items():
        for number, place in enumerate(places[MOST_SENDS:] if sends else ()):
            if received.get((key, number), place) >= place:
                return False
    return True


def _channel(site: Site) -> Hashable:
    op = site.instruction.op
    assert isinstance(op, Send | Recv)
    return op.channel_id or 0, site.instruction.frontend_attribute(PIPELINE) == "1"


__all__ = ["advances_in_step"]
