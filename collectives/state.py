"""Shared state of communicators: layout in bytes. Lies in the control block, zeroed before a run.

A group's state: words, then one slot a member in which it posts what it came with.

    round state   G_*            slots  G_SLOTS + position * SLOT_BYTES

A permute's state: one pair area for each member of the group, at its position as the target.

Words that are written by different sides have cache lines of their own.
"""

from __future__ import annotations

# group
G_ARRIVED = 0  # u32: members that have come to the round
G_PHASE = 64  # u32 futex: 2r while round r gathers, 2r + 1 while its work is shared out, 2r + 2 when it is done
G_SLEEPERS = 128  # u32: members about to sleep on G_PHASE
G_NEXT = 192  # u32: next work item to hand out
G_DONE = 256  # u32: work items done
G_OUTCOME = 320  # u32: Status of the round that was done last
G_SLOTS = 384

# what a member posts: slots of a group, ring slots and the post area of a pair
S_SIGNATURE = 0  # u64: what the instruction does; equal for all members of a round
S_SITE = 8  # u32
S_DEVICE = 12  # u32
S_OFFSETS = 16  # u64 each: operand leaves, then result leaves, in the member's own memory
SLOT_BYTES = 4096
OFFSETS = (SLOT_BYTES - S_OFFSETS) // 8  # operand and result leaves together in one round

# pair of a permute
P_POSTED = 0  # u32 futex: messages that the source has posted
P_TAKEN = 64  # u32 futex: messages that the target has taken
P_CLAIM = 128  # u32: raised by both sides of a large message; who finds it odd came second and copies
P_SOURCE_SLEEPS = 192  # u32: the source is about to sleep on P_TAKEN
P_TARGET_SLEEPS = 196  # u32: the target is about to sleep on P_POSTED
P_TARGET_POST = 256  # what the target of a large message posts, SLOT_BYTES
P_RING = P_TARGET_POST + SLOT_BYTES
RING = 4  # messages that a source may be ahead
M_DELIVERED = 16  # u32 in a ring slot: the source has copied the large message itself
M_PAYLOAD = 64  # small: the operands, 64-byte aligned; large: u64 offsets of the operand leaves
MAILBOX_BYTES = 32768
MESSAGE_BYTES = M_PAYLOAD + MAILBOX_BYTES
PAIR_BYTES = P_RING + RING * MESSAGE_BYTES


def group_bytes(members: int) -> int:
    """State of a group that meets in rounds."""
    return G_SLOTS + members * SLOT_BYTES


def pairs_bytes(members: int) -> int:
    """State of a group whose members send to one another in pairs."""
    return members * PAIR_BYTES
