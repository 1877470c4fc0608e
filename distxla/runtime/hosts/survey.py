"""What the hosts of a Ray cluster are, and how fast they reach each other; without a run.

A surveyor, an actor, lives on each node. They connect to each other as the hosts of a run do, so what is measured is
what collectives between hosts meet: frames over authenticated connections, checked on arrival.
"""

from __future__ import annotations

import os
import platform
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from distxla import clock
from distxla.errors import ClusterError, DistxlaError
from distxla.lazy_dataclass import dataclass
from distxla.machine.interfaces import address_on
from distxla.machine.processes import kernel_text
from distxla.runtime.hosts.nodes import Facts, Node, alive_nodes, require_alike
from distxla.runtime.ray import access
from distxla.runtime.ray.session import Session
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame, Frames, frame
from distxla.wire.handshake import Listener, connect, new_secret
from distxla.wire.network import Network

ANSWER_S: Final = 60.0  # for a surveyor to start, and to answer
TURNS: Final = 200  # of a frame to and fro
TURNS_S: Final = 1.0  # at most, after the first 20
LONG_ENOUGH_S: Final = 0.1  # of bytes under way, for their rate to be told
PIECE_BYTES: Final = 1 << 20
MOST_BYTES: Final = 1 << 26


@frame(1, payload="anything")
class Sent(Frame):
    """Answered once all of it has come."""


@frame(2)
class Came(Frame):
    """The answer."""


SURVEY_FRAMES: Final = Frames(5, "between surveyors", Sent, Came)


@dataclass(frozen=True)
class HostFacts:
    """facts: as a run compares them.  processor: its model's name.  processors: that its processes may use."""

    facts: Facts
    python: str
    processor: str
    processors: int


@dataclass(frozen=True)
class SurveyedHost:
    """A living node of the Ray cluster. found: None where it could not be asked.  trouble: why it can't take devices
    of a run from this machine; "" where it can."""

    node: Node
    found: HostFacts | None
    trouble: str


@dataclass(frozen=True)
class SurveyedLink:
    """From one host to another, by their indices. round_trip_s: of a frame without payload to and fro, the median.
    bytes_per_s: of payload one way.  trouble: why that is not known."""

    source: int
    target: int
    round_trip_s: float = 0.0
    bytes_per_s: float = 0.0
    trouble: str = ""


@dataclass(frozen=True)
class Survey:
    """hosts: this machine first.  links: one each way between all that could be asked."""

    hosts: tuple[SurveyedHost, ...]
    links: tuple[SurveyedLink, ...]


class Surveyor:
    """A Ray actor, one a node."""

    def __init__(self) -> None:
        self._listener: Listener | None = None

    def facts(self, interface: str) -> HostFacts:
        """Of this node. ClusterError where it has no such interface."""
        from ray.util import get_node_ip_address

        address = address_on(interface) if interface else get_node_ip_address()
        rows = (line.partition(":") for line in kernel_text("cpuinfo").splitlines())
        model = next((value.strip() for key, _, value in rows if key.strip() == "model name"), platform.machine())
        return HostFacts(Facts.here(address), platform.python_version(), model, len(os.sched_getaffinity(0)))

    def listen(self, index: int, address: str, secret: bytes, network: Network, peers: int) -> tuple[str, int]:
        """Answer the other surveyors; where it listens."""
        self._listener = Listener(
            address, secret, _answer, frames=SURVEY_FRAMES, node=index, peers=peers, network=network
        )
        return self._listener.address

    def close(self) -> None:
        """Answer no more of them; connections stay. Twice is fine."""
        if self._listener is not None:
            self._listener.close()

    def measure(self, index: int, address: tuple[str, int], secret: bytes, lost_after: float) -> tuple[float, float]:
        """Round trip in seconds and bytes per second to the surveyor that listens there; blocks. ClusterError."""
        with connect(address, secret, frames=SURVEY_FRAMES, node=index) as connection:
            connection.require_answers(lost_after)
            return round_trip_of(connection), rate_of(connection)


def _answer(connection: Connection) -> None:
    """In a thread of the connection's own."""
    with suppress(DistxlaError), connection:  # it ends when the other side is done
        while isinstance(connection.receive(), Sent):
            connection.receive_bytes()
            connection.send(Came())


def _seconds_of(connection: Connection, payload: Sequence[bytes] = ()) -> float:
    begin = clock.now_ns()
    connection.send(Sent(), payload)
    if not isinstance(connection.receive(), Came):
        raise ClusterError(f"node {connection.node} does not answer what it is sent")
    return (clock.now_ns() - begin) / 1e9


def round_trip_of(connection: Connection) -> float:
    """The median, in seconds. Blocks."""
    for _ in range(20):
        _seconds_of(connection)
    found, end = [_seconds_of(connection)], clock.now() + TURNS_S
    while len(found) < TURNS and clock.now() < end:
        found.append(_seconds_of(connection))
    return statistics.median(found)


def rate_of(connection: Connection) -> float:
    """Bytes a second of as many bytes as take long enough, or of the most that are sent. Blocks."""
    piece, size = bytes(PIECE_BYTES), PIECE_BYTES
    while True:
        seconds = _seconds_of(connection, [piece] * (size // PIECE_BYTES))
        if seconds >= LONG_ENOUGH_S or size >= MOST_BYTES:
            return size / seconds
        size *= 2


def turns(count: int) -> Iterator[list[tuple[int, int]]]:
    """All pairs of so many hosts, those of a turn without a host in common: they are measured at the same time."""
    ring: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    for _ in range(len(ring) - 1 if count > 1 else 0):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]))
        yield [(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None]
        ring.insert(1, ring.pop())


def survey(address: str, network: Network, closing: threading.Event, *, measures: bool = True) -> Survey:
    """Ask all living nodes of a Ray cluster, of which this machine is one. Blocks. ClusterError where it can't be
    joined; what is wrong with single hosts is told with them."""
    session, holds = access.acquire(1, address, closing)
    actors: list[Any] = []
    try:
        nodes = alive_nodes(*session.nodes())
        for node in nodes:
            actors += session.create(Surveyor, node.id, [()])
        return _surveyed(session, nodes, actors, network, measures=measures)
    finally:
        session.kill(actors)
        if holds:
            access.release(session)


def _surveyed(
    session: Session, nodes: Sequence[Node], actors: Sequence[Any], network: Network, *, measures: bool
) -> Survey:
    names = [f"host {index} ({node.name})" for index, node in enumerate(nodes)]
    asked = [actor.facts.remote(network.interface) for actor in actors]
    hosts: list[SurveyedHost] = []
    mine: Facts | None = None
    for node, name, pending in zip(nodes, names, asked):
        found, trouble = _answered(session, pending, name)
        if found is not None:
            mine = mine or found.facts
            trouble = _said(lambda: require_alike(mine, found.facts, name))  # noqa: B023
        hosts.append(SurveyedHost(node, found, trouble))
    there = [index for index, host in enumerate(hosts) if host.found is not None]
    links: list[SurveyedLink] = []
    if measures and len(there) > 1:
        links = _measured(session, there, actors, hosts, names, network)
    return Survey(tuple(hosts), tuple(sorted(links, key=lambda link: (link.source, link.target))))


def _measured(
    session: Session,
    there: Sequence[int],
    actors: Sequence[Any],
    hosts: Sequence[SurveyedHost],
    names: Sequence[str],
    network: Network,
) -> list[SurveyedLink]:
    secret, places = new_secret(), {}
    links: list[SurveyedLink] = []
    for index in there:
        found = hosts[index].found
        assert found is not None
        given = index, found.facts.address, secret, network, len(there)
        place, trouble = _answered(session, actors[index].listen.remote(*given), names[index])
        if place is None:
            links += [SurveyedLink(one, index, trouble=trouble) for one in there if one != index]
        places[index] = place
    for turn in turns(len(there)):
        for way in (1, -1):
            pairs = [(there[pair[::way][0]], there[pair[::way][1]]) for pair in turn]
            asked = [
                (a, b, actors[a].measure.remote(a, places[b], secret, network.lost_after))
                for a, b in pairs
                if places[b] is not None
            ]
            for a, b, pending in asked:
                found, trouble = _answered(session, pending, names[a])
                round_trip, rate = found or (0.0, 0.0)
                links.append(SurveyedLink(a, b, round_trip, rate, trouble))
    return links


def _answered(session: Session, pending: Any, name: str) -> tuple[Any, str]:
    """The value, or None and why there is none."""
    end = clock.now() + ANSWER_S
    try:
        while clock.now() < end:
            _, values = session.answers([pending], [name])
            if values is not None:
                return values[0], ""
    except DistxlaError as error:
        return None, error.message
    return None, f"{name} did not answer within {ANSWER_S:g} s"


def _said(call: Callable[[], object]) -> str:
    """The error that it raises; "" for none."""
    try:
        call()
    except ClusterError as error:
        return error.message
    return ""


__all__ = ["SURVEY_FRAMES", "HostFacts", "Survey", "SurveyedHost", "SurveyedLink", "Surveyor", "survey", "turns"]
