"""Connections between hosts of one run: TCP, authenticated by a shared secret, frames of a fixed header and bytes.

A frame is HEADER, then `length` bytes of payload. What the fields mean is up to users (relay/, hosts/commands.py);
here they are numbers with limits. Payloads are sent from and received into memory that the caller gives, device memory
for example, without a copy in between. Nothing that a peer sends is ever unpickled.

Before the first frame both sides prove that they hold the secret (HMAC-SHA256 over both sides' random challenges, a
different label for each direction so that no answer can be sent back), and say who they are: a number for the purpose
and a number for the node, which the proof covers. A peer that does not prove it within HANDSHAKE_S, or sends anything
else, is disconnected and never heard of. The frames themselves are neither encrypted nor signed: the network between
the hosts of a Ray cluster is trusted to carry bytes, not to tell who may connect.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distxla.errors import ClusterError

SECRET_BYTES = 32
HANDSHAKE_S = 10.0
CONNECT_S = 20.0
BUFFER_BYTES = 4 << 20  # of the kernel, each way
UNANSWERED_MS = 30_000  # that bytes may be under way before the connection counts as lost
LARGEST_FRAME = 1 << 40  # bytes of payload; a user of small frames states less
MOST_STRANGERS = 16  # connections that have not proved anything yet, at one time

_MAGIC, _VERSION = b"dxla", 1
_HELLO = struct.Struct("<4sHHI32s")  # magic, version, purpose, node, challenge
_HEADER = struct.Struct("<HHIQQQQ")  # frame magic, kind, tag, three numbers, length
_FRAME_MAGIC = 0xD1A7
_PROOF_BYTES = 32
_MOST_PARTS = 512  # buffers in one system call
HEADER_BYTES = _HEADER.size

Buffer = bytes | bytearray | memoryview


def new_secret() -> bytes:
    """A secret for one run."""
    return secrets.token_bytes(SECRET_BYTES)


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


def connect(
    address: tuple[str, int],
    secret: bytes,
    *,
    purpose: int,
    node: int,
    timeout: float = CONNECT_S,
    largest: int = LARGEST_FRAME,
) -> Connection:
    """Connect to a Listener and prove the secret; blocks, at most about `timeout` seconds.

    purpose (u16), node (u32): what the listener learns of this side. ClusterError where nobody listens there, or where
    another secret is known.
    """
    where = f"{address[0]}:{address[1]}"
    end = time.monotonic() + timeout
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        _tune(sock)
        sock.settimeout(timeout)
        sock.connect(address)
    except OSError as error:
        sock.close()
        raise ClusterError(f"cannot connect to {where}: {error.strerror or error}") from None
    try:
        mine = _HELLO.pack(_MAGIC, _VERSION, purpose, node, os.urandom(32))
        sock.sendall(mine)
        theirs = _exactly(sock, _HELLO.size, end)
        _, _, their_purpose, their_node, _ = _checked_hello(theirs)
        sock.sendall(_proof(secret, b"connecting", mine, theirs))
        if not hmac.compare_digest(_exactly(sock, _PROOF_BYTES, end), _proof(secret, b"listening", mine, theirs)):
            raise ClusterError("it does not know this run's secret")
    except (OSError, ClusterError) as error:
        sock.close()
        reason = error.message if isinstance(error, ClusterError) else error.strerror or str(error) or "no answer"
        raise ClusterError(f"cannot talk to {where}: {reason}") from None
    return Connection(sock, their_purpose, their_node, largest)


class Listener:
    """Accepts connections of peers that know the secret, in threads of its own, until it is closed.

    host: the address of the interface that peers reach, never "" or 0.0.0.0.  address: where it listens.
    on_connection: called with each authenticated connection, in a thread of that connection's own, which ends with it.
    purpose, node: what peers learn of this side.
    """

    def __init__(
        self,
        host: str,
        secret: bytes,
        on_connection: Callable[[Connection], None],
        *,
        purpose: int,
        node: int,
        largest: int = LARGEST_FRAME,
    ) -> None:
        if len(secret) != SECRET_BYTES:
            raise ClusterError(f"a secret has {SECRET_BYTES} bytes, found {len(secret)}")
        if host in ("", "0.0.0.0", "::"):
            raise ClusterError("a listener is bound to one address of its node")
        self._secret, self._on_connection, self._largest = secret, on_connection, largest
        self._purpose, self._node = purpose, node
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            _tune(self._socket)  # before anybody connects: a connection's window is agreed on as it begins
            self._socket.bind((host, 0))
            self._socket.listen(64)
        except OSError as error:
            self._socket.close()
            raise ClusterError(f"cannot listen on {host}: {error.strerror}") from None
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        self._strangers = threading.Semaphore(MOST_STRANGERS)
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="distxla-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no longer; connections stay. Twice is fine."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._thread is not threading.current_thread():
            self._thread.join(2.0)

    def _accept(self) -> None:
        while not self._closed:
            self._strangers.acquire()
            try:
                sock, _ = self._socket.accept()
            except OSError:
                self._strangers.release()
                if self._closed:
                    return
                time.sleep(0.05)  # where no descriptor is left, it would go on at once
                continue
            threading.Thread(target=self._greet, args=(sock,), name="distxla-peer", daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        connection = None
        try:
            connection = self._authenticate(sock)
        except (OSError, ClusterError):
            sock.close()
        finally:
            self._strangers.release()
        if connection is not None:
            self._on_connection(connection)

    def _authenticate(self, sock: socket.socket) -> Connection:
        """Tell nothing but a challenge before the peer has proved that it knows the secret."""
        end = time.monotonic() + HANDSHAKE_S
        sock.settimeout(HANDSHAKE_S)
        theirs = _exactly(sock, _HELLO.size, end)
        _, _, purpose, node, _ = _checked_hello(theirs)
        mine = _HELLO.pack(_MAGIC, _VERSION, self._purpose, self._node, os.urandom(32))
        sock.sendall(mine)
        proof = _exactly(sock, _PROOF_BYTES, end)
        if not hmac.compare_digest(proof, _proof(self._secret, b"connecting", theirs, mine)):
            raise ClusterError("wrong secret")
        sock.sendall(_proof(self._secret, b"listening", theirs, mine))
        return Connection(sock, purpose, node, self._largest)


def _proof(secret: bytes, label: bytes, connecting: bytes, listening: bytes) -> bytes:
    """label: which side proves; the hellos hold both challenges and who is who."""
    return hmac.digest(secret, label + b"\0" + connecting + listening, hashlib.sha256)


def _checked_hello(data: bytes) -> tuple[bytes, int, int, int, bytes]:
    magic, version, purpose, node, challenge = _HELLO.unpack(data)
    if magic != _MAGIC:
        raise ClusterError("what answers there is not distxla")
    if version != _VERSION:
        raise ClusterError(f"it speaks version {version} of the protocol, this side {_VERSION}")
    return magic, version, purpose, node, challenge


def _exactly(sock: socket.socket, count: int, end: float) -> bytes:
    """`count` bytes of a peer that is not trusted yet, until `end` (monotonic seconds)."""
    data = b""
    while len(data) < count:
        sock.settimeout(max(0.001, end - time.monotonic()))
        part = sock.recv(count - len(data))
        if not part:
            raise ClusterError("it closed the connection")
        data += part
    return data


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # a host that was switched off says nothing: ask after two seconds of silence, give up three seconds later
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
