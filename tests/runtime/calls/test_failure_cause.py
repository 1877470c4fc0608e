"""Of several things that have failed in a call, which one its error names."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from itertools import combinations
from types import ModuleType

import pytest

from distxla.program.abi import Status
from distxla.runtime.calls import failure_cause
from distxla.runtime.calls.failure_cause import Cause, Facts, Why, cause

OK, ABORTED, MISMATCH, FAILED = Status.OK, Status.ABORTED, Status.MISMATCH, Status.FAILED
ROUTINE, OUT_OF_RANGE = Status.ROUTINE_FAILED, Status.OUT_OF_RANGE
ENDED, REFUSED = Status.STREAM_ENDED, Status.ITEM_REFUSED
SEGV = 11
OWN = 77  # a status that only the program knows

PRECEDENCE = [  # each cause with the one below it
    (Facts(damaged=True, lost={0}, signals=[SEGV]), Cause(Why.DAMAGED)),
    (Facts(lost={0, 1, 2}, signals=[0, SEGV, SEGV]), Cause(Why.SIGNALLED, 1)),
    (Facts(lost={0, 1, 2}, signals=[0, 0]), Cause(Why.ENDED, 0)),  # the third has ended since
    (Facts(lost={0}, unable=True), Cause(Why.LOST)),
    (Facts(unable=True, statuses={0: MISMATCH}), Cause(Why.UNABLE)),
    (Facts(statuses={0: ROUTINE, 1: MISMATCH}, failed={0}), Cause(Why.MISMATCHED)),
    (Facts(statuses={0: OUT_OF_RANGE, 1: MISMATCH}, failed={0}, placed={0}), Cause(Why.MISMATCHED)),
    (Facts(statuses={0: ENDED, 1: MISMATCH}, failed={0}), Cause(Why.MISMATCHED)),
    (Facts(statuses={0: FAILED, 1: MISMATCH}, failed={0}), Cause(Why.MISMATCHED)),
    (Facts(statuses={0: OK, 1: ROUTINE, 2: ABORTED}), Cause(Why.ROUTINE, 1)),
    (Facts(statuses={0: OK, 1: OUT_OF_RANGE, 2: ABORTED}, placed={1}), Cause(Why.OUT_OF_RANGE, 1)),
    (Facts(statuses={0: OK, 1: ENDED, 2: ABORTED}), Cause(Why.STREAM, 1)),
    (Facts(statuses={0: OK, 1: REFUSED, 2: ABORTED}), Cause(Why.STREAM, 1)),
    (Facts(statuses={0: OK, 1: FAILED, 2: ABORTED}), Cause(Why.STATUS, 1)),
    (Facts(statuses={0: OK, 1: OWN, 2: ABORTED}), Cause(Why.STATUS, 1)),
    (Facts(statuses={0: OK, 1: OUT_OF_RANGE, 2: ABORTED}, placed={0, 2}), Cause(Why.STATUS, 1)),
    (Facts(statuses={0: OK, 1: ABORTED}), Cause(Why.OUTSIDE)),
    (Facts(), Cause(Why.OUTSIDE)),
    # of the devices' own failures
    (Facts(statuses={0: FAILED, 1: ENDED, 2: ROUTINE}, failed={1, 2}), Cause(Why.STREAM, 1)),  # those in the report
    (Facts(statuses={2: FAILED, 0: ENDED, 1: ROUTINE}, failed={0, 1, 2}), Cause(Why.STATUS, 2)),  # in the call's order
    (Facts(statuses={0: ENDED, 1: ROUTINE}), Cause(Why.STREAM, 0)),
    (Facts(statuses={0: ABORTED, 1: ROUTINE}, failed={0}), Cause(Why.ROUTINE, 1)),
]


@pytest.mark.parametrize(("facts", "expected"), PRECEDENCE)
def test_precedence(facts: Facts, expected: Cause) -> None:
    assert cause(facts) == expected


ALONE = {
    Why.DAMAGED: Facts(damaged=True),
    Why.SIGNALLED: Facts(lost={0}, signals=[SEGV]),
    Why.ENDED: Facts(lost={1}, signals=[0]),
    Why.LOST: Facts(lost={2}),
    Why.UNABLE: Facts(unable=True),
    Why.MISMATCHED: Facts(statuses={3: MISMATCH}),
    Why.ROUTINE: Facts(statuses={4: ROUTINE}, failed={4}),
    Why.OUT_OF_RANGE: Facts(statuses={5: OUT_OF_RANGE}, failed={5}, placed={5}),
    Why.STREAM: Facts(statuses={6: ENDED}, failed={6}),
    Why.STATUS: Facts(statuses={7: FAILED}, failed={7}),
    Why.OUTSIDE: Facts(statuses={8: ABORTED}),
}


def both(one: Facts, other: Facts) -> Facts:
    return replace(
        one,
        damaged=one.damaged or other.damaged,
        signals=[*one.signals, *other.signals],
        lost={*one.lost, *other.lost},
        unable=one.unable or other.unable,
        statuses={**one.statuses, **other.statuses},
        failed={*one.failed, *other.failed},
        placed={*one.placed, *other.placed},
    )


def test_each_cause_alone() -> None:
    assert [cause(facts).why for facts in ALONE.values()] == [*Why]


@pytest.mark.parametrize(("first", "second"), [*combinations(Why, 2)])
def test_each_cause_goes_before_those_below_it(first: Why, second: Why) -> None:
    """Of the devices' own failures, the first device's."""
    assert cause(both(ALONE[first], ALONE[second])).why is first
    among_devices = {Why.ROUTINE, Why.OUT_OF_RANGE, Why.STREAM, Why.STATUS}
    is_by_device = {first, second} <= among_devices
    assert cause(both(ALONE[second], ALONE[first])).why is (second if is_by_device else first)


MISTAKES = [
    ("    if facts.damaged:\n        return Cause(Why.DAMAGED)\n", ""),
    ("if facts.lost:", "if facts.lost and not facts.unable:"),
    ("if facts.unable:", "if facts.unable and not facts.statuses:"),
    ("if Status.MISMATCH in facts.statuses.values():", "if False:"),
    ("device not in facts.failed", "device in facts.failed"),
    ("key=lambda device: device not in facts.failed", "key=lambda device: (device not in facts.failed, device)"),
    ("not in (Status.OK, Status.ABORTED)", "not in (Status.OK,)"),
    ("        if signal:\n", "        if True:\n"),
    ("Why.ENDED if signals else Why.LOST", "Why.LOST"),
    ("why is Why.OUT_OF_RANGE and not is_placed", "why is Why.OUT_OF_RANGE and is_placed"),
    ("    Status.ITEM_REFUSED: Why.STREAM,\n", ""),
]


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_is_found(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = inspect.getsource(failure_cause)
    assert text.count(right) == 1
    module = ModuleType("mistaken")
    monkeypatch.setitem(sys.modules, "mistaken", module)  # where a dataclass looks for its names
    exec(text.replace(right, wrong), vars(module))
    found = []
    for facts, expected in PRECEDENCE:
        why, number = module.cause(facts)
        found.append((why.name, number) == (expected.why.name, expected.number))
    assert not all(found)
