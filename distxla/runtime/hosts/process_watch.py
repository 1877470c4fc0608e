"""Watches the replicas' processes, and names the step or site in which one has ended."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Mapping

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.errors import ClusterError
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.machine.processes import descriptor_of, ended_by, readable, send_signal
from distxla.machine.shortages import started_thread
from distxla.program.artifact import CompiledProgram, Site
from distxla.runtime.hosts.process_ends import KillCounts, how_ended
from distxla.runtime.replica.replica import Identity
from distxla.runtime.values.host import Lost, Records


class Watch:
    """A thread that sleeps on the replicas' process descriptors and reports every end once, within milliseconds.

    frames: says where a device's Python was that a signal has ended.  on_loss: called in the watch's thread with device
    and pid.
    """

    def __init__(
        self, identities: list[Identity], frames: Callable[[int], str], on_loss: Callable[[int, int], None]
    ) -> None:
        self._lost: dict[int, int] = {}
        self._hows: dict[int, str] = {}
        self._frames, self._on_loss = frames, on_loss
        self._identities = {identity.device: identity for identity in identities}
        self._descriptors: dict[int, int] = {}
        try:
            for identity in identities:
                self._descriptors[descriptor_of(identity.pid)] = identity.device
        except OSError as error:
            self._close_descriptors()
            raise ClusterError(f"replica process {identity.pid} cannot be watched: {error.strerror}") from error
        self._kills = KillCounts(identity.pid for identity in identities)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        thread = threading.Thread(target=self._run, name="distxla-watch", daemon=True)
        self._thread = started_thread(thread, "the replicas cannot be watched")

    @property
    def lost(self) -> dict[int, int]:
        """device -> pid of the processes that have ended until now."""
        return self._lost.copy()  # the thread may add others

    @property
    def hows(self) -> dict[int, str]:
        """How they did, as process_ends says it; at least those of `lost`, where that was asked for before."""
        return self._hows.copy()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for descriptor in self._descriptors:
            poll.register(descriptor, select.POLLIN)
        while True:
            ended = [descriptor for descriptor, _ in poll.poll()]
            if self._wake in ended:
                return
            for descriptor in ended:
                poll.unregister(descriptor)
                device = self._descriptors[descriptor]
                pid = self._identities[device].pid
                number = ended_by(pid, descriptor)
                self._hows[device] = how_ended(number, self._kills.risen(), self._frames(device))
                self._lost[device] = pid
                self._on_loss(device, pid)

    def kill(self, device: int) -> None:
        """End a replica's process that no longer obeys."""
        for descriptor, owner in self._descriptors.items():
            if owner == device:
                send_signal(descriptor, signal.SIGKILL)

    def kill_all(self) -> None:
        """Stop watching and end all processes; does not wait."""
        self._stop()
        for device in self._identities:
            self.kill(device)

    def close(self, grace: float, seconds: float = 5.0) -> None:
        """Stop watching, let the processes end for `grace` seconds, kill the rest, and wait until all are gone."""
        self._stop()
        self._wait_ended(grace)
        self.kill_all()
        self._wait_ended(seconds)
        self._close_descriptors()
        os.close(self._wake)

    def _stop(self) -> None:
        if self._thread.is_alive():  # an interrupted `close` may be called again
            os.eventfd_write(self._wake, 1)
            self._thread.join()

    def _wait_ended(self, seconds: float) -> None:
        end = clock.now() + seconds
        for descriptor in self._descriptors:
            readable(descriptor, seconds=end - clock.now())

    def _close_descriptors(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = {}


def site_text(site: Site) -> str:
    """`all-reduce.7 (step.hlo:12:3)`."""
    return site.instruction if site.location is None else f"{site.instruction} ({site.location})"


def has_begun(records: Records, device: int) -> bool:
    """Whether a device has reached its last command; until then its record is of the one before."""
    return records.record(device, control_words.R_SERVED) == records.record(device, control_words.R_COMMAND_SEQUENCE)


def current_site(records: Records, device: int, programs: Mapping[int, CompiledProgram]) -> Site | None:
    """The communicating instruction that a device is in or was in last."""
    program = programs.get(records.record(device, control_words.R_PROGRAM))
    index = records.record(device, control_words.R_SITE)
    return program.sites[index] if program is not None and index < len(program.sites) else None


def current_step(
    records: Records, device: int, programs: Mapping[int, CompiledProgram], modules: Mapping[int, Module]
) -> tuple[str, Location | None] | None:
    """The name of the instruction that a device computes or has computed last, and its place; None where unknown, and
    where it has not begun."""
    if not has_begun(records, device):
        return None
    number = records.record(device, control_words.R_PROGRAM)
    program, module = programs.get(number), modules.get(number)
    step = records.record(device, control_words.R_STEP)
    if program is None or step >= len(program.debug.steps):
        return None
    origin = program.debug.steps[step]
    location = None
    if module is not None and origin.computation in module.by_name:
        found = module[origin.computation].by_name.get(origin.origin)
        location = module.locate(found) if found is not None else None
    return origin.instruction, location


@dataclass(frozen=True)
class ProcessEnd:
    """How a replica's process ended. signal: 0 where its handler saw none: then another process ended it."""

    text: str
    signal: int
    location: Location | None


def ended(
    records: Records,
    lost: Mapping[int, Lost],
    programs: Mapping[int, CompiledProgram],
    modules: Mapping[int, Module],
) -> list[ProcessEnd]:
    """The devices in `lost`, whose processes ended during a call, as far as is known."""
    wholes = {one.whole: one.reason for one in lost.values() if one.whole}
    found = [ProcessEnd(f"{whole} was lost during a call ({reason})", 0, None) for whole, reason in wholes.items()]
    for device, one in sorted(lost.items()):
        if one.whole:
            continue
        number = records.record(device, control_words.R_SIGNAL)
        running = records.record(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN
        step = current_step(records, device, programs, modules) if running else None
        text, frames = f"{one.of(device)} ended during a call", ""
        if number:
            name = signal.Signals(number).name
            at = records.record_long(device, control_words.R_FAULT)
            text += f" by {name}" + (f" (at address {at:#x})" if name in ("SIGSEGV", "SIGBUS") else "")
            if name == "SIGBUS":
                text += ", probably since no page was left for shared memory"
            frames = one.how.partition(f"by {name}")[2]
        elif one.how:
            text += f" {one.how}"
        if step is not None:
            text += f" in {step[0]}"
        found.append(ProcessEnd(text + frames, number, step[1] if step is not None else None))
    return found
