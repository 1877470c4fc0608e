"""One call: commands into the control block, a futex wake, a wait; and what happens when it does not end well."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distxla.codegen.abi import Status
from distxla.codegen.image import load_image
from distxla.codegen.program import CompiledProgram
from distxla.collectives import call_loops
from distxla.collectives import control_block as control
from distxla.errors import (
    ClusterError,
    CollectiveMismatchError,
    DistxlaError,
    ExecutionError,
    InternalError,
    ReplicaLostError,
    TimeLimitError,
)
from distxla.runtime import serve
from distxla.runtime.communicators import Communicators
from distxla.runtime.memory import ControlBlock
from distxla.runtime.watch import End, Watch, current_site, describe, ended, mismatch_text, site_text

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.runtime.routines import RoutineFailure

SLICE_NS = 50_000_000  # how long a wait in native code keeps Python from handling signals, at most
GRACE_S = 3.0  # for devices to come back after the poison word was set, before their processes are killed
MASK = 0xFFFFFFFF


class Dispatcher:
    """Issues calls, one at a time (other threads wait). State: the control block; `programs` and `modules` by number.

    routine_failure: asks a device why a Python routine failed on it.

    After a failed call in which every process lives, the communicators' state is zeroed, and the next call starts
    afresh.
    """

    def __init__(
        self,
        block: ControlBlock,
        support: CompiledProgram,
        watch: Watch,
        communicators: Communicators,
        routine_failure: Callable[[int], RoutineFailure | None],
    ) -> None:
        self._block = block
        self._routine_failure = routine_failure
        self._watch = watch
        self._communicators = communicators
        self._image = load_image(support)
        self._call = serve.CALL_TYPE(self._image.address_of(call_loops.CALL))
        self._lock = threading.Lock()
        self.programs: dict[int, CompiledProgram] = {}
        self.modules: dict[int, Module] = {}  # those that are known; reports find source lines in them
        self._records = [control.record_offset(device) // 4 for device in range(block.devices)]

    def call(self, numbers: dict[int, int], repeat: int = 1, time_limit: float | None = None) -> float:
        """Run program numbers[device] on every device named, `repeat` times; seconds from issue to completion.

        Blocks. Raises TimeLimitError after `time_limit` seconds, ReplicaLostError, CollectiveMismatchError,
        ExecutionError; KeyboardInterrupt ends the call on all devices first.
        """
        with self._lock:
            self._require_all()
            words, devices = self._block.words, list(numbers)
            sequence = (words[control.H_COMMAND // 4] + 1) & MASK
            for device, number in numbers.items():
                record = self._records[device]
                words[record + control.R_COMMAND_KIND // 4] = control.CommandKind.RUN
                words[record + control.R_COMMAND_PROGRAM // 4] = number
                words[record + control.R_COMMAND_SEQUENCE // 4] = sequence
                words[record + control.R_COMMAND_REPEAT // 4] = repeat
            target = (words[control.H_DONE // 4] + len(numbers)) & MASK
            words[control.H_DONE_TARGET // 4] = target
            start = time.perf_counter()
            end = None if time_limit is None else start + time_limit
            address = self._block.segment.address
            try:
                while (outcome := self._call(address, sequence, target, self._slice(end))) == call_loops.CALL_AGAIN:
                    if end is not None and time.perf_counter() >= end:
                        raise TimeLimitError(self._where(f"the time limit of {time_limit:g} s ran out", devices))
            except BaseException:
                self._end(devices)
                raise
            if outcome == call_loops.CALL_POISONED or words[control.H_POISON // 4]:
                waiting = describe(self._block, devices, self.programs, self.modules)
                died = ended(self._block, self._watch.lost, self.programs, self.modules)
                self._end(devices)
                raise self._failure(devices, waiting, died)
            return time.perf_counter() - start

    def device_seconds(self, devices: Sequence[int]) -> list[float]:
        """What the last call took on each device."""
        longs = self._block.longs
        return [longs[(control.record_offset(d) + control.R_RUN_NS) // 8] / 1e9 for d in devices]

    def stop(self) -> None:
        """Tell all replicas to leave their serve loop; does not wait."""
        words = self._block.words
        sequence = (words[control.H_COMMAND // 4] + 1) & MASK
        for record in self._records:
            words[record + control.R_COMMAND_KIND // 4] = control.CommandKind.STOP
            words[record + control.R_COMMAND_SEQUENCE // 4] = sequence
        self._call(self._block.segment.address, sequence, words[control.H_DONE // 4], 0)

    def close(self) -> None:
        self._image.close()

    def lost_text(self) -> str:
        """Names every replica that has ended."""
        lost = sorted(self._watch.lost.items())
        return ", ".join(f"the replica of device {device} (process {pid})" for device, pid in lost)

    def _require_all(self) -> None:
        if self._watch.lost:
            raise ReplicaLostError(f"{self.lost_text()} has ended; the cluster cannot be used any more")

    def _slice(self, end: float | None) -> int:
        if end is None:
            return SLICE_NS
        return max(0, min(SLICE_NS, int((end - time.perf_counter()) * 1e9)))

    def _where(self, text: str, devices: list[int]) -> str:
        waiting = describe(self._block, devices, self.programs, self.modules)
        return f"{text}\n{waiting}" if waiting else text

    def _end(self, devices: list[int]) -> None:
        """Release every wait and get all devices of the call back, by force where they do not come."""
        from distxla.collectives.transports.futex import release_waiters

        words = self._block.words
        end = time.monotonic() + GRACE_S
        killed = False
        while True:
            release_waiters(self._block.view, Status.RELEASED, seconds=0.05)
            busy = [d for d in devices if d not in self._watch.lost and self._is_busy(d)]
            if not busy:
                break
            if time.monotonic() > end:
                if killed:
                    raise InternalError(f"devices {busy} do not end")
                for device in busy:
                    self._watch.kill(device)
                killed, end = True, time.monotonic() + GRACE_S
            time.sleep(0.001)
        if not self._watch.lost:
            self._communicators.zero()
            words[control.H_POISON // 4] = 0

    def _is_busy(self, device: int) -> bool:
        return self._block.words[self._records[device] + control.R_COMMAND_KIND // 4] == control.CommandKind.RUN

    def _failure(self, devices: list[int], waiting: str, died: list[End]) -> DistxlaError:
        rest = f"\n{waiting}" if waiting else ""
        if self._watch.lost:
            first = next((end for end in died if end.signal), died[0] if died else None)
            if first is None:
                return ReplicaLostError(f"{self.lost_text()} ended during a call{rest}")
            others = [end.text for end in died if end is not first]
            also = f"; also {', '.join(others)}" if others else ""
            return ReplicaLostError(f"{first.text}{also}{rest}", first.location)
        statuses = {d: self._block.record(d, control.R_STATUS) for d in devices}
        if Status.MISMATCH in statuses.values():
            return CollectiveMismatchError(mismatch_text(self._block, devices, self.programs))
        for device, status in statuses.items():
            if status == Status.ROUTINE_FAILED:
                return self._routine_error(device)
            if status not in (Status.OK, Status.RELEASED):
                program = self.programs.get(self._block.record(device, control.R_PROGRAM))
                site = current_site(self._block, device, self.programs)
                after = f"; its last communicating instruction was {site_text(site)}" if site else ""
                name = program.name if program else "a program"
                return ExecutionError(f"{name} failed on device {device} with status {status}{after}{rest}")
        return ClusterError(f"the call was ended from outside{rest}")

    def _routine_error(self, device: int) -> ExecutionError:
        """A Python routine has failed: which one, where it is called, and its traceback as a note."""
        program = self.programs[self._block.record(device, control.R_PROGRAM)]
        failure = self._routine_failure(device)
        if failure is None:
            return ExecutionError(f"a custom-call failed on device {device}")
        site = program.sites[failure.site]
        target = site.routine.target if site.routine is not None else ""
        message = f'{site.instruction} on device {device}: "{target}" {failure.summary}'
        error = ExecutionError(message, site.location)
        if failure.traceback:
            error.add_note(failure.traceback)
        return error
