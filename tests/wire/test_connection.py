"""Connections between hosts: who gets in, what a frame may be, and bytes that arrive as they were sent."""

from __future__ import annotations

import errno
import socket
import threading
from itertools import pairwise

import numpy as np
import pytest

from distxla.errors import ClusterError, DamagedMessageError
from distxla.wire.checksums import RECORD_BYTES
from distxla.wire.connection import HEADER_BYTES
from distxla.wire.frame import Frame, frame, u8
from tests.wire.conftest import Note, Wide, join

WIDEST = Wide(255, 2**16 - 1, 2**32 - 1, 2**64 - 1, 0, 2**64 - 1, 255)


@frame(2)
class Stranger(Frame):
    """What no side of the connection knows."""


@frame(1)
class LongNote(Frame):
    """A NOTE with a field, as a later version might send it."""

    field: int = u8("")


def test_both_sides_learn_who_the_other_is(listener, accepted):
    mine, theirs = join(listener, accepted)
    assert (mine.purpose, mine.node, theirs.purpose, theirs.node) == (7, 1, 3, 2)


def test_frames_arrive_as_they_were_sent(listener, accepted):
    mine, theirs = join(listener, accepted)
    data = np.random.default_rng(1).integers(0, 256, 9_000_001, np.uint8)
    parts = [memoryview(data[a:b]) for a, b in ((0, 0), (0, 5), (5, 8_000_000), (8_000_000, 9_000_001))]
    received = np.zeros_like(data)
    sender = threading.Thread(target=lambda: (mine.send(Note(), parts), mine.send(WIDEST)))
    sender.start()
    assert (theirs.receive(), theirs.length) == (Note(), len(data))
    theirs.receive_into(memoryview(received))
    assert (theirs.receive(), theirs.length) == (WIDEST, 0)
    sender.join()
    np.testing.assert_array_equal(received, data)


def test_unwanted_payloads_can_be_skipped_and_taken_whole(listener, accepted):
    mine, theirs = join(listener, accepted)
    theirs.send(Note(), [bytes(200_000)])
    theirs.send(Note(), [b"abc", bytearray(b"def")])
    mine.receive()
    mine.discard()
    mine.receive()
    assert mine.receive_bytes() == b"abcdef"


@pytest.mark.parametrize("size", [100, 200_000])
def test_what_changes_while_it_is_sent_arrives_as_it_was_at_some_time(listener, accepted, size):
    mine, theirs = join(listener, accepted)
    live, seal = bytearray(size), mine.seals.seal

    def seal_and_change(*what):
        sealed = seal(*what)
        live[:] = bytes([live[0] + 1]) * size
        return sealed

    mine.seals.seal = seal_and_change
    mine.send(Note(), [memoryview(live)])
    theirs.receive()
    assert theirs.receive_bytes() == b"\1" * size


def test_what_the_kernel_does_not_take_at_once_is_left_to_send(listener, accepted):
    mine, theirs = join(listener, accepted)
    payload = bytes(range(256)) * (1 << 17)
    parts = mine.seal(Note(), [payload])
    rest = mine.send_parts(parts, wait=False)
    assert rest
    received = bytearray(len(payload))
    sender = threading.Thread(target=lambda: mine.send_parts(rest))
    sender.start()
    theirs.receive()
    assert theirs.length == len(received)
    theirs.receive_into(memoryview(received))
    sender.join()
    assert received == payload


def test_frames_beyond_the_limit_and_garbage_are_errors(listener, accepted):
    mine, theirs = join(listener, accepted)
    mine.send_parts(mine.seal(Note(), [bytes((1 << 26) + 1)])[:2])
    with pytest.raises(ClusterError, match="limit"):
        theirs.receive()
    mine, theirs = join(listener, accepted)
    mine.send_parts([b"x" * HEADER_BYTES])
    with pytest.raises(DamagedMessageError, match="message 0 of node 2 failed its check: its header"):
        theirs.receive()


def test_a_lost_peer_ends_a_receive_and_a_send(listener, accepted):
    mine, theirs = join(listener, accepted)
    mine.close()
    with pytest.raises(ClusterError, match="node 2"):
        theirs.receive()
    with pytest.raises(ClusterError, match="node 2"):
        theirs.send(Note(), [bytes(1 << 20)] * 100)


@pytest.mark.parametrize(
    ("sent", "said"),
    [(Stranger(), "node 2 sent a frame of unknown kind 2"), (LongNote(1), "a NOTE frame has bytes behind its fields")],
    ids=lambda value: getattr(value, "NAME", ""),
)
def test_frames_that_were_not_declared_are_refused(listener, accepted, sent, said):
    mine, theirs = join(listener, accepted)
    mine.send(sent)
    with pytest.raises(ClusterError, match=said):
        theirs.receive()


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
    mine.socket = Failing(mine.socket)
    with pytest.raises(ClusterError, match="node 1 is lost: Connection timed out"):
        mine.receive()


def test_nothing_follows_a_part_of_a_frame(listener, accepted):
    mine, theirs = join(listener, accepted)

    def interrupted(parts: object, *, wait: bool = True) -> None:
        mine.socket.sendall(b"a part")
        raise KeyboardInterrupt

    mine.send_parts = interrupted
    with pytest.raises(KeyboardInterrupt):
        mine.send(Note())
    del mine.send_parts
    with pytest.raises(ClusterError, match="lost"):
        mine.send(Note())
    with pytest.raises(ClusterError):
        theirs.receive()


def test_payloads_are_taken_in_parts_of_any_size(listener, accepted):
    """Of one record, over the borders of several, and what is in several buffers."""
    mine, theirs = join(listener, accepted)
    data = np.random.default_rng(2).integers(0, 256, 2 * RECORD_BYTES + 77_777, np.uint8)
    cuts = [0, 3, 70_000, RECORD_BYTES + 5, len(data)]
    parts = [memoryview(data[a:b]) for a, b in pairwise(cuts)]
    sender = threading.Thread(target=mine.send, args=(Note(), parts))
    sender.start()
    theirs.receive()
    received = np.zeros_like(data)
    begin = 0
    for size in (1, 16, RECORD_BYTES, RECORD_BYTES - 20, len(data)):
        end = min(begin + size, len(data))
        theirs.receive_into(memoryview(received[begin:end]))
        begin = end
    sender.join()
    assert begin == theirs.length
    np.testing.assert_array_equal(received, data)


def test_memory_that_changes_while_it_is_sent_is_no_damage(listener, accepted):
    """Words of running devices are read live."""
    mine, theirs = join(listener, accepted)
    memory = np.zeros(3 * RECORD_BYTES, np.uint8)
    ends = threading.Event()

    def change() -> None:
        while not ends.is_set():
            memory[:] += 1

    threads = [threading.Thread(target=change)]
    threads.append(threading.Thread(target=lambda: [mine.send(Note(), [memory.data]) for _ in range(10)]))
    for thread in threads:
        thread.start()
    for _ in range(10):
        theirs.receive()
        theirs.receive_bytes()
    ends.set()
    for thread in threads:
        thread.join()


def test_a_frame_that_is_shorter_or_longer_than_what_it_is_about_is_an_error(listener, accepted):
    mine, theirs = join(listener, accepted)
    mine.send(Note(), [bytes(8)])
    theirs.receive()
    with pytest.raises(ClusterError, match="shorter"):
        theirs.receive_into(memoryview(bytearray(9)))
    mine, theirs = join(listener, accepted)
    mine.send(Note(), [bytes(8)])
    mine.send(Note())
    theirs.receive()
    theirs.receive_into(memoryview(bytearray(7)))
    with pytest.raises(ClusterError, match="longer"):
        theirs.receive()
