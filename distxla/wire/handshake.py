"""Authentication of connections: both sides prove that they hold the run's secret before the first frame.

    connecting side                         listening side
    hello: version, identity, challenge ->
                                         <- hello: version, identity, challenge
    proof "connecting"                  ->
                                         <- proof "listening"

A proof is the HMAC-SHA256 of both hellos under the secret; each direction has a label of its own, so no answer can be
sent back. An identity is a number for the purpose and a number for the node, which the proofs cover. Keys for the
checks of frames come from the secret and the hellos, too (checksums.py). Nothing that a peer sends is ever unpickled.

A Listener serves all unauthenticated peers in one thread without blocking, so silent and slow peers delay no other.
A peer is disconnected HANDSHAKE_S after it connected. If there are more than MOST_STRANGERS, or MOST_PER_ADDRESS of one
address, besides the expected peers, the oldest is disconnected at once. So a new peer is always served, and an address
with many connections shuts out only itself.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable

from distxla import clock
from distxla.errors import ClusterError
from distxla.wire.checksums import protections
from distxla.wire.connection import LARGEST_FRAME, Connection, tune
from distxla.wire.frame import Frames
from distxla.wire.network import Network

SECRET_BYTES = 32
HANDSHAKE_S = 5.0  # from a peer's connection to its proof
CONNECT_S = 20.0
ANY = Network()
MOST_STRANGERS = 64  # unauthenticated connections at one time
MOST_PER_ADDRESS = 16  # unauthenticated connections of one address

_MAGIC, _VERSION = b"dxla", 3
_HELLO = struct.Struct("<4sHHI32s")  # magic, version, purpose, node, challenge
_PROOF_BYTES = 32
_PAUSE_S = 0.05  # until connections are accepted again, after descriptors ran out


def new_secret() -> bytes:
    """A secret for one run."""
    return secrets.token_bytes(SECRET_BYTES)


def connect(
    address: tuple[str, int],
    secret: bytes,
    *,
    frames: Frames,
    node: int,
    timeout: float = CONNECT_S,
    largest: int = LARGEST_FRAME,
) -> Connection:
    """Connect to a Listener and prove the secret; blocks, at most about `timeout` seconds.

    frames: those of the connection; the listener learns of this side only their purpose, and node (u32).
    ClusterError if nothing listens there, or if the listener has another secret.
    """
    where = f"{address[0]}:{address[1]}"
    end = clock.now() + timeout
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        tune(sock)
        sock.settimeout(timeout)
        sock.connect(address)
    except OSError as error:
        sock.close()
        raise ClusterError(f"cannot connect to {where}: {error.strerror or error}") from None
    try:
        mine = hello(frames.purpose, node)
        sock.sendall(mine)
        theirs = _exactly(sock, _HELLO.size, end)
        their_purpose, their_node = _checked_hello(theirs)
        sock.sendall(_proof(secret, b"connecting", mine, theirs))
        if not hmac.compare_digest(_exactly(sock, _PROOF_BYTES, end), _proof(secret, b"listening", mine, theirs)):
            raise ClusterError("it does not know this run's secret")
    except (OSError, ClusterError) as error:
        sock.close()
        reason = error.message if isinstance(error, ClusterError) else error.strerror or str(error) or "no answer"
        raise ClusterError(f"cannot talk to {where}: {reason}") from None
    sending, receiving = protections(secret, mine + theirs)
    return Connection(sock, their_purpose, their_node, sending, receiving, frames, largest)


class Listener:
    """Accepts connections of peers that know the secret, in threads of its own, until it is closed.

    host: the address of the interface that peers reach, never "" or 0.0.0.0.  address: where it listens.
    on_connection: called with each authenticated connection, in a thread of that connection's own, which ends with it.
    frames: those of its connections; peers learn of this side only their purpose, and node.
    peers: how many may connect at the same time.  network: whose ports are tried; ClusterError where none is free.
    """

    def __init__(
        self,
        host: str,
        secret: bytes,
        on_connection: Callable[[Connection], None],
        *,
        frames: Frames,
        node: int,
        peers: int = 1,
        largest: int = LARGEST_FRAME,
        network: Network = ANY,
    ) -> None:
        if len(secret) != SECRET_BYTES:
            raise ClusterError(f"a secret has {SECRET_BYTES} bytes, found {len(secret)}")
        if host in ("", "0.0.0.0", "::"):
            raise ClusterError("a listener is bound to one address of its node")
        protections(secret, b"")  # a missing import fails here rather than in the thread
        self._secret, self._on_connection, self._largest = secret, on_connection, largest
        self._frames, self._node, self._peers = frames, node, peers
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            tune(self._socket)  # before the first peer: a connection's window is negotiated as it begins
            _bind(self._socket, host, network)
            self._socket.listen(128)
            self._socket.setblocking(False)
        except OSError as error:
            self._socket.close()
            raise ClusterError(f"cannot listen on {network.said_ports} of {host}: {error.strerror}") from None
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        self.pending: dict[_Pending, None] = {}  # oldest first
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="distxla-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no longer; connections stay. Twice is fine."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        if self._thread is not threading.current_thread():
            self._thread.join(2.0)
        self._socket.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not self._closed:
                for key, _ in selector.select(self._patience()):
                    if key.data is None:
                        self._accept(selector)
                    elif key.data in self.pending:  # not disconnected since
                        self._advance(selector, key.data)
                now = clock.now()
                for peer in [peer for peer in self.pending if peer.end <= now]:
                    self._disconnect(selector, peer)
            for peer in list(self.pending):
                self._disconnect(selector, peer)

    def _patience(self) -> float | None:
        """Seconds until the oldest pending peer is disconnected; None if no peer is pending."""
        oldest = next(iter(self.pending), None)
        return None if oldest is None else max(0.0, oldest.end - clock.now())

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            sock, address = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:
            if self._closed:
                return
            if self.pending:  # descriptors are short
                self._disconnect(selector, next(iter(self.pending)))
            else:
                clock.sleep(_PAUSE_S)
            return
        sock.setblocking(False)
        peer = _Pending(sock, address[0], clock.now() + HANDSHAKE_S)
        if surplus := self._surplus(peer.address):
            self._disconnect(selector, surplus)
        self.pending[peer] = None
        selector.register(sock, selectors.EVENT_READ, peer)

    def _surplus(self, address: str) -> _Pending | None:
        """The peer to disconnect before another one of this address may be pending; None if there is room."""
        counts = Counter(peer.address for peer in self.pending)
        if counts[address] >= MOST_PER_ADDRESS + self._peers:
            return next(peer for peer in self.pending if peer.address == address)
        if len(self.pending) >= MOST_STRANGERS + self._peers:
            greatest = max(counts.values())
            return next(peer for peer in self.pending if counts[peer.address] == greatest)
        return None

    def _disconnect(self, selector: selectors.BaseSelector, peer: _Pending) -> None:
        del self.pending[peer]
        selector.unregister(peer.socket)
        peer.socket.close()

    def _advance(self, selector: selectors.BaseSelector, peer: _Pending) -> None:
        """Process a peer's bytes. Before its proof it gets nothing but a challenge."""
        try:
            connection = self._handshake(peer)
        except BlockingIOError:
            return
        except (OSError, ClusterError):
            self._disconnect(selector, peer)
            return
        if connection is not None:
            del self.pending[peer]
            selector.unregister(peer.socket)
            thread = threading.Thread(target=self._on_connection, args=(connection,), name="distxla-peer", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads: the peer sees the end of the connection, others are still served
                connection.close()

    def _handshake(self, peer: _Pending) -> Connection | None:
        """The authenticated connection; None while the peer's messages are incomplete."""
        if not peer.hello:
            if not peer.take(_HELLO.size):
                return None
            _checked_hello(peer.taken)
            peer.hello, peer.taken, peer.answer = peer.taken, b"", hello(self._frames.purpose, self._node)
            peer.say(peer.answer)
        if not peer.take(_PROOF_BYTES):
            return None
        if not hmac.compare_digest(peer.taken, _proof(self._secret, b"connecting", peer.hello, peer.answer)):
            raise ClusterError("wrong secret")
        peer.say(_proof(self._secret, b"listening", peer.hello, peer.answer))
        purpose, node = _checked_hello(peer.hello)
        receiving, sending = protections(self._secret, peer.hello + peer.answer)
        return Connection(peer.socket, purpose, node, sending, receiving, self._frames, self._largest)


class _Pending:
    """An unauthenticated peer. end: when it is disconnected, in seconds of clock.now.

    hello, answer: both sides' hellos, b"" before they were exchanged.  taken: received bytes of its next message.
    """

    __slots__ = ("address", "answer", "end", "hello", "socket", "taken")

    def __init__(self, sock: socket.socket, address: str, end: float) -> None:
        self.socket, self.address, self.end = sock, address, end
        self.hello = self.answer = self.taken = b""

    def take(self, count: int) -> bool:
        """Whether `count` bytes have come. BlockingIOError while they have not, ClusterError if the peer has closed the
        connection or does not send a hello."""
        while len(self.taken) < count:
            part = self.socket.recv(count - len(self.taken))
            if not part:
                raise ClusterError("it closed the connection")
            self.taken += part
            if not self.hello and self.taken[: len(_MAGIC)] != _MAGIC[: len(self.taken)]:
                raise ClusterError("the peer that connects is not distxla")
        return True

    def say(self, data: bytes) -> None:
        """Send `data` without blocking: it fits the kernel's empty buffer."""
        if self.socket.send(data, socket.MSG_NOSIGNAL) != len(data):
            raise ClusterError("it does not read")


def _bind(sock: socket.socket, host: str, network: Network) -> None:
    """Bind to the first port that is free. OSError where none is."""
    taken: OSError | None = None
    for port in network.each_port():
        try:
            sock.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            taken = error
        else:
            return
    assert taken is not None
    raise taken


def hello(purpose: int, node: int) -> bytes:
    return _HELLO.pack(_MAGIC, _VERSION, purpose, node, os.urandom(32))


def _proof(secret: bytes, label: bytes, connecting: bytes, listening: bytes) -> bytes:
    """The HMAC of one side. label: which side; the hellos hold both challenges and identities."""
    return hmac.digest(secret, label + b"\0" + connecting + listening, hashlib.sha256)


def _checked_hello(data: bytes) -> tuple[int, int]:
    """(purpose, node) of the peer."""
    magic, version, purpose, node, _ = _HELLO.unpack(data)
    if magic != _MAGIC:
        raise ClusterError("the peer that answers there is not distxla")
    if version != _VERSION:
        raise ClusterError(f"it speaks version {version} of the protocol, this side {_VERSION}")
    return purpose, node


def _exactly(sock: socket.socket, count: int, end: float) -> bytes:
    """`count` bytes of an unauthenticated peer; blocks until `end`, in seconds of clock.now."""
    data = b""
    while len(data) < count:
        sock.settimeout(max(0.001, end - clock.now()))
        part = sock.recv(count - len(data))
        if not part:
            raise ClusterError("it closed the connection")
        data += part
    return data
