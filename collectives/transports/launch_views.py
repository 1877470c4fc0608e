"""Logs and boards of joint calls as Python sees them: the owner of the cluster reads logs, and settles calls by their
boards (protocols/launch_board.py)."""

from __future__ import annotations

from typing import NamedTuple

from distxla.collectives.protocols.launch_board import (
    A_CLAIM,
    A_MEMBERS,
    A_ORDINAL,
    A_SITES,
    B_APART,
    BY_FRAMES,
    C_ORDINAL,
    C_SITE,
    C_TURN,
    ENTRIES,
    ENTRY_ROW,
    I_TURN,
    ISSUE_ROW,
    L_ISSUED,
    L_NEWEST,
    MOST_MEMBERS,
    S_CALL,
    SITE_BYTES,
    CallState,
    Refusal,
    entry_offset,
    issue_offset,
    refused,
    slot_offset,
    state_of,
)
from distxla.collectives.protocols.layout import packed
from distxla.collectives.transports.shared_words import SharedWords
from distxla.errors import InternalError

_MEMBERS_ROW = packed(A_MEMBERS)


class LoggedCall(NamedTuple):
    """A call that a process has made. site: "file:line", or nothing where that is not known.  by_frames: the owner is
    told of it by a frame, too."""

    turn: int
    ordinal: int
    set: int
    program: int
    hash: int
    site: str
    by_frames: bool


class Issued(NamedTuple):
    """A process's part of a call, which it has issued itself. sequence, target: H_COMMAND and H_DONE of its slice once
    the call has started there, and once it is over."""

    turn: int
    ordinal: int
    set: int
    sequence: int
    target: int


class Apart(NamedTuple):
    """The first call of a set that two of its members make at different lines. Each side: position in the set, site."""

    ordinal: int
    one: tuple[int, str]
    other: tuple[int, str]


class LogView:
    """The log of a process. words: of the control block.  at: where it begins there."""

    def __init__(self, words: SharedWords, at: int) -> None:
        self._words, self._at = words, at

    def newest(self) -> int:
        """How many calls the process has made: the turn of its next one."""
        return self._words.load(L_NEWEST, self._at)

    def entry(self, turn: int) -> LoggedCall | None:
        """The call of a turn; None where it is not written yet, or not kept any more."""
        words, place = self._words, self._at + entry_offset(turn)
        if words.load(C_TURN, place) != turn + 1:
            return None
        ordinal, number, program, hash_ = ENTRY_ROW.unpack(words.copy(ENTRY_ROW, C_ORDINAL, place))
        site = bytes(words.payload(C_SITE, SITE_BYTES, place))
        words.fence()
        if words.load(C_TURN, place) != turn + 1:
            return None
        return LoggedCall(turn, ordinal, number & ~BY_FRAMES, program, hash_, _text(site), bool(number & BY_FRAMES))

    def entries(self, begin: int) -> list[LoggedCall]:
        """The calls from a turn on, oldest first, as far as they are kept."""
        end = self.newest()
        found = [self.entry(turn) for turn in range(max(begin, end - ENTRIES), end)]
        return [call for call in found if call is not None]

    def issued(self) -> Issued | None:
        """The newest call that the process has issued itself. All earlier ones are over in it. While the owner has its
        slice (H_HOLD, written before), the process starts nothing behind this one."""
        words = self._words
        while number := words.load_in_race(L_ISSUED, self._at):
            place = self._at + issue_offset(number)
            turn, ordinal, set_, sequence, target = ISSUE_ROW.unpack(words.copy(ISSUE_ROW, I_TURN, place))
            words.fence()
            if words.load_in_race(L_ISSUED, self._at) == number:
                return Issued(turn, ordinal, set_, sequence, target)
        return None


class BoardView:
    """The board of a set of several processes. words: of the control block.  at: where it begins there.  members: how
    many the set has."""

    def __init__(self, words: SharedWords, at: int, members: int) -> None:
        if not 1 < members < MOST_MEMBERS:
            raise InternalError(f"a board for {members} processes")
        self._words, self._at, self._members = words, at, members

    def state(self, ordinal: int) -> CallState:
        """What is known of a call."""
        return state_of(self._words.load(S_CALL, self._at + slot_offset(ordinal)), self._members, ordinal)

    def refuse(self, ordinal: int, *, is_reached: bool = False) -> Refusal:
        """Keep a call from starting, if that is not too late; once all members have arrived it is. is_reached: the
        calls of the set before this one are over in a member."""
        place = self._at + slot_offset(ordinal)
        word = self._words.load(S_CALL, place)
        while True:
            becomes, outcome = refused(word, self._members, ordinal, is_reached=is_reached)
            if outcome is not Refusal.REFUSED:
                return outcome
            found = self._words.exchange(S_CALL, word, becomes, place)
            if found == word:
                return outcome
            word = found

    def apart(self) -> Apart | None:
        """Where members are at different lines, since the owner has forgotten it last."""
        words, place = self._words, self._at + B_APART
        ordinal = words.load(A_ORDINAL, place)
        if ordinal == 0:
            return None
        one, other = _MEMBERS_ROW.unpack(words.copy(_MEMBERS_ROW, A_MEMBERS, place))
        sites = bytes(words.payload(A_SITES, 2 * SITE_BYTES, place))
        return Apart(ordinal - 1, (one, _text(sites[:SITE_BYTES])), (other, _text(sites[SITE_BYTES:])))

    def forget_apart(self) -> None:
        """Of what `apart` has found, let the next such call be found. No other thread may read it meanwhile."""
        place = self._at + B_APART
        if self._words.load(A_ORDINAL, place):
            self._words.store(A_ORDINAL, 0, place)
            self._words.exchange(A_CLAIM, 1, 0, place)


def _text(site: bytes) -> str:
    return site.rstrip(b"\0").decode(errors="replace")


__all__ = ["Apart", "BoardView", "Issued", "LogView", "LoggedCall"]
