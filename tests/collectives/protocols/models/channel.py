"""Model of a channel's pair: send, send-done, recv and recv-done of two transfers through one slot.

A value is eager (in the message), or large: zero-copy (it stays where it is until one side copies it), or copied by the
send at once.
"""

from __future__ import annotations

from distxla.collectives.protocols import channel as words
from distxla.collectives.protocols.layout import Word
from distxla.lazy_dataclass import dataclass
from tests.collectives.protocols.models.machine import MISMATCH, Process
from tests.collectives.protocols.models.model import Model
from tests.collectives.protocols.models.wait import await_word, wake

SLOTS = 1  # of the model's ring


@dataclass(frozen=True)
class Value:
    """How a value travels. zero_copy: the send leaves it in its operand.  posted: the recv posts its receive buffer."""

    eager: bool = False
    zero_copy: bool = False
    posted: bool = False


def channel_pair(transfers: int, value: Value) -> Model:
    """A source that sends and waits, a target that receives and waits."""
    source, target = Process("source", {"takes part": 1}), Process("target", {"takes part": 1})
    for r in range(transfers):
        source.data("operand", r + 1)
        send(source, r, value)
        send_done(source, r, value)
        recv(target, r, value)
        recv_done(target, r, value)
        target.read("got", "result")
        target.check("got", r + 1, "the value")
    source.data("operand", 0)  # after the send-done the program may write there
    source.end()
    target.end()
    sleeps = [(word, 0) for word in (words.W_TAKEN, words.C_RECVS, words.W_SENT, words.W_MOVED)]
    return Model([source, target], sleeps)


def send(p: Process, r: int, value: Value) -> None:
    """Post the value: emit of _Send and _ZeroCopySend."""
    _begin(p)
    with p.tagged("slot is free"):
        await_word(p, 0, words.W_TAKEN, r + 1 - SLOTS, words.W_TAKEN_SLEEPERS)
    p.store(words.M_SIGNATURE, r + 1)
    if value.eager:
        p.store(words.M_KIND, words.EAGER)
        with p.routine("copy"), p.tagged("fill the message"):
            p.read("operand", "operand")
            p.data("payload", "operand")
    elif value.zero_copy:
        with p.when("target is elsewhere", "!=", 0):
            _copy_to_bounce_buffer(p)
        with p.otherwise():
            p.store(words.M_KIND, words.RENDEZVOUS)
            p.store(words.M_OFFSETS, r + 1)
    else:
        _copy_at_once(p, r)
    p.store(words.C_SENDS, r + 1)
    _publish(p, "send", words.W_SENT, words.W_SENT_SLEEPERS, r)
    _tell(p, "target")


def _copy_at_once(p: Process, r: int) -> None:
    p.load("received", words.C_RECVS)
    p.load("type", words.L_SIGNATURE)
    p.load("receive buffer", words.L_NUMBER)
    p.assign("buffer posted", 0)
    with p.when("received", ">=", r + 1), p.when("receive buffer", "==", r + 1):
        p.check("type", r + 1, "the recv's type")
        p.assign("buffer posted", 1)
    with p.when("buffer posted", "!=", 0):
        p.store(words.M_KIND, words.RECEIVE_BUFFER)
        p.load("where", words.L_OFFSETS)
        p.check("where", r + 1, "the recv's place")
        with p.routine("copy"):
            p.read("operand", "operand")
            p.data("result", "operand")
    with p.otherwise():
        _copy_to_bounce_buffer(p)


def _copy_to_bounce_buffer(p: Process) -> None:
    p.store(words.M_KIND, words.BOUNCE_BUFFER)
    with p.routine("copy"):
        p.read("operand", "operand")
        p.data("bounce buffer", "operand")


def send_done(p: Process, r: int, value: Value) -> None:
    """Wait for the recv, and make sure that a zero-copy value is copied: emit of _SendDone."""
    _begin(p)
    with p.tagged("await the recv"):
        await_word(p, 0, words.C_RECVS, r + 1, words.C_SOURCE_SLEEPS)
    if value.eager:
        return
    p.load("taken", words.W_TAKEN)
    p.load_own("kind", words.M_KIND)
    with p.when("kind", "==", words.RENDEZVOUS), p.when("taken", "<", r + 1):
        _claim(p, r)
        with p.when("claimed", "!=", r + 1):
            p.load_own("where", words.M_OFFSETS)
            p.load("receive buffer", words.L_NUMBER)
            with p.when("receive buffer", "==", r + 1):
                p.load("type", words.L_SIGNATURE)
                with p.when("type", "!=", r + 1):
                    p.check("type", r + 1, "the recv's type")
                    p.end(MISMATCH)
                p.load("where", words.L_OFFSETS)
                p.check("where", r + 1, "the recv's place")
                with p.routine("copy"):
                    p.read("operand", "operand")
                    p.data("result", "operand")
                p.store(words.M_COPIED_TO, words.RECEIVE_BUFFER)
            with p.otherwise():
                with p.routine("copy"):
                    p.read("operand", "operand")
                    p.data("bounce buffer", "operand")
                p.store(words.M_COPIED_TO, words.BOUNCE_BUFFER)
            _publish(p, "moved", words.W_MOVED, words.W_MOVED_SLEEPERS, r)
        with p.otherwise(), p.tagged("wait until moved"):
            await_word(p, 0, words.W_MOVED, r + 1, words.W_MOVED_SLEEPERS)


def recv(p: Process, r: int, value: Value) -> None:
    """Say that the value may come, and where it goes if that is known: emit of _Recv and _ZeroCopyRecv."""
    _begin(p)
    p.load_own("recvs", words.C_RECVS)
    if value.posted:
        p.load_own("taken", words.W_TAKEN)
        with p.when("taken", ">=", r + 1 - SLOTS), p.tagged("post the receive buffer"):
            p.store(words.L_SIGNATURE, r + 1)
            p.store(words.L_OFFSETS, r + 1)
            p.store(words.L_NUMBER, r + 1)
    _publish(p, "receive", words.C_RECVS, words.C_SOURCE_SLEEPS, r)
    _tell(p, "source")


def recv_done(p: Process, r: int, value: Value) -> None:
    """Wait for the message and take the value: emit of _RecvDone."""
    with p.when("takes part", "==", 0):
        p.call("zero")
        p.end()
    p.load_own("recvs", words.C_RECVS)
    with p.tagged("await the message"):
        await_word(p, 1, words.W_SENT, r + 1, words.W_SENT_SLEEPERS)
    p.load("signature", words.M_SIGNATURE)
    with p.when("signature", "!=", r + 1):
        p.check("signature", r + 1, "the message's signature")
        p.end(MISMATCH)
    if value.eager:
        with p.routine("copy"):
            p.read("payload", "payload")
            p.data("result", "payload")
    else:
        _take_large(p, r)
    _publish(p, "received", words.W_TAKEN, words.W_TAKEN_SLEEPERS, r)
    _tell(p, "source")


def _take_large(p: Process, r: int) -> None:
    p.load("how", words.M_KIND)
    with p.when("how", "==", words.RENDEZVOUS):
        _claim(p, r)
        with p.when("claimed", "!=", r + 1):
            p.load("where", words.M_OFFSETS)
            p.check("where", r + 1, "the send's place")
            with p.routine("copy"):
                p.read("operand", "operand")
                p.data("result", "operand")
            p.assign("how", words.RECEIVE_BUFFER)
            _publish(p, "moved", words.W_MOVED, words.W_MOVED_SLEEPERS, r)
        with p.otherwise():
            with p.tagged("wait until moved"):
                await_word(p, 1, words.W_MOVED, r + 1, words.W_MOVED_SLEEPERS)
            p.load("how", words.M_COPIED_TO)
    with p.when("how", "==", words.BOUNCE_BUFFER), p.routine("copy"):
        p.read("bounce buffer", "bounce buffer")
        p.data("result", "bounce buffer")


def _begin(p: Process) -> None:
    """A device that takes no part in the transfer returns at once."""
    with p.when("takes part", "==", 0):
        p.end()


def _claim(p: Process, r: int) -> None:
    with p.tagged("claim"):
        p.swap("claimed", words.W_CLAIM, r + 1)


def _publish(p: Process, tag: str, word: Word, sleepers: Word, r: int) -> None:
    with p.tagged(tag):
        p.store(word, r + 1)
    with p.tagged(f"wake for {tag}"):
        wake(p, word, sleepers)


def _tell(p: Process, side: str) -> None:
    with p.when(f"{side} is elsewhere", "!=", 0):
        p.call("enqueue")
