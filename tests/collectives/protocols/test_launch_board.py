"""What the words of a board become, one event after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxla.collectives.protocols import launch_board as board
from distxla.collectives.protocols.launch_board import Arrival, CallState, Refusal, Slot, SlotState

WRAPPED = (1 << 32) - 2  # an ordinal whose successor in its slot has a smaller low half


def _arrive(word: int, *calls: tuple[int, int], members: int = 2) -> tuple[int, list[Arrival]]:
    """Arrivals one behind the other, each with its ordinal and program."""
    found = []
    for ordinal, program in calls:
        word, answer = board.arrived(word, members, ordinal, program)
        found.append(answer)
    return word, found


@given(
    ordinal=st.integers(0, (1 << 64) - 1),
    program=st.integers(0, board.MOST_PROGRAMS - 1),
    state=st.sampled_from(SlotState),
    count=st.integers(0, board.MOST_MEMBERS - 1),
)
def test_a_slot_is_packed_and_taken_apart(ordinal: int, program: int, state: SlotState, count: int) -> None:
    word = Slot(ordinal, program, state, count).pack()
    assert word < 1 << 64
    assert Slot.unpack(word) == (ordinal & 0xFFFFFFFF, program, state, count)


@pytest.mark.parametrize("members", [2, 3, 1023])
@pytest.mark.parametrize("ordinal", [0, 1, WRAPPED, 1 << 32])
def test_the_last_of_all_members_completes_a_call(members: int, ordinal: int) -> None:
    word, found = _arrive(0, *[(ordinal, 7)] * members, members=members)
    assert found == [Arrival.WAITS] * (members - 1) + [Arrival.LAST]
    assert board.state_of(word, members, ordinal) is CallState.COMPLETE
    assert board.refused(word, members, ordinal) == (word, Refusal.RUNS)


def test_a_later_call_takes_the_slot_of_one_that_is_over() -> None:
    for first in (0, WRAPPED):
        word, found = _arrive(0, *[(first, 7)] * 2, *[(first + 2, 8)] * 2)
        assert found == [Arrival.WAITS, Arrival.LAST] * 2
        assert board.state_of(word, 2, first) is CallState.PAST
        assert board.state_of(word, 2, first + 4) is CallState.MISSING


def test_another_program_is_not_counted() -> None:
    word, found = _arrive(0, (3, 7), (3, 8), (3, 7), members=3)
    assert found == [Arrival.WAITS, Arrival.DIFFERS, Arrival.WAITS]
    assert board.state_of(word, 3, 3) is CallState.OPEN


@pytest.mark.parametrize("before", [[(4, 7)], [(2, 7), (2, 7)]])
def test_a_refused_call_never_starts(before: list[tuple[int, int]]) -> None:
    word, _ = _arrive(0, *before)
    word, outcome = board.refused(word, 2, 4)
    assert outcome is Refusal.REFUSED
    assert board.refused(word, 2, 4) == (word, Refusal.REFUSED)
    assert board.state_of(word, 2, 4) is CallState.REFUSED
    assert _arrive(word, (4, 7), (4, 7)) == (word, [Arrival.REFUSED] * 2)
    assert _arrive(word, (6, 7), (4, 7), (6, 7))[1] == [Arrival.WAITS, Arrival.REFUSED, Arrival.LAST]


def test_a_call_behind_an_open_one_is_not_refused_yet() -> None:
    word, _ = _arrive(0, (2, 7))
    assert board.refused(word, 2, 4) == (word, Refusal.EARLY)
    word, _ = _arrive(word, (2, 7))
    assert board.refused(word, 2, 6) == (word, Refusal.EARLY)  # nobody has arrived at 4 yet
    assert board.refused(word, 2, 6, is_reached=True)[1] is Refusal.REFUSED  # that was by frames
    word, outcome = board.refused(word, 2, 4)
    assert outcome is Refusal.REFUSED
    assert board.refused(word, 2, 6)[1] is Refusal.REFUSED


@pytest.mark.parametrize("ordinal", [0, 1, 2])
def test_only_first_calls_are_refused_before_any_other(ordinal: int) -> None:
    assert board.refused(0, 2, ordinal)[1] is (Refusal.EARLY if ordinal == 2 else Refusal.REFUSED)
    assert board.refused(0, 2, ordinal, is_reached=True)[1] is Refusal.REFUSED


def test_a_call_that_is_past_is_not_refused() -> None:
    word, _ = _arrive(0, (2, 7), (2, 7), (4, 7))
    assert board.refused(word, 2, 2) == (word, Refusal.RUNS)


def test_the_first_member_at_another_line_is_told() -> None:
    word, other = board.first_from(0, 0, 1, 5)
    assert other is None
    assert board.first_from(word, 0, 0, 5) == (word, None)
    assert board.first_from(word, 0, 0, 6) == (word, 1)
    assert board.first_from(word, 0, 0, 0) == (word, None)  # no line is known
    later, other = board.first_from(word, 2, 1023, board.HASH_MASK)
    assert other is None
    assert board.first_from(later, 0, 0, 6) == (later, None)  # late at a call that was refused
    assert board.first_from(later, 2, 0, 6) == (later, 1023)


def test_the_hash_is_of_what_an_entry_keeps() -> None:
    site = b"/home/me/train.py:29"
    assert 0 < board.site_hash(site) <= board.HASH_MASK
    assert board.site_hash(site) != board.site_hash(b"/home/me/train.py:30")
    assert board.site_hash(b"") == 0
    assert board.site_kept(b"x" * 300 + site) == b"x" * (board.SITE_BYTES - 1 - len(site)) + site
    assert board.site_hash(b"x" * 300 + site) == board.site_hash(b"y" + b"x" * 300 + site)
