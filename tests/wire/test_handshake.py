"""Peers that know the secret get in; others don't, and delay no peer, whatever they send."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from contextlib import ExitStack

import pytest

from distxla.errors import ClusterError
from distxla.wire import handshake
from tests.stopwatch import Stopwatch
from tests.wire.conftest import CONNECTING, LISTENING, SECRET, join


def test_another_secret_is_refused_on_both_sides(listener, accepted):
    with pytest.raises(ClusterError, match="cannot talk to"):
        handshake.connect(listener.address, handshake.new_secret(), frames=CONNECTING, node=2, timeout=5)
    assert accepted.empty()
    join(listener, accepted)


def test_a_listener_that_does_not_know_the_secret_is_refused():
    def impostor() -> None:
        sock, _ = server.accept()
        with sock:
            sock.sendall(sock.recv(44))
            sock.sendall(sock.recv(32))  # what it was told, back

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=impostor, daemon=True).start()
        with pytest.raises(ClusterError, match="secret"):
            handshake.connect(server.getsockname(), SECRET, frames=CONNECTING, node=2, timeout=5)


@pytest.mark.parametrize("bytes_", [b"", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(44), b"dxla" + bytes(400)])
def test_strangers_do_not_get_in_and_keep_nobody_out(listener, accepted, bytes_):
    with socket.create_connection(listener.address) as stranger:
        stranger.sendall(bytes_)
        join(listener, accepted)
        if bytes_:
            stranger.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(100):
                    pass
    assert accepted.empty()


def test_a_silent_stranger_is_disconnected_in_the_end(listener, monkeypatch):
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.2)
    with socket.create_connection(listener.address) as stranger:
        stranger.settimeout(5)
        assert stranger.recv(100) == b""


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(ClusterError, match="cannot connect to 127"):
        handshake.connect(address, SECRET, frames=CONNECTING, node=2, timeout=5)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_a_listener_is_bound_to_one_address(host):
    with pytest.raises(ClusterError, match="one address"):
        handshake.Listener(host, SECRET, lambda connection: None, frames=CONNECTING, node=1)


HELLO = handshake.hello(3, 2)
JUNK = {
    "nothing": b"",
    "half of a hello": HELLO[:20],
    "a hello without a proof": HELLO,
    "a hello and half of a proof": HELLO + bytes(31),
    "another version": HELLO[:4] + struct.pack("<H", 99) + HELLO[6:],
    "a frame of 2**63 bytes": struct.pack("<HHIQQQQ", 0xD1A7, 1, 0, 0, 0, 0, 1 << 63),
    "much": HELLO + bytes(1 << 16),
}


@pytest.mark.parametrize("said", JUNK.values(), ids=JUNK)
def test_strangers_by_the_dozen_delay_nobody(listener, accepted, said):
    with ExitStack() as stack:
        for _ in range(3 * handshake.MOST_PER_ADDRESS):
            stranger = stack.enter_context(socket.create_connection(listener.address))
            with contextlib.suppress(OSError):  # may be disconnected already
                stranger.sendall(said)
        watch = Stopwatch()
        for _ in range(5):
            join(listener, accepted)
        assert watch.seconds < handshake.HANDSHAKE_S, "that one silent peer after another would take"
        assert len(listener.pending) <= handshake.MOST_PER_ADDRESS + 1
    assert accepted.empty()


def test_who_sends_a_byte_at_a_time_delays_nobody_and_has_no_more_time(listener, accepted, monkeypatch):
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 2.0)
    ended = []

    def drip() -> None:
        watch = Stopwatch()
        with socket.create_connection(listener.address) as stranger, contextlib.suppress(OSError):
            for byte in HELLO * 10:
                stranger.sendall(bytes([byte]))
                time.sleep(0.02)
        ended.append(watch.seconds)

    threads = [threading.Thread(target=drip) for _ in range(handshake.MOST_PER_ADDRESS)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    watch = Stopwatch()
    join(listener, accepted)
    assert watch.seconds < handshake.HANDSHAKE_S
    for thread in threads:
        thread.join()
    assert len(ended) == handshake.MOST_PER_ADDRESS
    assert max(ended) < 6, "440 bytes take 8.8 s"
    assert accepted.empty()


def test_no_address_shuts_out_another(listener, accepted, monkeypatch):
    """All strangers together are bounded, too; of the address that has most of them one has to go."""
    monkeypatch.setattr(handshake, "MOST_STRANGERS", 8)
    with ExitStack() as stack:
        one = stack.enter_context(socket.create_connection(listener.address, source_address=("127.0.0.2", 0)))
        others = [
            stack.enter_context(socket.create_connection(listener.address, source_address=("127.0.0.3", 0)))
            for _ in range(12)
        ]
        join(listener, accepted)
        assert len(listener.pending) <= 9
        one.settimeout(0.1)
        with pytest.raises(TimeoutError):
            one.recv(1)
        others[0].settimeout(5)
        assert others[0].recv(1) == b""


def test_a_peer_without_a_thread_is_disconnected_and_others_are_served(listener, accepted, monkeypatch):
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with (
            handshake.connect(listener.address, SECRET, frames=CONNECTING, node=2, timeout=5) as refused,
            pytest.raises(ClusterError, match=r"closed|lost"),
        ):
            refused.receive()
    assert accepted.empty()
    join(listener, accepted)


def test_many_peers_may_connect_at_once(accepted):
    with contextlib.closing(
        handshake.Listener("127.0.0.1", SECRET, accepted.put, frames=LISTENING, node=1, peers=60)
    ) as listener:
        threads = [threading.Thread(target=join, args=(listener, accepted)) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert accepted.empty()


def test_a_closed_listener_leaves_no_thread_and_no_stranger(listener):
    with socket.create_connection(listener.address) as stranger:
        watch = Stopwatch()
        listener.close()
        stranger.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
        assert watch.seconds < handshake.HANDSHAKE_S, "after which it would be disconnected anyway"
    assert not listener._thread.is_alive()
