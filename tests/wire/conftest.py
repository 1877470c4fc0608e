"""A listener, and connections to it."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from distxla.wire import handshake
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame, Frames, frame, u8, u16, u32, u64

SECRET = handshake.new_secret()


@frame(1, payload="anything")
class Note(Frame):
    """Nothing but payload."""


@frame(65535)
class Wide(Frame):
    """A field of each width, and no bytes left over."""

    byte: int = u8("")
    half: int = u16("")
    word: int = u32("")
    long: int = u64("")
    more: int = u64("")
    last: int = u64("")
    end: int = u8("")


LISTENING = Frames(7, "of the listening side", Note, Wide)
CONNECTING = Frames(3, "of the connecting side", Note, Wide)


@pytest.fixture
def accepted() -> queue.Queue[Connection]:
    return queue.Queue()


@pytest.fixture
def listener(accepted: queue.Queue[Connection]) -> Iterator[handshake.Listener]:
    found = handshake.Listener("127.0.0.1", SECRET, accepted.put, frames=LISTENING, node=1, largest=1 << 26)
    yield found
    found.close()


def join(listener: handshake.Listener, accepted: queue.Queue[Connection]) -> tuple[Connection, Connection]:
    """Both ends of a connection."""
    mine = handshake.connect(listener.address, SECRET, frames=CONNECTING, node=2, timeout=5)
    return mine, accepted.get(timeout=5)
