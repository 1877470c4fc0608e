"""Every order of events at the end of a failed call, for up to three hosts, and mistakes that this finds."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest

from distxla.runtime.calls import call_end
from distxla.runtime.calls.call_end import CallEnd, Do, Happened, Step


@dataclass(frozen=True)
class World:
    """What the steps of one call's end have done, and what is to happen next.

    back: hosts whose devices have come back.  told, cleared, allowed: by how many steps of the last attempt.
    asked: hosts that were awaited in it.  ends: it may leave no device.  by_force: whether one may be killed, after an
    exception or a loss.  settles: the next call waits, so that an exception ends the call by force.
    """

    step: Step | None
    machine: Any  # its state
    back: frozenset[int] = frozenset()
    told: int = 0
    cleared: int = 0
    allowed: int = 0
    asked: frozenset[int] = frozenset()
    whole: bool = True
    by_force: bool = False
    ends: bool = False
    settles: bool = False


class Explorer:
    def __init__(self, module: Any, hosts: int) -> None:
        self.module, self.hosts = module, frozenset(range(hosts))
        self.seen: dict[World, list[World]] = {}

    def machine(self, state: Any) -> CallEnd:
        made: CallEnd = self.module.CallEnd(len(self.hosts))
        if state is not None:
            made._state = state
        return made

    def told(self, world: World, event: str, **changed: Any) -> World:
        machine = self.machine(world.machine)
        step = machine.handle(self.module.Happened[event], whole=changed.get("whole", world.whole))
        found = None if step is None else Step(Do[step.do.name], step.host)
        return replace(world, machine=machine._state, step=found, **changed)

    def failed(self, world: World, event: str, **changed: Any) -> World:
        machine = self.machine(world.machine)
        machine.begin()
        return self.told(replace(self.forgotten(world), machine=machine._state), event, **changed)

    def explore(self) -> None:
        for event in ("FAILED", "STOPPED"):
            for whole in (True, False):
                start = World(None, None, whole=whole, by_force=event == "STOPPED" or not whole)
                waiting = [self.failed(start, event)]
                while waiting:
                    world = waiting.pop()
                    if world not in self.seen:
                        self.seen[world] = list(self.following(world))
                        waiting += self.seen[world]
        good = {world for world in self.seen if self.is_over(world)}
        while more := {w for w, after in self.seen.items() if w not in good and good.intersection(after)}:
            good |= more
        assert len(good) == len(self.seen), "an end that is never over"

    def is_over(self, world: World) -> bool:
        return world.step is None and self.machine(world.machine).is_over

    def following(self, world: World) -> Iterator[World]:
        if self.is_over(world):
            if world.whole:
                assert world.back == self.hosts, "the next call begins while devices compute"
                assert world.cleared == world.allowed == 1, "the next call begins although this one is not cleared up"
            for event in ("DONE", "LATE", "CALLED"):
                assert self.told(world, event).step is None, "a step after the end"
            return
        if world.whole:  # a replica may be lost at any time
            yield replace(world, whole=False, by_force=True)
        if world.step is None:
            assert world.machine[2], "nothing is left to be done, and it is not over"
            cleaned = replace(world, asked=frozenset(), settles=True)
            yield self.told(cleaned, "CALLED")
            return
        if world.settles:
            yield replace(self.failed(world, "STOPPED", by_force=True), settles=False)
        else:  # the exception is raised, and the next call finds the rest
            yield self.told(self.forgotten(world), "CALLED", by_force=True)
        yield from self.taken(world, world.step)

    def forgotten(self, world: World) -> World:
        return replace(world, told=0, cleared=0, allowed=0, asked=frozenset(), ends=False)

    def taken(self, world: World, step: Step) -> Iterator[World]:
        if step.do in (Do.RELEASE, Do.END):
            assert not world.told, "a host is told twice to end"
            assert step.do is Do.RELEASE or world.by_force, "devices that compute are killed"
            yield self.told(replace(world, told=1, ends=step.do is Do.END), "DONE")
        elif step.do in (Do.AWAIT, Do.FORCE):
            assert world.told, "a host is awaited that nobody has told to end"
            assert step.host not in world.asked, "a host is awaited twice"
            assert step.do is Do.AWAIT or world.by_force, "devices that compute are killed"
            assert step.do is Do.FORCE or not world.ends, "devices that must end are left"
            assert step.do is Do.FORCE or step.host not in world.back, "a host that is back is awaited"
            asked = replace(world, asked=world.asked | {step.host})
            yield self.told(replace(asked, back=world.back | {step.host}), "DONE")
            if step.do is Do.AWAIT:
                yield self.told(asked, "LATE")
        elif step.do is Do.CLEAR:
            assert world.back == self.hosts, "cleared while devices compute"
            assert not world.cleared, "cleared twice"
            yield self.told(replace(world, cleared=1), "DONE")
        else:
            assert world.cleared, "allowed before all is cleared"
            assert not world.allowed, "allowed twice"
            yield self.told(replace(world, allowed=1), "DONE")


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_all_orders_of_events(hosts: int) -> None:
    explorer = Explorer(call_end, hosts)
    explorer.explore()
    assert len(explorer.seen) > 20 * hosts


MISTAKES = [
    ("if event is Happened.FAILED and whole:", "if event is Happened.FAILED and not whole:", "are killed"),
    ("if hosts[1:]:", "if False:", "while devices compute"),
    ("            if late:\n", "            if False:\n", "while devices compute"),
    ("late = (*late, hosts[0])", "late = (hosts[0],)", "while devices compute"),
    ("self._next(Do.CLEAR if whole else None)", "self._next(Do.ALLOW if whole else None)", "before all is cleared"),
    ("Do.ALLOW if step is Do.CLEAR and whole", "Do.ALLOW if whole", "allowed twice"),
    ("Do.ALLOW if step is Do.CLEAR and whole", "Do.ALLOW if False", "not cleared up"),
    ("return self._next(step, hosts[1:], late)", "return self._next(step, hosts, late)", "awaited twice"),
    ("self._next(Do.AWAIT, late) if", "self._next(Do.AWAIT, self._all) if", "is back is awaited"),
    ("self._next(Do.AWAIT, late) if", "self._next(Do.FORCE, late) if", "are killed"),
    (
        "            return self._next(Do.END, self._all)\n        if step is Do.RELEASE",
        "        if step is Do.RELEASE",
        "not cleared up",
    ),
    ("return self._next(Do.FORCE, hosts)", "return self._next(Do.AWAIT, hosts)", "must end are left"),
]


@pytest.mark.parametrize(("right", "wrong", "found"), MISTAKES)
def test_a_mistake_is_found(right: str, wrong: str, found: str) -> None:
    text = inspect.getsource(call_end)
    assert text.count(right) == 1
    module = ModuleType("mistaken")
    exec(text.replace(right, wrong), vars(module))
    with pytest.raises(AssertionError, match=found):
        Explorer(module, 2).explore()


def test_the_states_that_a_user_sees() -> None:
    end = CallEnd(2)
    assert end.is_over
    end.begin()
    assert not end.is_over
    assert end.handle(Happened.FAILED, whole=True) == Step(Do.RELEASE)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.AWAIT, 0)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.AWAIT, 1)
    assert end.handle(Happened.LATE, whole=True) is None
    assert end.late == (1,)
    assert end.handle(Happened.CALLED, whole=True) == Step(Do.AWAIT, 1)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.CLEAR)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.ALLOW)
    assert end.handle(Happened.DONE, whole=True) is None
    assert end.is_over
