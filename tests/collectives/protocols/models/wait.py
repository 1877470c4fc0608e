"""Model of waiting, waking and aborting (transports/shared_memory/wait_and_wake.py), which all protocols share."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from distxla.collectives.protocols.control_block import H_ABORT, R_STATE, R_WAIT_WORD, ReplicaState
from distxla.collectives.protocols.layout import Area, Order, Word
from tests.collectives.protocols.models.machine import ABORTED, Process, Value, title

RUNNING, WAITING = ReplicaState.RUNNING, ReplicaState.WAITING
Sleep = tuple[Word, int]  # a word on which processes sleep, and of which instance

ANY = Area("argument", "words given to the routines of waiting and waking")
A_WORD = ANY.u32(0, "word", "any side", Order.RELEASE, "processes sleep on it", futex=True)
A_SLEEPERS = ANY.u32(4, "sleepers", "sleepers", Order.UPDATED, "about to sleep on the word")


def wait(p: Process, device: int, word: Word, seen: str, sleepers: Word, at: int = 0) -> None:
    """Sleep while the word equals register `seen`; ends the process if the abort flag was set."""
    with p.routine("wait", word, sleepers):
        waiting(p, device, word, seen, sleepers, at)
    with p.when("now", "==", seen):
        p.end(ABORTED)


def waiting(p: Process, device: int, word: Word, seen: str, sleepers: Word, at: int = 0) -> None:
    """The routine; register `now` has the word's new value, or the old one if the wait was aborted."""
    with p.block() as over:
        with p.when("spins", "!=", 0):  # or yields
            p.load("now", word, at)
            over.leave("now", "!=", seen)
        with p.tagged("note the place"):
            p.store(R_WAIT_WORD, place_number(word, at), device)
        with p.tagged("count sleeper"):
            p.add("_", sleepers, 1, at)
        with p.tagged("note waiting"):
            p.store_in_race(R_STATE, WAITING, device)
        with p.forever() as awake:
            with p.tagged("look again"):
                p.load("now", word, at)
                awake.leave("now", "!=", seen)
            with p.tagged("look for abort"):
                p.load_in_race("abort", H_ABORT)
                awake.leave("abort", "!=", 0)
            with p.tagged("sleep"):
                p.sleep(word, seen, at)
        with p.tagged("uncount sleeper"):
            p.add("_", sleepers, -1, at)
        p.store(R_WAIT_WORD, 0, device)
        with p.tagged("note running"):
            p.store(R_STATE, RUNNING, device)


def await_word(p: Process, device: int, word: Word, value: Value, sleepers: Word, at: int = 0) -> None:
    """Until the word has reached a value."""
    with p.forever() as loop:
        with p.tagged("look"):
            p.load("seen", word, at)
        loop.leave("seen", ">=", value)
        wait(p, device, word, "seen", sleepers, at)


def wake(p: Process, word: Word, sleepers: Word, at: int = 0) -> None:
    """Wake the processes that sleep on a word that was changed before; no system call if there are none."""
    with p.routine("wake", word, sleepers):
        waking(p, word, sleepers, at)


def waking(p: Process, word: Word, sleepers: Word, at: int = 0) -> None:
    """The routine."""
    with p.tagged("fence before wake"):
        p.fence()
    with p.tagged("look for sleepers"):
        p.load("asleep", sleepers, at)
    with p.when("asleep", "!=", 0), p.tagged("wake"):
        p.wake(word, at)


def place_number(word: Word, at: int) -> int:
    """The number of a word in R_WAIT_WORD; in the code its offset in the control block."""
    return 1 + crc32(f"{title(word)} {at}".encode())


def aborter(devices: int, sleeps: Sequence[Sleep]) -> Process:
    """Sets the abort flag, then wakes the WAITING devices on the words they sleep on, until it sees none.

    sleeps: the words on which devices sleep.
    """
    p = Process("aborter")
    with p.tagged("set abort"):
        p.store(H_ABORT, 1)
    with p.tagged("fence after abort"):
        p.fence()
    with p.forever() as sweep:
        p.assign("again", 0)
        for device in range(devices):
            p.load("state", R_STATE, device)
            with p.when("state", "==", WAITING):
                p.assign("again", 1)
                p.load("place", R_WAIT_WORD, device)
                for word, at in sleeps:
                    with p.when("place", "==", place_number(word, at)), p.tagged("wake the aborted"):
                        p.wake(word, at)
        with p.tagged("sweep again"):
            sweep.leave("again", "==", 0)
    p.end(ABORTED)
    return p
