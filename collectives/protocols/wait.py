"""Model of waiting, waking and aborting (transports/shared_memory/wait_and_wake.py), which all protocols share."""

from __future__ import annotations

from distxla.collectives.protocols.control_block import H_POISON, R_STATE
from distxla.collectives.protocols.layout import Word
from distxla.collectives.protocols.machine import ABORTED, Process, Registers, Value

RUNNING, WAITING = 0, 1


def wait(p: Process, device: int, word: Word, seen: str, sleepers: Word, at: int = 0) -> None:
    """Sleep while the word is what register `seen` holds; ends the process if the abort flag was set."""

    def changed(r: Registers) -> int:
        return r["now"] != r[seen]

    with p.tagged("count sleeper"):
        p.add("_", sleepers, 1, at)
    with p.tagged("note waiting"):
        p.store(R_STATE, WAITING, device)
        p.fence()  # in the code: a seq_cst store, and a seq_cst load of the abort flag
    with p.forever() as loop:
        with p.tagged("look again"):
            p.load("now", word, at)
            loop.leave(changed)
        with p.tagged("look for abort"):
            p.load("abort", H_POISON)
            loop.leave(lambda r: r["abort"])
        p.sleep(word, lambda r: r[seen], at)
    p.add("_", sleepers, -1, at)
    p.store(R_STATE, RUNNING, device)
    with p.when(lambda r: r["now"] == r[seen]):
        p.end(ABORTED)


def await_word(p: Process, device: int, word: Word, value: Value, sleepers: Word, at: int = 0) -> None:
    """Until the word has reached a value."""
    with p.forever() as loop:
        p.load("seen", word, at)
        loop.leave(lambda r: r["seen"] >= (value(r) if callable(value) else value))
        wait(p, device, word, "seen", sleepers, at)


def wake(p: Process, word: Word, sleepers: Word, at: int = 0) -> None:
    """Wake who sleeps on a word that was changed before; no system call if nobody does."""
    with p.tagged("fence before wake"):
        p.fence()
    p.load("asleep", sleepers, at)
    with p.when(lambda r: r["asleep"]), p.tagged("wake"):
        p.wake(word, at)


def aborter(devices: int, words: list[tuple[Word, int]]) -> Process:
    """Sets the abort flag, then wakes whom it sees waiting until it sees nobody; words: those that devices sleep on."""
    p = Process("aborter")
    with p.tagged("set abort"):
        p.store(H_POISON, 1)
    with p.tagged("fence after abort"):
        p.fence()
    with p.forever() as sweep:
        for device in range(devices):
            p.load(f"state{device}", R_STATE, device)
        sweep.leave(lambda r: not any(r[f"state{device}"] for device in range(devices)))
        with p.tagged("wake the aborted"):
            for word, at in words:
                p.wake(word, at)
    p.end(ABORTED)
    return p
