"""Frames over an authenticated TCP connection.

A frame is a header, then `length` bytes of payload. Each sort of connection declares its frames (frame.py;
transports/tcp/frames.py, hosts/commands.py); the header holds kind and fields of one. Payloads are sent from and
received into memory that the caller gives, device memory for example, without a copy in between. Nothing that a peer
sends is ever unpickled.

Frames are numbered from 0 in each direction. They and their headers carry keyed checksums (checksums.py), which are
verified before a header is looked at, and before a call that receives payload returns:

    header  tag  |  payload, at most RECORD_BYTES  tag  |  ...

They are not encrypted. The header has a tag of its own, so the receiver never waits for a damaged length.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence

from distxla.errors import ClusterError, DamagedMessageError
from distxla.wire.answers import Answers, require_answers
from distxla.wire.checksums import RECORD_BYTES, TAG_BYTES, Buffer, Protection, in_records
from distxla.wire.frame import FIELD_BYTES, Frame, Frames
from distxla.wire.network import ANSWER_S

BUFFER_BYTES = 4 << 20  # of the kernel, each way
UNANSWERED_MS = 30_000  # that bytes may be in flight before the connection counts as lost
LARGEST_FRAME = 1 << 40  # bytes of payload; a user of small frames states less

# version of this format, kind, length of the payload, the frame's number, fields
_HEADER = struct.Struct(f"<HHQQ{FIELD_BYTES}s")
_VERSION = 0xD103
_MOST_PARTS = 512  # buffers in one system call
_JOINED_BYTES = 64 << 10  # of payload that is copied behind its header, instead of sent from its own place
_AHEAD_BYTES = 8192  # that are received before they are asked for: a small frame takes one system call
HEADER_BYTES = _HEADER.size + TAG_BYTES


def header(frame: Frame, length: int, number: int) -> bytes:
    """The header of a frame. length: bytes of its payload.  number: of the frame on its connection."""
    return _HEADER.pack(_VERSION, frame.KIND, length, number, frame.pack())


class Connection:
    """An authenticated connection. One thread may send while another receives; several may call `send`.

    frames: those that may come.  purpose, node: of the peer, authenticated by the handshake.  length: bytes of payload
    of the frame that was received last.
    Every method raises ClusterError if the connection is lost, closed, or breaks the protocol, and
    DamagedMessageError if a check fails; nothing more may be received then.
    """

    def __init__(
        self,
        sock: socket.socket,
        purpose: int,
        node: int,
        sending: Protection,
        receiving: Protection,
        frames: Frames,
        largest: int = LARGEST_FRAME,
    ) -> None:
        sock.settimeout(None)
        self.purpose, self.node, self.length = purpose, node, 0
        self.socket, self._frames, self._largest = sock, frames, largest
        self.seals, self.opens = sending, receiving
        self._sending = threading.Lock()
        self._sealed = 0  # frames
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))  # received, not taken yet: bytes _begin to _end of it
        self._begin = self._end = 0
        self._came = 0  # number of received headers
        self._frame: Frame | None = None  # the frame whose payload is received
        self._left = self._record = 0  # its bytes still to come, its records received
        self._opened = memoryview(b"")  # rest of the last record, not taken yet
        self.answers: Answers | None = None
        self._loss = ""  # why it was given up from this side

    # --- sending

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Send one frame; blocks until the kernel has taken all of it. payload: buffers of bytes, sent in order.

        The buffers may change during the call; the receiver gets their contents at some moment. An interrupt closes the
        connection.
        """
        length = sum(len(part) for part in payload)
        with self._sending:
            try:
                if length <= _JOINED_BYTES:
                    self.send_parts([self._seal_small(frame, payload, length)])
                else:
                    for parts in self._seal_large(frame, payload, length, copies=True):
                        self.send_parts(parts)
            except BaseException:  # Ctrl-C, too: no frame may follow an incomplete one
                self.close()
                raise

    def send_parts(self, parts: Sequence[Buffer], *, wait: bool = True) -> list[Buffer]:
        """Send buffers that make up whole frames; returns those not sent yet (none with `wait`, which blocks).

        The caller must keep other threads from sending during the call.
        """
        flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
        rest: list[Buffer] = [part for part in parts if len(part)]
        while rest:
            try:
                sent = self.socket.sendmsg(rest[:_MOST_PARTS], (), flags)
            except BlockingIOError:
                return rest
            except InterruptedError:
                continue
            except OSError as error:
                raise self._lost(error) from None
            done = 0
            while done < len(rest) and sent >= len(rest[done]):
                sent -= len(rest[done])
                done += 1
            rest = rest[done:]
            if sent:
                rest[0] = memoryview(rest[0])[sent:]
        return rest

    def seal(self, frame: Frame, payload: Sequence[Buffer]) -> list[Buffer]:
        """The buffers of a frame for `send_parts`. Frames must be sent in the order in which they were sealed.

        From now on the payload must not change until it is sent, unless it is below _JOINED_BYTES.
        """
        length = sum(len(part) for part in payload)
        if length <= _JOINED_BYTES:
            return [self._seal_small(frame, payload, length)]
        return [part for parts in self._seal_large(frame, payload, length, copies=False) for part in parts]

    def _seal_small(self, frame: Frame, payload: Sequence[Buffer], length: int) -> bytes:
        """A whole frame in one buffer."""
        number, self._sealed = self._sealed, self._sealed + 1
        seal = self.seals.seal
        sealed = seal(number, 0, header(frame, length, number))
        if not length:
            return b"".join(sealed)
        data = b"".join(payload)  # a copy, since the buffers may change between sealing and sending
        return b"".join((*sealed, *seal(number, 1, data)))

    def _seal_large(
        self, frame: Frame, payload: Sequence[Buffer], length: int, *, copies: bool
    ) -> Iterator[list[Buffer]]:
        """The buffers of each record, the first one with the header."""
        number, self._sealed = self._sealed, self._sealed + 1
        sent: list[Buffer] = [*self.seals.seal(number, 0, header(frame, length, number))]
        for record, data in enumerate(in_records(payload), 1):
            sent += self.seals.seal(number, record, bytes(data) if copies else data)
            yield sent
            sent = []

    # --- receiving

    def receive(self) -> Frame:
        """The next frame; blocks. `length` says how many bytes of payload it has.

        Its payload must be taken with `receive_into`, `receive_bytes` or `discard` before the next header.
        """
        if self._left or len(self._opened):
            raise ClusterError(f"node {self.node} sent a frame that is longer than its subject")
        found, number = self._take_ahead(HEADER_BYTES), self._came
        if not self.opens.open(number, 0, found[:-TAG_BYTES], found[-TAG_BYTES:]):
            raise self._header_error(number, found)
        self._came += 1
        version, kind, length, _, fields = _HEADER.unpack_from(found)
        if version != _VERSION:
            raise ClusterError(f"node {self.node} sent bytes that are no frame")
        if length > self._largest:
            raise ClusterError(f"node {self.node} announced a frame of {length} bytes; the limit is {self._largest}")
        try:
            self._frame = frame = self._frames.unpack(kind, fields)
        except ClusterError as error:
            raise ClusterError(f"node {self.node} sent {error.message}") from None
        self.length = self._left = length
        self._record = 0
        return frame

    def receive_into(self, view: memoryview) -> None:
        """Fill `view`, of bytes, with payload of the last frame; blocks until it is full and verified."""
        while len(view):
            if not len(self._opened):
                size = min(self._left, RECORD_BYTES)
                if not size:
                    raise ClusterError(f"node {self.node} sent a frame that is shorter than its subject")
                if size + TAG_BYTES <= _AHEAD_BYTES:
                    record = self._take_ahead(size + TAG_BYTES)
                    self._opened = self._verified(record[:-TAG_BYTES], record[-TAG_BYTES:])
                elif size <= len(view):
                    self._fill(view[:size])
                    self._verified(view[:size], self._take_ahead(TAG_BYTES))
                    view = view[size:]
                    continue
                else:
                    whole = memoryview(bytearray(size))
                    self._fill(whole)
                    self._opened = self._verified(whole, self._take_ahead(TAG_BYTES))
            size = min(len(view), len(self._opened))
            view[:size] = self._opened[:size]
            view, self._opened = view[size:], self._opened[size:]

    def receive_bytes(self) -> bytearray:
        """The whole payload of the frame that was just received, in memory of its own."""
        payload = bytearray(self.length)
        self.receive_into(memoryview(payload))
        return payload

    def discard(self) -> None:
        """Receive and drop the rest of the last frame's payload, without verifying it; blocks."""
        self._opened = memoryview(b"")
        left = self._left + -(-self._left // RECORD_BYTES) * TAG_BYTES
        self._left = 0
        while left:
            left -= len(self._take_ahead(min(left, _AHEAD_BYTES)))

    def _verified(self, record: memoryview, tag: memoryview) -> memoryview:
        """Open the next record of a payload. DamagedMessageError if its check fails."""
        self._record += 1
        self._left -= len(record)
        if not self.opens.open(self._came - 1, self._record, record, tag):
            begin = (self._record - 1) * RECORD_BYTES
            where = f"bytes {begin} to {begin + len(record) - 1} of its payload were damaged"
            raise self._damaged(f"message {self._came - 1} of node {self.node} failed its check: {where}", self._frame)
        return record

    def _header_error(self, number: int, found: memoryview) -> DamagedMessageError:
        """The error for a header that fails its check as frame `number`: it may belong to another frame."""
        _, kind, _, said, fields = _HEADER.unpack_from(found)
        if said == number or not self.opens.open(said, 0, found[:-TAG_BYTES], found[-TAG_BYTES:]):
            return self._damaged(f"message {number} of node {self.node} failed its check: its header was damaged", None)
        try:
            frame = self._frames.unpack(kind, fields)
        except ClusterError:  # from a later version, or from a peer of another sort
            frame = None
        if said < number:
            return self._damaged(f"message {said} of node {self.node} came again after message {number - 1}", frame)
        missing = f"message {number}" if said == number + 1 else f"messages {number} to {said - 1}"
        are = "is" if said == number + 1 else "are"
        return self._damaged(f"{missing} of node {self.node} {are} missing before message {said}", frame)

    @staticmethod
    def _damaged(text: str, frame: Frame | None) -> DamagedMessageError:
        error = DamagedMessageError(text)
        error.frame = frame
        return error

    def _take_ahead(self, size: int) -> memoryview:
        """The next bytes, at most _AHEAD_BYTES; blocks. The view is valid until the next call."""
        begin, end = self._begin, self._end
        if end - begin < size:
            if begin + size > _AHEAD_BYTES or begin == end:
                self._ahead[: end - begin] = self._ahead[begin:end]
                begin, end = 0, end - begin
            while end - begin < size:
                end += self._receive(self._ahead[end:], 0)
            self._end = end
        self._begin = begin + size
        return self._ahead[begin : begin + size]

    def _fill(self, view: memoryview) -> None:
        """Receive bytes until `view` is full; blocks."""
        held = min(len(view), self._end - self._begin)
        view[:held] = self._ahead[self._begin : self._begin + held]
        self._begin += held
        view = view[held:]
        while len(view):
            view = view[self._receive(view, socket.MSG_WAITALL) :]

    def _receive(self, view: memoryview, flags: int) -> int:
        try:
            got = self.socket.recv_into(view, len(view), flags)
        except OSError as error:  # TimeoutError among them: a peer that does not answer the kernel any more
            raise self._lost(error) from None
        if got == 0 and self._loss:
            raise self._lost()
        if got == 0:
            raise ClusterError(f"node {self.node} has closed the connection")
        return got

    def _lost(self, error: OSError | None = None) -> ClusterError:
        """error: what its use has met."""
        how = self._loss or (error and (error.strerror or str(error)))
        return ClusterError(f"the connection to node {self.node} is lost: {how}")

    # --- life

    def require_answers(self, seconds: float = ANSWER_S) -> None:
        """From now on the connection is lost when the other side's kernel has not answered for so long, also while
        nothing is sent. A process that is stopped answers. ClusterError where no thread can be started."""
        self.answers = Answers(self.socket, seconds)
        require_answers(self)

    def give_up(self, how: str) -> None:
        """End it, since the other side does not answer. how: its kernel does not; told with the error from now on."""
        self._loss = how
        with contextlib.suppress(OSError):  # it is closed
            # its end goes out at once, for a side that hears us: not behind what is in flight
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes who sends and receives

    def close(self) -> None:
        """Close the connection; pending sends and receives raise ClusterError. May be called twice."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def tune(sock: socket.socket) -> None:
    """Set the options of a connection's socket."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # a host that was switched off sends nothing: probe after 2 s of silence, give up 3 s later
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
