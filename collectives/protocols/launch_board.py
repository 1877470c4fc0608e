"""How processes that share a cluster start joint calls without a word to its owner: boards and logs, in shared memory.

Each process has a log. It writes an entry for every call that it makes; the number of the entry is the call's turn.
Each set of several processes has a board. The n-th call of a set (its ordinal) must be the same program in all members,
so a member that has issued its part of a call arrives at the board: the first one opens the ordinal's slot for its
program, the others are counted, and the last one starts the devices of all. A member that calls another program is not
counted, and such a call never starts. A member arrives at ordinal k + 1 once its part of k is over, so two slots do.

    turn = log(program, ordinal, site)             L_NEWEST; the entry is whole: others may read it
    held = issue(turn, ordinal, sequence, target)  L_ISSUED, then H_HOLD: of a member and an owner that takes hold of
                                                   its slice, one at least sees the other
    write the commands and H_DONE_TARGET           not where it is held: the slice is the owner's until it lets go
    arrive(turn, ordinal, program)                 LAST raises H_COMMAND of all members

The owner of the cluster reads logs and boards when something is out of the ordinary. It refuses a call by its slot:
either that comes first, and the call never starts, or all members have arrived, and it runs.

Native code does all of it (transports/shared_memory/emit_launches.py). What a slot becomes is stated here once:
`arrived`, `refused`, `state_of`, `first_from`.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Final, NamedTuple

from distxla.collectives.protocols.layout import Area, Order, packed

MEMBER: Final = "a member"

# --- the log of a process

SITE_BYTES: Final = 224  # of a call's "file:line" with a zero behind it
ENTRIES: Final = 64  # of a log; a new one takes the place of the oldest
CALL = Area("logged call", "an entry of a log", 256)
C_TURN = CALL.u64(0, "turn", MEMBER, Order.RELEASE, "its turn + 1; 0 while it is written")
C_ORDINAL = CALL.u64(8, "ordinal", MEMBER, Order.PLAIN, "of the call among those of its set, from 0")
C_SET = CALL.u32(16, "set", MEMBER, Order.PLAIN, "number of the set of processes; with BY_FRAMES: the owner is told")
C_PROGRAM = CALL.u32(20, "program", MEMBER, Order.PLAIN, "the owner's number of the program, below MOST_PROGRAMS")
C_HASH = CALL.u32(24, "hash", MEMBER, Order.PLAIN, "`site_hash` of its site; 0 where no site is known")
C_SITE = CALL.u32(32, "site", MEMBER, Order.PLAIN, "the line that calls: UTF-8, zeros behind it", count=SITE_BYTES // 4)
BY_FRAMES: Final = 1 << 31

ISSUE = Area("issued call", "two in a log: that of issue n is n & 1", 32)
I_TURN = ISSUE.u64(0, "turn", MEMBER, Order.PLAIN, "of the call")
I_ORDINAL = ISSUE.u64(8, "ordinal", MEMBER, Order.PLAIN, "as in its entry")
I_SET = ISSUE.u32(16, "set", MEMBER, Order.PLAIN, "as in its entry, without BY_FRAMES")
I_SEQUENCE = ISSUE.u32(20, "sequence", MEMBER, Order.PLAIN, "H_COMMAND of its slice once it has started there")
I_TARGET = ISSUE.u32(24, "target", MEMBER, Order.PLAIN, "H_DONE of its slice once it is over there")

LOG = Area("log of a process", "one a process of several that share a cluster", 128 + ENTRIES * CALL.size)
L_NEWEST = LOG.u64(0, "newest", MEMBER, Order.RELEASE, "calls that it has made: the turn of the next one")
L_ISSUED = LOG.u64(
    8, "issued", MEMBER, Order.FENCED, "calls that it has issued itself; the member looks at H_HOLD behind it"
)
L_ISSUE = LOG.part(64, "issues", ISSUE, "the newest issued call and the one before", count=2)
L_ENTRY = LOG.part(128, "entries", CALL, "that of a turn is turn modulo 64", count=ENTRIES)

# --- the board of a set

MOST_MEMBERS: Final = 1 << 10  # less one
MOST_PROGRAMS: Final = 1 << 20
SLOT = Area("slot of a board", "for ordinals of one parity", 64)
S_CALL = SLOT.u64(
    0, "call", "members, the owner", Order.UPDATED, "ordinal: 32 bits, program: 20, SlotState: 2, members arrived: 10"
)
S_FIRST = SLOT.u64(
    8, "first", "members", Order.UPDATED, "of the first member with a site: ordinal: 32 bits, hash: 22, position: 10"
)
APART = Area("parting of a set", "its first call that two members make at different lines", 512)
A_CLAIM = APART.u64(0, "claim", "a member; the owner resets it", Order.UPDATED, "1 once a member writes the rest")
A_MEMBERS = APART.u32(8, "members", MEMBER, Order.PLAIN, "positions of the two in the set", count=2)
A_ORDINAL = APART.u64(
    16, "ordinal", "that member; the owner resets it", Order.RELEASE, "the call's + 1 once the rest is written"
)
A_SITES = APART.u32(32, "sites", MEMBER, Order.PLAIN, "of the two, each as in its entry", count=2 * SITE_BYTES // 4)
BOARD = Area("board of a set", "one a set of several processes", 640)
B_SLOT = BOARD.part(0, "slots", SLOT, "that of an ordinal is ordinal & 1", count=2)
B_APART = BOARD.part(128, "parting", APART, "where members are at different lines")

ENTRY_ROW: Final = packed(C_ORDINAL, C_SET, C_PROGRAM, C_HASH)
ISSUE_ROW: Final = packed(I_TURN, I_ORDINAL, I_SET, I_SEQUENCE, I_TARGET)


class LaunchSet(ctypes.Structure):
    """What native code of a process knows of one set of processes; in its own memory. All but `ordinal` and what
    `commands` points to stays as it is. Zeros for pointers: `board` of a set of one.

    position: of this process among the members.  ordinal: of the next call; who issues calls counts it up.  board:
    its address.  headers, logs: addresses of the members' slices' headers and of their logs.  commands: memory for an
    u32 a member.
    """

    _fields_ = (
        ("members", ctypes.c_uint32),
        ("set", ctypes.c_uint32),
        ("position", ctypes.c_uint32),
        ("ordinal", ctypes.c_uint64),
        ("board", ctypes.c_void_p),
        ("headers", ctypes.c_void_p),
        ("logs", ctypes.c_void_p),
        ("commands", ctypes.c_void_p),
    )


class Arrival(IntEnum):
    """What a member finds that arrives."""

    WAITS = 0  # it is counted; others are missing
    LAST = 1  # it is counted, and all are there: the call has started
    DIFFERS = 2  # another member has called another program; not counted
    REFUSED = 3  # the call was refused; not counted


class SlotState(IntEnum):
    """Of S_CALL; memory begins as EMPTY."""

    EMPTY = 0
    OPEN = 1
    REFUSED = 2


class CallState(IntEnum):
    """What a board says of a call."""

    MISSING = 0  # nobody has arrived
    OPEN = 1  # some have
    COMPLETE = 2  # all have: it has started, or the last member is just about to start it
    REFUSED = 3
    PAST = 4  # its slot has a later call: it was complete, or refused


class Refusal(IntEnum):
    """What becomes of an attempt to refuse a call."""

    REFUSED = 0  # it never starts
    RUNS = 1  # too late: it is complete, or past
    # nobody has arrived, and by its slot an earlier call may be open: try again once somebody has (CallState.OPEN), or
    # once the call before in the slot is decided
    EARLY = 2


class Slot(NamedTuple):
    """S_CALL, taken apart."""

    ordinal: int
    program: int
    state: SlotState
    arrivals: int

    def pack(self) -> int:
        """The word."""
        return self.ordinal & _LOW | self.program << 32 | self.state << 52 | self.arrivals << 54

    @staticmethod
    def unpack(word: int) -> Slot:
        """Of a word."""
        return Slot(word & _LOW, word >> 32 & MOST_PROGRAMS - 1, SlotState(word >> 52 & 3), word >> 54)


_LOW = 0xFFFFFFFF


def _ahead(slot: Slot, ordinal: int) -> int:
    """By how much a call is ahead of the one in its slot, which knows the low half of its ordinal only."""
    if slot.state is SlotState.EMPTY:
        return 1
    return ((ordinal - slot.ordinal + (1 << 31)) & _LOW) - (1 << 31)


def arrived(word: int, members: int, ordinal: int, program: int) -> tuple[int, Arrival]:
    """What S_CALL becomes as a member arrives, by compare-and-swap, and what that member finds."""
    slot = Slot.unpack(word)
    ahead = _ahead(slot, ordinal)
    if ahead > 0:
        return Slot(ordinal, program, SlotState.OPEN, 1).pack(), Arrival.WAITS if members > 1 else Arrival.LAST
    if ahead < 0 or slot.state is SlotState.REFUSED or slot.arrivals == members:
        return word, Arrival.REFUSED
    if slot.program != program:
        return word, Arrival.DIFFERS
    count = slot.arrivals + 1
    return slot._replace(arrivals=count).pack(), Arrival.LAST if count == members else Arrival.WAITS


def refused(word: int, members: int, ordinal: int, *, is_reached: bool = False) -> tuple[int, Refusal]:
    """What S_CALL becomes as the owner refuses a call, by compare-and-swap, and what becomes of that.

    A call that is refused already is told as that, one that was refused and is past as one that runs. The slot is taken
    from the call before only where that is decided: the members have yet to arrive at that otherwise. is_reached: the
    calls before are over in a member, so they are decided, though some of them may not have reached the board.
    """
    slot = Slot.unpack(word)
    ahead = _ahead(slot, ordinal)
    is_complete = slot.arrivals == members
    if ahead < 0 or (ahead == 0 and is_complete):
        return word, Refusal.RUNS
    is_open = slot.state is SlotState.OPEN and not is_complete
    is_next = ordinal < 2 if slot.state is SlotState.EMPTY else ahead == 2
    if ahead > 0 and (is_open or not (is_next or is_reached)):
        return word, Refusal.EARLY
    return Slot(ordinal, 0, SlotState.REFUSED, 0).pack(), Refusal.REFUSED


def state_of(word: int, members: int, ordinal: int) -> CallState:
    """What S_CALL says of a call."""
    slot = Slot.unpack(word)
    ahead = _ahead(slot, ordinal)
    if ahead:
        return CallState.MISSING if ahead > 0 else CallState.PAST
    if slot.state is SlotState.REFUSED:
        return CallState.REFUSED
    return CallState.COMPLETE if slot.arrivals == members else CallState.OPEN


def first_from(word: int, ordinal: int, position: int, hash_: int) -> tuple[int, int | None]:
    """What S_FIRST becomes as a member comes with its site's hash, by compare-and-swap; the position of the first one
    where that is at another line."""
    first, first_hash, first_position = word & _LOW, word >> 32 & HASH_MASK, word >> 54
    ahead = ((ordinal - first + (1 << 31)) & _LOW) - (1 << 31)
    if hash_ == 0 or ahead < 0:
        return word, None
    if ahead > 0 or first_hash == 0:
        return ordinal & _LOW | hash_ << 32 | position << 54, None
    return word, None if first_hash == hash_ else first_position


HASH_MASK: Final = (1 << 22) - 1


def site_kept(site: bytes) -> bytes:
    """What an entry keeps of a line: the end where it is too long."""
    return site[-(SITE_BYTES - 1) :]


def site_hash(site: bytes) -> int:
    """Of what an entry keeps; 0 for none: 32-bit FNV-1a, folded to 22 bits, of which 0 becomes 1."""
    if not site:
        return 0
    found = 0x811C9DC5
    for byte in site_kept(site):
        found = (found ^ byte) * 0x01000193 & _LOW
    return (found ^ found >> 22) & HASH_MASK or 1


def slot_offset(ordinal: int) -> int:
    """Of an ordinal's slot in its board."""
    return B_SLOT + SLOT.size * (ordinal & 1)


def entry_offset(turn: int) -> int:
    """Of a turn's entry in its log."""
    return L_ENTRY + CALL.size * (turn % ENTRIES)


def issue_offset(number: int) -> int:
    """Of the n-th issue of a log, from 1."""
    return L_ISSUE + ISSUE.size * (number & 1)


__all__ = [
    "APART",
    "A_CLAIM",
    "A_MEMBERS",
    "A_ORDINAL",
    "A_SITES",
    "BOARD",
    "BY_FRAMES",
    "B_APART",
    "B_SLOT",
    "CALL",
    "C_HASH",
    "C_ORDINAL",
    "C_PROGRAM",
    "C_SET",
    "C_SITE",
    "C_TURN",
    "ENTRIES",
    "ENTRY_ROW",
    "HASH_MASK",
    "ISSUE",
    "ISSUE_ROW",
    "I_ORDINAL",
    "I_SEQUENCE",
    "I_SET",
    "I_TARGET",
    "I_TURN",
    "LOG",
    "L_ENTRY",
    "L_ISSUE",
    "L_ISSUED",
    "L_NEWEST",
    "MOST_MEMBERS",
    "MOST_PROGRAMS",
    "SITE_BYTES",
    "SLOT",
    "S_CALL",
    "S_FIRST",
    "Arrival",
    "CallState",
    "LaunchSet",
    "Refusal",
    "Slot",
    "SlotState",
    "arrived",
    "entry_offset",
    "first_from",
    "issue_offset",
    "refused",
    "site_hash",
    "site_kept",
    "slot_offset",
    "state_of",
]
