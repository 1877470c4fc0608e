"""What members of a set and the owner of their devices do around the native code of joint calls (launch.py)."""

from __future__ import annotations

from distxla.collectives.protocols import launch_board as board
from distxla.collectives.protocols.control_block import H_COMMAND, H_DONE, H_HOLD
from distxla.collectives.protocols.launch_board import Arrival
from tests.collectives.protocols.models.launch import REFUSED, arrive, issue, log, opened, write_apart
from tests.collectives.protocols.models.machine import Process
from tests.collectives.protocols.models.model import Model

HAS_REFUSED, HAS_RUN = 1, 2


def agreeing(members: int, calls: int) -> Model:
    """All members make the same calls. The process of a member, and its devices, are one here."""
    made = []
    for me in range(members):
        p = Process(f"member {me}")
        for r in range(calls):
            with p.tagged("give arguments"):
                p.data("argument", r + 1, 10 * r + me)
            arrive(p, me, members, r)
            _await_start(p, me, r + 1)
            for k in range(members):
                if k != me:
                    p.read("got", "argument", 10 * r + k)
                    p.check("got", r + 1, "every member's arguments")
        p.load("command", H_COMMAND, me)
        p.check("command", calls, "one start a call")
        p.end()
        made.append(p)
    return Model(made, [])


def _await_start(p: Process, me: int, sequence: int) -> None:
    """Of a member's devices."""
    with p.forever() as started:
        p.load("command", H_COMMAND, me)
        started.leave("command", ">=", sequence)
        p.sleep(H_COMMAND, "command", me)


def refused_or_run(members: int) -> Model:
    """The owner refuses a call at any time: either it never starts, or all members run it."""
    made = []
    for me in range(members):
        p = Process(f"member {me}")
        p.data("argument", 1, me)
        arrive(p, me, members, 0)
        with p.forever() as over:
            p.load("command", H_COMMAND, me)
            over.leave("command", ">=", 1)
            p.load("verdict", board.A_ORDINAL)  # the owner tells it by a frame
            with p.when("verdict", "==", HAS_REFUSED):
                p.load("command", H_COMMAND, me)
                over.leave("", "==", "")
            p.nap(H_COMMAND, "command", me)
        p.load("verdict", board.A_ORDINAL)
        with p.when("command", "==", 1):
            p.assign("wrong", 0)
            with p.when("verdict", "==", HAS_REFUSED):
                p.assign("wrong", 1)
            p.check("wrong", 0, "no start behind a refusal")
            for k in range(members):
                p.read("got", "argument", k)
                p.check("got", 1, "every member's arguments")
        with p.when("command", "==", 0):
            p.check("verdict", HAS_REFUSED, "a start or a refusal")
        p.end()
        made.append(p)
    owner = Process("owner")
    refuse(owner, members, 0)
    owner.store(board.A_ORDINAL, "outcome")
    owner.end()
    return Model([*made, owner], [])


def refuse(p: Process, members: int, ordinal: int) -> None:
    """BoardView.refuse. Register outcome: HAS_REFUSED or HAS_RUN; 0: it is too early."""
    begin = opened(ordinal)
    with p.block() as over, p.forever() as done:
        p.load("slot", board.S_CALL, ordinal % 2)
        p.assign("outcome", HAS_RUN)
        over.leave("slot", ">=", begin + 100)
        for program in range(2):
            over.leave("slot", "==", begin + 10 * program + members)
        p.assign("outcome", HAS_REFUSED)
        over.leave("slot", ">=", begin + REFUSED)
        if ordinal > 1:
            before = opened(ordinal - 2)
            with p.when("slot", "<", begin):
                p.assign("outcome", 0)
                for program in range(2):
                    with p.when("slot", "==", before + 10 * program + members):
                        p.assign("outcome", HAS_REFUSED)
                with p.when("slot", ">=", before + REFUSED):
                    p.assign("outcome", HAS_REFUSED)
                with p.tagged("too early"):
                    over.leave("outcome", "==", 0)
        with p.tagged("refuse"):
            p.compare_and_swap("swapped", board.S_CALL, "slot", begin + REFUSED, ordinal % 2)
        done.leave("swapped", "!=", 0)


def held(calls: int) -> Model:
    """A process makes calls on its own devices; the owner takes its slice at any time, and lets go."""
    p = Process("member")
    for number in range(1, calls + 1):
        issue(p, 0, number)
        with p.when("held", "!=", 0):
            await_let_go(p, 0)
        with p.tagged("write the commands"):
            p.data("slice", number)
        with p.tagged("start"):
            p.store(H_COMMAND, number)
        p.read("got", "slice")
        p.check("got", number, "a slice of its own")
        with p.tagged("end"):
            p.add("_", H_DONE, 1)
    p.end()
    owner = Process("owner")
    take_hold(owner, 0)
    with owner.when("issued", "!=", 0):
        # of a call that it has issued, and that has started, the owner has the rest
        owner.load("command", H_COMMAND)
        with owner.when("command", "==", "issued"):
            await_done(owner, 0, "issued")
            owner.data("slice", 100)
            owner.read("got", "slice")
            owner.check("got", 100, "a slice of its own")
    with owner.tagged("let go"):
        owner.store(H_HOLD, 0)
    owner.end()
    return Model([p, owner], [])


def await_let_go(p: Process, me: int) -> None:
    """Until the owner has not the slice any more."""
    with p.forever() as free, p.tagged("await the owner"):
        p.load("held", H_HOLD, me)
        free.leave("held", "==", 0)
        p.nap(H_HOLD, "held", me)


def take_hold(p: Process, k: int) -> None:
    """Of a member's slice. Register issued: the newest call that it has issued, whose record is whole."""
    with p.tagged("take hold"):
        p.store(H_HOLD, 1, k)
    with p.tagged("look at the issues"):
        p.load_in_race("issued", board.L_ISSUED, k)
    for parity in range(2):
        with p.when("issued", "==", 2 - parity):
            p.load("sequence", board.I_SEQUENCE, 2 * k + parity)
            p.check("sequence", "issued", "a whole record")


def await_done(p: Process, k: int, target: str | int) -> None:
    """Until the devices of a member are done; the owner looks again and again."""
    with p.forever() as over:
        p.load("done", H_DONE, k)
        over.leave("done", ">=", target)
        p.nap(H_DONE, "done", k)


def logged(calls: int) -> Model:
    """A process logs calls, over one place; another one reads it."""
    p = Process("member")
    for turn in range(calls):
        log(p, 0, turn)
    p.end()
    reader = Process("reader")
    with reader.tagged("look at the turn"):
        reader.load("before", board.C_TURN)
    reader.load("ordinal", board.C_ORDINAL)
    reader.load("site", board.C_SITE)
    with reader.tagged("fence the copy"):
        reader.fence(acquire=True)
    with reader.tagged("look again"):
        reader.load("after", board.C_TURN)
    with reader.when("before", "!=", 0), reader.when("before", "==", "after"):
        reader.check("ordinal", "before", "the entry's ordinal")
        reader.check("site", "before", "the entry's line")
    reader.load("newest", board.L_NEWEST)
    with reader.when("newest", "!=", 0):
        reader.load("now", board.C_TURN)
        with reader.when("now", "!=", 0):
            reader.assign("is old", 0)
            with reader.when("now", "<", "newest"):
                reader.assign("is old", 1)
            reader.check("is old", 0, "an entry for each turn")
    reader.end()
    return Model([p, reader], [])


def parted(members: int = 2) -> Model:
    """All members find that they are at other lines than the next one; the owner reads what is told, and forgets it."""
    made = []
    for me in range(members):
        p = Process(f"member {me}")
        p.data("line", me + 1, me)
        p.store(board.I_ORDINAL, 1, 2 * me + 1)
        p.store(board.C_TURN, 1, me)
        p.store(board.L_ISSUED, 1, me)
        other = (me + 1) % members
        p.load("issued", board.L_ISSUED, other)
        with p.when("issued", "!=", 0):
            write_apart(p, me, other, 0)
        p.end()
        made.append(p)
    owner = Process("owner")
    for _ in range(2):
        owner.load("ordinal", board.A_ORDINAL)
        with owner.when("ordinal", "!=", 0):
            owner.load("line", board.A_SITES)
            owner.assign("is line", 0)
            for me in range(members):
                with owner.when("line", "==", me + 1):
                    owner.assign("is line", 1)
            owner.check("is line", 1, "a member's line")
            with owner.tagged("forget"):
                owner.store(board.A_ORDINAL, 0)
                owner.compare_and_swap("reset", board.A_CLAIM, 1, 0)
    owner.end()
    return Model([*made, owner], [])


__all__ = [
    "HAS_REFUSED",
    "HAS_RUN",
    "Arrival",
    "agreeing",
    "await_done",
    "await_let_go",
    "held",
    "logged",
    "parted",
    "refuse",
    "refused_or_run",
    "take_hold",
]
