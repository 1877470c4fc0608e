"""Connections between hosts: who gets in, what a frame may be, and bytes that arrive as they were sent."""

from __future__ import annotations

import errno
import socket
import threading

import numpy as np
import pytest

from distxla.errors import ClusterError
from distxla.runtime.wire.connection import HEADER_BYTES, Frame
from tests.runtime.wire.conftest import join


def test_both_sides_learn_who_the_other_is(listener, accepted):
    mine, theirs = join(listener, accepted)
    assert (mine.purpose, mine.node, theirs.purpose, theirs.node) == (7, 1, 3, 2)


def test_frames_arrive_as_they_were_sent(listener, accepted):
    mine, theirs = join(listener, accepted)
    data = np.random.default_rng(1).integers(0, 256, 9_000_001, np.uint8)
    parts = [memoryview(data[a:b]) for a, b in ((0, 0), (0, 5), (5, 8_000_000), (8_000_000, 9_000_001))]
    landed = np.zeros_like(data)
    sender = threading.Thread(target=lambda: (mine.send(1, 2, 3, 4, 5, parts), mine.send(65535, 2**32 - 1, 2**64 - 1)))
    sender.start()
    assert theirs.receive() == Frame(1, 2, 3, 4, 5, len(data))
    theirs.receive_into(memoryview(landed))
    assert theirs.receive() == Frame(65535, 2**32 - 1, 2**64 - 1, 0, 0, 0)
    sender.join()
    np.testing.assert_array_equal(landed, data)


def test_unwanted_payloads_can_be_skipped_and_taken_whole(listener, accepted):
    mine, theirs = join(listener, accepted)
    theirs.send(1, payload=[bytes(200_000)])
    theirs.send(2, payload=[b"abc", bytearray(b"def")])
    mine.discard(mine.receive().length)
    assert mine.receive_bytes(mine.receive()) == b"abcdef"


def test_what_the_kernel_does_not_take_at_once_is_left_to_send(listener, accepted):
    mine, theirs = join(listener, accepted)
    payload = bytes(range(256)) * (1 << 17)
    header = Frame(1, 0, 0, 0, 0, len(payload)).pack()
    rest = mine.send_parts([header, payload], wait=False)
    assert rest
    landed = bytearray(len(payload))
    sender = threading.Thread(target=lambda: mine.send_parts(rest))
    sender.start()
    theirs.receive()
    theirs.receive_into(memoryview(landed))
    sender.join()
    assert landed == payload


def test_frames_beyond_the_limit_and_garbage_are_errors(listener, accepted):
    mine, theirs = join(listener, accepted)
    mine.send_parts([Frame(1, 0, 0, 0, 0, (1 << 26) + 1).pack()])
    with pytest.raises(ClusterError, match="limit"):
        theirs.receive()
    mine, theirs = join(listener, accepted)
    mine.send_parts([b"x" * HEADER_BYTES])
    with pytest.raises(ClusterError, match="no frame"):
        theirs.receive()


def test_a_lost_peer_ends_a_receive_and_a_send(listener, accepted):
    mine, theirs = join(listener, accepted)
    mine.close()
    with pytest.raises(ClusterError, match="node 2"):
        theirs.receive()
    with pytest.raises(ClusterError, match="node 2"):
        theirs.send(1, payload=[bytes(1 << 20)] * 100)


class Failing:
    """A socket whose next receiving call fails with what the kernel says of a peer that was switched off."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def recv_into(self, *_: object) -> int:
        raise OSError(errno.ETIMEDOUT, "Connection timed out")

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


def test_a_peer_that_was_switched_off_is_a_lost_one(listener, accepted):
    mine, _ = join(listener, accepted)
    mine._socket = Failing(mine._socket)
    with pytest.raises(ClusterError, match="node 1 is lost: Connection timed out"):
        mine.receive()


def test_nothing_follows_a_part_of_a_frame(listener, accepted):
    mine, theirs = join(listener, accepted)

    def interrupted(parts: object, *, wait: bool = True) -> None:
        mine._socket.sendall(b"a part")
        raise KeyboardInterrupt

    mine.send_parts = interrupted
    with pytest.raises(KeyboardInterrupt):
        mine.send(1)
    del mine.send_parts
    with pytest.raises(ClusterError, match="lost"):
        mine.send(2)
    with pytest.raises(ClusterError):
        theirs.receive()
