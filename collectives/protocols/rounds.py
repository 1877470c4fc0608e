"""The common parts of groups and pairs of permutes: a device's post for a round, and counters of rounds.

Words that are written by different sides have cache lines of their own.
"""

from __future__ import annotations

from distxla.collectives.protocols.layout import Area, Order, packed

LINE = 64
COUNTED = 8  # from a counter of rounds or transfers to these two
COUNTS = Area("counts behind a counter", "for reports, which count from the begin of the call")
_OWNER = "the side that counts"
N_CALL = COUNTS.u32(0, "call", _OWNER, Order.PLAIN, "low half of R_CALLS when the counter was raised last")
N_BEFORE = COUNTS.u64(8, "before", _OWNER, Order.PLAIN, "value of the counter when that call began")

POST_BYTES = 4096
SLOT_BYTES = POST_BYTES + LINE  # no power of two, so that slots don't compete for the same lines of a cache
POST = Area("post", "a device's post: a slot of a round, one a member; the head of a message", SLOT_BYTES)
_MEMBER = "its device"
S_SIGNATURE = POST.u64(0, "signature", _MEMBER, Order.PLAIN, "digest of the instruction; equal for all of a round")
S_SITE = POST.u32(8, "site", _MEMBER, Order.PLAIN, "the instruction's site, of the device's program")
S_DEVICE = POST.u32(12, "device", _MEMBER, Order.PLAIN, "the device")
HEAD = packed(S_SIGNATURE, S_SITE, S_DEVICE)  # of a post and of messages, as proxies send it
S_SHARES = POST.u64(
    16,
    "shares",
    _MEMBER,
    Order.PLAIN,
    "not 0 where shared places follow the result leaves, one for each, 0 for none",
)
_LEAVES = (POST_BYTES - 24) // 8
S_OFFSETS = POST.u64(
    24,
    "offsets",
    _MEMBER,
    Order.PLAIN,
    "operand leaves, then result leaves, in the member's own memory",
    count=_LEAVES,
)
OFFSETS = _LEAVES  # operand and result leaves together in one round
# for the member itself, of a round that it will end later: addresses in its own process
S_MEMBERS = POST.u64(POST_BYTES, "members", _MEMBER, Order.PLAIN, "const u32*, in its own process")
S_TABLE = POST.u64(POST_BYTES + 8, "table", _MEMBER, Order.PLAIN, "const u64*, in its own process")
S_ITEMS = POST.u64(POST_BYTES + 16, "items", _MEMBER, Order.PLAIN, "work items of the round")
S_DO_ITEMS = POST.u64(POST_BYTES + 24, "do items", _MEMBER, Order.PLAIN, "the function that does them")
S_END = POST.u64(POST_BYTES + 32, "end", _MEMBER, Order.PLAIN, "the function that ends the round")
