"""The logs of JAX processes and the boards of their sets, as the owner of the devices reads them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.launch_board import BOARD, LOG, CallState, Refusal
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.launch_views import BoardView, Issued, LoggedCall, LogView
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger_facts import Called, Key, Seen
from distxla.jax.processes.owned_cluster import OwnedCluster

_HALF: Final = 1 << 31
_MOST_EARLY: Final = 256
_COMPLETE: Final = (CallState.COMPLETE, CallState.PAST)

Numbers = Callable[[int], tuple[int, ...]]
"""The members of a set's number."""
Names = Callable[[int, int], str]
"""What a process calls a program, by its number."""


class LaunchLogs:
    """There are none before `open`, and none where the devices are of several machines: then all calls are the owner's.

    What reads logs and settles calls is called by one thread at a time.
    """

    def __init__(self, cluster: OwnedCluster, processes: int) -> None:
        self._cluster, self._processes = cluster, processes
        self._lock = threading.Lock()  # of carving
        self._control: ControlBlock | None = None  # which stays mapped while threads look at it
        self._headers: list[int] = []  # offsets of slices' headers there, by process
        self._logs: list[LogView] = []
        self._shown = [0] * processes  # the turn of the first call that was not shown yet
        self._boards: dict[tuple[int, ...], BoardView] = {}
        self._places: dict[tuple[int, ...], int] = {}
        self._early: OrderedDict[Key, None] = OrderedDict()  # refused, but not on their boards yet

    # --- memory

    def open(self) -> tuple[int, ...]:
        """Where the logs are in the control block, by process; () for none. The devices serve."""
        if len(self._cluster.hosts.all) > 1:
            return ()
        local = self._cluster.hosts.local
        control = self._control = local.control
        self._headers = [part.offset for part in local.slices]
        places = tuple(control.carve(LOG.size) for _ in range(self._processes))
        self._logs = [LogView(control, place) for place in places]
        return places

    @property
    def is_open(self) -> bool:
        """Whether processes can issue calls by themselves."""
        return bool(self._logs)

    def board(self, members: tuple[int, ...]) -> int:
        """Where the board of a set is in the control block; 0 for a set of one. It is made when it is first asked
        for."""
        control = self._control
        if len(members) < 2 or control is None:
            return 0
        with self._lock:
            if members not in self._places:
                place = control.carve(BOARD.size)
                self._boards[members] = BoardView(control, place, len(members))
                self._places[members] = place
            return self._places[members]

    # --- what they show

    def seen(self, members_of: Numbers, name_of: Names) -> dict[int, Seen]:
        """What the logs show that they have not shown before, by process."""
        for key in list(self._early):
            if self._boards[key[0]].refuse(key[1]) is not Refusal.EARLY:
                del self._early[key]
        return {process: self._seen(process, members_of, name_of) for process in range(len(self._logs))}

    def _seen(self, process: int, members_of: Numbers, name_of: Names) -> Seen:
        log, begin = self._logs[process], self._shown[process]
        issued = log.issued()  # first: what it has issued is among the entries then
        end = log.newest()
        entries = log.entries(begin) if end > begin else []
        end = max(end, entries[-1].turn + 1 if entries else 0)
        self._shown[process] = end
        calls = tuple(
            _called(process, entry, members_of(entry.set), name_of(process, entry.program))
            for entry in entries
            if not entry.by_frames
        )
        missed = len(entries) < end - begin
        if issued is None:
            return Seen(calls, missed=missed)
        key = members_of(issued.set), issued.ordinal
        return Seen(calls, issued.turn, key, self._is_done(process, issued), missed)

    def part(self, process: int, number: int, ordinal: int) -> tuple[int, int] | None:
        """Sequence and target of a process's part of a call, if that is its newest one and not over."""
        issued = self._logs[process].issued() if self._logs else None
        if issued is None or (issued.set, issued.ordinal) != (number, ordinal) or self._is_done(process, issued):
            return None
        return issued.sequence, issued.target

    def _is_done(self, process: int, issued: Issued) -> bool:
        """Whether the process's part is over, and has not failed: the abort flag is set before a failed device is
        counted."""
        control, at = self._control, self._headers[process]
        assert control is not None
        behind = (control.load(control_words.H_DONE, at) - issued.target + _HALF) % (2 * _HALF)
        return behind >= _HALF and control.load(control_words.H_ABORT, at) == 0

    def newest_set(self, process: int) -> int | None:
        """The number of the set of the newest call that a process has issued by itself."""
        issued = self._logs[process].issued() if self._logs else None
        return None if issued is None else issued.set

    def take_apart(self) -> list[tuple[Called, Called]]:
        """The first calls of sets, since this was asked last, that two processes made from different lines."""
        found = []
        for members, board in list(self._boards.items()):
            if (apart := board.apart()) is not None:
                board.forget_apart()
                sides = [
                    Called(members[position], members, apart.ordinal, 0, 0, "", _site(site))
                    for position, site in (apart.one, apart.other)
                ]
                found.append((sides[0], sides[1]))
        return found

    # --- what becomes of calls

    def refuse(self, key: Key, is_reached: bool) -> bool:
        """Keep a call from starting; False where it has started, or is about to. is_reached: a process has
        reached it."""
        board = self._boards.get(key[0])
        if board is None:
            return True
        found = board.refuse(key[1], is_reached=is_reached)
        if found is Refusal.EARLY:  # nobody has reached it, nor will all
            self._early[key] = None
            if len(self._early) > _MOST_EARLY:
                self._early.popitem(last=False)
        return found is not Refusal.RUNS

    def is_complete(self, key: Key) -> bool:
        """Whether all members have reached a call of several, or have left it behind."""
        board = self._boards.get(key[0])
        return board is not None and board.state(key[1]) in _COMPLETE


def _called(process: int, entry: LoggedCall, members: tuple[int, ...], name: str) -> Called:
    site = _site(entry.site)
    return Called(process, members, entry.ordinal, entry.turn, entry.program, name, site, is_native=True)


def _site(text: str) -> LaunchSite:
    file, _, line = text.rpartition(":")
    return LaunchSite(file, int(line)) if line.isdecimal() else LaunchSite()


__all__ = ["LaunchLogs"]
