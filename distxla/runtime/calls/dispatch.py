"""One call: commands to every host, a wait for all of them, and the handling of failed calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from distxla import clock
from distxla.collectives.protocols import call_loops
from distxla.collectives.protocols import control_block as control_words
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.errors import DamagedMessageError, DistxlaError, ReplicaLostError, TimeLimitError
from distxla.program.abi import Status
from distxla.program.artifact import CompiledProgram
from distxla.runtime.calls.call_end import CallEnd, EndAction, EndStep, Happened
from distxla.runtime.calls.call_in_flight import CallInFlight, CallStep, Do, Error, Met
from distxla.runtime.calls.cluster_hosts import Hosts
from distxla.runtime.calls.failed_call import FailedCall
from distxla.runtime.calls.fault_injection import Aftermath
from distxla.runtime.failures import stragglers
from distxla.runtime.failures.deadlocks import Deadlocks, Stuck
from distxla.runtime.failures.reports import PostMortemSnapshot, stuck_error
from distxla.runtime.failures.stragglers import Stragglers
from distxla.runtime.groups.communicators import Communicators
from distxla.runtime.hosts.host_end import HostEnd
from distxla.runtime.hosts.process_watch import ProcessEnd, current_step, ended
from distxla.runtime.hosts.recorder_rings import read_rings
from distxla.runtime.hosts.remote import proxy_waits
from distxla.runtime.hosts.slice import Slice
from distxla.runtime.streams.streams import ClusterStreams
from distxla.runtime.values.host import Lost, Records, ended_text
from distxla.time_limit import checked_seconds

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.runtime.replica.user_functions import RoutineFailure

LOSS_S = 0.3
PATIENCE_S = 0.2  # with devices that still compute when a call has failed, before it is said so
SLICE_NS = 50_000_000  # how long a wait in native code keeps Python from handling signals, at most
_MET = {call_loops.CALL_DONE: Met.BACK, call_loops.CALL_ABORTED: Met.ABORTED, call_loops.CALL_AGAIN: Met.AGAIN}


class Shared(NamedTuple):
    """What all dispatchers of a cluster have in common. programs, modules: by number; of modules those that are known,
    in which reports find source lines.

    routine_failure: asks a device why a Python routine failed on it.  overlapping: the dispatchers that have a slice of
    the given one, itself too.
    """

    hosts: Hosts
    communicators: Communicators
    streams: ClusterStreams
    routine_failure: Callable[[int], RoutineFailure | None]
    programs: dict[int, CompiledProgram]
    modules: dict[int, Module]
    overlapping: Callable[[Dispatcher], Iterable[Dispatcher]]


class Dispatcher:
    """Issues calls to the devices of some slices of this host, and to those of all other hosts, one at a time (other
    threads wait).

    After a failed call in which every process lives, the state of these devices' communicators is zeroed for the next
    call. A device that still computes then is not waited for: the next call waits for it (`settle`), also one by
    another dispatcher that has some of the slices.
    lock: of these slices, reentrant, held while a call of theirs runs or is ended.  stop_reason: why the call in flight
    should end now.
    """

    def __init__(self, slices: Sequence[Slice], lock: AbstractContextManager[Any], shared: Shared) -> None:
        self._hosts, self._communicators, self._streams = shared.hosts, shared.communicators, shared.streams
        self.programs, self.modules = shared.programs, shared.modules
        self._routine_failure, self._overlapping = shared.routine_failure, shared.overlapping
        self.slices = tuple(slices)
        self._agents = self._hosts.agents
        self._ends: list[HostEnd] = [*slices, *self._agents]
        self._end_of = {device: end for end in self._ends for device in end.devices}
        local = self._hosts.local
        self._is_whole_host = len(slices) == len(local.slices)
        self._is_alone = len(local.slices) == 1
        self._deadlocks = Deadlocks(local.control, local.devices, self._communicators, self._hosts.remotes)
        self._stragglers = Stragglers()
        self._read_at = 0  # ns of CLOCK_MONOTONIC when records were read last
        self.lock = lock
        self._ending = threading.Lock()  # held while a thread takes steps of the end of a call that has failed
        self._epoch = 0  # of proxies: failed calls so far
        self._call_end = CallEnd(len(self._ends))
        self._devices: list[int] = []  # of the last call
        self._kept: list[object] = []
        self.stop_reason: Callable[[], DistxlaError | None] = lambda: None

    def call(self, numbers: dict[int, int], repeat: int = 1, time_limit: float | None = None) -> float:
        """Run program numbers[device] on every device named, `repeat` times; seconds from issue to completion.

        Blocks. Raises TimeLimitError after `time_limit` seconds, ReplicaLostError, CollectiveMismatchError and
        DeadlockError where members can never meet, ExecutionError; KeyboardInterrupt ends the call on all devices
        first.
        """
        with self.lock:
            self._settle_all(time_limit)
            with self._streams.call(numbers):
                self._require_all()
                return self._run(list(numbers), lambda: self._issue(numbers, repeat), time_limit)

    def resume(self, devices: Sequence[int], take: Callable[[], None]) -> None:
        """Wait for a call that is in flight, which `call` has not issued, but that `take` lets the slices wait for.
        Raises as `call`."""
        with self.lock, self._streams.call(devices):
            self._run(list(devices), take, None)

    def _issue(self, numbers: dict[int, int], repeat: int) -> None:
        for end in self._ends:
            end.issue(numbers if len(self._ends) == 1 else {d: numbers[d] for d in end.devices if d in numbers}, repeat)
        if len(self.slices) > 1:
            self.start()

    def start(self) -> None:
        """Start what all slices were issued, or have taken, before any is waited for: they may wait for each other."""
        for part in self.slices:
            part.start()

    @property
    def is_aborted(self) -> bool:
        """Whether calls end at once, because something has failed: on another host, too, which aborts this one's."""
        if len(self.slices) == 1:
            return self.slices[0].is_aborted
        return any(part.is_aborted for part in self.slices)

    def _run(self, devices: list[int], issue: Callable[[], None], time_limit: float | None) -> float:
        start = clock.now()
        end = None if time_limit is None else start + time_limit
        self._stragglers.begin()
        self._devices = devices
        call = None
        try:
            issue()
            if (first := self._first_waits(end)) is not None:
                host, met = first
                call = CallInFlight(len(self._ends), self._call_end, self._ends.index(host))
                self._follow(call, _Found(devices, end, time_limit), met)
        except BaseException:
            call = call or CallInFlight(len(self._ends), self._call_end)
            if (how := call.handle(Met.RAISED).how) is not None:
                self._end(how)
            raise
        return clock.now() - start

    def _first_waits(self, end: float | None) -> tuple[HostEnd, Met] | None:
        """Wait once for each host, up to the first that has not come back then; None where all have, and nothing has
        failed. The loop is not directly in the try-body: of an interrupt there Python may not tell the except-clause.
        """
        for host in self._ends:
            nanoseconds = SLICE_NS if end is None else self._slice(end)
            outcome = host.wait(nanoseconds) if self._is_alone else self._wait(host, nanoseconds)
            if outcome != call_loops.CALL_DONE:
                break
        return None if outcome == call_loops.CALL_DONE and not self.is_aborted else (host, _MET[outcome])

    def _wait(self, host: HostEnd, nanoseconds: int) -> int:
        """Wait for a host, or a slice of this one; of a failure of another slice it hears at the end of the time."""
        if len(self.slices) == 1:
            return host.wait(nanoseconds)
        outcome = call_loops.CALL_ABORTED if self.is_aborted else host.wait(nanoseconds)
        return call_loops.CALL_ABORTED if outcome == call_loops.CALL_AGAIN and self.is_aborted else outcome

    def _follow(self, call: CallInFlight, found: _Found, met: Met) -> None:
        """Take the steps of a call of which a host has not come back at its first wait; raises its error."""
        try:
            while (step := call.handle(met, aborted=self.is_aborted)).do is not Do.RETURN:
                met = self._follow_step(step, found)
        except BaseException as error:
            if error is not found.error and error.__context__ is None:
                error.__context__ = found.error  # an interrupt shows which error it came before
            raise

    def _follow_step(self, step: CallStep, found: _Found) -> Met:
        if step.do is Do.WAIT:
            return _MET[self._wait(self._ends[step.host], self._slice(found.end))]
        if step.do is Do.ASK:
            found.error = self.stop_reason()
            return Met.NOTHING if found.error is None else Met.FOUND
        if step.do is Do.LOOK:
            found.stuck = self._deadlocks.look(found.devices, self.programs)
            return Met.NOTHING if found.stuck is None else Met.FOUND
        if step.do is Do.CLOCK:
            return Met.NOTHING if found.end is None or clock.now() < found.end else Met.FOUND
        if step.do is Do.SETTLE:
            assert found.stuck is not None
            found.stuck = self._deadlocks.settled(found.stuck, found.devices, self.programs)
        elif step.do is Do.NOTICE:
            snapshot = partial(self._post_mortem_now, found.devices)
            self._stragglers.look(self._deadlocks.blocked, snapshot, self._stopped, self._agents)
        elif step.do is Do.REPORT:
            self._report(step, found)
        elif step.how is not None:
            self._end(step.how)
        else:
            raise found.error or self._failure(found)
        return Met.DONE

    def _report(self, step: CallStep, found: _Found) -> None:
        """Find out all about an error, before any wait is released."""
        if step.error is Error.DEADLOCK:
            assert found.stuck is not None
            found.error = stuck_error(found.stuck, self._post_mortem_now(found.devices))
        elif step.error is Error.LIMIT:
            error = TimeLimitError(f"the time limit of {found.time_limit:g} s ran out")
            network = tuple(proxy_waits(self._agents))
            error.diagnosis = replace(self._post_mortem_now(found.devices).diagnosis(error), network=network)
            found.error = error
        elif step.error is Error.FAILURE:
            self._await_losses()
            records = self.records()
            found.died = ended(records, self._lost(), self.programs, self.modules)
            found.snapshot = self.post_mortem(records, found.devices)
            found.states = found.snapshot.devices()

    def settle(self, time_limit: float | None) -> None:
        """Block until the devices are back that still computed when the last call failed, of this dispatcher or of one
        that has some of its slices; without any, return at once.

        TimeLimitError after so many seconds, KeyboardInterrupt, and what `stop_reason` says: then those that still
        compute are ended by force. ArgumentError where `time_limit` is none.
        """
        if time_limit is not None:
            checked_seconds(time_limit)
        with self.lock:
            self._settle_all(time_limit)

    def _settle_all(self, time_limit: float | None) -> None:
        """With the lock: no call of a dispatcher that has some of the slices can begin, so those that are over stay
        so."""
        for one in (self,) if self._is_alone else self._overlapping(self):
            if not one._call_end.is_over:
                one._settle(_Limit(time_limit), self.stop_reason)

    def _settle(self, limit: _Limit, stop_reason: Callable[[], DistxlaError | None]) -> None:
        """limit, stop_reason: of the call that wants to begin. Another thread may be doing the same, for a call of
        other slices."""
        while not self._ending.acquire(timeout=SLICE_NS / 1e9):
            limit.require(stop_reason)
        try:
            if not self._call_end.is_over:
                self._settle_now(limit, stop_reason)
        finally:
            self._ending.release()

    def _settle_now(self, limit: _Limit, stop_reason: Callable[[], DistxlaError | None]) -> None:
        notice = stragglers.NOTICE_S
        if not self._call_end.late:
            self._end(Happened.CALLED)
        try:
            while self._call_end.late:
                self._end(Happened.CALLED, SLICE_NS / 1e9)
                if self._call_end.late and limit.waited >= notice:
                    notice *= 2
                    stragglers.tell(stragglers.late(self._still_there(), limit.waited))
                if self._call_end.late:
                    limit.require(stop_reason)
        except BaseException:
            self._end(Happened.STOPPED)
            raise

    def _still_there(self) -> list[DeviceState]:
        """The devices that are not back, with their steps where these are known."""
        rows = {device: row for i in self._call_end.late for device, row in self._ends[i].still_there().items()}
        records, found = Records(rows, self._hosts.device_count), []
        for device, row in sorted(rows.items()):
            name, where = (current_step(records, device, self.programs, self.modules) if row else None) or ("", None)
            found.append(DeviceState(device, Doing.COMPUTES, instruction=name, location=where))
        return found

    def forget(self) -> None:
        """A program was unloaded."""
        self._deadlocks.forget()

    def keep(self, *things: object) -> None:
        """After a failed call: hold memory that its devices may still read and write, until all are back."""
        if not self._call_end.is_over:
            self._kept += things

    def device_seconds(self, devices: Sequence[int]) -> list[float]:
        """The last call's time on each device."""
        return [self._end_of[device].run_ns(device) / 1e9 for device in devices]

    def aftermath(self) -> Aftermath:
        """The state of all devices now, for the outcomes of injected faults."""
        lost = self._lost()
        hosts = {agent.index for agent in self._agents if agent.is_lost and agent.devices}
        messages = {number: text for agent in self._agents for number, text in agent.injected.copy().items()}
        return Aftermath(self.records(), frozenset(lost), frozenset(hosts), messages)

    def _lost(self) -> dict[int, Lost]:
        found: dict[int, Lost] = {}
        for host in self._ends:
            found.update(host.lost)  # at once: other threads add to it
        return found

    def _failures(self) -> list[str]:
        """Why hosts can't go on although their replicas live."""
        return [host.failure for host in self._ends if host.failure]

    def _damage(self) -> list[str]:
        """The messages between hosts that were damaged, repeated or lost: the cause of other failures."""
        return [host.damage for host in self._ends if host.damage]

    def _await_losses(self) -> None:
        """A proxy may miss another host's before the driver does: the loss of that host says more."""
        with self._hosts.news:
            if self._failures():
                self._hosts.news.wait_for(lambda: self._lost() or self._damage(), LOSS_S)

    def unusable(self) -> ReplicaLostError | None:
        """The error of every further call, if a replica has ended or a host has failed; else None."""
        if damage := self._damage():
            return DamagedMessageError(f"{'; '.join(damage)}; the cluster cannot be used any more")
        if lost := self._lost():
            return ReplicaLostError(f"{ended_text(lost)}; the cluster cannot be used any more")
        if failures := self._failures():
            return ReplicaLostError(f"{'; '.join(failures)}; the cluster cannot be used any more")
        return None

    def _require_all(self) -> None:
        if (error := self.unusable()) is not None:
            raise error

    def _slice(self, end: float | None) -> int:
        if end is None:
            return SLICE_NS
        return max(0, min(SLICE_NS, int((end - clock.now()) * 1e9)))

    def records(self, *, fresh: bool = True) -> Records:
        """All devices' records: as they are, or were when a failure was seen; or else as they are after the call."""
        if fresh:
            self._read_at = clock.now_ns()
        asked = [(host, host.begin_records() if fresh else None) for host in self._ends]
        rows = {device: row for host, number in asked for device, row in host.records(number).items()}
        if not fresh:  # the status of a device that still computes is of an earlier call
            rows = {device: row if _is_over(row) else _without_status(row) for device, row in rows.items()}
        return Records(rows, self._hosts.device_count, read_rings(self._ends, rows))

    def _stopped(self) -> frozenset[int]:
        """Devices whose processes are stopped; none of hosts whose agents don't answer."""
        silent = {agent.index for agent in self._agents if agent.devices and agent.silent_s()}
        asked = [(host, host.begin_records()) for host in self._ends if host.index not in silent]
        rows = {device: row for host, number in asked for device, row in host.records(number).items()}
        return frozenset(d for d, row in rows.items() if row[control_words.R_IS_STOPPED])

    def post_mortem(self, records: Records, devices: list[int]) -> PostMortemSnapshot:
        lost = self._lost()
        everywhere = not lost and not self._failures()
        self._deadlocks.refresh(everywhere=everywhere)
        missing = partial(self._deadlocks.missing, everywhere=everywhere)
        ahead = {}
        for agent in self._agents:
            if agent.devices:
                agent.look_at_clock()
                ahead.update(dict.fromkeys(agent.devices, agent.ahead))
        return PostMortemSnapshot(records, devices, self.programs, self.modules, missing, lost, self._read_at, ahead)

    def _post_mortem_now(self, devices: list[int]) -> PostMortemSnapshot:
        return self.post_mortem(self.records(), devices)

    def _end(self, event: Happened, patience: float | None = None) -> None:
        """Take the steps that follow an event of the end of a call. patience: seconds for a host that is awaited."""
        if event is not Happened.CALLED:
            self._call_end.begin()  # first: from here on an interrupt leaves the end to the next call
        patience = PATIENCE_S if patience is None else patience
        step = self._call_end.handle(event, whole=self._is_whole())
        while step is not None:
            is_done = self._take(step, patience)
            step = self._call_end.handle(Happened.DONE if is_done else Happened.LATE, whole=self._is_whole())
        if self._call_end.is_over:
            self._kept = []  # no proxy sends from it any more

    def _take(self, step: EndStep, patience: float) -> bool:
        """Take a step of the end of a call; whether that has done it."""
        if step.do is EndAction.AWAIT:
            return self._ends[step.host].has_ended(patience)
        if step.do is EndAction.FORCE:
            self._ends[step.host].finish_end()
        elif step.do is EndAction.CLEAR:
            self._epoch += 1
            if self._is_alone:
                self._clear()
            else:
                with self._communicators.lock:  # the place of a state that is cleared is no other's meanwhile
                    self._clear()
        elif step.do is EndAction.ALLOW:
            for part in self.slices:
                part.allow()
        else:
            for host in self._ends:
                mine = [d for d in self._devices if d in host.devices]
                host.begin_end(mine, patient=step.do is EndAction.RELEASE)
        return True

    def _clear(self) -> None:
        """Zero what the call has left in the transports; one slice does so for all."""
        cleared: list[HostEnd] = [self.slices[0], *self._agents]
        failed = None if self._is_whole_host else {device for part in self.slices for device in part.devices}
        for host in cleared:
            host.begin_clear(self._communicators.restart(host.index, self._epoch, failed))
        for host in reversed(cleared):  # that of this process behind its proxy's last access
            host.finish_clear()

    def _is_whole(self) -> bool:
        return not self._lost() and not self._failures()

    def _failure(self, found: _Found) -> DistxlaError:
        damage, lost, failures = self._damage(), self._lost(), self._failures()
        records = Records({}, 0) if damage or lost or failures else self.records(fresh=False)
        known = found.devices, found.died, found.states, damage, lost, failures, records, self.programs, self.modules
        error = FailedCall(*known, self._streams, self._routine_failure).error()
        is_lost = isinstance(error, ReplicaLostError)  # the instructions of all devices may tell why
        if is_lost or any(device.doing in (Doing.WAITS, Doing.ARRIVED) for device in found.states.values()):
            assert found.snapshot is not None
            error.diagnosis = found.snapshot.diagnosis(error, devices=found.states)
        return error


class _Limit:
    """The time that a call has, from now on. seconds: None where it has no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self._begun = seconds, clock.now()

    @property
    def waited(self) -> float:
        """Seconds until now."""
        return clock.now() - self._begun

    def require(self, stop_reason: Callable[[], DistxlaError | None]) -> None:
        """Raises what `stop_reason` says, or TimeLimitError once the time is over."""
        if (reason := stop_reason()) is not None:
            raise reason
        if self._seconds is not None and self.waited >= self._seconds:
            raise TimeLimitError(
                f"the time limit of {self._seconds:g} s ran out before all devices of a call that had failed had come "
                "back"
            )


class _Found:
    """What is found out about a call in flight. end: the moment when its time limit is over."""

    def __init__(self, devices: list[int], end: float | None, time_limit: float | None) -> None:
        self.devices, self.end, self.time_limit = devices, end, time_limit
        self.error: DistxlaError | None = None
        self.stuck: Stuck | None = None
        self.died: Sequence[ProcessEnd] = ()
        self.snapshot: PostMortemSnapshot | None = None  # of a call that has failed
        self.states: Mapping[int, DeviceState] = {}


def _is_over(row: bytes) -> bool:
    """Whether a device with this record has come back from its last command."""
    return control_words.R_COMMAND_KIND.read(row) != control_words.CommandKind.RUN


def _without_status(row: bytes) -> bytes:
    return row[: control_words.R_STATUS] + Status.OK.to_bytes(4, "little") + row[control_words.R_STATUS.end :]
