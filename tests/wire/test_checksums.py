"""Damage to the bytes of a connection is noticed before they are used."""

from __future__ import annotations

import queue
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.errors import DamagedMessageError
from distxla.wire.checksums import RECORD_BYTES, TAG_BYTES, Gmac, protections
from distxla.wire.connection import HEADER_BYTES, Connection
from distxla.wire.handshake import Listener
from tests.wire.conftest import SECRET, Wide, join

SMALL, LARGE = b"seventeen bytes!!", bytes(range(256)) * ((RECORD_BYTES + 80_000) // 256)


def sealed(connection: Connection, number: int, payload: bytes) -> bytearray:
    return bytearray(b"".join(connection.seal(Wide(number, 0, 7, 8, 9, 0, 0), [payload])))


def receive(connection: Connection) -> bytes:
    connection.receive()
    return bytes(connection.receive_bytes())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(bit=st.integers(0), payload=st.sampled_from([b"", SMALL, LARGE]))
def test_no_flipped_bit_passes(listener: Listener, accepted: queue.Queue[Connection], bit: int, payload: bytes) -> None:
    mine, theirs = join(listener, accepted)
    with mine, theirs:
        wire = sealed(mine, 1, payload)
        wire[bit // 8 % len(wire)] ^= 1 << bit % 8
        mine.socket.sendall(wire)
        at = bit // 8 % len(wire)
        what = "its header" if at < HEADER_BYTES else "of its payload were damaged"
        with pytest.raises(DamagedMessageError, match=f"message 0 of node 2 failed its check: .*{what}") as caught:
            receive(theirs)
        assert (caught.value.frame is None) == (at < HEADER_BYTES)


def test_a_length_that_was_damaged_is_not_waited_for(listener, accepted):
    """Its bytes would never come."""
    mine, theirs = join(listener, accepted)
    wire = sealed(mine, 1, SMALL)
    wire[4] ^= 1  # of the length
    mine.socket.sendall(wire[:HEADER_BYTES])
    with pytest.raises(DamagedMessageError, match="header"):
        theirs.receive()


@pytest.mark.parametrize(
    ("order", "wrong", "said"),
    [
        ((0, 0), 0, "message 0 of node 2 came again after message 0"),
        ((0, 1, 2, 0), 0, "message 0 of node 2 came again after message 2"),
        ((0, 2), 2, "message 1 of node 2 is missing before message 2"),
        ((3,), 3, "messages 0 to 2 of node 2 are missing before message 3"),
        ((1, 0), 1, "message 0 of node 2 is missing before message 1"),
    ],
)
def test_frames_that_are_repeated_left_out_or_swapped_are_told(listener, accepted, order, wrong, said):
    mine, theirs = join(listener, accepted)
    frames = [sealed(mine, kind, SMALL) for kind in range(4)]
    for number in order:
        mine.socket.sendall(frames[number])
    right = next((k for k, number in enumerate(order) if number != k), len(order))
    for _ in range(right):
        assert receive(theirs) == SMALL
    with pytest.raises(DamagedMessageError, match=said) as caught:
        theirs.receive()
    assert caught.value.frame == Wide(wrong, 0, 7, 8, 9, 0, 0)


def test_records_of_a_frame_cannot_change_places(listener, accepted):
    mine, theirs = join(listener, accepted)
    wire = sealed(mine, 1, bytes(RECORD_BYTES) + bytes([1]) * RECORD_BYTES)
    first, second = HEADER_BYTES, HEADER_BYTES + RECORD_BYTES + TAG_BYTES
    swapped = wire[:first] + wire[second:] + wire[first:second]
    threading.Thread(target=mine.send_parts, args=([swapped],), daemon=True).start()
    with pytest.raises(DamagedMessageError, match="bytes 0 to 1048575 of its payload"):
        receive(theirs)


def test_what_one_side_sent_is_not_taken_back(listener, accepted):
    mine, theirs = join(listener, accepted)
    wire = sealed(mine, 1, SMALL)
    theirs.socket.sendall(wire)
    with pytest.raises(DamagedMessageError, match="header"):
        mine.receive()


def test_frames_of_another_connection_do_not_pass(listener, accepted):
    first, _ = join(listener, accepted)
    _, theirs = join(listener, accepted)
    first_wire = sealed(first, 1, SMALL)
    second, theirs = join(listener, accepted)
    second.socket.sendall(first_wire)
    with pytest.raises(DamagedMessageError, match="header"):
        theirs.receive()


def test_keys_differ_by_direction_secret_and_challenges():
    tags = {
        gmac.seal(0, 0, b"x")[1]
        for secret in (SECRET, bytes(32))
        for challenges in (b"a", b"b")
        for gmac in protections(secret, challenges)
    }
    assert len(tags) == 8


def test_gmac_as_nist_specifies_it():
    """SP 800-38D's test case 13: AES-256, key and nonce of zeros, no plaintext and no associated data."""
    tag = Gmac(bytes(32)).seal(0, 0, b"")[1]
    assert tag.hex() == "530f8afbc74536b9a963b4f1c4cb738b"
