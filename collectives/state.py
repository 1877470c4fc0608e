"""Shared state of communicators: layout in bytes. Lies in the control block, zeroed before a run.

A group's state: words that the driver writes, a counter a member, then ROUNDS areas, one for each round that may be
under way at a time; round r of the group uses area r % ROUNDS.

    G_LOCAL, G_RELAY    G_BEGUN + position * LINE    G_BEGUN + members * LINE + area * round_bytes(members)

A round's area: words, then one slot a member in which it posts what it came with.

    E_*                 E_SLOTS + position * SLOT_BYTES

A permute's state: one pair for each member of the group, at its position as the target: counters, then RING messages;
message r is the device's r-th round.

Words that are written by different sides have cache lines of their own.
"""

from __future__ import annotations

LINE = 64

# behind a counter of rounds or transfers, 8 bytes after its begin, written by who raises it; for reports, which count
# from the begin of the call
N_CALL = 0  # u32: low half of R_CALLS when it was raised last
N_BEFORE = 8  # u64: what it was when that call began
COUNTED = 8  # from the counter to these two

# group
G_LOCAL = 0  # u32: members of the group on this host, 0: all. Written by the driver
G_RELAY = 4  # u32: not 0 where a relay finishes the rounds. Written by the driver
G_BEGUN = 64  # u64 a member, a line each: rounds that it has begun, and N_*
ROUNDS = 8  # a power of two
DESCRIBE = 2  # in G_RELAY of a state that is none: a relay asks a routine for the arguments of its rounds
G_DESCRIBED = 64  # u64 in such a state: rounds described; their arguments follow
G_DESCRIPTIONS = 128  # u64 each, DESCRIPTION_WORDS a round
DESCRIPTION_WORDS = 32

# round of a group
E_ARRIVED = 0  # u32: members that have come to the round
E_FIRST = 8  # u64: the signature with which the first one has come, 0 before
E_PHASE = (
    64  # u32 futex: 2g while round g * ROUNDS + area gathers, 2g + 1 while its work is shared out, 2g + 2 when done
)
E_SLEEPERS = 128  # u32: members about to sleep on E_PHASE
E_NEXT = 192  # u32: next work item to hand out
E_DONE = 256  # u32: work items done
E_OUTCOME = 320  # u32: Status of the round that was done last
E_ONCE = 324  # u32: 0, or that its results are written once, to shared places: 1 + position of a member who posted them
E_SLOTS = 384

# what a member posts: slots of a round, messages of a pair
S_SIGNATURE = 0  # u64: what the instruction does; equal for all members of a round
S_SITE = 8  # u32
S_DEVICE = 12  # u32
S_SHARES = 16  # u64: not 0 where shared places stand behind the result leaves, one for each, 0 for none
S_OFFSETS = 24  # u64 each: operand leaves, then result leaves, in the member's own memory
POST_BYTES = 4096
OFFSETS = (POST_BYTES - S_OFFSETS) // 8  # operand and result leaves together in one round
# for the member itself, of a round that it will end later: addresses in its own process
S_MEMBERS = POST_BYTES  # const u32*
S_TABLE = POST_BYTES + 8  # const u64*
S_ITEMS = POST_BYTES + 16  # u64
S_DO_ITEMS = POST_BYTES + 24  # the function that does them
S_END = POST_BYTES + 32  # the function that ends the round
SLOT_BYTES = POST_BYTES + LINE  # no power of two, so that slots don't compete for the same lines of a cache

# pair of a permute
P_SENT = 0  # u64: rounds that the source has begun, and N_*; used by sources that are nobody's target
P_ASKED = 64  # u64: rounds that the target has begun, and N_*
P_RING = 128
RING = 4  # messages that a source may be ahead, a power of two

# message: a slot of a pair's ring, used for the messages slot, slot + RING, ..
# S_SIGNATURE, S_SITE, S_DEVICE of the source
M_KEPT = 16  # u32: the large message is copied out of the source's operand, which must stay until it is taken
M_ASKED = 20  # u32: messages for which the target has posted where it will have them, without waiting
M_POSTED = 24  # u32 futex: messages that were posted in this slot
M_TARGET_SLEEPS = 28  # u32: the target is about to sleep on M_POSTED
M_COPIER = 32  # u32: of small messages that were asked for, those that one side has set about to copy
M_BYTES = 40  # u64: of a small message, for a relay
M_LEAVES = 48  # u32: of a large message, for a relay, which finds their bytes behind their offsets; 0 for a small one
M_TAKEN = 64  # u32 futex: messages that were taken out of this slot, or delivered
M_TAKEN_SLEEPS = 68  # u32: sides that are about to sleep on M_TAKEN
M_CLAIM = 128  # u32: raised by both sides of a large message; who finds it odd came second and copies
M_TARGET_POST = 192  # what the target of a large message posts, SLOT_BYTES
M_PAYLOAD = M_TARGET_POST + SLOT_BYTES  # small: the operands, 64-byte aligned; large: u64 offsets of the operand leaves
MAILBOX_BYTES = 32768
MESSAGE_BYTES = M_PAYLOAD + MAILBOX_BYTES
PAIR_BYTES = P_RING + RING * MESSAGE_BYTES


def round_bytes(members: int) -> int:
    """The area of one round."""
    return E_SLOTS + members * SLOT_BYTES


def group_bytes(members: int) -> int:
    """State of a group that meets in rounds."""
    return G_BEGUN + members * LINE + ROUNDS * round_bytes(members)


def pairs_bytes(members: int) -> int:
    """State of a group whose members send to one another in pairs."""
    return members * PAIR_BYTES
