"""Shared state of a group that meets in rounds. It is in the control block, zeroed before a run.

Words that the host process writes, a counter a member, then ROUNDS areas, one for each round that may be in flight at
a time; round r of the group uses area r % ROUNDS.

    G_LOCAL, G_PROXY    G_BEGUN + position * LINE    G_BEGUN + members * LINE + area * round_bytes(members)

A round's area: words, then one slot a member, in which it posts its signature and buffers.

    E_*                 E_SLOTS + position * SLOT_BYTES
"""

from __future__ import annotations

from distxla.collectives.protocols.control_block import HOST_PROCESS
from distxla.collectives.protocols.layout import Area, Order
from distxla.collectives.protocols.rounds import COUNTED, COUNTS, LINE, POST, SLOT_BYTES

ROUNDS = 8  # a power of two

COUNTER = Area("counter of a member", "one a member of a group", LINE)
G_MEMBER_BEGUN = COUNTER.u64(0, "begun", "member; proxy for one elsewhere", Order.PLAIN, "rounds that it has begun")
COUNTER.part(COUNTED, "counts", COUNTS, "when the call began")

GROUP = Area("group", "one a group of a collective")
G_LOCAL = GROUP.u32(0, "local", HOST_PROCESS, Order.PLAIN, "members of the group on this host, 0: all")
G_PROXY = GROUP.u32(4, "proxy", HOST_PROCESS, Order.PLAIN, "not 0 where a proxy finishes the rounds")
G_BEGUN = GROUP.part(64, "begun", COUNTER, "one a member", count=0)

ROUND = Area("round of a group", "ROUNDS a group, behind its counters")
E_ARRIVED = ROUND.u32(0, "arrived", "members", Order.UPDATED, "members that have reached the round", reset=True)
E_FIRST = ROUND.u64(8, "first", "members", Order.MONOTONIC, "signature of the first one that arrived, 0 before")
E_PHASE = ROUND.u32(
    64,
    "phase",
    "last member or proxy",
    Order.RELEASE,
    "2g while round g * ROUNDS + area gathers, 2g + 1 while its work is shared out, 2g + 2 when done",
    futex=True,
)
E_SLEEPERS = ROUND.u32(128, "sleepers", "members", Order.UPDATED, "members about to sleep on `phase`")
E_NEXT = ROUND.u32(192, "next", "members", Order.UPDATED, "next work item to hand out", reset=True)
E_DONE = ROUND.u32(256, "done", "members", Order.UPDATED, "work items done", reset=True)
E_OUTCOME = ROUND.u32(320, "outcome", "last member or proxy", Order.PLAIN, "Status of the round that was done last")
E_ONCE = ROUND.u32(
    324,
    "once",
    "last member or proxy",
    Order.PLAIN,
    "0, or that its results are written once, to shared places: 1 + position of a member that posted them",
)
E_SLOTS = ROUND.part(384, "slots", POST, "one a member", count=0)


def round_bytes(members: int) -> int:
    """The area of one round."""
    return E_SLOTS + members * SLOT_BYTES


def begun_of(position: int) -> int:
    """Offset in a group's state of a member's counter."""
    return G_BEGUN + position * LINE


def area_of(index: int, members: int) -> int:
    """Offset in a group's state of one of its ROUNDS areas."""
    return begun_of(members) + index * round_bytes(members)


def slot_of(position: int) -> int:
    """Offset in a round's area of a member's slot."""
    return E_SLOTS + position * SLOT_BYTES


def group_bytes(members: int) -> int:
    """State of a group that meets in rounds."""
    return area_of(ROUNDS, members)
