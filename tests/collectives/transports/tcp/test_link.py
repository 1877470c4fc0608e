"""A link: frames leave in order of urgency, each payload's owner learns when it has left, and an end is told once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from distxla.collectives.transports.network_fault import FaultKind, NetworkFault
from distxla.collectives.transports.tcp import link as links
from distxla.collectives.transports.tcp.frames import PROXY_FRAMES, EpochFrame, Pulse, Ready, Region, RoundFrame
from distxla.collectives.transports.tcp.link import Link
from distxla.errors import ClusterError, DamagedMessageError
from distxla.wire.connection import Connection
from distxla.wire.handshake import Listener, connect, new_secret
from tests.stopwatch import Stopwatch, eventually

MORE_THAN_A_KERNEL_TAKES = 1 << 25


def bulk(number: int) -> Region:
    return Region(0, 64, 0, number, 0)


def urgent(number: int) -> Ready:
    return Ready(0, 64, number)


@dataclass
class End:
    """A link that is not started: the test is its peer, by `far`."""

    link: Link
    far: Connection
    frames: list[tuple[EpochFrame, bytes]] = field(default_factory=list)
    losses: list[tuple[int, Exception]] = field(default_factory=list)
    faults: dict[int, NetworkFault] = field(default_factory=dict)

    def received(self, count: int) -> list[int]:
        """The rounds of the next frames at the other end, whose payloads are dropped."""
        numbers = []
        while len(numbers) < count:
            frame = self.far.receive()
            self.far.discard()
            if isinstance(frame, RoundFrame):
                numbers.append(frame.round)
        return numbers


@pytest.fixture
def end() -> Iterator[End]:
    accepted: queue.Queue[Connection] = queue.Queue()
    secret = new_secret()
    listener = Listener("127.0.0.1", secret, accepted.put, frames=PROXY_FRAMES, node=0)
    near = connect(listener.address, secret, frames=PROXY_FRAMES, node=1)

    def take(link: Link, frame: EpochFrame) -> None:
        made.frames.append((frame, bytes(link.connection.receive_bytes())))

    def lose(host: int, error: Exception) -> None:
        made.losses.append((host, error))

    link = Link(7, near, take, lose, lambda host, frame: made.faults.get(getattr(frame, "round", -1)))
    made = End(link, accepted.get(timeout=5))
    yield made
    link.close()
    made.far.close()
    listener.close()


def test_urgent_frames_overtake_those_that_wait_and_keep_their_order(end: End) -> None:
    """All but the frame of which the kernel has a part already."""
    end.link.start()
    end.link.post(bulk(0), [bytes(MORE_THAN_A_KERNEL_TAKES)])
    for number in (1, 2):
        end.link.post(bulk(number), [b"x"])
    for number in (3, 4):
        end.link.post(urgent(number), urgent=True)
    assert end.received(5) == [0, 3, 4, 1, 2]


def test_a_payload_may_change_when_all_of_it_has_left(end: End) -> None:
    done = [threading.Event() for _ in range(2)]
    end.link.start()
    end.link.post(bulk(0), [bytes(MORE_THAN_A_KERNEL_TAKES)], done=done[0].set)
    end.link.post(bulk(1), [b"x"], done=done[1].set)
    assert not done[0].is_set()
    assert not done[1].is_set()
    assert end.received(2) == [0, 1]
    assert all(each.wait(5) for each in done)


def test_frames_that_are_forgotten_are_not_sent_and_not_done(end: End) -> None:
    done: list[int] = []
    end.link.start()
    end.link.post(bulk(0), [bytes(MORE_THAN_A_KERNEL_TAKES)], done=lambda: done.append(0))
    end.link.post(bulk(1), [b"x"], done=lambda: done.append(1))
    end.link.forget()
    assert end.received(1) == [0]
    end.link.post(bulk(2), [b"x"], done=lambda: done.append(2))
    assert end.received(1) == [2]
    assert eventually(lambda: done == [0, 2]), done


def test_received_frames_are_handed_over_with_their_payload(end: End) -> None:
    end.link.start()
    before = end.link.heard
    end.far.send(bulk(3), [b"abc"])
    end.far.send(Pulse())
    end.far.send(urgent(4))
    assert eventually(lambda: len(end.frames) == 2)
    assert end.frames == [(bulk(3), b"abc"), (urgent(4), b"")]
    assert end.link.heard > before
    assert not end.losses


def test_a_silent_link_sends_pulses(end: End, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "PULSE_S", 0.01)
    end.link.start()
    assert [end.far.receive() for _ in range(3)] == [Pulse()] * 3


def test_the_end_of_the_other_side_is_told_once(end: End) -> None:
    end.link.start()
    end.far.close()
    assert eventually(lambda: bool(end.losses))
    end.link.post(bulk(0), [b"x"])
    end.link.close()
    ((host, error),) = end.losses
    assert host == 7
    assert isinstance(error, ClusterError)


def test_an_end_by_close_is_no_loss(end: End) -> None:
    end.link.start()
    end.link.close()
    end.link.close()
    with pytest.raises(ClusterError):
        end.far.receive()
    assert not end.losses


def test_an_error_in_done_or_on_frame_ends_the_connection(end: End) -> None:
    def fail() -> None:
        raise ValueError("of the payload's owner")

    end.link.start()
    end.link.post(bulk(0), [bytes(MORE_THAN_A_KERNEL_TAKES)], done=fail)
    assert end.received(1) == [0]
    assert eventually(lambda: bool(end.losses))
    assert str(end.losses[0][1]) == "of the payload's owner"


@pytest.mark.parametrize(
    ("kind", "arrived"), [(FaultKind.DROP, [0]), (FaultKind.DUPLICATE, [0, 1]), (FaultKind.CORRUPT, [0])]
)
def test_an_injected_fault_is_noticed_at_the_other_end(kind: FaultKind, arrived: list[int], end: End) -> None:
    """Every frame has a number and a checksum, so the first frame that shows the fault is refused."""
    end.faults[1] = NetworkFault(kind)
    end.link.start()
    for number in range(3):
        end.link.post(bulk(number), [b"x"])
    assert end.received(len(arrived)) == arrived
    with pytest.raises(DamagedMessageError):
        end.received(1)


def test_a_delayed_frame_delays_those_behind_it(end: End) -> None:
    end.faults[0] = NetworkFault(FaultKind.DELAY, seconds=0.2)
    end.link.start()
    watch = Stopwatch()
    for number in range(3):
        end.link.post(bulk(number), [b"x"])
    assert end.received(3) == [0, 1, 2]
    assert watch.elapsed >= 0.2
