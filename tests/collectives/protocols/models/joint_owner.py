"""Members that make calls, their devices, and the owner of these, who is told of troubles, refuses calls, and takes
over what members can't bring to its end: each may be held up, and each member may die, anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distxla.collectives.protocols import launch_board as board
from distxla.collectives.protocols.control_block import H_COMMAND, H_DONE, H_HOLD, R_COMMAND_SEQUENCE
from distxla.collectives.protocols.launch_board import Arrival
from distxla.collectives.protocols.layout import Area, Order
from distxla.lazy_dataclass import dataclass
from tests.collectives.protocols.models.joint_calls import HAS_REFUSED, HAS_RUN, refuse
from tests.collectives.protocols.models.launch import arrive, issue, opened
from tests.collectives.protocols.models.machine import Place, Process, title

FRAMES = Area("frames", "what processes tell each other without shared words")
F_TROUBLE = FRAMES.u32(0, "trouble", "members", Order.RELEASE, "by ordinal: a member can't run this call, or differs")
F_VERDICT = FRAMES.u32(4, "verdict", "owner", Order.RELEASE, "by ordinal: the call is refused")
F_ENDED = FRAMES.u32(8, "ended", "member", Order.RELEASE, "by member: it makes no more calls")
F_DIED = FRAMES.u32(12, "died", "member", Order.RELEASE, "by member")
F_OUTCOME = FRAMES.u32(16, "outcome", "member", Order.RELEASE, "by ordinal and member: HAS_RUN, HAS_REFUSED")
OWNERS = 100  # in a slice: the owner has written there


@dataclass(frozen=True)
class Joint:
    """A call of all members. skips: the member can't run it.  is_told: before it reaches any call, it has told the
    owner of this one, who finds that it is another one than others have told."""

    ordinal: int
    program: int = 0
    skips: bool = False
    is_told: bool = False


@dataclass(frozen=True)
class Own:
    """A call on the member's own devices."""


@dataclass(frozen=True)
class Scene:
    """What an exploration takes: processes, the mortal ones with the words that tell their deaths, those who serve."""

    processes: Sequence[Process]
    mortal: dict[int, Place]
    serving: Sequence[int]


def scene(*plans: Sequence[Joint | Own], order: Sequence[int] | None = None) -> Scene:
    """Each member has a plan. order: that in which the owner settles calls, other than that of their ordinals."""
    members = len(plans)
    processes = [_member(me, members, plan) for me, plan in enumerate(plans)]
    processes += [_device(me) for me in range(members)]
    ordinals = {call.ordinal for plan in plans for call in plan if isinstance(call, Joint)}
    processes.append(_owner(plans, sorted(ordinals) if order is None else order))
    mortal = {me: (title(F_DIED), me) for me in range(members)}
    return Scene(processes, mortal, range(members, 2 * members))


def _numbers(plan: Sequence[Joint | Own]) -> Iterable[tuple[Joint | Own, int]]:
    """Each call with the number of its issue."""
    number = 0
    for call in plan:
        if isinstance(call, Own) or not call.skips:
            number += 1
        yield call, number


# --- a member


def _member(me: int, members: int, plan: Sequence[Joint | Own]) -> Process:
    p = Process(f"member {me}")
    for told in plan:
        if isinstance(told, Joint) and told.is_told:
            p.store(F_TROUBLE, 1, told.ordinal)
    for call, number in _numbers(plan):
        if isinstance(call, Own):
            _own(p, me, number)
        elif call.skips:
            _skip(p, me, members, call)
        else:
            _joint(p, me, members, call, number)
    p.store(F_ENDED, 1, me)
    p.end()
    return p


def _skip(p: Process, me: int, members: int, call: Joint) -> None:
    """Tell the owner; arrive at no board before it has refused the call."""
    p.store(F_TROUBLE, 1, call.ordinal)
    with p.tagged("await the refusal"):
        p.await_any((F_VERDICT, "==", 1, call.ordinal))
    p.store(F_OUTCOME, HAS_REFUSED, call.ordinal * members + me)


def _begin(p: Process, me: int, number: int, program: int) -> None:
    """Up to the arrival."""
    p.load("before", H_COMMAND, me)
    p.increment("sequence", "before")
    p.load("done before", H_DONE, me)
    p.increment("target", "done before")
    issue(p, me, number, "sequence", "target")
    with p.when("held", "!=", 0), p.tagged("await the owner"):
        p.await_any((H_HOLD, "==", 0, me))
    with p.tagged("write the commands"):
        p.data("slice", number, me)
        p.data("program", program, me)
        p.store(R_COMMAND_SEQUENCE, "sequence", me)


def _over(p: Process, me: int, number: int, program: int) -> None:
    """Behind a call that has run."""
    p.read("ran", "ran", me)
    p.check("ran", program, "the member's own call")
    p.read("got", "slice", me)
    p.assign("is right", 0)
    for value in (number, OWNERS):
        with p.when("got", "==", value):
            p.assign("is right", 1)
    p.check("is right", 1, "a slice of its own")


def _own(p: Process, me: int, number: int) -> None:
    program = 7
    _begin(p, me, number, program)
    p.increment("after", "before")
    p.compare_and_swap("raised", H_COMMAND, "before", "after", me)
    p.check("raised", 1, "a start of its own")
    p.wake(H_COMMAND, me)
    p.await_any((H_DONE, "==", "target", me))
    with p.tagged("let the owner end it"):
        p.await_any((H_HOLD, "==", 0, me))
    _over(p, me, number, program)


def _joint(p: Process, me: int, members: int, call: Joint, number: int) -> None:
    r, program = call.ordinal, opened(call.ordinal) + 10 * call.program
    _begin(p, me, number, program)
    arrive(p, me, members, r, call.program)
    with p.when("answer", "==", Arrival.DIFFERS):
        p.store(F_TROUBLE, 1, r)
    p.await_any((H_DONE, "==", "target", me), (F_VERDICT, "==", 1, r))
    p.load("verdict", F_VERDICT, r)
    p.assign("outcome", HAS_REFUSED)
    with p.when("verdict", "==", 0):
        p.assign("outcome", HAS_RUN)
        with p.tagged("let the owner end it"):
            p.await_any((H_HOLD, "==", 0, me))
    with p.when("outcome", "==", HAS_RUN):
        _over(p, me, number, program)
        p.load("verdict", F_VERDICT, r)
        p.check("verdict", 0, "no refusal of a call that has run")
    with p.when("outcome", "==", HAS_REFUSED):
        p.load("now", H_COMMAND, me)
        p.check("now", "before", "no start of a refused call")
        with p.tagged("withdraw"):
            p.store(R_COMMAND_SEQUENCE, 0, me)
    p.store(F_OUTCOME, "outcome", r * members + me)


# --- devices


def _device(me: int) -> Process:
    """The devices of a member: as distxla_serve."""
    p = Process(f"device {me}")
    with p.forever():
        with p.forever() as awake:
            p.load("command", H_COMMAND, me)
            awake.leave("command", "!=", "seen")
            p.sleep(H_COMMAND, "seen", me)
        p.assign("seen", "command")
        p.load("number", R_COMMAND_SEQUENCE, me)
        with p.when("number", "==", "seen"):
            p.read("program", "program", me)
            p.data("ran", "program", me)
            p.add("_", H_DONE, 1, me)
    p.end()
    return p


# --- the owner


def _owner(plans: Sequence[Sequence[Joint | Own]], order: Sequence[int]) -> Process:
    """Settles one call after the other, in this order; whatever has become of it by then."""
    members = range(len(plans))
    p = Process("owner")
    for r in order:
        _settle(p, plans, r)
    for k in members:
        p.await_any((F_ENDED, "==", 1, k), (F_DIED, "==", 1, k))
    for r in order:
        p.assign("one", 0)
        for k in members:
            p.load("outcome", F_OUTCOME, r * len(plans) + k)
            with p.when("one", "==", 0):
                p.assign("one", "outcome")
            with p.when("outcome", "!=", 0):
                p.check("outcome", "one", "the same outcome for all members")
    p.end()
    return p


def _settle(p: Process, plans: Sequence[Sequence[Joint | Own]], r: int) -> None:
    """Take a call over that all members have made; refuse one that they never will."""
    members = len(plans)
    complete = [opened(r) + 10 * program + members for program in range(2)]
    gone = [(word, "==", 1, k) for k in range(members) for word in (F_ENDED, F_DIED)]
    p.await_any(
        *[(board.S_CALL, "==", value, r % 2) for value in complete],
        (board.S_CALL, ">=", opened(r) + 100, r % 2),
        (F_TROUBLE, "==", 1, r),
        *gone,
    )
    with p.forever() as settled:
        refuse(p, members, r)
        settled.leave("outcome", "!=", 0)
        p.await_any((board.S_CALL, "!=", "slot", r % 2))
    with p.when("outcome", "==", HAS_REFUSED), p.tagged("tell the verdict"):
        p.store(F_VERDICT, 1, r)
    with p.when("outcome", "==", HAS_RUN):
        _take_over(p, plans, r)


def _take_over(p: Process, plans: Sequence[Sequence[Joint | Own]], r: int) -> None:
    """Bring the parts of all members that are in it to their end."""
    members = range(len(plans))
    for k in members:
        with p.tagged("take hold"):
            p.store(H_HOLD, 1, k)
    for k in members:
        number = next((n for call, n in _numbers(plans[k]) if isinstance(call, Joint) and call.ordinal == r), 0)
        at = 2 * k + number % 2
        with p.tagged("look at the issues"):
            p.load_in_race("issued", board.L_ISSUED, k)
        with p.when("issued", "==", number), p.tagged("its part"):
            p.load("sequence", board.I_SEQUENCE, at)
            p.load("target", board.I_TARGET, at)
            p.load("command", H_COMMAND, k)
            with p.when("command", "!=", "sequence"), p.tagged("start for a member"):
                p.store(H_COMMAND, "sequence", k)
            with p.tagged("wake for a member"):
                p.wake(H_COMMAND, k)
            p.await_any((H_DONE, ">=", "target", k))
            p.data("slice", OWNERS, k)
            p.read("got", "slice", k)
            p.check("got", OWNERS, "a slice of the owner's own")
        with p.tagged("let go"):
            p.store(H_HOLD, 0, k)


__all__ = ["Joint", "Own", "Scene", "scene"]
