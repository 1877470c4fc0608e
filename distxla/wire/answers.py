"""Connections whose other side's kernel does not answer any more: its machine is off, or the network is cut.

A thread looks at all connections of the process a few times a second. The kernel says whether bytes are in flight and
when the last acknowledgement has come; where nothing is in flight it probes by itself. So a cut is found in whichever
direction it is. A process that is stopped, or slow, loses nothing: its kernel answers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import weakref
from typing import Final, Protocol

from distxla import clock
from distxla.machine.shortages import started_thread

THREAD: Final = "distxla-answers-of-hosts"
LOOKS: Final = 14  # within the time in which an answer is to come
LEAST_LOOKS: Final = 6  # in a row that find no answer: this process, or its machine, may have been stopped between two

# struct tcp_info of Linux: 8 bytes, of which probes is the fourth; then u32 words
_INFO = struct.Struct("<8B13I")
_PROBES, _IN_FLIGHT, _LAST_ANSWER = 3, 8 + 4, 8 + 12


class Answers:
    """What the kernel says of a socket's other side. seconds: in which an answer is to come."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self.socket, self.seconds = sock, seconds
        self._looks = 0

    def missing(self) -> str:
        """How long there has been none, in words; "" where all is well. OSError where the socket is closed, or none of
        TCP."""
        found = _INFO.unpack(self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
        silent = found[_LAST_ANSWER] / 1000
        self._looks = self._looks + 1 if found[_IN_FLIGHT] or found[_PROBES] > 1 else 0
        if self._looks < LEAST_LOOKS or silent < self.seconds:
            return ""
        return f"its machine has not answered for {silent:.1f} s"


class Answered(Protocol):
    """A connection that is looked at."""

    answers: Answers | None

    def give_up(self, how: str) -> None:
        """Called once, in the thread that looks: answers are missing. Does not block."""


class Watch:
    """The connections of this process, for as long as somebody has them. Its thread ends with the last of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connections: list[weakref.ref[Answered]] = []
        self.runs = False

    def add(self, one: Answered) -> None:
        with self.lock:
            self.connections.append(weakref.ref(one))
            if not self.runs:
                thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                started_thread(thread, "the loss of a host could not be noticed")
                self.runs = True

    def _run(self) -> None:
        try:
            while (seconds := self._look()) is not None:
                clock.sleep(seconds)
        except BaseException:  # the next connection begins anew
            self.runs = False
            raise

    def _look(self) -> float | None:
        """Seconds until the next look; None where there is nothing to look at any more."""
        with self.lock:
            there = [*self.connections]
        ended = [one for one in there if not _is_answered(one())]
        with self.lock:
            self.connections = [one for one in self.connections if one not in ended]
            limits = [found.answers.seconds for one in self.connections if (found := one()) and found.answers]
            self.runs = bool(limits)
            return min(limits) / LOOKS if limits else None


def _is_answered(one: Answered | None) -> bool:
    """Whether it is to be looked at again."""
    if one is None or one.answers is None:
        return False
    try:
        how = one.answers.missing()
    except OSError:  # it is closed
        return False
    if how:
        one.give_up(how)
    return not how


def require_answers(one: Answered) -> None:
    """Look at a connection from now on. ClusterError where no thread can be started.

    While nothing is in flight the kernel probes after 1 s of silence, and gives up after three probes. What is in
    flight is judged here: the kernel's own limit would end the connection of a process that is stopped, too.
    """
    assert one.answers is not None
    for option, value in (
        (socket.TCP_KEEPIDLE, 1),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, 3),
        (socket.TCP_USER_TIMEOUT, 0),
    ):
        with contextlib.suppress(OSError):  # it is closed, which its next use tells
            one.answers.socket.setsockopt(socket.IPPROTO_TCP, option, value)
    watch.add(one)


def _forget() -> None:
    """A forked child has no threads, and none of its parent's connections."""
    global watch
    watch = Watch()


watch = Watch()
os.register_at_fork(after_in_child=_forget)

__all__ = ["LEAST_LOOKS", "LOOKS", "THREAD", "Answered", "Answers", "Watch", "require_answers", "watch"]
