"""A cut network is noticed, in whichever direction it is cut; a process that is stopped or slow loses nothing."""

from __future__ import annotations

import queue
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from distxla.errors import ClusterError
from distxla.wire.answers import LEAST_LOOKS, THREAD, Answers
from distxla.wire.connection import Connection
from distxla.wire.handshake import Listener
from tests.cut import cut, mend
from tests.stopwatch import eventually
from tests.wire.conftest import Note, join

Both = tuple[Connection, Connection]
UNANSWERED = r"the connection to node \d is lost: its machine has not answered for \d+\.\d s"


@pytest.fixture
def both(listener: Listener, accepted: queue.Queue[Connection]) -> Iterator[tuple[Connection, Connection]]:
    found = join(listener, accepted)
    yield found
    for one in found:
        one.close()


def loss_of(connection: Connection) -> Callable[[], str]:
    """Receive; gives the error with which that ends."""
    found: queue.Queue[str] = queue.Queue()

    def receive() -> None:
        try:
            while True:
                connection.receive()
                connection.discard()
        except ClusterError as error:
            found.put(error.message)

    threading.Thread(target=receive, daemon=True).start()
    return lambda: found.get(timeout=60)


@pytest.mark.parametrize("ends", [(0,), (1,), (0, 1)], ids=["what it says", "what it hears", "whole"])
def test_a_cut_is_told_where_something_is_in_flight(both: Both, ends: tuple[int, ...]) -> None:
    for one in both:
        one.require_answers(0.4)
    losses = [loss_of(one) for one in both]
    for end in ends:
        cut(both[end].socket)
    both[1].send(Note())
    assert re.fullmatch(UNANSWERED, losses[1]())
    with pytest.raises(ClusterError, match=UNANSWERED):
        both[1].send(Note())
    assert losses[0]()


def test_a_cut_is_told_where_nothing_is_in_flight(both: Both) -> None:
    both[0].require_answers(0.4)
    loss = loss_of(both[0])
    cut(both[0].socket)
    assert re.search(r"is lost: (its machine has not answered|Connection timed out)", loss())


def test_a_cut_that_is_mended_in_time_loses_nothing(both: Both) -> None:
    both[0].require_answers(30.0)
    cut(both[0].socket)
    both[0].send(Note(), [b"abc"])
    assert eventually(lambda: in_flight(both[0].socket))
    mend(both[0].socket)
    assert eventually(lambda: not in_flight(both[0].socket))
    assert both[1].receive() == Note()
    assert both[1].receive_bytes() == b"abc"


def in_flight(sock: socket.socket) -> int:
    return int(struct.unpack_from("<I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 60), 24)[0])


def test_one_that_takes_nothing_is_not_lost(both: Both) -> None:
    """As a process that is stopped: its kernel says that it has no room."""
    both[0].require_answers(0.1)
    data = bytes(24 << 20)
    sender = threading.Thread(target=both[0].send, args=(Note(), [data]))
    sender.start()
    answers = Answers(both[0].socket, 0.1)
    for _ in range(60):
        threading.Event().wait(0.02)
        assert not answers.missing()
    assert sender.is_alive()
    assert both[1].receive() == Note()
    assert both[1].receive_bytes() == data
    sender.join(60)


def info(in_flight: int, probes: int, silent_s: float) -> bytes:
    """struct tcp_info of Linux up to its 13th word."""
    words = [0] * 13
    words[4], words[12] = in_flight, round(silent_s * 1000)
    return struct.pack("<8B13I", 0, 0, 0, probes, 0, 0, 0, 0, *words)


class Told:
    """A socket of which the kernel says this."""

    def __init__(self, *infos: bytes) -> None:
        self._infos = list(infos)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._infos.pop(0)


@pytest.mark.parametrize(
    ("looks", "is_lost"),
    [
        ([info(1, 0, 4.0)] * LEAST_LOOKS, True),
        ([info(0, 2, 4.0)] * LEAST_LOOKS, True),
        ([info(1, 0, 3.4)] * LEAST_LOOKS, False),
        ([info(0, 0, 60.0)] * LEAST_LOOKS, False),  # nothing is expected
        ([info(0, 1, 60.0)] * LEAST_LOOKS, False),  # the probe of a receiver without room is under way
        ([info(1, 0, 60.0)] * (LEAST_LOOKS - 1), False),  # the machine was asleep: answers may come yet
        ([info(1, 0, 60.0)] * (LEAST_LOOKS - 1) + [info(0, 0, 0.0), info(1, 0, 0.1)], False),
    ],
    ids=["in flight", "no room, and no answer", "soon", "idle", "no room", "asleep", "awake"],
)
def test_what_counts_as_lost(looks: list[bytes], is_lost: bool) -> None:
    answers = Answers(Told(*looks), 3.5)  # type: ignore[arg-type]
    found = [answers.missing() for _ in looks]
    assert not any(found[:-1])
    assert bool(found[-1]) == is_lost


def test_the_thread_ends_with_the_last_connection(both: Both) -> None:
    both[0].require_answers(0.2)
    assert any(thread.name == THREAD for thread in threading.enumerate())
    for one in both:
        one.close()
    assert eventually(lambda: all(thread.name != THREAD for thread in threading.enumerate()))
