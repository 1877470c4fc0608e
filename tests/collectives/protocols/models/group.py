"""Model of a round of a group: members post, arrive, the last one starts the work, and each waits for its end."""

from __future__ import annotations

from distxla.collectives.protocols import group, rounds
from tests.collectives.protocols.models.machine import MISMATCH, Process
from tests.collectives.protocols.models.model import Model
from tests.collectives.protocols.models.wait import wait, wake

ITEMS = 2  # of the work of a round


def group_rounds(members: int, rounds_: int, *, shared: bool, spins: bool = False) -> Model:
    """Some rounds over one area. shared: members share the work, else the last one does it."""
    made = []
    for me in range(members):
        p = Process(f"member {me}", {"shared": int(shared), "spins": int(spins)})
        for r in range(rounds_):
            group_round(p, me, members, r)
            for item in range(ITEMS):
                p.read("got", f"result {item}")
                p.check("got", r + 1, "the round's own result")
        p.end()
        made.append(p)
    return Model(made, ((group.E_PHASE, 0),), symmetric=True)


def group_round(p: Process, me: int, members: int, r: int) -> None:
    """Round r of one member: emit_group_round."""
    group_begin(p, me, members, r)
    group_end(p, me, members, r)


def group_begin(p: Process, me: int, members: int, r: int) -> None:
    """Its start: emit_group_begin. Never waits."""
    p.data("operand", r + 1, me)
    p.load("phase", group.E_PHASE)
    with p.when("phase", "!=", 2 * r):
        p.call("end the oldest round")
        with p.when("failed", "!=", 0):
            p.end()
    with p.tagged("post"):
        p.store(rounds.S_SIGNATURE, r + 1, me)
    p.load("first", group.E_FIRST)
    with p.when("first", "==", 0), p.tagged("note the first"):
        p.store(group.E_FIRST, r + 1)
    with p.otherwise():
        p.check("first", r + 1, "the round's own first signature")
        with p.when("differs", "!=", 0):
            _name_the_other(p, me, members)
            p.end(MISMATCH)
    with p.tagged("arrive"):
        p.add("arrived", group.E_ARRIVED, 1)
    with p.when("arrived", "==", members - 1):
        with p.tagged("reset arrived"):
            p.store(group.E_ARRIVED, 0)
        with p.tagged("reset first"):
            p.store(group.E_FIRST, 0)
        with p.when("proxied", "!=", 0):
            p.call("enqueue")
        with p.otherwise():
            _lead(p, me, members, r)


def group_end(p: Process, me: int, members: int, r: int) -> None:
    """Its done: emit_group_end."""
    with p.tagged("await the end"):
        _follow(p, me, members, r)
    with p.tagged("look at the outcome"):
        p.load("outcome", group.E_OUTCOME)
    p.check("outcome", r + 1, "the round's own outcome")
    with p.when("differs", "!=", 0):
        _name_the_other(p, me, members)


def _follow(p: Process, me: int, members: int, r: int) -> None:
    with p.forever() as finished:
        with p.tagged("look at the phase"):
            p.load("seen", group.E_PHASE)
        finished.leave("seen", ">=", 2 * r + 2)
        with p.when("shared", "!=", 0), p.when("seen", "!=", 2 * r):  # in the code the second follows from the first
            _help(p, me, members, r)
        wait(p, me, group.E_PHASE, "seen", group.E_SLEEPERS)


def _lead(p: Process, me: int, members: int, r: int) -> None:
    for member in p.each(_from(me, members)):
        p.load("signature", rounds.S_SIGNATURE, member)
        p.check("signature", r + 1, "every member's signature")
    with p.tagged("note the outcome"):
        p.store(group.E_OUTCOME, r + 1)
    with p.when("shared", "!=", 0):
        with p.tagged("reset next"):
            p.store(group.E_NEXT, 0)
        with p.tagged("reset done"):
            p.store(group.E_DONE, 0)
        with p.tagged("share"):
            p.store(group.E_PHASE, 2 * r + 1)
        with p.when("wanted", "==", 0), p.tagged("wake helpers"):
            wake(p, group.E_PHASE, group.E_SLEEPERS)
    with p.otherwise():
        with p.when("outcome of it", "==", 0):
            work(p, me, members, r, range(ITEMS))
            _end_if_it_failed(p)
        _finish(p, r)


def _finish(p: Process, r: int) -> None:
    with p.tagged("publish"):
        p.store(group.E_PHASE, 2 * r + 2)
    with p.tagged("wake members"):
        wake(p, group.E_PHASE, group.E_SLEEPERS)


def _help(p: Process, me: int, members: int, r: int) -> None:
    with p.forever() as none_left:
        with p.tagged("take an item"):
            p.add("item", group.E_NEXT, 1)
        none_left.leave("item", ">=", ITEMS)
        work(p, me, members, r, ["item"])
        _end_if_it_failed(p)
        with p.tagged("count the item"):
            p.add("done", group.E_DONE, 1)
        with p.when("done", "==", ITEMS - 1):
            _finish(p, r)


def work(p: Process, me: int, members: int, r: int, items: range | list[str]) -> None:
    """Items of the work: read every member's operand, write a part of the result."""
    with p.routine("work"), p.tagged("work"):
        for member in _from(me, members):
            p.read("operand", "operand", member)
            p.check("operand", r + 1, "every member's operand")
        for item in range(ITEMS):
            if isinstance(items, range):
                p.data(f"result {item}", r + 1)
            else:
                with p.when(items[0], "==", item):
                    p.data(f"result {item}", r + 1)


def _end_if_it_failed(p: Process) -> None:
    """Work in a GPU's memory can fail; then the member's error ends the call of all."""
    with p.when("failed", "!=", 0):
        p.end()


def _name_the_other(p: Process, me: int, members: int) -> None:
    """Look for members that run another instruction."""
    for member in p.each(_from(me, members)):
        p.load("signature", rounds.S_SIGNATURE, member)


def _from(me: int, members: int) -> list[int]:
    """The members, from this one on: so the programs of all are the same but for a rotation."""
    return [(me + k) % members for k in range(members)]
