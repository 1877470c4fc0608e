"""Notices of late processes: others wait for one, which is said along with where it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from distxla import clock
from distxla.jax.processes.ledger_facts import Notice, apart_text, doing_in
from distxla.jax.processes.places import Stack
from distxla.jax.processes.said import guarded
from distxla.machine.processes import is_stopped
from distxla.machine.shortages import started_thread
from distxla.wording import processes_named

LOOK_S: Final = 0.1  # between looks at the ledger
ANSWER_S: Final = 0.5  # for a process to say where it is


class Questions:
    """Asks processes where they are. send: sends one the question of this number; whether it could."""

    def __init__(self, send: Callable[[int, int], bool]) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._asked: dict[int, Stack | None] = {}  # by number
        self._last = 0

    def ask(self, processes: Sequence[int], seconds: float = ANSWER_S) -> dict[int, Stack]:
        """What each of them does that answers within this time. Blocks."""
        numbers = {}
        with self._changed:
            for process in processes:
                self._last = numbers[process] = self._last % 0xFFFFFFFF + 1
                self._asked[self._last] = None
        sent = {process: number for process, number in numbers.items() if self._send(process, number)}
        with self._changed:
            self._changed.wait_for(lambda: all(self._asked[number] is not None for number in sent.values()), seconds)
            found = {process: self._asked.pop(number) for process, number in numbers.items()}
        return {process: stack for process, stack in found.items() if stack is not None}

    def told(self, number: int, stack: Stack) -> None:
        """A process has answered, perhaps too late."""
        with self._changed:
            if number in self._asked:
                self._asked[number] = stack
                self._changed.notify_all()


class LateWatch:
    """A thread that looks at the ledger from time to time and tells of the late processes that it finds.

    look: what the ledger says now.  where: what late processes do, as `told_of` takes it.  tell: gets a process that
    waits, a late one, and the notice for it.
    """

    def __init__(
        self,
        look: Callable[[float], Sequence[Notice]],
        where: Callable[[Sequence[int]], Mapping[int, str]],
        tell: Callable[[int, int, str], None],
    ) -> None:
        self._look, self._where, self._tell = look, where, tell
        self._closed = threading.Event()
        thread = threading.Thread(target=self._run, name="distxla-late", daemon=True)
        self._thread = started_thread(thread, "late processes cannot be watched")

    def close(self) -> None:
        """Nothing is told any more. Twice is fine."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            guarded(self._look_once)

    def _look_once(self) -> None:
        notices = self._look(clock.now())
        if not notices:
            return
        where = self._where(sorted({notice.late for notice in notices if notice.is_busy}))
        for waiting, late, text in lines_of(notices, where):
            for process in waiting:
                self._tell(process, late, text)


def lines_of(notices: Sequence[Notice], where: Mapping[int, str]) -> list[tuple[tuple[int, ...], int, str]]:
    """(who waits, for whom, the notice): processes that wait for the same one in the same call share a line.

    where: what each late process does, to follow "process 1: ".
    """
    groups: dict[tuple[object, ...], list[Notice]] = {}
    for notice in notices:
        call = notice.call
        groups.setdefault((notice.late, call.key, call.function, call.site), []).append(notice)
    lines = []
    for group in groups.values():
        first = group[0]
        waiting = tuple(sorted(notice.waiting for notice in group))
        verb = "waits" if len(waiting) == 1 else "wait"
        seconds = max(notice.seconds for notice in group)
        doing = "" if first.behind is None else doing_in(first.behind, first.doing)
        if first.is_busy and first.late in where:
            doing += f"{', and ' if doing else ''}{where[first.late]}"
        text = (
            f"{processes_named(waiting)} {verb} for process {first.late}: {doing} "
            f"[{seconds:.1f} s so far, in call {first.call.number}: {first.call}]"
        )
        if first.apart is not None:
            text += f"; {apart_text(*first.apart)}"
        lines.append((waiting, first.late, text))
    return lines


def doing_of(stack: Stack | None, pid: int | None) -> str:
    """What a process does that has given this answer, or none. pid: None where it is on another host."""
    if pid is not None and is_stopped(pid):
        return "it is stopped, until SIGCONT"
    if stack is None and pid is None:
        return "it does not answer: it is stopped, or holds the GIL in C code"
    return "it does not answer: it holds the GIL in C code" if stack is None else f"it is {stack}"


__all__ = ["ANSWER_S", "LOOK_S", "LateWatch", "Questions", "doing_of", "lines_of"]
