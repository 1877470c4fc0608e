"""What the owner of a cluster reads of logs and boards, and what it refuses."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest

from distxla.collectives.protocols import launch_board as board_words
from distxla.collectives.protocols.launch_board import BOARD, BY_FRAMES, LOG, CallState, Refusal
from distxla.collectives.transports.launch_views import Apart, BoardView, Issued, LoggedCall, LogView
from distxla.collectives.transports.shared_words import SharedWords
from distxla.errors import InternalError

AT = 128  # where a log or a board begins


@pytest.fixture
def words() -> Iterator[SharedWords]:
    made = SharedWords(memoryview(mmap.mmap(-1, AT + max(LOG.size, BOARD.size))))
    yield made
    made.close()


def _write_entry(words: SharedWords, turn: int, site: bytes, *, set_: int = 3) -> None:
    """As native code does (emit_launches.py)."""
    place = AT + board_words.entry_offset(turn)
    words.store(board_words.C_TURN, 0, place)
    words.reset(board_words.C_ORDINAL, turn + 100, place)
    words.reset(board_words.C_SET, set_, place)
    words.reset(board_words.C_PROGRAM, 9, place)
    words.reset(board_words.C_HASH, board_words.site_hash(site), place)
    kept = board_words.site_kept(site)
    words.payload(board_words.C_SITE, board_words.SITE_BYTES, place)[:] = kept.ljust(board_words.SITE_BYTES, b"\0")
    words.store(board_words.C_TURN, turn + 1, place)
    words.store(board_words.L_NEWEST, turn + 1, AT)


def test_a_log_keeps_its_last_calls(words: SharedWords) -> None:
    log = LogView(words, AT)
    assert log.newest() == 0
    assert log.entry(0) is None
    assert log.entries(0) == []
    for turn in range(70):
        _write_entry(words, turn, f"a.py:{turn}".encode(), set_=3 | (BY_FRAMES if turn == 68 else 0))
    assert log.newest() == 70
    assert [call.turn for call in log.entries(0)] == list(range(6, 70))
    hashes = [board_words.site_hash(f"a.py:{turn}".encode()) for turn in (68, 69)]
    assert log.entries(68) == [
        LoggedCall(68, 168, 3, 9, hashes[0], "a.py:68", True),
        LoggedCall(69, 169, 3, 9, hashes[1], "a.py:69", False),
    ]
    assert log.entry(5) is None
    assert log.entry(70) is None


def test_a_long_line_keeps_its_end(words: SharedWords) -> None:
    _write_entry(words, 0, b"/deep" * 100 + b"/train.py:29")
    call = LogView(words, AT).entry(0)
    assert call is not None
    assert call.site.endswith("/deep/train.py:29")
    assert len(call.site) == board_words.SITE_BYTES - 1


def test_a_call_that_is_written_meanwhile_is_none(words: SharedWords, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_entry(words, 0, b"a.py:1")
    monkeypatch.setattr(words, "fence", lambda: _write_entry(words, 64, b"a.py:2"))
    assert LogView(words, AT).entry(0) is None
    words.store(board_words.C_TURN, 0, AT + board_words.entry_offset(64))
    assert LogView(words, AT).entry(64) is None


def test_the_newest_issued_call(words: SharedWords, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogView(words, AT)
    assert log.issued() is None
    for number, call in ((1, Issued(5, 7, 3, 11, 13)), (2, Issued(6, 8, 3, 12, 14))):
        place = AT + board_words.issue_offset(number)
        words.row(board_words.ISSUE_ROW, board_words.I_TURN, place)(*call)
    issued = iter([1, 2, 2, 2])  # one was issued while it was read
    monkeypatch.setattr(words, "load_in_race", lambda word, at: next(issued))
    assert log.issued() == Issued(6, 8, 3, 12, 14)


def test_calls_are_refused_unless_all_have_arrived(words: SharedWords) -> None:
    board = BoardView(words, AT, 2)
    assert board.state(4) is CallState.MISSING
    assert board.refuse(4) is Refusal.EARLY
    _arrive(words, 4)
    assert board.state(4) is CallState.OPEN
    assert board.refuse(6) is Refusal.EARLY
    assert board.refuse(4) is Refusal.REFUSED
    assert board.state(4) is CallState.REFUSED
    for _ in range(2):
        _arrive(words, 6)
    assert board.state(6) is CallState.COMPLETE
    assert board.refuse(6) is Refusal.RUNS
    assert board.state(4) is CallState.PAST
    assert board.state(5) is CallState.MISSING


def _arrive(words: SharedWords, ordinal: int) -> None:
    place = AT + board_words.slot_offset(ordinal)
    before = words.load(board_words.S_CALL, place)
    words.exchange(board_words.S_CALL, before, board_words.arrived(before, 2, ordinal, 9)[0], place)


def test_a_refusal_is_tried_again_where_a_member_arrives_meanwhile(
    words: SharedWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = words.exchange

    def later(*arguments: int) -> int:
        monkeypatch.undo()
        _arrive(words, 1)
        return exchange(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(words, "exchange", later)
    board = BoardView(words, AT, 2)
    assert board.refuse(1) is Refusal.REFUSED
    assert board.state(1) is CallState.REFUSED


def test_where_members_are_apart_is_told_until_it_is_forgotten(words: SharedWords) -> None:
    board, place = BoardView(words, AT, 3), AT + board_words.B_APART
    assert board.apart() is None
    board.forget_apart()
    words.exchange(board_words.A_CLAIM, 0, 1, place)
    assert board.apart() is None
    words.payload(board_words.A_MEMBERS, 8, place)[:] = (2).to_bytes(4, "little") + (1).to_bytes(4, "little")
    sites = b"a.py:41".ljust(board_words.SITE_BYTES, b"\0") + b"a.py:54".ljust(board_words.SITE_BYTES, b"\0")
    words.payload(board_words.A_SITES, 2 * board_words.SITE_BYTES, place)[:] = sites
    words.store(board_words.A_ORDINAL, 1, place)
    assert board.apart() == Apart(0, (2, "a.py:41"), (1, "a.py:54"))
    board.forget_apart()
    assert board.apart() is None
    assert words.load(board_words.A_CLAIM, place) == 0


@pytest.mark.parametrize("members", [1, 1024])
def test_boards_have_several_members(words: SharedWords, members: int) -> None:
    with pytest.raises(InternalError, match=f"a board for {members} processes"):
        BoardView(words, AT, members)
