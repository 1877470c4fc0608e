"""Model of permutes: every device sends to one device and receives from one. A message is known by its target.

small: the operand travels in the message; else one side copies it from operand to result.
"""

from __future__ import annotations

from collections.abc import Sequence

from distxla.collectives.protocols import permute, rounds
from distxla.lazy_dataclass import dataclass
from tests.collectives.protocols.models.machine import MISMATCH, Process
from tests.collectives.protocols.models.model import Model
from tests.collectives.protocols.models.wait import await_word, wake

START = {"sends": 1, "receives": 1}


@dataclass(frozen=True)
class Ends:
    """A device, its target and its source."""

    me: int
    target: int
    source: int


def permute_ring(devices: int, rounds_: int, *, small: bool, asynchronous: Sequence[bool]) -> Model:
    """Every device sends to the next one. asynchronous: by device, whether a round has start and done."""
    made = []
    for me in range(devices):
        p, at = Process(f"device {me}", START), Ends(me, (me + 1) % devices, (me - 1) % devices)
        for r in range(rounds_):
            p.data("operand", r + 1, me)
            if asynchronous[me]:
                permute_begin(p, at, r, small=small)
                permute_end(p, at, r, small=small)
            else:
                permute_round(p, at, r, small=small)
            p.read("got", "received", me)
            p.check("got", r + 1, "the source's operand")
        p.end()
        made.append(p)
    sleeps = [(word, k) for word in (permute.M_POSTED, permute.M_TAKEN) for k in range(devices)]
    return Model(made, sleeps, symmetric=len(set(asynchronous)) == 1)


def permute_round(p: Process, at: Ends, r: int, *, small: bool) -> None:
    """Start and done at once: emit_permute_round."""
    _begin(p, at, r, small=small, ends_later=False)
    _end(p, at, r, small=small, ready=False)


def permute_begin(p: Process, at: Ends, r: int, *, small: bool) -> None:
    """The start: emit_permute_begin."""
    _begin(p, at, r, small=small, ends_later=True)


def permute_end(p: Process, at: Ends, r: int, *, small: bool) -> None:
    """The done: emit_permute_end."""
    with p.when("alone", "!=", 0):
        p.end()
    _end(p, at, r, small=small, ready=True)


def _begin(p: Process, at: Ends, r: int, *, small: bool, ends_later: bool) -> None:
    with p.when("receives", "==", 0):
        p.call("zero")
        with p.when("alone", "!=", 0):
            p.end()
    p.load("taken", permute.M_TAKEN, at.me)
    with p.when("taken", "!=", r):
        p.call("end the oldest round")
        with p.when("failed", "!=", 0):
            p.end()
    with p.when("sends", "!=", 0):
        _send(p, at, r, small=small)
    with p.when("receives", "!=", 0):
        if ends_later or not small:
            with p.tagged("post results"):
                p.store(rounds.S_SIGNATURE, r + 1, at.me)
        if not small:
            with p.when("source is elsewhere", "!=", 0):
                p.call("enqueue")
            with p.otherwise():
                _claim(p, at.me)
                with p.when("claimed", "==", 2 * r + 1):
                    _await_message(p, at.me, r)
                    _take_large(p, at, r)
        elif ends_later:
            _ask(p, at.me, r)


def _end(p: Process, at: Ends, r: int, *, small: bool, ready: bool) -> None:
    with p.when("receives", "!=", 0):
        if ready or not small:
            p.load("taken", permute.M_TAKEN, at.me)
            with p.when("taken", "<", r + 1):
                _await_message(p, at.me, r)
                if small:
                    _take_small_once(p, at.me, r)
                with p.tagged("delivered"):
                    await_word(p, at.me, permute.M_TAKEN, r + 1, permute.M_TAKEN_SLEEPS, at.me)
        else:
            _await_message(p, at.me, r)
            _take_small(p, at.me, r)
    if not small:
        with p.when("sends", "!=", 0):
            p.load_own("zero-copy", permute.M_ZERO_COPY, at.target)
            with p.when("zero-copy", "!=", 0), p.tagged("operand is free"):
                await_word(p, at.me, permute.M_TAKEN, r + 1, permute.M_TAKEN_SLEEPS, at.target)


# --- the source's side


def _send(p: Process, at: Ends, r: int, *, small: bool) -> None:
    with p.tagged("slot is free"):
        await_word(p, at.me, permute.M_TAKEN, r, permute.M_TAKEN_SLEEPS, at.target)
    p.store(permute.M_SIGNATURE, r + 1, at.target)
    if small:
        with p.routine("copy"):
            p.data("payload", r + 1, at.target)
    else:
        p.store(permute.M_PAYLOAD, r + 1, at.target)
        _claim(p, at.target)
        p.load("theirs", rounds.S_SIGNATURE, at.target)
        with p.when("claimed", "==", 2 * r):
            p.assign("keeps", 1)
        with p.otherwise():
            p.check("theirs", r + 1, "the target's post")
            p.assign("keeps", 0)
        p.store(permute.M_ZERO_COPY, "keeps", at.target)
        with p.when("keeps", "==", 0):
            _deliver(p, at, r)
    with p.tagged("post"):
        p.store(permute.M_POSTED, r + 1, at.target)
    with p.tagged("wake for post"):
        wake(p, permute.M_POSTED, permute.M_TARGET_SLEEPS, at.target)
    if small:
        with p.tagged("look for a request"):
            p.load("ready to receive", permute.M_READY, at.target)
        with p.when("ready to receive", "==", r + 1):
            p.load("theirs", rounds.S_SIGNATURE, at.target)
            p.check("theirs", r + 1, "the target's post")
            with p.when("differs", "==", 0):
                _copies(p, at.target, r)
                with p.when("copies", "!=", 0):
                    _deliver(p, at, r)
    with p.when("target is elsewhere", "!=", 0):
        p.call("enqueue")


def _deliver(p: Process, at: Ends, r: int) -> None:
    """Copy the operand into the target's result."""
    with p.routine("copy"):
        p.read("operand", "operand", at.me)
        p.data("received", "operand", at.target)
    _raise_taken(p, at.target, r)


# --- the target's side


def _ask(p: Process, me: int, r: int) -> None:
    with p.tagged("ask"):
        p.store(permute.M_READY, r + 1, me)
    with p.tagged("fence after asking"):
        p.fence()
    with p.tagged("look for the message"):
        p.load("posted", permute.M_POSTED, me)
    with p.when("posted", "==", r + 1):
        _check_signature(p, me, r)
        _take_small_once(p, me, r)


def _await_message(p: Process, me: int, r: int) -> None:
    with p.tagged("await message"):
        await_word(p, me, permute.M_POSTED, r + 1, permute.M_TARGET_SLEEPS, me)
    _check_signature(p, me, r)


def _check_signature(p: Process, me: int, r: int) -> None:
    """The slot may hold the next message already, but only where this one was taken."""
    p.load("signature", permute.M_SIGNATURE, me)
    with p.when("signature", "!=", r + 1):
        with p.tagged("fence before a mismatch"):
            p.fence(acquire=True)
        p.load("taken", permute.M_TAKEN, me)
        with p.when("taken", "<", r + 1):
            p.check("signature", r + 1, "the message's signature")
            p.end(MISMATCH)


def _take_small_once(p: Process, me: int, r: int) -> None:
    _copies(p, me, r)
    with p.when("copies", "!=", 0):
        _take_small(p, me, r)


def _take_small(p: Process, me: int, r: int) -> None:
    with p.routine("copy"):
        p.read("payload", "payload", me)
        p.data("received", "payload", me)
    _raise_taken(p, me, r)
    with p.when("source is elsewhere", "!=", 0):
        p.call("enqueue")


def _take_large(p: Process, at: Ends, r: int) -> None:
    p.load("where", permute.M_PAYLOAD, at.me)
    p.check("where", r + 1, "the source's offset")
    with p.routine("copy"):
        p.read("operand", "operand", at.source)
        p.data("received", "operand", at.me)
    _raise_taken(p, at.me, r)


# --- shared


def _claim(p: Process, at: int) -> None:
    with p.tagged("claim"):
        p.add("claimed", permute.M_CLAIM, 1, at)


def _copies(p: Process, at: int, r: int) -> None:
    """Whether this side copies a small message of which both know."""
    p.load("copier", permute.M_COPIER, at)
    with p.tagged("claim"):
        p.compare_and_swap("copies", permute.M_COPIER, "copier", r + 1, at)
    with p.when("copier", "==", r + 1):
        p.assign("copies", 0)


def _raise_taken(p: Process, at: int, r: int) -> None:
    with p.tagged("taken"):
        p.store(permute.M_TAKEN, r + 1, at)
    with p.tagged("wake for taken"):
        wake(p, permute.M_TAKEN, permute.M_TAKEN_SLEEPS, at)
