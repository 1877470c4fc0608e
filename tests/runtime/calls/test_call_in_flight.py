"""Every order of events of a call, from its first wait to its end, for up to three hosts, and mistakes found by it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest

from distxla.runtime.calls import call_end, call_in_flight
from distxla.runtime.calls.call_end import CallEnd, EndAction, Happened
from distxla.runtime.calls.call_in_flight import CallInFlight, CallStep, Do, Error, Met
from tests.runtime.calls.call_end_cases import EndExplorer, World

WAITING = (Do.WAIT, Do.ASK, Do.LOOK, Do.SETTLE, Do.CLOCK, Do.NOTICE)


@dataclass(frozen=True)
class Flight:
    """A call, as the steps have left it, and what is to happen next.

    machine, end: states.  back: hosts whose devices have come back.  awaited: hosts whose waits have ended well.
    aborted: whether the abort flag is set.  whole: whether all replicas live.  found: the first error that a step has
    found, or the exception that came instead.  before: the error that was reported when that came.  reported: whether
    all about the error was found out.  ended: whether the steps of its end have been taken.
    """

    step: CallStep
    machine: Any
    end: Any
    back: frozenset[int] = frozenset()
    awaited: frozenset[int] = frozenset()
    aborted: bool = False
    whole: bool = True
    found: Error | None = None
    before: Error | None = None
    reported: bool = False
    ended: bool = False


class CallExplorer:
    """Follows a call in every order of events, and then its end, with the calls behind it."""

    def __init__(self, module: Any, hosts: int) -> None:
        self.module, self.hosts = module, frozenset(range(hosts))
        self.end = EndExplorer(call_end, hosts)
        self.seen: dict[Flight, list[Flight]] = {}
        self.ends: dict[World, None] = {}  # the beginnings of ends, in order

    # --- the machine

    def machines(self, flight: Flight | None = None, awaited: int = 0) -> tuple[CallInFlight, CallEnd]:
        end = CallEnd(len(self.hosts))
        machine: CallInFlight = self.module.CallInFlight(len(self.hosts), end, awaited)
        if flight is not None:
            machine.state, end.state = flight.machine, flight.end
        return machine, end

    def told(self, flight: Flight, met: str, **changed: Any) -> Flight:
        machine, end = self.machines(flight)
        after = replace(flight, **changed)
        step = self.known(machine.handle(self.module.Met[met], aborted=after.aborted))
        return replace(after, step=step, machine=machine.state, end=end.state)

    def known(self, step: Any) -> CallStep:
        """The step in the words of the module that is not changed."""
        error = None if step.error is None else Error[step.error.name]
        return CallStep(Do[step.do.name], step.host, error, step.how)

    def start(self, awaited: int) -> Flight:
        machine, end = self.machines(awaited=awaited)
        return Flight(self.known(machine.state), machine.state, end.state)

    # --- what may follow

    def explore(self) -> None:
        waiting = [self.start(0)]
        while waiting:
            flight = waiting.pop()
            if flight not in self.seen:
                self.seen[flight] = list(self.following(flight))
                waiting += self.seen[flight]
        good = {flight for flight in self.seen if flight.step.do in (Do.RETURN, Do.RAISE)}
        while more := {f for f, after in self.seen.items() if f not in good and good.intersection(after)}:
            good |= more
        assert len(good) == len(self.seen), "a call without a result and without an error"
        self.end.explore(self.ends)

    def following(self, flight: Flight) -> Iterator[Flight]:
        step = flight.step
        if step.do is Do.RETURN:
            assert flight.found is None, "a result although an error was found"
            assert flight.awaited == self.hosts, "a result although a host is not back"
            assert not flight.aborted, "the abort flag stays"
            assert self.is_over(flight), "a result, and an end for the next call"
            return
        if step.do is Do.RAISE:
            assert step.error is flight.found, "another error than the one that was found"
            raised = step.error is Error.EXCEPTION
            assert raised or flight.ended, "an error is raised before the call has ended"
            assert raised or flight.reported, "an error of which nothing was found out"
            assert flight.ended or not self.is_over(flight), "the abort flag stays"
            after = self.told(flight, "RAISED").step
            assert after.do is Do.RAISE, "ended twice"
            assert after.error is Error.EXCEPTION, "another error than the exception"
            return
        if step.do in WAITING:
            assert flight.found is None, "an error was found, and the call goes on"
            self.require_progress(flight)
        yield from self.meanwhile(flight)
        yield self.interrupted(flight)
        yield from self.taken(flight, step)

    def require_progress(self, flight: Flight) -> None:
        """Where nothing else happens, a call whose hosts are back returns, and one that has failed says so."""
        if not flight.aborted and (flight.back != self.hosts or flight.step.do is Do.SETTLE):
            return
        back = "ABORTED" if flight.aborted else "BACK"
        met = {Do.WAIT: back, Do.SETTLE: "DONE", Do.NOTICE: "DONE"}
        for _ in range(len(WAITING) + len(self.hosts)):
            if flight.step.do in WAITING:
                flight = self.told(flight, met.get(flight.step.do, "NOTHING"))
        wanted = (Do.REPORT, Error.FAILURE) if flight.aborted else (Do.RETURN, None)
        assert (flight.step.do, flight.step.error) == wanted, "the call waits for nothing"

    def is_over(self, flight: Flight) -> bool:
        return self.machines(flight)[1].is_over

    def meanwhile(self, flight: Flight) -> Iterator[Flight]:
        """What hosts do while the driver does something else, up to the end."""
        if not flight.ended:
            for host in self.hosts - flight.back:
                yield replace(flight, back=flight.back | {host})
            if flight.whole:
                yield replace(flight, aborted=True, whole=False)  # a replica is lost
            yield replace(flight, aborted=True)  # a device has failed

    def interrupted(self, flight: Flight) -> Flight:
        """An exception, before the step or in it."""
        before = flight.found if flight.step.do is Do.REPORT else flight.before
        after = self.told(flight, "RAISED", found=Error.EXCEPTION, before=before)
        if flight.step.do is Do.END:  # before or amid the steps of the end: they are the next call's
            assert after.step.do is Do.RAISE, "ended twice"
            world = World(machine=after.end, back=flight.back, whole=flight.whole, by_force=True)
            self.ends[self.end.told(world, "CALLED")] = None
        return after

    def taken(self, flight: Flight, step: CallStep) -> Iterator[Flight]:
        if step.do is Do.WAIT:
            yield from self.waited(flight, step.host)
        elif step.do is Do.ASK:
            yield self.told(flight, "NOTHING")
            yield self.told(flight, "FOUND", found=Error.REASON)
        elif step.do is Do.LOOK:
            yield self.told(flight, "NOTHING")
            if flight.back != self.hosts:
                after = self.told(flight, "FOUND")
                assert (after.step.do is Do.SETTLE) is not flight.aborted, "a failure is taken for a deadlock"
                yield after
        elif step.do is Do.SETTLE:  # withdrawn where a device has failed meanwhile
            yield self.told(flight, "DONE", found=None if flight.aborted else Error.DEADLOCK)
        elif step.do is Do.CLOCK:
            yield self.told(flight, "NOTHING")
            yield self.told(flight, "FOUND", found=Error.LIMIT)
        elif step.do is Do.NOTICE:
            yield self.told(flight, "DONE")
        elif step.do is Do.REPORT:
            assert step.error is flight.found, "another error than the one that was found"
            assert not flight.reported, "reported twice"
            assert not self.is_over(flight), "an interrupt would leave the abort flag"
            yield self.told(flight, "DONE", reported=True)
        else:
            yield from self.end_taken(flight, step)

    def waited(self, flight: Flight, host: int) -> Iterator[Flight]:
        assert host in self.hosts - flight.awaited, "a host is awaited that is back, or none"
        if host in flight.back:
            awaited = flight.awaited | {host}
            is_failure = flight.aborted and awaited == self.hosts
            yield self.told(flight, "BACK", awaited=awaited, found=Error.FAILURE if is_failure else None)
        if flight.aborted:
            yield self.told(flight, "ABORTED", found=Error.FAILURE)
        elif host not in flight.back:
            yield self.told(flight, "AGAIN")

    def end_taken(self, flight: Flight, step: CallStep) -> Iterator[Flight]:
        """The end's own steps are followed behind all calls."""
        assert step.do is Do.END
        assert not flight.ended, "ended twice"
        assert not self.is_over(flight), "an interrupt would leave the abort flag"
        is_patient = flight.found in (Error.FAILURE, Error.DEADLOCK) or flight.before is Error.FAILURE
        assert step.how is (Happened.FAILED if is_patient else Happened.STOPPED), "ended in the other way"
        by_force = not is_patient or not flight.whole
        world = World(machine=flight.end, whole=flight.whole, by_force=by_force)
        self.ends[self.end.failed(world, step.how.name)] = None
        yield self.told(flight, "DONE", ended=True)


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_all_orders_of_events(hosts: int) -> None:
    explorer = CallExplorer(call_in_flight, hosts)
    explorer.explore()
    assert len(explorer.seen) > 100 * hosts
    assert {flight.found for flight in explorer.seen} == {None, *Error}
    assert {step.do for step in (flight.step for flight in explorer.seen)} == {*Do}
    assert {world.step.do for world in explorer.end.seen if world.step is not None} == {*EndAction}


@pytest.mark.parametrize("awaited", [0, 1, 2])
def test_it_may_be_made_at_the_first_host_that_is_not_back(awaited: int) -> None:
    explorer = CallExplorer(call_in_flight, 3)
    flight = explorer.start(0)
    for _ in range(awaited):
        flight = explorer.told(flight, "BACK")
    assert flight == explorer.start(awaited)


MISTAKES = [
    ("    (Do.WAIT, Met.BACK): Error.FAILURE,\n", "", "a result although an error was found"),
    ("(Do.WAIT, Met.ABORTED): Error.FAILURE", "(Do.WAIT, Met.ABORTED): Do.RETURN", "waits for nothing"),
    ("(Do.WAIT, Met.ABORTED): Error.FAILURE", "(Do.WAIT, Met.ABORTED): Do.ASK", "waits for nothing"),
    ("(Do.WAIT, Met.AGAIN): Do.ASK", "(Do.WAIT, Met.AGAIN): Do.RETURN", "although a host is not back"),
    ("(Do.ASK, Met.FOUND): Error.REASON", "(Do.ASK, Met.FOUND): Do.LOOK", "and the call goes on"),
    ("(Do.LOOK, Met.FOUND): Do.SETTLE", "(Do.LOOK, Met.FOUND): Do.CLOCK", "taken for a deadlock"),
    ("    (Do.LOOK, Met.FOUND): Do.CLOCK,\n", "", "taken for a deadlock"),
    ("(Do.SETTLE, Met.DONE): Error.DEADLOCK", "(Do.SETTLE, Met.DONE): Do.WAIT", "and the call goes on"),
    ("    (Do.SETTLE, Met.DONE): Do.WAIT,\n", "", "waits for nothing"),
    ("(Do.CLOCK, Met.FOUND): Error.LIMIT", "(Do.CLOCK, Met.FOUND): Do.NOTICE", "and the call goes on"),
    ("(Do.CLOCK, Met.FOUND): Error.LIMIT", "(Do.CLOCK, Met.FOUND): Error.DEADLOCK", "another error"),
    ("(Do.NOTICE, Met.DONE): Do.WAIT", "(Do.NOTICE, Met.DONE): Do.ASK", "waits for nothing"),
    ("(Do.REPORT, Met.DONE): Do.END", "(Do.REPORT, Met.DONE): Do.RAISE", "before the call has ended"),
    ("(Do.REPORT, Met.DONE): Do.END", "(Do.REPORT, Met.DONE): Do.REPORT", "reported twice"),
    ("(Do.END, Met.DONE): Do.RAISE", "(Do.END, Met.DONE): Do.RETURN", "although an error was found"),
    ("(Do.END, Met.DONE): Do.RAISE", "(Do.END, Met.DONE): Do.END", "ended twice"),
    ("Error.LIMIT: Happened.STOPPED", "Error.LIMIT: Happened.FAILED", "in the other way"),
    ("Error.DEADLOCK: Happened.FAILED", "Error.DEADLOCK: Happened.STOPPED", "in the other way"),
    ("and host < self._last", "and host <= self._last", "and the call goes on"),
    ("self._go(Do.WAIT, host + 1)", "self._go(Do.WAIT, host)", "that is back, or none"),
    ("            self._end.begin()\n            return", "            return", "leave the abort flag"),
    ("        self._end.begin()\n        by_itself", "        by_itself", "leave the abort flag"),
    ("if do in (Do.END, Do.RAISE):", "if do is Do.RAISE:", "ended twice"),
    ("if do in (Do.END, Do.RAISE):", "if do is Do.END:", "ended twice"),
    ("do is Do.REPORT and error is Error.FAILURE", "False", "in the other way"),
    ("do is Do.REPORT and error is Error.FAILURE", "do is Do.REPORT", "in the other way"),
    ("return self._go(Do.RAISE, error=Error.EXCEPTION)", "return self._go(Do.RAISE, error=error)", "another error"),
]


@pytest.mark.parametrize(("right", "wrong", "found"), MISTAKES)
def test_a_mistake_is_found(right: str, wrong: str, found: str) -> None:
    text = inspect.getsource(call_in_flight)
    assert text.count(right) == 1
    module = ModuleType("mistaken")
    exec(text.replace(right, wrong), vars(module))
    with pytest.raises(AssertionError, match=found):
        CallExplorer(module, 2).explore()


def test_a_failure_goes_before_the_deadlock_that_it_causes() -> None:
    end = CallEnd(1)
    call = CallInFlight(1, end)
    assert call.handle(Met.AGAIN) == CallStep(Do.ASK)
    assert call.handle(Met.NOTHING) == CallStep(Do.LOOK)
    assert call.handle(Met.FOUND) == CallStep(Do.SETTLE)
    assert call.handle(Met.DONE, aborted=True) == CallStep(Do.WAIT)
    assert end.is_over
    assert call.handle(Met.ABORTED, aborted=True) == CallStep(Do.REPORT, error=Error.FAILURE)
    assert not end.is_over
    assert call.handle(Met.DONE, aborted=True) == CallStep(Do.END, error=Error.FAILURE, how=Happened.FAILED)
    assert call.handle(Met.DONE) == CallStep(Do.RAISE, error=Error.FAILURE)
