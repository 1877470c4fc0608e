"""Frames over an authenticated TCP connection.

A frame is HEADER, then `length` bytes of payload. What the fields mean is up to users (relay/, hosts/commands.py);
here they are numbers with limits. Payloads are sent from and received into memory that the caller gives, device memory
for example, without a copy in between. Nothing that a peer sends is ever unpickled.

The frames themselves are neither encrypted nor signed: the network between the hosts of a Ray cluster is trusted to
carry bytes, not to tell who may connect (handshake.py).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from distxla.errors import ClusterError

BUFFER_BYTES = 4 << 20  # of the kernel, each way
UNANSWERED_MS = 30_000  # that bytes may be under way before the connection counts as lost
LARGEST_FRAME = 1 << 40  # bytes of payload; a user of small frames states less

_HEADER = struct.Struct("<HHIQQQQ")  # frame magic, kind, tag, three numbers, length
_FRAME_MAGIC = 0xD1A7
_MOST_PARTS = 512  # buffers in one system call
HEADER_BYTES = _HEADER.size

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's header. kind: u16, tag: u32, a, b, c: u64.  length: bytes of payload that follow it."""

    kind: int
    tag: int
    a: int
    b: int
    c: int
    length: int

    def pack(self) -> bytes:
        return _HEADER.pack(_FRAME_MAGIC, self.kind, self.tag, self.a, self.b, self.c, self.length)


class Connection:
    """An authenticated connection. One thread may send while another receives; several may call `send`.

    purpose, node: what the peer has said of itself, proved by its knowledge of the secret.
    Every method raises ClusterError when the connection is lost, closed, or carries what no peer of ours sends.
    """

    def __init__(self, sock: socket.socket, purpose: int, node: int, largest: int = LARGEST_FRAME) -> None:
        sock.settimeout(None)
        self.purpose, self.node = purpose, node
        self._socket, self._largest = sock, largest
        self._sending = threading.Lock()
        self._header = bytearray(HEADER_BYTES)
        self._scratch: bytearray | None = None

    # --- sending

    def send(self, kind: int, tag: int = 0, a: int = 0, b: int = 0, c: int = 0, payload: Sequence[Buffer] = ()) -> None:
        """Send one frame; blocks until the kernel has taken all of it. payload: buffers of bytes, sent in order.

        Interrupted, it closes the connection.
        """
        length = sum(len(part) for part in payload)
        header = _HEADER.pack(_FRAME_MAGIC, kind, tag, a, b, c, length)
        with self._sending:
            try:
                self.send_parts([header, *payload])
            except BaseException:  # a Ctrl-C, too: nothing may follow a part of a frame
                self.close()
                raise

    def send_parts(self, parts: Sequence[Buffer], *, wait: bool = True) -> list[Buffer]:
        """Send buffers that make up whole frames; what is left of them (nothing where `wait`).

        The caller sees to it that no other thread sends meanwhile.
        """
        flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
        rest: list[Buffer] = [part for part in parts if len(part)]
        while rest:
            try:
                sent = self._socket.sendmsg(rest[:_MOST_PARTS], (), flags)
            except BlockingIOError:
                return rest
            except InterruptedError:
                continue
            except OSError as error:
                raise ClusterError(f"the connection to node {self.node} is lost: {error.strerror or error}") from None
            done = 0
            while done < len(rest) and sent >= len(rest[done]):
                sent -= len(rest[done])
                done += 1
            rest = rest[done:]
            if sent:
                rest[0] = memoryview(rest[0])[sent:]
        return rest

    def seal(self, frame: Frame, payload: Sequence[Buffer]) -> list[Buffer]:
        """The buffers of a frame as they go over the connection, for `send_parts`: in the order of these calls."""
        return [frame.pack(), *payload]

    # --- receiving

    def receive(self) -> Frame:
        """The next frame's header; blocks.

        The payload must be taken with `receive_into`, `receive_bytes` or `discard` before the next header.
        """
        header = self._header
        self.receive_into(memoryview(header))
        magic, kind, tag, a, b, c, length = _HEADER.unpack(header)
        if magic != _FRAME_MAGIC:
            raise ClusterError(f"node {self.node} sent what is no frame")
        if length > self._largest:
            raise ClusterError(f"node {self.node} announced a frame of {length} bytes; the limit is {self._largest}")
        return Frame(kind, tag, a, b, c, length)

    def receive_into(self, view: memoryview) -> None:
        """Fill `view`, bytes; blocks until it is full."""
        while len(view):
            view = view[self._take(view) :]

    def receive_bytes(self, frame: Frame) -> bytearray:
        """The payload of a frame that was just received, in memory of its own."""
        payload = bytearray(frame.length)
        self.receive_into(memoryview(payload))
        return payload

    def discard(self, length: int) -> None:
        """Take `length` bytes of payload that nobody wants."""
        if self._scratch is None:
            self._scratch = bytearray(65536)
        while length:
            part = memoryview(self._scratch)[: min(length, len(self._scratch))]
            self.receive_into(part)
            length -= len(part)

    def _take(self, view: memoryview) -> int:
        try:
            got = self._socket.recv_into(view, len(view), socket.MSG_WAITALL)
        except OSError as error:  # TimeoutError among them: a peer that does not answer the kernel any more
            raise ClusterError(f"the connection to node {self.node} is lost: {error.strerror or error}") from None
        if got == 0:
            raise ClusterError(f"node {self.node} has closed the connection")
        return got

    # --- life

    def close(self) -> None:
        """End the connection; whoever sends or receives on it gets ClusterError. Twice is fine."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def tune(sock: socket.socket) -> None:
    """Options of every connection's socket."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # a host that was switched off says nothing: ask after two seconds of silence, give up three seconds later
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
