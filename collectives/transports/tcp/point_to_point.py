"""Pairs of devices on two hosts: messages of permutes and of channels, carried from one host's state to the other's.

Each host has the whole state of a pair, at the same offset, and its device uses it as if the other one were here. The
proxy of the source's host carries messages to the target's host, and posts them there as the source would; in the other
direction it carries the words that count the taken messages. A source has no more messages in flight than its pair's
ring has places, so a message always has a place at the other side.

A large message of a permute goes from the source's operand to the target's result, once the target has said where that
is. Values of channels go from message to message, or from bounce buffer to bounce buffer.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from distxla import clock
from distxla.collectives.protocols import channel as channel_words
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.protocols.layout import Word
from distxla.collectives.protocols.proxy_queue import ProxyEvent
from distxla.collectives.protocols.rounds import HEAD
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.tcp.frames import (
    Ask,
    Large,
    Message,
    MessageFrame,
    Part,
    Received,
    Receiving,
    Taken,
    TransferFrame,
    Value,
    ValuePart,
)
from distxla.collectives.transports.tcp.link import Done, Link
from distxla.collectives.transports.tcp.scratch_memory import FRAME_PIECE_BYTES, view
from distxla.errors import ClusterError, InternalError
from distxla.lazy_dataclass import dataclass
from distxla.targets.registry import wake_all
from distxla.wire.checksums import Buffer
from distxla.wire.frame import Frame

SETTLE_S = 2.0  # for the last frames to cross from host to host
PATIENCE_S = 1.0  # until a target that waits, but asks for no large message, is taken to run another instruction


class MessageSlot(NamedTuple):
    """The devices of a slot in the ring of a permute's pair, and the slot's number."""

    source: int
    target: int
    slot: int


@dataclass
class Incoming:
    """A large message that is still to arrive. left: bytes."""

    use: int
    head: bytes
    sizes: tuple[int, ...]
    left: int
    since: float


class Exchange(Protocol):
    """The proxy's methods that pairs call."""

    host: int
    epoch: int
    block: ControlBlock

    def base(self, device: int) -> int:
        """Where the memory of a device on this host begins in this process."""

    def holds(self, device: int, offset: int, size: int) -> bool:
        """Whether the memory of a device on this host has such bytes."""

    def post(
        self, host: int, frame: Frame, payload: Sequence[Buffer], *, urgent: bool = False, done: Done | None = None
    ) -> None:
        """Send a frame to another host's proxy; does not block."""


class Pairs:
    """The proxy's part in pairs. `handle` is called by the proxy's own thread, `receive` by the links'."""

    def __init__(self, proxy: Exchange, home: dict[int, int]) -> None:
        self._proxy, self._home = proxy, home
        block = proxy.block
        self._block, self._base, self._size = block, block.address, block.size
        self._mapped = block.segment.bytes  # as long as this is used
        self.messages: dict[int, MessageSlot] = {}
        self._places: dict[int, set[int]] = {}  # of messages, by the offset of their permute's state
        self._lock = threading.Lock()
        self._posted: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}  # use, places, sizes; not yet sent
        self._ready: dict[int, tuple[int, int]] = {}  # use, signature: the target's, here or elsewhere
        self._incoming: dict[int, Incoming] = {}

    def add(self, offset: int, group: tuple[int, ...], pairs: tuple[tuple[int, int], ...]) -> None:
        """Know a permute's state at `offset`, if any of its pairs has one end here and one elsewhere."""
        here = self._proxy.host
        for source, target in pairs:
            ends = {self._home[source], self._home[target]}
            if target not in group or here not in ends or len(ends) == 1:
                continue
            for number in range(permute_words.RING):
                place = offset + permute_words.message_of(group.index(target), number)
                self.messages[place] = MessageSlot(source, target, number)
                self._places.setdefault(offset, set()).add(place)

    def remove(self, offset: int) -> None:
        """Forget the permute's state at `offset`, if there is one.

        Blocks until the sources here know that their last messages were taken, which may be later than the call's end.
        """
        places, end = self._places.pop(offset, set()), clock.now() + SETTLE_S
        while any(
            self._block.load(permute_words.M_POSTED, p) != self._block.load(permute_words.M_TAKEN, p) for p in places
        ):
            if clock.now() > end or self._block.load(control_words.H_ABORT):  # then a host may be lost
                break
            clock.sleep(0.001)
        for place in places:
            self.messages.pop(place, None)

    def reset(self) -> None:
        """Forget all messages in flight."""
        with self._lock:
            self._posted.clear()
            self._ready.clear()
            self._incoming.clear()

    def waits(self, before: float) -> list[tuple[float, int, int, int]]:
        """(since, host, place, use) of large messages that began to arrive before `before` and are incomplete.

        since, before: seconds of clock.now.
        """
        with self._lock:
            found = [(place, coming) for place, coming in self._incoming.items() if coming.since < before]
            return [(c.since, self._home[self.messages[p].source], p, c.use) for p, c in found if p in self._ready]

    # --- events of devices here

    def handle(self, place: int, event: int, number: int) -> None:
        """An event that a device here has enqueued: see proxy_queue.ProxyEvent."""
        if event in (ProxyEvent.POSTED, ProxyEvent.READY, ProxyEvent.TAKEN):
            message = self.messages[place]
            if event == ProxyEvent.POSTED:
                self._send_message(place, message, number)
            elif event == ProxyEvent.READY:
                self._ask(place, message, number)
            else:
                self._send(self._home[message.source], Taken(self._proxy.epoch, place, number))
        elif event == ProxyEvent.SENT:
            self._send_value(place, number)
        elif event in (ProxyEvent.RECEIVING, ProxyEvent.RECEIVED):
            kind = Receiving if event == ProxyEvent.RECEIVING else Received
            self._send(
                self._home[self._block.load(channel_words.C_SOURCE, place)], kind(self._proxy.epoch, place, number)
            )
        else:
            raise ClusterError(f"devices enqueued an unknown event {event}")

    def _send_message(self, place: int, message: MessageSlot, use: int) -> None:
        host, leaves = self._home[message.target], self._block.load(permute_words.M_LEAVES, place)
        head = self._block.copy(HEAD, permute_words.M_SIGNATURE, place)
        if not leaves:
            size = self._block.load(permute_words.M_BYTES, place)
            payload = self._block.payload(permute_words.M_PAYLOAD, size, place)
            self._send(host, Message(self._proxy.epoch, place, use), [head, payload])
            return
        places = tuple(self._block.load(permute_words.M_PAYLOAD, place + 8 * k) for k in range(leaves))
        sizes = tuple(self._block.load(permute_words.M_PAYLOAD, place + 8 * (leaves + k)) for k in range(leaves))
        self._send(host, Large(self._proxy.epoch, place, use), [head, struct.pack(f"<{leaves}Q", *sizes)])
        with self._lock:  # only now: no part may overtake its announcement
            self._posted[place] = (use, places, sizes)
        self._send_parts(place)

    def _send_parts(self, place: int) -> None:
        """Send a large message if both it and its place are known, and both sides run the same instruction."""
        message = self.messages[place]
        with self._lock:
            use, places, sizes = self._posted.get(place, (0, (), ()))
            if not use or self._ready.get(place) != (use, self._block.load(permute_words.M_SIGNATURE, place)):
                return
            del self._posted[place], self._ready[place]
        base, host = self._proxy.base(message.source), self._home[message.target]
        for leaf, (begin, size) in enumerate(zip(places, sizes, strict=True)):
            for at in range(0, size, FRAME_PIECE_BYTES):
                piece = view(base + begin + at, min(FRAME_PIECE_BYTES, size - at))
                self._send(host, Part(self._proxy.epoch, place, use, leaf, at), [piece], urgent=False)

    def _ask(self, place: int, message: MessageSlot, use: int) -> None:
        """The target here has posted where it will have a large message."""
        signature = self._block.load(round_words.S_SIGNATURE, place + permute_words.M_TARGET_POST)
        with self._lock:
            self._ready[place] = (use, signature)
        self._send(self._home[message.source], Ask(self._proxy.epoch, place, use, signature))
        self._compare(place)

    def _compare(self, place: int) -> None:
        """Post a message to a target that runs another instruction: it will detect that."""
        with self._lock:
            coming, (use, signature) = self._incoming.get(place), self._ready.get(place, (0, 0))
            if coming is None or coming.use != use or round_words.S_SIGNATURE.read(coming.head) == signature:
                return
            del self._incoming[place]
        self._post(place, coming)

    def look(self) -> None:
        """Find targets that wait, but did not ask for the large message: they run another instruction."""
        now = clock.now()
        with self._lock:
            waiting = [(place, coming) for place, coming in self._incoming.items() if now - coming.since > PATIENCE_S]
        for place, coming in waiting:
            message = self.messages[place]
            ready = self._ready.get(place, (0, 0))[0] == coming.use
            record = control_words.record_offset(message.target)
            waits = self._block.load(control_words.R_STATE, record) == control_words.ReplicaState.WAITING
            here = self._block.load(control_words.R_WAIT_WORD, record) == place + permute_words.M_POSTED
            if waits and here and not ready:
                with self._lock:
                    if self._incoming.pop(place, None) is None:
                        continue
                self._post(place, coming)

    def _post(self, place: int, coming: Incoming, *, whole: bool = False) -> None:
        """Post a large message as its source would. whole: all of it is in the target's results."""
        self._block.paste(HEAD, permute_words.M_SIGNATURE, coming.head, place)
        if whole:
            self._set(permute_words.M_TAKEN, place, coming.use)
        self._set(permute_words.M_POSTED, place, coming.use)

    def _send_value(self, pair: int, mark: int) -> None:
        slot, place, size = self._value(pair, mark, channel_words.C_SOURCE)
        host = self._home[self._block.load(channel_words.C_TARGET, pair)]
        kind = self._block.load(channel_words.M_KIND, slot)
        for at in range(0, size, FRAME_PIECE_BYTES):
            piece = view(place + at, min(FRAME_PIECE_BYTES, size - at))
            self._send(host, ValuePart(self._proxy.epoch, pair, mark, kind, at), [piece], urgent=False)
        head = self._block.copy(HEAD, channel_words.M_SIGNATURE, slot)
        self._send(host, Value(self._proxy.epoch, pair, mark, kind), [head], urgent=False)

    def _value(self, pair: int, mark: int, end: Word, kind: int | None = None) -> tuple[int, int, int]:
        """(offset of the slot, address of the value, its bytes) of a transfer. end: which device's memory is here."""
        index = (mark - 1) % channel_words.RING
        slot_bytes = self._block.load(channel_words.C_SLOT_BYTES, pair)
        slot = pair + channel_words.slot_of(mark - 1, slot_bytes)
        if (self._block.load(channel_words.M_KIND, slot) if kind is None else kind) == channel_words.EAGER:
            return slot, self._base + slot + channel_words.M_PAYLOAD, slot_bytes - channel_words.M_PAYLOAD
        size = self._block.load(channel_words.C_BOUNCE_BUFFER_BYTES, pair)
        base = self._proxy.base(self._block.load(end, pair))
        return slot, base + self._block.load(channel_words.C_BOUNCE_BUFFERS, pair) + index * size, size

    # --- frames of other hosts

    def receive(self, link: Link, frame: Frame) -> None:
        """Take a frame of a permute's message or of a channel's transfer."""
        if isinstance(frame, TransferFrame):
            self._receive_value(link, frame)
        elif isinstance(frame, MessageFrame):
            self._receive_message(link, frame)
        else:
            raise InternalError(f"pairs do not take {frame}")

    def _receive_message(self, link: Link, frame: MessageFrame) -> None:
        place, length = frame.message, link.connection.length
        message = self.messages.get(place)
        from_target = isinstance(frame, Ask | Taken)
        ends = None if message is None else (message.target if from_target else message.source)
        if message is None or ends is None or self._home[ends] != link.host:
            raise ClusterError(f"host {link.host} sent a frame for a pair that it has no part in")
        self._require_next(link, frame, place)
        if isinstance(frame, Taken):
            self._set(permute_words.M_TAKEN, place, frame.use)
        elif isinstance(frame, Ask):
            with self._lock:
                self._ready[place] = (frame.use, frame.signature)
            self._send_parts(place)
        elif isinstance(frame, Message):
            if not HEAD.size <= length <= HEAD.size + permute_words.MAILBOX_BYTES:
                raise ClusterError(f"host {link.host} sent a message of {length} bytes")
            head = self._take_head(link)
            link.connection.receive_into(self._block.payload(permute_words.M_PAYLOAD, length - HEAD.size, place))
            self._block.paste(HEAD, permute_words.M_SIGNATURE, head, place)
            self._set(permute_words.M_POSTED, place, frame.use)
        elif isinstance(frame, Large):
            self._expect(link, frame)
        elif isinstance(frame, Part):
            self._receive_part(link, frame, message)
        else:
            raise InternalError(f"a message does not take {frame}")

    def _require_next(self, link: Link, frame: MessageFrame, place: int) -> None:
        """ClusterError unless the frame is for the use that follows the last one taken.

        An ASK may be one use ahead, since this host may learn later than the asking host that a use was taken.
        """
        ahead = (frame.use - self._block.load(permute_words.M_TAKEN, place)) & 0xFFFFFFFF
        if not isinstance(frame, Part) and ahead != 1 and not (isinstance(frame, Ask) and ahead == 2):
            raise ClusterError(
                f"host {link.host} sent a frame for use {frame.use} of a place for messages; use "
                f"{self._block.load(permute_words.M_TAKEN, place) + 1} is in flight"
            )

    def _expect(self, link: Link, frame: Large) -> None:
        """A large message is there, at its source's host."""
        place, length = frame.message, link.connection.length
        if not HEAD.size < length <= HEAD.size + 8 * round_words.OFFSETS or (length - HEAD.size) % 8:
            raise ClusterError(f"host {link.host} sent {length} bytes to say that a message is there")
        payload = bytes(link.connection.receive_bytes())
        sizes = struct.unpack(f"<{(len(payload) - HEAD.size) // 8}Q", payload[HEAD.size :])
        with self._lock:
            self._incoming[place] = Incoming(frame.use, payload[: HEAD.size], sizes, sum(sizes), clock.now())
        self._compare(place)

    def _receive_part(self, link: Link, frame: Part, message: MessageSlot) -> None:
        place, leaf, length = frame.message, frame.leaf, link.connection.length
        coming = self._incoming.get(place)
        if coming is None or coming.use != frame.use or leaf >= len(coming.sizes):
            raise ClusterError(f"host {link.host} sent a part of a message that is not expected")
        size = coming.sizes[leaf]
        begin = self._block.load(round_words.S_OFFSETS, place + permute_words.M_TARGET_POST + 8 * leaf)
        if frame.offset + length > size or not self._proxy.holds(message.target, begin, size):
            raise ClusterError(f"host {link.host} sent more of a message than there is place for")
        link.connection.receive_into(view(self._proxy.base(message.target) + begin + frame.offset, length))
        coming.left -= length
        if coming.left == 0:
            with self._lock:
                self._incoming.pop(place, None)
                self._ready.pop(place, None)
            self._post(place, coming, whole=True)
            self._send(link.host, Taken(self._proxy.epoch, place, coming.use))

    def _receive_value(self, link: Link, frame: TransferFrame) -> None:
        pair, mark = frame.pair, frame.transfer
        from_target = isinstance(frame, Receiving | Received)
        if not mark or not 0 < pair < self._size - channel_words.C_SLOTS or pair % channel_words.ALIGNMENT:
            raise ClusterError(f"host {link.host} sent a value for no pair")
        source, target = self._block.load(channel_words.C_SOURCE, pair), self._block.load(channel_words.C_TARGET, pair)
        theirs, mine = (target, source) if from_target else (source, target)
        if self._home.get(theirs) != link.host or self._home.get(mine) != self._proxy.host:
            raise ClusterError(f"host {link.host} sent a value for a pair that it has no part in")
        if isinstance(frame, Receiving):
            self._set(channel_words.C_RECVS, pair, mark)
            return
        kind = frame.protocol if isinstance(frame, ValuePart | Value) else channel_words.EAGER
        slot, place, size = self._value(pair, mark, channel_words.C_TARGET, kind)
        if slot + self._block.load(channel_words.C_SLOT_BYTES, pair) > self._size:
            raise ClusterError(f"host {link.host} sent a value for no pair")
        taken = self._block.load(channel_words.W_TAKEN, slot)
        if not 0 < (mark - taken) & 0xFFFFFFFF <= channel_words.RING:
            raise ClusterError(
                f"host {link.host} sent a frame for transfer {mark} of a channel, in a slot of which transfer "
                f"{taken} was taken last"
            )
        length = link.connection.length
        if isinstance(frame, Received):
            self._set(channel_words.W_TAKEN, slot, mark)
        elif isinstance(frame, ValuePart):
            if frame.offset + length > size or kind not in (channel_words.EAGER, channel_words.BOUNCE_BUFFER):
                raise ClusterError(f"host {link.host} sent a value of more than {size} bytes")
            if kind == channel_words.BOUNCE_BUFFER and not self._proxy.holds(
                target, place - self._proxy.base(target), size
            ):
                raise ClusterError(f"host {link.host} sent a value for a place that does not exist")
            link.connection.receive_into(view(place + frame.offset, length))
        else:
            if length != HEAD.size or kind not in (channel_words.EAGER, channel_words.BOUNCE_BUFFER):
                raise ClusterError(f"host {link.host} sent {length} bytes to end a value")
            self._block.paste(HEAD, channel_words.M_SIGNATURE, self._take_head(link), slot)
            self._block.store(channel_words.M_KIND, kind, slot)
            self._block.store(channel_words.C_SENDS, mark, pair)
            self._set(channel_words.W_SENT, slot, mark)

    # --- words and frames

    def _set(self, word: Word, at: int, value: int) -> None:
        """Store a word that a device may sleep on, and wake that."""
        self._block.store(word, value & 0xFFFFFFFF, at)
        wake_all(self._base + at + word)

    @staticmethod
    def _take_head(link: Link) -> bytes:
        head = bytearray(HEAD.size)
        link.connection.receive_into(memoryview(head))
        return bytes(head)

    def _send(self, host: int, frame: Frame, payload: Sequence[Buffer] = (), *, urgent: bool = True) -> None:
        self._proxy.post(host, frame, payload, urgent=urgent)
