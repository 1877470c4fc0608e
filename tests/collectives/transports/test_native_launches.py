"""Native code of joint calls: logs, issues and arrivals of a few members, one after the other."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import launch_board as board_words
from distxla.collectives.protocols.launch_board import BOARD, BY_FRAMES, LOG, Arrival, CallState, Refusal
from distxla.collectives.transports.launch_views import Apart, BoardView, Issued, LoggedCall, LogView
from distxla.collectives.transports.shared_words import SharedWords
from tests.collectives.transports.native_launches import launch_set, native_launches

MEMBERS = 3
HEADERS = [k * control_words.HEADER_BYTES for k in range(MEMBERS)]
LOGS = [MEMBERS * control_words.HEADER_BYTES + k * LOG.size for k in range(MEMBERS)]
BOARD_AT = LOGS[-1] + LOG.size
SITE = b"train.py:29"


class Members:
    """Three processes of a set: their memory, and what native code of each knows."""

    def __init__(self) -> None:
        self.words = SharedWords(memoryview(mmap.mmap(-1, BOARD_AT + BOARD.size)))
        self.board = BoardView(self.words, BOARD_AT, MEMBERS)
        self.logs = [LogView(self.words, at) for at in LOGS]
        address = self.words.address
        places = address + BOARD_AT, [address + at for at in HEADERS], [address + at for at in LOGS]
        self.sets = [launch_set(k, *places) for k in range(MEMBERS)]

    def arrive(self, member: int, ordinal: int, program: int = 7, site: bytes = SITE) -> Arrival:
        """Make a call, from its log to its arrival."""
        native, own = native_launches(), self.sets[member]
        turn = native.log(own, ordinal, program, site)
        assert not native.issue(own, turn, ordinal, self.commands[member] + 1, 1)
        return native.arrive(own, turn, ordinal, program)

    @property
    def commands(self) -> list[int]:
        return [self.words.load(control_words.H_COMMAND, at) for at in HEADERS]


@pytest.fixture
def members() -> Iterator[Members]:
    made = Members()
    yield made
    made.words.close()


def test_the_last_member_starts_the_devices_of_all(members: Members) -> None:
    for ordinal in range(5):
        assert [members.arrive(k, ordinal) for k in (1, 2)] == [Arrival.WAITS] * 2
        assert members.commands == [ordinal] * MEMBERS
        assert members.board.state(ordinal) is CallState.OPEN
        assert members.arrive(0, ordinal) is Arrival.LAST
        assert members.commands == [ordinal + 1] * MEMBERS
        assert members.board.state(ordinal) is CallState.COMPLETE


def test_another_program_never_starts(members: Members) -> None:
    found = [members.arrive(k, 0, program=k % 2 + 1) for k in range(MEMBERS)]
    assert found == [Arrival.WAITS, Arrival.DIFFERS, Arrival.WAITS]
    assert members.board.refuse(0) is Refusal.REFUSED
    assert members.commands == [0] * MEMBERS


def test_a_refused_call_never_starts(members: Members) -> None:
    assert members.arrive(0, 0) is Arrival.WAITS
    assert members.board.refuse(0) is Refusal.REFUSED
    assert members.arrive(1, 0) is Arrival.REFUSED
    assert members.arrive(1, 1) is Arrival.WAITS
    assert members.arrive(1, 2) is Arrival.WAITS
    assert members.arrive(2, 0) is Arrival.REFUSED  # the slot has a later call
    assert members.commands == [0] * MEMBERS


def test_a_set_of_one_starts_its_own_devices(members: Members) -> None:
    address = members.words.address
    own = launch_set(0, 0, [address + HEADERS[1]], [address + LOGS[1]], number=5)
    native = native_launches()
    turn = native.log(own, 4, 7, SITE)
    assert not native.issue(own, turn, 4, 1, 2)
    assert native.arrive(own, turn, 4, 7) is Arrival.LAST
    assert members.commands == [0, 1, 0]
    assert members.logs[1].issued() == Issued(0, 4, 5, 1, 2)


@pytest.mark.parametrize("size", [0, 1, 11, 222, 223, 224, 225, 1000])
def test_a_call_is_logged_with_the_end_of_its_line(members: Members, size: int) -> None:
    site = bytes(97 + k % 26 for k in range(size))
    for turn, ordinal in enumerate((1 << 40, 9)):
        assert native_launches().log(members.sets[2], ordinal, 7, site, BY_FRAMES) == turn
        kept = board_words.site_kept(site)
        hash_ = board_words.site_hash(site)
        assert members.logs[2].entry(turn) == LoggedCall(turn, ordinal, 1, 7, hash_, kept.decode(), True)
    assert members.logs[2].newest() == 2


def test_a_shorter_line_leaves_nothing_of_a_longer_one(members: Members) -> None:
    for turn in range(65):
        native_launches().log(members.sets[0], turn, 7, b"x" * (200 - turn))
    call = members.logs[0].entry(64)
    assert call is not None
    assert call.site == "x" * 136


def test_who_issues_sees_that_the_slice_is_held(members: Members) -> None:
    native, own = native_launches(), members.sets[1]
    members.words.store(control_words.H_HOLD, 1, HEADERS[1])
    turn = native.log(own, 0, 7)
    assert native.issue(own, turn, 0, 8, 9)
    assert members.logs[1].issued() == Issued(turn, 0, 1, 8, 9)
    members.words.store(control_words.H_HOLD, 0, HEADERS[1])
    turn = native.log(own, 1, 7)
    assert not native.issue(own, turn, 1, 8, 10)
    assert members.logs[1].issued() == Issued(turn, 1, 1, 8, 10)


def test_the_first_call_from_different_lines_is_kept(members: Members) -> None:
    for k in range(MEMBERS):
        members.arrive(k, 0)
    assert members.board.apart() is None
    for ordinal in (1, 2, 3):
        members.arrive(1, ordinal, site=b"train.py:41")
        members.arrive(0, ordinal, site=b"")
        members.arrive(2, ordinal, site=b"train.py:54")
    assert members.board.apart() == Apart(1, (1, "train.py:41"), (2, "train.py:54"))
    members.board.forget_apart()
    members.arrive(0, 4, site=b"train.py:1")
    members.arrive(1, 4, site=b"train.py:2")
    assert members.board.apart() == Apart(4, (0, "train.py:1"), (1, "train.py:2"))


def test_another_program_at_another_line_is_no_parting(members: Members) -> None:
    members.arrive(0, 0, 1, b"train.py:41")
    members.arrive(1, 0, 2, b"train.py:54")
    assert members.board.apart() is None


def test_lines_of_calls_that_are_not_kept_are_not_compared(members: Members) -> None:
    native, own = native_launches(), members.sets[0]
    members.arrive(1, 0, site=b"train.py:1")
    turn = native.log(own, 0, 7, b"train.py:2")
    for ordinal in range(64):
        native.log(own, ordinal, 7, b"train.py:3")
    native.issue(own, turn, 0, 1, 1)
    assert native.arrive(own, turn, 0, 7) is Arrival.WAITS
    assert members.board.apart() is None


def test_a_line_of_a_member_that_has_gone_on_is_not_told(members: Members) -> None:
    """It was refused the call, which this one knows not yet."""
    native, own = native_launches(), members.sets[0]
    members.arrive(1, 0, site=b"train.py:1")
    turn = native.log(members.sets[1], 1, 7, b"train.py:9")
    native.issue(members.sets[1], turn, 1, 1, 1)
    turn = native.log(own, 0, 7, b"train.py:2")
    native.issue(own, turn, 0, 1, 1)
    assert native.arrive(own, turn, 0, 7) is Arrival.WAITS
    assert members.board.apart() is None
