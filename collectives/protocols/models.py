"""Models of the protocols: what each member does with the shared words, in two rounds over one place.

The emitted code (transports/shared_memory/group_round.py, stream_site.py) is written by hand after
the same steps. An area and a stream have one place here, so every second round uses it again.
"""

from __future__ import annotations

from distxla.collectives.protocols import group, rounds, stream
from distxla.collectives.protocols.layout import Word
from distxla.collectives.protocols.machine import OK, Process
from distxla.collectives.protocols.wait import aborter, await_word, wake

ROUNDS = 2
Model = tuple[list[Process], list[tuple[Word, int]]]  # the members, and the words on which they sleep


def group_rounds(members: int, count: int = ROUNDS) -> Model:
    """Each member posts, arrives, and the last one does the work for all."""
    made = []
    for me in range(members):
        p = Process(f"member {me}")
        for r in range(count):
            p.data("operand", 10 * (r + 1) + me, me)
            with p.tagged("post"):
                p.store(rounds.S_SIGNATURE, r + 1, me)
            with p.tagged("arrive"):
                p.add("arrived", group.E_ARRIVED, 1)
            with p.when(lambda s: s["arrived"] == members - 1):
                _lead(p, members, r)
            await_word(p, me, group.E_PHASE, 2 * r + 2, group.E_SLEEPERS)
            p.load("outcome", group.E_OUTCOME)
            p.check(lambda s, r=r: s["outcome"] == r + 1, "the round's own outcome")  # type: ignore[misc]
            p.read("got", "result", me)
            p.check(lambda s, r=r: s["got"] == _sum(members, r), "the sum of all operands")  # type: ignore[misc]
        p.end(OK)
        made.append(p)
    return made, [(group.E_PHASE, 0)]


def _sum(members: int, r: int) -> int:
    return sum(10 * (r + 1) + k for k in range(members))


def _lead(p: Process, members: int, r: int) -> None:
    with p.tagged("reset"):
        p.store(group.E_ARRIVED, 0)
    for k in range(members):
        p.load(f"s{k}", rounds.S_SIGNATURE, k)
        p.read(f"d{k}", "operand", k)
    p.check(lambda s: all(s[f"s{k}"] == r + 1 for k in range(members)), "everybody's signature")
    for k in range(members):
        p.data("result", lambda s: sum(s[f"d{m}"] for m in range(members)), k)
    p.store(group.E_OUTCOME, r + 1)
    with p.tagged("publish"):
        p.store(group.E_PHASE, 2 * r + 2)
    with p.tagged("wake members"):
        wake(p, group.E_PHASE, group.E_SLEEPERS)


def stream_items(count: int = ROUNDS) -> Model:
    """A producer and a consumer of items, with room for one."""
    producer, consumer = Process("producer"), Process("consumer")
    for r in range(count):
        with producer.tagged("room"):
            await_word(producer, 0, stream.T_TAKEN, r, stream.T_DEVICE_SLEEPS)
        producer.data("item", r + 1)
        producer.store(stream.L_TYPE, r + 1)
        with producer.tagged("post"):
            producer.store(stream.T_POSTED, r + 1)
        with producer.tagged("wake for post"):
            wake(producer, stream.T_POSTED, stream.T_HOST_SLEEPS)
        await_word(consumer, 1, stream.T_POSTED, r + 1, stream.T_HOST_SLEEPS)
        consumer.load("type", stream.L_TYPE)
        consumer.read("got", "item")
        consumer.check(lambda s, r=r: s["type"] == s["got"] == r + 1, "the item")  # type: ignore[misc]
        with consumer.tagged("take"):
            consumer.store(stream.T_TAKEN, r + 1)
        with consumer.tagged("wake for take"):
            wake(consumer, stream.T_TAKEN, stream.T_DEVICE_SLEEPS)
    producer.end(OK)
    consumer.end(OK)
    return [producer, consumer], [(stream.T_POSTED, 0), (stream.T_TAKEN, 0)]


def with_abort(model: Model) -> list[Process]:
    """The members, and who aborts them at any time."""
    members, words = model
    return [*members, aborter(len(members), words)]
