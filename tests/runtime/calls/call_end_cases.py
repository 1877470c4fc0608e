"""Every order of events at the end of a failed call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from distxla.runtime.calls.call_end import CallEnd, EndAction, EndStep


@dataclass(frozen=True)
class World:
    """What the steps of one call's end have done, and what is to happen next.

    back: hosts that a step has found to be back.  told, cleared, allowed: by how many steps of the last attempt.
    asked: hosts that were awaited in it.  ends: it may leave no device.  by_force: whether one may be killed, after an
    exception or a loss.  settles: the next call waits, so that an exception ends the call by force.
    """

    step: EndStep | None = None
    machine: Any = None  # its state
    back: frozenset[int] = frozenset()
    told: int = 0
    cleared: int = 0
    allowed: int = 0
    asked: frozenset[int] = frozenset()
    whole: bool = True
    by_force: bool = False
    ends: bool = False
    settles: bool = False


class EndExplorer:
    def __init__(self, module: Any, hosts: int) -> None:
        self.module, self.hosts = module, frozenset(range(hosts))
        self.seen: dict[World, list[World]] = {}

    def machine(self, state: Any) -> CallEnd:
        made: CallEnd = self.module.CallEnd(len(self.hosts))
        if state is not None:
            made.state = state
        return made

    def told(self, world: World, event: str, **changed: Any) -> World:
        machine = self.machine(world.machine)
        step = machine.handle(self.module.Happened[event], whole=changed.get("whole", world.whole))
        found = None if step is None else EndStep(EndAction[step.do.name], step.host)
        return replace(world, machine=machine.state, step=found, **changed)

    def failed(self, world: World, event: str, **changed: Any) -> World:
        machine = self.machine(world.machine)
        machine.begin()
        return self.told(replace(self.forgotten(world), machine=machine.state), event, **changed)

    def starts(self) -> Iterator[World]:
        """Right behind the event with which an end begins."""
        for event in ("FAILED", "STOPPED"):
            for whole in (True, False):
                yield self.failed(World(whole=whole, by_force=event == "STOPPED" or not whole), event)

    def explore(self, starts: Iterable[World]) -> None:
        for start in starts:
            waiting = [start]
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

    def taken(self, world: World, step: EndStep) -> Iterator[World]:
        if step.do in (EndAction.RELEASE, EndAction.END):
            assert not world.told, "a host is told twice to end"
            assert step.do is EndAction.RELEASE or world.by_force, "devices that compute are killed"
            yield self.told(replace(world, told=1, ends=step.do is EndAction.END), "DONE")
        elif step.do in (EndAction.AWAIT, EndAction.FORCE):
            assert world.told, "a host is awaited that nobody has told to end"
            assert step.host not in world.asked, "a host is awaited twice"
            assert step.do is EndAction.AWAIT or world.by_force, "devices that compute are killed"
            assert step.do is EndAction.FORCE or not world.ends, "devices that must end are left"
            assert step.do is EndAction.FORCE or step.host not in world.back, "a host that is back is awaited"
            asked = replace(world, asked=world.asked | {step.host})
            yield self.told(replace(asked, back=world.back | {step.host}), "DONE")
            if step.do is EndAction.AWAIT:
                yield self.told(asked, "LATE")
        elif step.do is EndAction.CLEAR:
            assert world.back == self.hosts, "cleared while devices compute"
            assert not world.cleared, "cleared twice"
            yield self.told(replace(world, cleared=1), "DONE")
        else:
            assert world.cleared, "allowed before all is cleared"
            assert not world.allowed, "allowed twice"
            yield self.told(replace(world, allowed=1), "DONE")
