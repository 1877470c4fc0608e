"""The frames between the proxies of two hosts.

Every frame but PULSE names its epoch: those from before a failed call are dropped. Nothing but READY is sent for a
round to a host that has not said that it is ready, so all data that arrives has a place to go.
"""

from __future__ import annotations

from distxla.wire.frame import Frame, Frames, frame, u8, u16, u32, u64

_EPOCH = "number of failed calls before this one"
_GROUP, _ROUND = "offset of the group's state in the control blocks", "number of the group's round, from 0"
_MESSAGE, _USE = "offset of the message's slot in the control blocks", "of the slot, from 1"
_PAIR, _TRANSFER = "offset of the channel pair's state in the control blocks", "of the pair, from 1"
_HEAD = "head: signature u64, site u32, device u32"
_PROTOCOL = "how the value travels: M_KIND of its slot"


class EpochFrame(Frame):
    """A frame that counts in one epoch only."""

    __slots__ = ()
    epoch: int


class RoundFrame(EpochFrame):
    """A frame of a group's round."""

    __slots__ = ()
    group: int
    round: int


class MessageFrame(EpochFrame):
    """A frame of a permute's message."""

    __slots__ = ()
    message: int
    use: int


class TransferFrame(EpochFrame):
    """A frame of a channel's transfer."""

    __slots__ = ()
    pair: int
    transfer: int


@frame(0)
class Pulse(Frame):
    """Nothing, after a second of silence: its number shows whether a frame before it is missing."""


@frame(1, payload="a head for each of the sender's members, then their eager bytes")
class Ready(RoundFrame):
    """All members of the sender's host have reached a round."""

    epoch: int = u32(_EPOCH)
    group: int = u32(_GROUP)
    round: int = u64(_ROUND)


@frame(2, payload="the piece")
class Region(RoundFrame):
    """A piece of a member's operand."""

    epoch: int = u32(_EPOCH)
    group: int = u32(_GROUP)
    region: int = u32("number of the region, from 0, among those from this host to that one")
    round: int = u64(_ROUND)
    offset: int = u64("of the piece in the region's packed rows")


@frame(3, payload="the piece")
class Partial(RoundFrame):
    """A piece of a partial result of a reduction, on its way along the group's runs."""

    epoch: int = u32(_EPOCH)
    group: int = u32(_GROUP)
    stream: int = u32("number of the reduction in the round, from 0")
    run: int = u16("the run of members that gets it, from 1")
    round: int = u64(_ROUND)
    offset: int = u64("of the piece in the stream's packed rows")


@frame(4, payload="the piece")
class Result(RoundFrame):
    """A piece of a reduction's result, on its way back along the hosts."""

    epoch: int = u32(_EPOCH)
    group: int = u32(_GROUP)
    stream: int = u32("number of the reduction in the round, from 0")
    round: int = u64(_ROUND)
    offset: int = u64("of the piece in the stream's packed rows")


@frame(16, payload=f"{_HEAD}; then the operands")
class Message(MessageFrame):
    """A small message of a permute."""

    epoch: int = u32(_EPOCH)
    message: int = u32(_MESSAGE)
    use: int = u32(_USE)


@frame(17, payload=f"{_HEAD}; then the leaves' bytes, u64 each")
class Large(MessageFrame):
    """A large message of a permute is posted at its source."""

    epoch: int = u32(_EPOCH)
    message: int = u32(_MESSAGE)
    use: int = u32(_USE)


@frame(18)
class Ask(MessageFrame):
    """The target is ready to receive a large message."""

    epoch: int = u32(_EPOCH)
    message: int = u32(_MESSAGE)
    use: int = u32(_USE)
    signature: int = u64("of the target's instruction")


@frame(19, payload="the piece")
class Part(MessageFrame):
    """A piece of a large message."""

    epoch: int = u32(_EPOCH)
    message: int = u32(_MESSAGE)
    use: int = u32(_USE)
    leaf: int = u32("number of the leaf, from 0")
    offset: int = u64("of the piece in the leaf")


@frame(20)
class Taken(MessageFrame):
    """The target has taken the message."""

    epoch: int = u32(_EPOCH)
    message: int = u32(_MESSAGE)
    use: int = u32(_USE)


@frame(21, payload="the piece")
class ValuePart(TransferFrame):
    """A piece of a channel's value."""

    epoch: int = u32(_EPOCH)
    pair: int = u32(_PAIR)
    transfer: int = u32(_TRANSFER)
    protocol: int = u8(_PROTOCOL)
    offset: int = u64("of the piece in the value")


@frame(22, payload=_HEAD)
class Value(TransferFrame):
    """All of a channel's value was sent."""

    epoch: int = u32(_EPOCH)
    pair: int = u32(_PAIR)
    transfer: int = u32(_TRANSFER)
    protocol: int = u8(_PROTOCOL)


@frame(23)
class Receiving(TransferFrame):
    """A recv of the channel was executed."""

    epoch: int = u32(_EPOCH)
    pair: int = u32(_PAIR)
    transfer: int = u32(_TRANSFER)


@frame(24)
class Received(TransferFrame):
    """The value was taken."""

    epoch: int = u32(_EPOCH)
    pair: int = u32(_PAIR)
    transfer: int = u32(_TRANSFER)


PROXY_FRAMES = Frames(
    2,
    "between proxies",
    *(Pulse, Ready, Region, Partial, Result),
    *(Message, Large, Ask, Part, Taken),
    *(ValuePart, Value, Receiving, Received),
)
