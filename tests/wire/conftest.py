"""A listener, and connections to it."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from distxla.wire import handshake
from distxla.wire.connection import Connection

SECRET = handshake.new_secret()


@pytest.fixture
def accepted() -> queue.Queue[Connection]:
    return queue.Queue()


@pytest.fixture
def listener(accepted: queue.Queue[Connection]) -> Iterator[handshake.Listener]:
    found = handshake.Listener("127.0.0.1", SECRET, accepted.put, purpose=7, node=1, largest=1 << 26)
    yield found
    found.close()


def join(listener: handshake.Listener, accepted: queue.Queue[Connection]) -> tuple[Connection, Connection]:
    """Both ends of a connection."""
    mine = handshake.connect(listener.address, SECRET, purpose=3, node=2, timeout=5)
    return mine, accepted.get(timeout=5)
