"""Frames between hosts: the sender's payload, or ClusterError; and a peer without the secret is not let in.

The first byte of an input selects the reader of the rest: a listener that does not know the peer yet, a connection to
a known peer, or a reader of payloads.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from distxla.cli.launch_frames import LAUNCH_FRAMES
from distxla.collectives.transports.tcp.frames import PROXY_FRAMES
from distxla.collectives.transports.transport import Restart
from distxla.errors import ArgumentError, ClusterError
from distxla.jax.partitioner.partitioned_bytes import pack_partitioned, unpack_partitioned
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.processes.facts import CompileRequest, PartitionRequest
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.messages import PROCESS_FRAMES, pack_parts, unpack_parts
from distxla.jax.processes.world import Introduction
from distxla.runtime.hosts import commands
from distxla.runtime.hosts.survey import SURVEY_FRAMES
from distxla.wire import checksums as records
from distxla.wire import connection, handshake
from tests.fuzz.errors import assert_refusal
from tests.fuzz.targets import Target

LARGEST = 1 << 16
LISTENER_S = 10.0
FACTS = (
    CompileRequest(((0, 1),), (0,), (), ("nan",)),
    PartitionRequest(2, 1, True, (False,), (True,), "00ff", True),
    Introduction("boot", "host", 12, 4, jax_config={"x64": False}),
)
TAG = bytes(records.TAG_BYTES)


def _facts(kind: Any, payload: memoryview) -> object:
    return kind.of_json(unpack_parts(payload)[0])


READERS: tuple[Callable[[memoryview], object], ...] = (
    commands.unpack_run,
    commands.unpack_pairs,
    partial(commands.unpack_clear, 1),
    commands.unpack_devices,
    commands.unpack_records,
    LaunchSite.unpack,
    unpack_partitioned,
    *(partial(_facts, kind) for kind in (CompileRequest, PartitionRequest, Introduction)),
)
SETS = (commands.DRIVER_FRAMES, PROXY_FRAMES, PROCESS_FRAMES, LAUNCH_FRAMES, SURVEY_FRAMES)
TO_LISTENER, TO_CONNECTION, TO_READERS = 0, 1, 2
HELLO = handshake.hello(2, 3)[:12] + bytes(32)  # always the same challenge


class Unchecked:
    """A Protection that accepts everything, as from a peer that knows the keys."""

    def seal(self, frame: int, record: int, data: records.Buffer) -> tuple[records.Buffer, bytes]:
        return data, bytes(records.TAG_BYTES)

    def open(self, frame: int, record: int, data: memoryview, tag: records.Buffer) -> bool:
        return True


def check(data: bytes) -> None:
    reader, rest = data[0] % (TO_READERS + len(READERS)) if data else 0, data[1:]
    if reader == TO_LISTENER:
        _greet(rest)
        return
    try:
        if reader == TO_CONNECTION:
            _receive(rest)
        else:
            READERS[reader - TO_READERS](memoryview(rest))
    except (ArgumentError, ClusterError) as error:
        assert_refusal(error)


@cache
def _listener() -> tuple[handshake.Listener, list[connection.Connection]]:
    """A listener, and the connections that it has accepted."""
    found: list[connection.Connection] = []
    return handshake.Listener(
        "127.0.0.1", handshake.new_secret(), found.append, frames=commands.DRIVER_FRAMES, node=1
    ), found


def _greet(data: bytes) -> None:
    """Peers without the secret are not let in; all are disconnected once they have sent their bytes."""
    listener, let_in = _listener()
    with socket.create_connection(listener.address, timeout=LISTENER_S) as sock:
        # reset in the end: a port that waits for late segments would be lost for a minute
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass
        except TimeoutError:
            raise AssertionError(f"still connected after {LISTENER_S:g} s") from None
        except OSError:
            pass  # disconnected before all was said
    assert not let_in, "somebody without the secret was let in"


def _receive(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        frames = SETS[sum(data) % len(SETS)]
        known = connection.Connection(ours, 1, 1, Unchecked(), Unchecked(), frames, LARGEST)
        while True:  # until the input ends, which is a ClusterError, too
            frame = known.receive()
            assert type(frame).unpack(frame.pack()) == frame
            assert len(known.receive_bytes()) == known.length <= LARGEST


def seeds() -> Iterator[bytes]:
    payloads = [
        b"".join(bytes(part) for part in commands.pack_run({0: 1, 1: 1}, [(64, 4)], [memoryview(b"abcd")])),
        commands.pack_pairs([(1, 2), (3, 1 << 40)]),
        commands.pack_clear(Restart(1, [(0, 64)], [(1, 2)])),
        commands.pack_devices([0, 1, 7]),
        commands.pack_records({0: bytes(commands.RECORD_BYTES)}),
        LaunchSite("train.py", 47, "step").pack(),
        pack_partitioned(
            Partitioned("HloModule m", b"p", 2, 1, ("f32[2]",), (), ("{replicated}",), (), "0.12", 0.5, False)
        ),
        *(b"".join(map(bytes, pack_parts(facts.to_json()))) for facts in FACTS),
    ]
    yield from (bytes([TO_READERS + k]) + payload for k, payload in enumerate(payloads))
    yield bytes([TO_CONNECTION]) + b"".join(
        part
        for k, payload in enumerate(payloads)
        for part in (connection.header(commands.Clear(k), len(payload), k), TAG, payload, TAG)
    )
    for frames in SETS:
        every = [kind(*range(1, 1 + sum(1 for _ in kind.fields()))) for kind in frames.by_kind.values()]
        yield bytes([TO_CONNECTION]) + b"".join(connection.header(one, 0, k) + TAG for k, one in enumerate(every))
    yield bytes([TO_LISTENER]) + HELLO + bytes(32)


def mutate(data: bytes, choose: random.Random) -> bytes | None:
    """Another number in place of a field, or None."""
    if choose.random() < 0.5 or len(data) < 9:
        return None
    size = choose.choice([1, 2, 4, 8])
    value = choose.choice([0, 1, 2, 7, 255, len(data), 1 << 16, (1 << 20) + 1, 1 << 31, (1 << 40) + 1, (1 << 64) - 1])
    at = choose.randrange(len(data))
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]


TARGET = Target(check, seeds, mutate, weight=1, largest=4096)
