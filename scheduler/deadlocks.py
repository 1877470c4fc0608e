"""Whether a run can end, before it begins: a proof, a counterexample, or a decision that only the run makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

from distxla.diagnosis.diagnose import deadlock_error, diagnose, refused
from distxla.diagnosis.facts.blocked import DeviceState, Place
from distxla.diagnosis.facts.findings import UNDECIDED, Undecided
from distxla.diagnosis.graph import Deadlock
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.rewrites.executed_form import executed_form
from distxla.scheduler.device_states import DeviceStates
from distxla.scheduler.simulation.blocked_devices import never_go_on, wait_graph
from distxla.scheduler.simulation.communication import Communication, CommunicationSite, Edge, Rendezvous
from distxla.scheduler.simulation.deferred import RunState
from distxla.scheduler.simulation.executions import compared
from distxla.scheduler.simulation.progress import BUFFERED, SYNCHRONOUS, Mismatch, Open, Progress
from distxla.scheduler.simulation.symmetry import advances_in_step
from distxla.scheduler.simulation.traces import Trace
from distxla.scheduler.simulation.tracing import TooLongError, Tracer
from distxla.scheduler.tpu_kernel import communicates
from distxla.scheduler.verdict import Outcome, Verdict
from distxla.wording import listed, mismatch_of, round_called, transfer_called


def examine(programs: Sequence[tuple[Iterable[int], Module]], counts: Counts) -> Verdict:
    """The knowledge of a run of these programs, each with the flattened ids of its devices; verified together.

    The text's order is taken for each program's schedule: the compiler keeps it among instructions with effects. It is
    assumed that the host keeps infeeds filled and drains outfeeds.
    """
    communication = Communication([(devices, executed_form(module)) for devices, module in programs], counts)
    return _Examination(communication).verdict()


def no_deadlock(devices: int) -> Verdict:
    """That every run of programs on so many devices ends."""
    return Verdict(Outcome.SAFE, devices)


def refusal(error: DeadlockError, devices: int) -> Verdict:
    """The verdict on a run that was refused, since a program waits for a transfer that no program makes."""
    return Verdict(Outcome.DEADLOCK, devices, refused(error))


class _Examination:
    def __init__(self, communication: Communication) -> None:
        self.communication = communication
        self.modules = {device: module for devices, module in communication.programs for device in devices}

    def verdict(self) -> Verdict:
        found = self._of_instructions()
        return self._with_kernels(found) if found.outcome is Outcome.SAFE else found

    def _with_kernels(self, safe: Verdict) -> Verdict:
        """The verdict of a proof that ignores kernels that communicate; the same one where there are none."""
        found = [
            (number, devices, instruction)
            for number, (devices, module) in enumerate(self.communication.programs)
            for computation in module.reached()
            for instruction in computation
            if communicates(instruction)
        ]
        if not found:
            return safe
        why = "only its kernel says what it sends and which devices it waits for"
        places = [(tuple(devices), self._place(number, instruction)) for number, devices, instruction in found]
        return self._unknown(
            "whether all devices go on depends on kernels that communicate; without them all do",
            [Undecided(devices, place, place, why) for devices, place in places],
        )

    def _of_instructions(self) -> Verdict:
        """The verdict on the communication of the instructions."""
        world = RunState(self.communication.counts)
        traces: dict[int, Trace] = {}
        for number, (devices, _) in enumerate(self.communication.programs):
            try:
                found = Tracer(self.communication, number, world).trace()
            except TooLongError as error:
                return self._too_long(error)
            traces.update(dict.fromkeys(devices, found))
        if len(self.communication.programs) == 1 and advances_in_step(self.communication, found):
            return no_deadlock(len(self.modules))
        synchronous = Progress(traces, SYNCHRONOUS).run()
        if synchronous.has_finished:
            return no_deadlock(len(self.modules))
        equal_rounds = self.communication.counts_rounds_equally
        buffered = synchronous.as_buffered() if equal_rounds else Progress(traces, BUFFERED).run()
        if buffered.mismatches:
            return self._deadlock(buffered, self._mismatch(buffered), None)
        stuck = never_go_on(buffered)
        if stuck:
            return self._stuck(buffered, wait_graph(buffered, stuck))
        if not buffered.has_finished:
            return self._undecided(buffered, "whether all devices go on can't be known before the run")
        return self._undecided(
            synchronous, "whether all devices go on depends on how rounds and transfers are carried out"
        )

    def _place(self, program: int, instruction: Instruction) -> Place:
        op_name = instruction.metadata.op_name if instruction.metadata else ""
        where = self.communication.programs[program][1].locate(instruction)
        return Place(instruction.name, instruction.opcode, where, op_name)

    # --- deadlocks

    def _deadlock(
        self,
        progress: Progress,
        error: DeadlockError,
        found: Deadlock | None,
        states: dict[int, DeviceState] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Verdict:
        states = states or DeviceStates(progress, self.modules).all()
        diagnosis = diagnose(error, states, found, self.modules, is_live=False)
        return Verdict(Outcome.DEADLOCK, len(self.modules), replace(diagnosis, notes=notes))

    def _mismatch(self, progress: Progress) -> CollectiveMismatchError:
        found = progress.mismatches[0]
        (one, first), (other, _) = _by_device(found)
        error = CollectiveMismatchError(_differ(found), first.location)
        error.pair = one, other
        error.channel = found.thing.channel if isinstance(found.thing, Edge) else None
        return error

    def _stuck(self, progress: Progress, found: Deadlock) -> Verdict:
        def differing(one: int, other: int) -> str:
            return progress.stops[one].event.site.difference(progress.stops[other].event.site)

        states = DeviceStates(progress, self.modules).all()
        error = deadlock_error(found, states, differing)
        return self._deadlock(progress, error, found, states, self._counts(progress, found))

    def _counts(self, progress: Progress, found: Deadlock) -> tuple[str, ...]:
        """How often a device executes something and how often another one does, where that is known."""
        if found.cycles:
            return ()
        waiter, ended = found.without_end[0]
        if ended not in progress.traces:
            return ()
        counts = compared(progress, progress.stops[waiter].thing, waiter, ended, places=True)
        return () if counts is None else (counts,)

    # --- unknown verdicts

    def _unknown(
        self, summary: str, undecided: Sequence[Undecided], states: dict[int, DeviceState] | None = None
    ) -> Verdict:
        diagnosis = Diagnosis(
            UNDECIDED,
            summary,
            tuple((states or {}).values()),
            undecided[0].by.location,
            is_live=False,
            undecided=tuple(undecided),
        )
        return Verdict(Outcome.UNKNOWN, len(self.modules), diagnosis)

    def _undecided(self, progress: Progress, summary: str) -> Verdict:
        found: list[Undecided] = []
        by_choice: dict[tuple[int, int | None], tuple[Open, list[int]]] = {}
        for device, open_ in sorted(progress.open_.items()):
            entry = by_choice.setdefault((id(open_.choice.decision.by), open_.branch), (open_, []))
            entry[1].append(device)
        for open_, devices in by_choice.values():
            decision = open_.choice.decision
            by, cause = (self._place(decision.program, i) for i in (decision.by, decision.cause))
            found.append(Undecided(tuple(devices), by, cause, self._why(open_)))
        for device, event in sorted(progress.lost.items()):
            place = self._place(event.site.program, event.site.instruction)
            found.append(Undecided((device,), place, place, "which transfer it belongs to is known in the run only"))
        if progress.mismatches:
            mismatch = progress.mismatches[0]
            place = self._place(mismatch.sites[1].program, mismatch.sites[1].instruction)
            found.append(Undecided(mismatch.devices, place, place, _differ(mismatch)))
        if not found:
            for device, stop in sorted(progress.stops.items()):
                place = self._place(stop.event.site.program, stop.event.site.instruction)
                why = f"the reference waits there for {listed(stop.peers)}, compiled programs don't"
                found.append(Undecided((device,), place, place, why))
        return self._unknown(summary, found, DeviceStates(progress, self.modules).all())

    def _why(self, open_: Open) -> str:
        choice = open_.choice
        what = "how many iterations it runs" if choice.is_loop else "which branch is taken"
        site = next((s for s in choice.sites if s.rendezvous_by_device[0] or s.edges), None)
        inside = "" if site is None else f", and {self._place(site.program, site.instruction)} inside needs others"
        if choice.decision.count is not None and not choice.decision.by.op.role.is_loop:
            return f"the {choice.decision.count} collectives that it executes were not followed one by one{inside}"
        if choice.decision.count is not None:
            return f"its {choice.decision.count} iterations were not followed one by one{inside}"
        if open_.branch is None:
            given = choice.decision.cause
            entry = self.communication.programs[choice.decision.program][1].entry_computation
            given_equally = (
                f"; give all of them the same {given.name}" if any(given is p for p in entry.parameters) else ""
            )
            return f"{what} may differ between devices{inside}{given_equally}"
        if choice.is_loop:
            return f"if it runs an iteration, not all devices are sure to go on{inside}"
        return f"with branch {open_.branch} not all devices are sure to go on{inside}"

    def _too_long(self, error: TooLongError) -> Verdict:
        place = self._place(error.program, error.instruction)
        devices, _ = self.communication.programs[error.program]
        why = "the program does more than is followed before a run"
        return self._unknown(
            "whether all devices go on can't be known before the run", [Undecided(devices, place, place, why)]
        )


def _differ(found: Mismatch) -> str:
    (device, one), (peer, other) = _by_device(found)
    return mismatch_of(_called(found), (device, str(one)), (peer, str(other)), one.difference(other))


def _by_device(found: Mismatch) -> tuple[tuple[int, CommunicationSite], tuple[int, CommunicationSite]]:
    """The two devices, each with its instruction, in ascending order."""
    one, other = sorted(zip(found.devices, found.sites, strict=True), key=itemgetter(0))
    return one, other


def _called(found: Mismatch) -> str:
    """The round or transfer of both; joined channels (collectives/joined_channels.py) have the name of the send's."""
    thing = found.thing
    if isinstance(thing, Rendezvous):
        return round_called(thing.members)
    sent, _ = found.sites
    return transfer_called(thing.source, thing.target, sent.instruction.op.channel or 0)
