"""How hosts reach each other: which text says it, the ports that are listened on, addresses of both families."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator

import pytest

from distxla.errors import ArgumentError, ClusterError
from distxla.machine.interfaces import address_on, addresses
from distxla.wire.connection import Connection
from distxla.wire.handshake import Listener, connect
from distxla.wire.network import ANSWER_S, VARIABLE, Network, network_of
from tests.wire.conftest import CONNECTING, LISTENING, SECRET, Wide


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("", Network(None, "", ANSWER_S)),
        ("ports=40000-40199", Network((40000, 40199))),
        ("ports=7000", Network((7000, 7000))),
        ("interface=eth1,lost-after=10", Network(None, "eth1", 10.0)),
        ("lost-after=1.5,interface=10.1.0.0/16,ports=1-65535", Network((1, 65535), "10.1.0.0/16", 1.5)),
    ],
)
def test_what_a_text_says(text: str, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    assert network_of(text) == network
    monkeypatch.setenv(VARIABLE, text)
    assert network_of(None) == network
    assert network_of("ports=9") == Network((9, 9)), "what is given comes before the variable"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("port=1", "expected ports=…, interface=…, lost-after=…, found 'port=1'"),
        ("ports", "expected ports=…, interface=…, lost-after=…, found 'ports'"),
        ("interface=", "found 'interface='"),
        ("ports=1,ports=2", "ports is given twice"),
        ("ports=9-8", "ports: expected FIRST-LAST within 1 to 65535, found '9-8'"),
        ("ports=0-8", "within 1 to 65535"),
        ("ports=8-65536", "within 1 to 65535"),
        ("ports=http", "found 'http'"),
        ("lost-after=0.5", "lost-after: expected seconds, 1 to 3600, found '0.5'"),
        ("lost-after=nan", "expected seconds"),
        ("lost-after=soon", "expected seconds"),
    ],
)
def test_what_says_nothing(text: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError) as raised:
        network_of(text, "--network")
    assert raised.value.message.startswith("--network: ")
    assert error in raised.value.message
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ArgumentError, match=f"^argument: {VARIABLE}: |^{VARIABLE}: "):
        network_of(None)


def test_every_port_of_a_range_is_tried_once() -> None:
    network = Network((40000, 40009))
    assert all(sorted(network.each_port()) == [*range(40000, 40010)] for _ in range(20))
    assert [*Network().each_port()] == [0]


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        yield found


def listener_at(host: str, network: Network, accepted: queue.Queue[Connection]) -> Listener:
    return Listener(host, SECRET, accepted.put, frames=LISTENING, node=1, network=network)


def test_a_listener_takes_a_port_of_the_range_that_is_free(
    taken: socket.socket, accepted: queue.Queue[Connection]
) -> None:
    port = taken.getsockname()[1]
    first = min(port, 65535 - 9)
    with pytest.raises(ClusterError, match=rf"cannot listen on {port}-{port} of 127\.0\.0\.1: Address already in use"):
        listener_at("127.0.0.1", Network((port, port)), accepted)
    for _ in range(5):
        listener = listener_at("127.0.0.1", Network((first, first + 9)), accepted)
        listener.close()
        assert listener.address[1] in {*range(first, first + 10)} - {port}


IPV6 = ("lo", "::1") in [(name, str(address)) for name, address in addresses()]


@pytest.mark.parametrize(
    "interface",
    [
        "127.0.0.0/8",
        "lo",
        pytest.param("::1/128", marks=pytest.mark.skipif(not IPV6, reason="this machine has no IPv6")),
    ],
)
def test_hosts_reach_each_other_by_an_interface(interface: str, accepted: queue.Queue[Connection]) -> None:
    address = address_on(interface)
    assert address == ("::1" if ":" in interface else "127.0.0.1")
    listener = listener_at(address, Network(), accepted)
    try:
        with connect(listener.address, SECRET, frames=CONNECTING, node=2, timeout=5) as mine:
            mine.require_answers()
            mine.send(Wide(1, 2, 3, 4, 5, 6, 7))
            with accepted.get(timeout=5) as theirs:
                assert theirs.receive() == Wide(1, 2, 3, 4, 5, 6, 7)
    finally:
        listener.close()


def test_an_interface_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ClusterError, match=r"no interface of .* is 203\.0\.113\.0/24.*there are .*lo 127\.0\.0\.1"):
        address_on("203.0.113.0/24")
    with pytest.raises(ClusterError, match=r"no interface of .* is eth99"):
        address_on("eth99")
