"""The error of a call that has failed: its text, where its cause is (failure_cause.py), and the traceback of a Python
routine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from distxla.collectives.protocols import control_block as control_words
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.errors import ClusterError, DamagedMessageError, DistxlaError, ExecutionError, ReplicaLostError
from distxla.lazy_dataclass import dataclass
from distxla.ops.ragged_all_to_all import out_of_range
from distxla.program.artifact import CompiledProgram
from distxla.runtime.calls.failure_cause import Cause, Facts, Why, cause
from distxla.runtime.failures.mismatch import mismatch
from distxla.runtime.hosts.process_watch import ProcessEnd, current_site, site_text
from distxla.runtime.streams.streams import ClusterStreams
from distxla.runtime.values.host import Lost, Records, ended_text

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.runtime.replica.user_functions import RoutineFailure


@dataclass(frozen=True)
class FailedCall:
    """What is known of it once it has ended on all devices, but those that still compute.

    died, found: the processes that had ended, and the state of all devices, when it failed.  damage, lost, failures:
    messages that were damaged, replicas that have ended, hosts that can't go on, until now.  records: as they are
    after the call; none where one of these three tells the cause.  routine_failure: see Dispatcher.
    """

    devices: Sequence[int]
    died: Sequence[ProcessEnd]
    found: Mapping[int, DeviceState]
    damage: Sequence[str]
    lost: Mapping[int, Lost]
    failures: Sequence[str]
    records: Records
    programs: Mapping[int, CompiledProgram]
    modules: Mapping[int, Module]
    streams: ClusterStreams
    routine_failure: Callable[[int], RoutineFailure | None]

    def error(self) -> DistxlaError:
        """The error that names the cause."""
        why, number = self._cause()
        if why is Why.DAMAGED:
            return DamagedMessageError("; ".join(self.damage))
        if why is Why.LOST:
            return ReplicaLostError(f"{ended_text(self.lost)}, during a call")
        if why in (Why.SIGNALLED, Why.ENDED):
            first = self.died[number]
            others = [end.text for end in self.died if end is not first]
            also = f"; also {', '.join(others)}" if others else ""
            return ReplicaLostError(f"{first.text}{also}", first.location)
        if why is Why.UNABLE:
            return ReplicaLostError("; ".join(self.failures))
        if why is Why.MISMATCHED:
            return mismatch(self.records, self.devices, self.programs, self.modules, self.found)
        if why is Why.ROUTINE:
            return self._routine_error(number)
        if why is Why.STREAM:
            return self.streams.failure(number, self._status(number), self.records)
        if why in (Why.OUT_OF_RANGE, Why.STATUS):
            return self._execution_error(number, why)
        return ClusterError("the call was ended from outside")

    def _cause(self) -> Cause:
        statuses = {device: self._status(device) for device in self.devices}
        return cause(
            Facts(
                bool(self.damage),
                [end.signal for end in self.died],
                self.lost.keys(),
                bool(self.failures),
                statuses,
                {device for device in self.devices if self.found[device].doing is Doing.FAILED},
                {device for device in self.devices if current_site(self.records, device, self.programs) is not None},
            )
        )

    def _status(self, device: int) -> int:
        return self.records.record(device, control_words.R_STATUS)

    def _execution_error(self, device: int, why: Why) -> ExecutionError:
        site = current_site(self.records, device, self.programs)
        if why is Why.OUT_OF_RANGE and site is not None:
            text = out_of_range(self.records.record_long(device, control_words.R_DETAIL))
            return ExecutionError(f"{site.instruction} on device {device}: {text}", site.location)
        program = self.programs.get(self.records.record(device, control_words.R_PROGRAM))
        after = f"; its last communicating instruction was {site_text(site)}" if site else ""
        name = program.name if program else "a program"
        return ExecutionError(f"{name} failed on device {device} with status {self._status(device)}{after}")

    def _routine_error(self, device: int) -> ExecutionError:
        """A Python routine has failed: which one, where it is called, and its traceback as a note."""
        program = self.programs[self.records.record(device, control_words.R_PROGRAM)]
        failure = self.routine_failure(device)
        if failure is None:
            return ExecutionError(f"a custom-call failed on device {device}")
        if failure.site < 0:
            error = ExecutionError(f"device {device}: {failure.summary}")
        else:
            site = program.sites[failure.site]
            target = site.routine.target if site.routine is not None else ""
            error = ExecutionError(
                f'{site.instruction} on device {device}: "{target}" {failure.summary}', site.location
            )
        if failure.traceback:
            error.add_note(failure.traceback)
        return error
