"""How JAX processes end: what one says of its own end, and what the owner sees of the ends of all."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from distxla import clock
from distxla.errors import ClusterError, raised
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger_facts import Ending
from distxla.jax.processes.messages import unpack_json
from distxla.jax.processes.places import site_of_traceback
from distxla.jax.processes.said import guarded
from distxla.lazy_dataclass import replace
from distxla.machine.processes import descriptor_of, ended_by, exit_status_of
from distxla.machine.shortages import started_thread
from distxla.runtime.hosts.process_ends import KillCounts, how_ended
from distxla.wire.checksums import Buffer

DEATH_S: Final = 0.5  # between the end of a process's connection and its own, where it has not said that it ends
_MOST_ERROR: Final = 300  # characters of an error that a process ends with


def own_ending() -> dict[str, Any]:
    """The JSON of BYE: how this process ends. Asked at exit, when Python has shown an error that nobody
    has caught."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or hasattr(sys, "ps1"):  # at a prompt, errors end nothing
        return {"how": "end", "error": "", "site": None}
    site = site_of_traceback(error.__traceback__)
    told = raised(error).split("\n", 1)[0][:_MOST_ERROR]
    return {
        "how": "raised",
        "error": told,
        "site": {"file": site.file, "line": site.line, "function": site.function},
    }


def ending_of(payload: Buffer) -> Ending:
    """What a process has said by BYE. ClusterError where it is no such thing."""
    found = unpack_json(payload)
    how, error, site = found.get("how"), found.get("error", ""), found.get("site")
    if how not in ("end", "raised") or not isinstance(error, str):
        raise ClusterError("a BYE frame that does not say how the process ends")
    if site is None:
        return Ending(how, error[:_MOST_ERROR])
    fields = {"file": str, "line": int, "function": str}
    if not isinstance(site, dict) or any(type(site.get(name)) is not kind for name, kind in fields.items()):
        raise ClusterError("a BYE frame whose place is none")
    return Ending(how, error[:_MOST_ERROR], LaunchSite(site["file"], max(0, site["line"]), site["function"]))


class Endings:
    """A thread that sleeps on the descriptors of JAX processes.

    where: a process's host, to be told with its end; "" where there is one host.
    ended: called with a process and how it has ended, once for each, in the thread that finds out. A process says it
    itself (`said`); or it ends without a word, which its descriptor tells, and a moment before that the end of its
    connection (`lost`), which alone means nothing more than "lost".  died: called when a process is gone for good.
    """

    def __init__(
        self,
        ended: Callable[[int, Ending], None],
        died: Callable[[int], None] = lambda process: None,
        where: Callable[[int], str] = lambda process: "",
    ) -> None:
        self._ended, self._died, self._where = ended, died, where
        self._lock = threading.Lock()  # of all below
        self._told: set[int] = set()
        self._pids: dict[int, int] = {}  # by process
        self._descriptors: dict[int, int] = {}  # descriptor -> process
        self._lost: dict[int, float] = {}  # process -> when it is told as lost
        self._kills: KillCounts | None = None
        self._is_closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        thread = threading.Thread(target=self._run, name="distxla-ends", daemon=True)
        self._thread = started_thread(thread, "the ends of processes cannot be watched")

    def watch(self, process: int, pid: int) -> None:
        """A process has come. One that has ended already is told at once."""
        try:
            descriptor = descriptor_of(pid)
        except OSError:  # it is gone
            return
        with self._lock:
            self._pids[process] = pid
            self._descriptors[descriptor] = process
            self._kills = KillCounts(self._pids.values())
        self._look_again()

    def said(self, process: int, how: Ending) -> None:
        """A process has said how it ends."""
        self._tell(process, how)

    def died_elsewhere(self, process: int, how: str, status: int | None) -> None:
        """A process of another host is gone. how, status: see Users (hosts/users.py)."""
        self._tell(process, Ending("signal", signal=how) if how else Ending("exit", status=status))
        guarded(lambda: self._died(process))

    def lost(self, process: int) -> None:
        """The connection of a process has ended."""
        with self._lock:
            if process in self._told:
                return
            self._lost[process] = clock.now() + DEATH_S
        self._look_again()

    def is_one_lost(self) -> bool:
        """Whether a process's connection has ended, and how the process has is yet to be told."""
        with self._lock:
            return bool(self._lost)

    def close(self) -> None:
        """Nothing is told any more; blocks until the thread has ended. Twice is fine."""
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        if is_closed:
            return
        self._look_again()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        os.close(self._wake)
        for descriptor in self._descriptors:
            os.close(descriptor)

    def _look_again(self) -> None:
        with suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                descriptors = list(self._descriptors)
                next_at = min(self._lost.values(), default=None)
            poll = select.poll()
            for descriptor in (self._wake, *descriptors):
                poll.register(descriptor, select.POLLIN)
            wait = None if next_at is None else max(0.0, next_at - clock.now()) * 1000
            ready = {descriptor for descriptor, _ in poll.poll(wait)}
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            for descriptor in ready - {self._wake}:
                self._has_died(descriptor)
            now = clock.now()
            with self._lock:
                over = [process for process, at in self._lost.items() if at <= now]
            for process in over:
                self._tell(process, Ending("lost"))

    def _has_died(self, descriptor: int) -> None:
        with self._lock:
            process = self._descriptors.pop(descriptor)
            pid, kills = self._pids[process], self._kills
        how = _how(pid, descriptor, "" if kills is None else kills.risen())
        os.close(descriptor)
        self._tell(process, how)
        guarded(lambda: self._died(process))

    def _tell(self, process: int, how: Ending) -> None:
        with self._lock:
            self._lost.pop(process, None)
            if process in self._told or self._is_closed:
                return
            self._told.add(process)
        how = replace(how, where=self._where(process))
        guarded(lambda: self._ended(process, how))


def _how(pid: int, descriptor: int, lacking: str) -> Ending:
    """How a process has ended that has said nothing."""
    number = ended_by(pid, descriptor)
    if number:
        return Ending("signal", signal=how_ended(number, lacking, "").removeprefix("by "))
    return Ending("exit", status=None if number is None else exit_status_of(pid, descriptor))


__all__ = ["Endings", "ending_of", "own_ending"]
