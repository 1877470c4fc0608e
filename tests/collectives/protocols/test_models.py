"""The models of all protocols in every execution, weak memory, aborts and deaths included; and what mutants do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from distxla.collectives.protocols.layout import Order
from tests.collectives.protocols.explore import explore
from tests.collectives.protocols.models.call import calls
from tests.collectives.protocols.models.channel import Value, channel_pair
from tests.collectives.protocols.models.group import group_rounds
from tests.collectives.protocols.models.joint_calls import agreeing, held, logged, parted, refused_or_run
from tests.collectives.protocols.models.machine import ALWAYS, NOTHING, ModelStep, Process
from tests.collectives.protocols.models.model import Model
from tests.collectives.protocols.models.permute import permute_ring
from tests.collectives.protocols.models.stream import infeed, outfeed

ANYBODY = 9  # more than there are members
RENDEZVOUS, POSTED, AT_ONCE = Value(zero_copy=True), Value(zero_copy=True, posted=True), Value(posted=True)


@dataclass(frozen=True)
class Case:
    """A model, and how many states it has at least: one that ends early proves nothing."""

    make: Callable[[], Model]
    states: int


CASES = {
    "group of 2, 2 rounds": Case(lambda: group_rounds(2, 2, shared=False), 600),
    "group of 2, 1 shared round": Case(lambda: group_rounds(2, 1, shared=True), 100),
    "group of 3, 1 round": Case(lambda: group_rounds(3, 1, shared=False), 700),
    "permute of 2, 2 small rounds": Case(lambda: permute_ring(2, 2, small=True, asynchronous=[False] * 2), 1200),
    "permute of 2, 1 small asynchronous round": Case(
        lambda: permute_ring(2, 1, small=True, asynchronous=[True] * 2), 300
    ),
    "permute of 2, 1 large asynchronous round": Case(
        lambda: permute_ring(2, 1, small=False, asynchronous=[True] * 2), 300
    ),
    "channel, 2 eager values": Case(lambda: channel_pair(2, Value(eager=True)), 1000),
    "channel, 2 values copied at once": Case(lambda: channel_pair(2, Value()), 1500),
    "channel, 1 zero-copy value": Case(lambda: channel_pair(1, RENDEZVOUS), 200),
    "infeed of 2": Case(lambda: infeed(2), 200),
    "outfeed of 2": Case(lambda: outfeed(2, patient=False), 300),
    "patient outfeed of 2": Case(lambda: outfeed(2, patient=True), 400),
    "2 calls of 2 devices": Case(lambda: calls(2, 2), 4000),
    "2 calls of which one device fails": Case(lambda: calls(2, 2, fails=1), 4000),
    "3 joint calls of 2 processes": Case(lambda: agreeing(2, 3), 500),
    "a joint call of 3 processes": Case(lambda: agreeing(3, 1), 2000),
    "a joint call of 2 processes that the owner refuses": Case(lambda: refused_or_run(2), 700),
    "2 calls of a process that the owner takes hold of": Case(lambda: held(2), 100),
    "2 calls in a log": Case(lambda: logged(2), 60),
    "2 processes at different lines": Case(parted, 150),
}
ABORTED = {
    "group of 2, 1 round": Case(lambda: group_rounds(2, 1, shared=False), 3000),
    "infeed of 1": Case(lambda: infeed(1, timed=True), 150),
    "outfeed of 2": Case(lambda: outfeed(2, patient=True, timed=True), 150),
}
LARGER = {
    "group of 2, 2 shared rounds": Case(lambda: group_rounds(2, 2, shared=True), 4_000),
    "permute of 2, 2 small asynchronous rounds": Case(
        lambda: permute_ring(2, 2, small=True, asynchronous=[True] * 2), 8_000
    ),
    "permute of 2, 2 large rounds": Case(lambda: permute_ring(2, 2, small=False, asynchronous=[False] * 2), 4_500),
    "permute of 2, small, one asynchronous": Case(
        lambda: permute_ring(2, 2, small=True, asynchronous=[True, False]), 7_000
    ),
    "channel, 2 zero-copy values": Case(lambda: channel_pair(2, RENDEZVOUS), 4_000),
    "channel, 2 values into posted receive buffers": Case(lambda: channel_pair(2, POSTED), 4_000),
    "channel, 2 values copied at once to posted places": Case(lambda: channel_pair(2, AT_ONCE), 4_000),
    "group of 3, 2 rounds": Case(lambda: group_rounds(3, 2, shared=False), 240_000),
    "permute of 3, 1 small round": Case(lambda: permute_ring(3, 1, small=True, asynchronous=[False] * 3), 900),
    "permute of 3, 1 small asynchronous round": Case(
        lambda: permute_ring(3, 1, small=True, asynchronous=[True] * 3), 25_000
    ),
    "permute of 3, 1 large round": Case(lambda: permute_ring(3, 1, small=False, asynchronous=[False] * 3), 80_000),
    "a call of 3 devices": Case(lambda: calls(3, 1), 90_000),
    "a joint call of 3 processes that the owner refuses": Case(lambda: refused_or_run(3), 70_000),
}
ABORTED_LARGER = {
    "permute of 2, 1 small round": Case(lambda: permute_ring(2, 1, small=True, asynchronous=[False] * 2), 3_000),
    "channel, 1 value into a posted receive buffer": Case(lambda: channel_pair(1, POSTED), 15_000),
}


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize("name", CASES)
def test_every_execution_does_what_it_shall(name: str) -> None:
    _require_right(CASES[name])


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGER)
def test_every_execution_of_larger_models_does(name: str) -> None:
    _require_right(LARGER[name])


@pytest.mark.parametrize("name", ABORTED)
def test_an_abort_releases_whoever_waits_and_any_may_have_died(name: str) -> None:
    _require_right(ABORTED[name], aborted=True)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ABORTED_LARGER)
def test_an_abort_releases_whoever_waits_in_larger_models(name: str) -> None:
    _require_right(ABORTED_LARGER[name], aborted=True)


def _require_right(case: Case, *, aborted: bool = False) -> None:
    model = case.make().with_abort() if aborted else case.make()
    found = explore(model.members, kills=ANYBODY if aborted else 0, symmetric=model.symmetric)
    assert found.problem == "", "\n".join((found.problem, *found.path))
    assert found.states > case.states


MUTATED: dict[str, Callable[[], Model]] = {
    "group": lambda: group_rounds(2, 2, shared=False),
    "shared group": lambda: group_rounds(2, 2, shared=True),
    "aborted group": lambda: group_rounds(2, 1, shared=False).with_abort(),
    "small permute": lambda: permute_ring(2, 2, small=True, asynchronous=[False] * 2),
    "small asynchronous": lambda: permute_ring(2, 1, small=True, asynchronous=[True] * 2),
    "large permute": lambda: permute_ring(2, 2, small=False, asynchronous=[False] * 2),
    "eager channel": lambda: channel_pair(2, Value(eager=True)),
    "channel": lambda: channel_pair(2, RENDEZVOUS),
    "infeed": lambda: infeed(2),
    "outfeed": lambda: outfeed(2, patient=False),
    "calls": lambda: calls(2, 2),
    "failing call": lambda: calls(2, 1, fails=1),
    "joint calls": lambda: agreeing(2, 3),
    "refused joint call": lambda: refused_or_run(2),
    "held process": lambda: held(2),
    "log": lambda: logged(2),
    "parting": parted,
}
ASLEEP = "asleep for ever"
MUTANTS = [  # model, the steps that are changed, how, what an execution then does
    ("group", "publish", "plain", "not the round's own outcome"),
    ("group", "publish", "drop", ASLEEP),
    ("group", "post", "drop", "not every member's signature"),
    ("group", "arrive", "drop", ASLEEP),
    ("group", "arrive", "plain", "not every member's signature"),
    ("group", "reset arrived", "drop", ASLEEP),
    ("group", "reset first", "drop", "not the round's own first signature"),
    ("group", "await the end", "drop", "not"),
    ("group", "look at the phase", "plain", "not the round's own outcome"),
    ("group", "look at the outcome", "drop", "not the round's own outcome"),
    ("group", "note the outcome", "drop", "not the round's own outcome"),
    ("group", "note the outcome", "late", "not the round's own outcome"),
    ("group", "wake", "drop", ASLEEP),
    ("group", "publish", "early", "not the round's own result"),
    ("group", "look at the phase", "drop", "never ends"),
    ("group", "fence before wake", "drop", ASLEEP),
    ("group", "look for sleepers", "drop", ASLEEP),
    ("group", "count sleeper", "drop", ASLEEP),
    ("group", "work", "drop", "not every member's operand"),
    ("shared group", "share", "drop", ASLEEP),
    ("shared group", "count the item", "drop", ASLEEP),
    ("shared group", "reset next", "drop", ASLEEP),
    ("shared group", "reset done", "drop", ASLEEP),
    ("shared group", "count the item", "plain", "not the round's own"),
    ("shared group", "publish", "drop", ASLEEP),
    ("aborted group", "set abort", "drop", ASLEEP),
    ("aborted group", "fence after abort", "drop", ASLEEP),
    ("aborted group", "note waiting", "drop", ASLEEP),
    ("aborted group", "note waiting", "plain", ASLEEP),
    ("aborted group", "look for abort", "drop", ASLEEP),
    ("aborted group", "look for abort", "plain", ASLEEP),
    ("aborted group", "sweep again", "once", ASLEEP),
    ("small permute", "post", "drop", ASLEEP),
    ("small permute", "post", "plain", "not the source's operand"),
    ("small permute", "post", "early", "not the source's operand"),
    ("small permute", "wake for post", "drop", ASLEEP),
    ("small permute", "taken", "drop", ASLEEP),
    ("small permute", "wake for taken", "drop", ASLEEP),
    ("small permute", "slot is free", "drop", "not"),
    ("small permute", "await message", "drop", "not the message's signature"),
    ("small permute", "fence before wake", "drop", ASLEEP),
    ("small permute", "count sleeper", "drop", ASLEEP),
    ("small permute", "look for sleepers", "drop", ASLEEP),
    ("small asynchronous", "claim", "drop", ASLEEP),
    ("small asynchronous", "delivered", "drop", "not the source's operand"),
    ("small asynchronous", "ask", "plain", "not"),
    ("small asynchronous", "post results", "drop", "not the target's post"),
    ("small asynchronous", "taken", "drop", ASLEEP),
    ("large permute", "claim", "drop", ASLEEP),
    ("large permute", "claim", "plain", "not"),
    ("large permute", "post results", "drop", "not the target's post"),
    ("large permute", "operand is free", "drop", "not"),
    ("large permute", "post", "early", ASLEEP),
    ("eager channel", "send", "plain", "not the message's signature"),
    ("eager channel", "send", "drop", ASLEEP),
    ("eager channel", "fill the message", "drop", "not the value"),
    ("eager channel", "slot is free", "drop", "not"),
    ("eager channel", "await the message", "drop", "not the message's signature"),
    ("eager channel", "receive", "drop", ASLEEP),
    ("eager channel", "received", "drop", ASLEEP),
    ("eager channel", "wake for send", "drop", ASLEEP),
    ("eager channel", "wake for receive", "drop", ASLEEP),
    ("eager channel", "wake for received", "drop", ASLEEP),
    ("eager channel", "fence before wake", "drop", ASLEEP),
    ("eager channel", "count sleeper", "drop", ASLEEP),
    ("channel", "moved", "drop", ASLEEP),
    ("channel", "moved", "plain", "not the value"),
    ("channel", "wake for moved", "drop", ASLEEP),
    ("channel", "wait until moved", "drop", "not the value"),
    ("infeed", "host posts", "plain", "not the item's type"),
    ("infeed", "host posts", "drop", ASLEEP),
    ("infeed", "host posts", "early", ASLEEP),
    ("infeed", "wake as host posts", "drop", ASLEEP),
    ("infeed", "mark the slot", "drop", ASLEEP),
    ("infeed", "take", "drop", "never ends"),
    ("infeed", "wake for take", "drop", ASLEEP),
    ("infeed", "count the host", "drop", ASLEEP),
    ("infeed", "fence before wake", "drop", ASLEEP),
    ("outfeed", "post", "plain", "not the item's place"),
    ("outfeed", "post", "drop", ASLEEP),
    ("outfeed", "wake for post", "drop", ASLEEP),
    ("outfeed", "host takes", "drop", ASLEEP),
    ("outfeed", "wake as host takes", "drop", ASLEEP),
    ("outfeed", "count the host", "drop", ASLEEP),
    ("outfeed", "look for sleepers", "drop", ASLEEP),
    ("calls", "write the command", "drop", ASLEEP),
    ("calls", "say how many", "drop", ASLEEP),
    ("calls", "raise the command", "drop", ASLEEP),
    ("calls", "raise the command", "plain", "not"),
    ("calls", "wake the devices", "early", ASLEEP),
    ("calls", "wake the driver", "early", ASLEEP),
    ("calls", "wake the devices", "drop", ASLEEP),
    ("calls", "await a command", "plain", "not the call's arguments"),
    ("calls", "count the end", "drop", ASLEEP),
    ("calls", "count the end", "plain", "not the call's result"),
    ("calls", "wake the driver", "drop", ASLEEP),
    ("calls", "raise the stop", "drop", ASLEEP),
    ("calls", "wake for the stop", "drop", ASLEEP),
    ("calls", "write the stop", "drop", ASLEEP),
    ("calls", "look at the count", "plain", "not the call's result"),
    ("failing call", "wake the driver", "drop", ASLEEP),
    ("joint calls", "arrive", "plain", "not every member's arguments"),
    ("joint calls", "start", "drop", ASLEEP),
    ("joint calls", "start", "plain", "not every member's arguments"),
    ("joint calls", "wake for the start", "drop", ASLEEP),
    ("joint calls", "wake for the start", "early", ASLEEP),
    ("joint calls", "note the commands", "drop", ASLEEP),
    ("refused joint call", "arrive", "plain", "not"),
    ("held process", "take hold", "drop", "not a slice of its own"),
    ("held process", "take hold", "plain", "not a slice of its own"),
    ("held process", "take hold", "late", "not a slice of its own"),
    ("held process", "look at the issues", "plain", "not"),
    ("held process", "look for a hold", "drop", "not a slice of its own"),
    ("held process", "look for a hold", "plain", "not a slice of its own"),
    ("held process", "look for a hold", "early", "not a slice of its own"),
    ("held process", "issue", "plain", "not"),
    ("held process", "await the owner", "once", "not a slice of its own"),
    ("held process", "let go", "drop", "never ends"),
    ("log", "begin the entry", "drop", "not the entry's"),
    ("log", "fence the entry", "drop", "not the entry's"),
    ("log", "end the entry", "plain", "not the entry's"),
    ("log", "fence the copy", "drop", "not the entry's"),
    ("log", "look again", "early", "not the entry's"),
    ("log", "look at the turn", "plain", "not the entry's"),
    ("log", "count the entry", "plain", "not an entry for each turn"),
    ("parting", "tell the lines", "plain", "not a member's line"),
    ("parting", "tell the lines", "early", "not a member's line"),
]


def mutant(model: str, tag: str, change: str) -> list[Process]:
    """A model's processes with all steps of a tag changed.

    drop: they do nothing.  plain: they publish, and acquire, nothing.  early, late: they come before the access before
    them, or behind the one after them.  once: they always leave their loop.
    """
    processes = list(MUTATED[model]().members)
    changed = 0
    for process in processes:
        steps, moved = process.steps, set[int]()
        for at, step in enumerate(steps):
            if step.kind == "check" or tag not in step.tag.split("/") or at in moved:
                continue
            changed += 1
            if change == "drop":
                steps[at] = NOTHING
            elif change == "plain":
                steps[at] = replace(step, order=Order.PLAIN)
            elif change == "once":
                steps[at] = replace(step, condition=ALWAYS)
            else:
                other = _neighbour(steps, at, -1 if change == "early" else 1)
                steps[at], steps[other] = steps[other], step
                moved.add(other)
    assert changed
    return processes


def _neighbour(steps: list[ModelStep], at: int, direction: int) -> int:
    """The access before or after a step."""
    at += direction
    while steps[at].kind in ("jump", "check", "assign", "increment", "end"):
        at += direction
    return at


@pytest.mark.parametrize(("model", "tag", "change", "problem"), MUTANTS)
def test_mutants_are_caught(model: str, tag: str, change: str, problem: str) -> None:
    assert problem in explore(mutant(model, tag, change), kills=ANYBODY if "abort" in model else 0).problem


def test_each_protocol_has_a_dozen_mutants() -> None:
    for protocol in ("group", "permute|asynchronous", "channel", "feed", "call", "joint|held|log|parting"):
        assert sum(any(part in model for part in protocol.split("|")) for model, *_ in MUTANTS) >= 12, protocol
