"""Models of joint calls (launch_board.py): members that log, issue and arrive, and the owner of their devices.

S_CALL is a number here: 100 for each ordinal, from 100 on, plus 10 times the program, 0 or 1, plus the members that
have arrived; plus REFUSED where the owner has refused the call. Each issue is of one call more, which is its sequence.
"""

from __future__ import annotations

from distxla.collectives.protocols import launch_board as board
from distxla.collectives.protocols.control_block import H_COMMAND, H_HOLD
from distxla.collectives.protocols.launch_board import Arrival
from tests.collectives.protocols.models.machine import Process, Value

REFUSED = 50


def opened(ordinal: int) -> int:
    """S_CALL of a call, less the program and those that have arrived."""
    return 100 * (ordinal + 1)


# --- native code of a member


def log(p: Process, me: int, turn: int) -> None:
    """Write the entry of a call: launch_log. Registers ordinal, program, line: what it has."""
    p.load_own("turn", board.L_NEWEST, me)
    with p.tagged("begin the entry"):
        p.store(board.C_TURN, 0, me)
    with p.tagged("fence the entry"):
        p.fence(release=True)
    p.store(board.C_ORDINAL, turn + 1, me)
    p.call("zero")
    p.store(board.C_SITE, turn + 1, me)
    with p.tagged("end the entry"):
        p.store(board.C_TURN, turn + 1, me)
    with p.tagged("count the entry"):
        p.store(board.L_NEWEST, turn + 1, me)


def issue(p: Process, me: int, number: int, sequence: Value = 0, target: Value = 0) -> None:
    """Say that a call is issued: launch_issue. Register held: whether the owner has the slice."""
    at = 2 * me + number % 2
    p.load_own("issued", board.L_ISSUED, me)
    p.store(board.I_ORDINAL, number, at)
    p.store(board.I_SEQUENCE, sequence or number, at)
    p.store(board.I_TARGET, target or number, at)
    with p.tagged("issue"):
        p.store(board.L_ISSUED, number, me)
    with p.tagged("look for a hold"):
        p.load_in_race("held", H_HOLD, me)


def arrive(p: Process, me: int, members: int, ordinal: int, program: int = 0) -> None:
    """Arrive at the board: launch_arrive. Register answer: the Arrival. `is alone`: it is a set of one."""
    slot, begin, full = ordinal % 2, opened(ordinal), opened(ordinal) + 10 * program + members
    everyone = range(members)
    with p.block() as over:
        with p.when("is alone", "!=", 0):
            _note_commands(p, [me])
            _start(p, [me])
            p.assign("answer", Arrival.LAST)
            over.leave("", "==", "")
        p.load_own("entry", board.C_TURN, me)
        with p.forever() as counted:
            with p.tagged("look at the slot"):
                p.load("slot", board.S_CALL, slot)
            p.assign("is first", 1)
            p.assign("becomes", begin + 10 * program + 1)
            with p.when("slot", ">=", begin):
                p.assign("is first", 0)
                p.assign("answer", Arrival.REFUSED)
                over.leave("slot", ">=", begin + REFUSED)
                p.assign("answer", Arrival.DIFFERS)
                if program:
                    over.leave("slot", "<", begin + 10)
                else:
                    over.leave("slot", ">=", begin + 10)
                p.call("note the line")
                p.increment("becomes", "slot")
            with p.when("becomes", "==", full), p.tagged("note the commands"):
                _note_commands(p, everyone)
            with p.tagged("arrive"):
                p.compare_and_swap("swapped", board.S_CALL, "slot", "becomes", slot)
            counted.leave("swapped", "!=", 0)
        with p.when("is first", "!=", 0):
            p.call("note the line")
        p.assign("answer", Arrival.WAITS)
        over.leave("becomes", "!=", full)
        _start(p, everyone)
        p.assign("answer", Arrival.LAST)


def _note_commands(p: Process, members: range | list[int]) -> None:
    for k in p.each(members):
        p.load(f"command {k}", H_COMMAND, k)


def _start(p: Process, members: range | list[int]) -> None:
    for k in p.each(members):
        p.increment("after", f"command {k}")
        with p.tagged("start"):
            p.compare_and_swap("raised", H_COMMAND, f"command {k}", "after", k)
        with p.when("raised", "!=", 0), p.tagged("wake for the start"):
            p.wake(H_COMMAND, k)


def note_site(p: Process, me: int, ordinal: int) -> None:
    """Compare lines with the first member: launch_note_site. S_FIRST is 100 for each ordinal plus the line."""
    slot, begin = ordinal % 2, opened(ordinal)
    with p.block() as over:
        over.leave("line", "==", 0)
        with p.forever() as noted:
            p.load("first", board.S_FIRST, slot)
            noted.leave("first", ">=", begin + 100)
            with p.when("first", ">=", begin):
                with p.when("first", "!=", "own first"):
                    p.call("write both lines")
                noted.leave("", "==", "")
            with p.tagged("be the first"):
                p.compare_and_swap("swapped", board.S_FIRST, "first", "own first", slot)
            noted.leave("swapped", "!=", 0)


def write_apart(p: Process, me: int, other: int, ordinal: int) -> None:
    """Write down the lines of two members: launch_write_apart."""
    with p.block() as gone:
        p.load("claimed", board.A_CLAIM)
        gone.leave("claimed", "!=", 0)
        p.load("issued", board.L_ISSUED, other)
        p.load("its ordinal", board.I_ORDINAL, 2 * other + (ordinal + 1) % 2)
        gone.leave("its ordinal", "!=", ordinal + 1)
        with p.tagged("look at its entry"):
            p.load("before", board.C_TURN, other)
        with p.routine("copy"):
            p.read("line", "line", other)
        p.assign("own line", me)
        p.call("copy")
        p.fence(acquire=True)
        with p.tagged("look at its entry again"):
            p.load("after", board.C_TURN, other)
        gone.leave("before", "!=", ordinal + 1)
        gone.leave("after", "!=", ordinal + 1)
        with p.tagged("claim"):
            p.compare_and_swap("swapped", board.A_CLAIM, 0, 1)
        gone.leave("swapped", "==", 0)
        p.call("copy")
        p.store(board.A_SITES, "line")
        with p.tagged("tell the lines"):
            p.store(board.A_ORDINAL, ordinal + 1)
