"""Whether a run can end, before it begins: a proof, a counterexample, or what only the run decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from distxla.collectives.executed_form import executed_form
from distxla.collectives.findings import mismatch_of, stuck_error
from distxla.collectives.report import DeviceReport, Doing, Report
from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.control_flow import While
from distxla.ops.custom_calls.tpu_kernel import communicates
from distxla.scheduler.simulation.communication import Communication, Meeting, Site, Way
from distxla.scheduler.simulation.deferred import World
from distxla.scheduler.simulation.executions import compared
from distxla.scheduler.simulation.progress import LENIENT, STRICT, Mismatch, Open, Progress, Stop
from distxla.scheduler.simulation.standstill import ahead, needed_event, never_go_on, verdict_on
from distxla.scheduler.simulation.symmetry import advances_in_step
from distxla.scheduler.simulation.traces import Act, Split, Trace
from distxla.scheduler.simulation.tracing import TooLongError, Tracer
from distxla.scheduler.static_report import device_report, static_report
from distxla.scheduler.verdict import Outcome, Place, Undecided, Verdict, Wait, listed, named


def examine(programs: Sequence[tuple[Iterable[int], Module]], replicas: int, partitions: int) -> Verdict:
    """What is known of a run of these programs, each with the flattened ids of its devices; verified together.

    The text's order is taken for each program's schedule: the compiler keeps it among instructions with effects. The
    host is taken to feed every infeed and to empty every outfeed.
    """
    return _Examination(_communication(programs, replicas, partitions)).verdict()


def report_of(programs: Sequence[tuple[Iterable[int], Module]], replicas: int, partitions: int) -> Report:
    """The same as `examine` of a run that isn't safe, as a report: what each device does when nobody can go on."""
    examination = _Examination(_communication(programs, replicas, partitions))
    verdict = examination.verdict()
    return static_report(examination.communication, examination.stopped, verdict)


def _communication(programs: Sequence[tuple[Iterable[int], Module]], replicas: int, partitions: int) -> Communication:
    return Communication([(devices, executed_form(module)) for devices, module in programs], replicas, partitions)


def no_deadlock(devices: int) -> Verdict:
    """That every run of programs on so many devices ends."""
    return Verdict(Outcome.SAFE, f"none can happen on the {devices} devices", devices)


def refusal(error: DeadlockError, devices: int) -> Verdict:
    """The verdict on a run that was refused, since a program waits in it for what no program does."""
    return Verdict(
        Outcome.DEADLOCK,
        error.message,
        devices,
        hint="; ".join(getattr(error, "__notes__", ())) or None,
        is_mismatch=isinstance(error, CollectiveMismatchError),
        location=error.location,
        channel=error.channel,
    )


class _Examination:
    def __init__(self, communication: Communication) -> None:
        self.communication = communication
        self.count = sum(len(devices) for devices, _ in communication.programs)
        self.stopped: Progress | None = None  # where the devices are when the verdict is not that all is well

    def verdict(self) -> Verdict:
        found = self._of_instructions()
        return self._with_kernels(found) if found.outcome is Outcome.SAFE else found

    def _with_kernels(self, safe: Verdict) -> Verdict:
        """What is left of a proof beside kernels that communicate; the same verdict where there are none."""
        found = [
            (number, devices, instruction)
            for number, (devices, module) in enumerate(self.communication.programs)
            for computation in module.reached()
            for instruction in computation
            if communicates(instruction)
        ]
        if not found:
            return safe
        why = "what it sends, and for whom it waits, stands in its kernel alone"
        places = [(tuple(devices), self._place(number, instruction)) for number, devices, instruction in found]
        number, _, first = found[0]
        return Verdict(
            Outcome.UNKNOWN,
            "whether all devices go on depends on kernels that communicate; without them all do",
            self.count,
            undecided=tuple(Undecided(devices, place, place, why) for devices, place in places),
            location=self.communication.programs[number][1].locate(first),
        )

    def _of_instructions(self) -> Verdict:
        """The verdict on what the text says of communication."""
        world = World(self.communication.replicas, self.communication.partitions)
        traces: dict[int, Trace] = {}
        for number, (devices, _) in enumerate(self.communication.programs):
            try:
                found = Tracer(self.communication, number, world).trace()
            except TooLongError as error:
                return self._too_long(error)
            traces.update(dict.fromkeys(devices, found))
        if len(self.communication.programs) == 1 and advances_in_step(self.communication, found):
            return no_deadlock(self.count)
        strict = Progress(traces, STRICT).run()
        if strict.has_finished:
            return no_deadlock(self.count)
        alike = self.communication.counts_rounds_alike
        self.stopped = lenient = strict.leniently() if alike else Progress(traces, LENIENT).run()
        if lenient.mismatches:
            return self._mismatch(lenient)
        stuck = never_go_on(lenient)
        if stuck:
            return self._stuck(lenient, stuck)
        if not lenient.has_finished:
            return self._undecided(lenient, "whether all devices go on can't be known before the run")
        self.stopped = strict
        return self._undecided(strict, "whether all devices go on depends on how rounds and transfers are carried out")

    def _place(self, program: int, instruction: Instruction) -> Place:
        where = self.communication.programs[program][1].locate(instruction)
        return Place(
            instruction.name, instruction.opcode, str(where) if where else None, where.frame if where else None
        )

    def _site(self, site: Site) -> Place:
        return self._place(site.program, site.instruction)

    # --- deadlocks

    def _mismatch(self, progress: Progress) -> Verdict:
        found = progress.mismatches[0]
        parting = self._parting(progress, *found.devices)
        (_, first), _ = _by_device(found)
        return Verdict(
            Outcome.DEADLOCK,
            self._differ(progress, found),
            self.count,
            parting=None if parting is None else self._place(*parting),
            hint=self._swap(progress, found, parting),
            is_mismatch=True,
            location=first.location,
            channel=_channel(found.thing),
        )

    def _differ(self, progress: Progress, found: Mismatch) -> str:
        (device, one), (peer, other) = _by_device(found)
        what = _called(found.thing, None if id(found.thing) in progress.uncounted else found.number)
        return mismatch_of(what, (device, str(one)), (peer, str(other)), one.difference(other))

    def _swap(self, progress: Progress, found: Mismatch, parting: tuple[int, Instruction] | None) -> str | None:
        """If the second one comes to the same later, the order is what is wrong; else what they differ in."""
        device, (one, other) = found.devices[1], found.sites
        if not isinstance(found.thing, Meeting):
            return f"give {one} and {other} the same type and shape"
        later = ahead(progress, device)
        next(later, None)
        for event in later:
            same = event.site.meetings[progress.reading].get(device) is found.thing
            if same and event.act in (Act.MEET, Act.BEGIN) and event.site.signature == one.signature:
                return f"let device {device} execute {event.site} before {other}"
        if parting is not None and isinstance(parting[1].op, While):
            return self._iterations(found.devices[0], parting[1])
        names = one.differing(other)
        agree = f"give {one} and {other} the same {' and '.join(names)}"
        if parting is not None:
            let, by = f"let {named(found.devices)} take", parting[1].name
            if "opcode" in names or not names:
                return f"{let} branches of {by} that hold the same collectives in one order"
            return f"{agree}, or {let} one and the same branch of {by}"
        if "opcode" in names or not names:
            return f"device {device} has nothing later that matches {one}"
        return agree

    def _stuck(self, progress: Progress, stuck: set[int]) -> Verdict:
        verdict = verdict_on(progress, stuck)
        cycle = min(verdict.cycles, key=len, default=())
        is_cycle = bool(cycle)
        chain = list(zip(cycle, (*cycle[1:], *cycle[:1]), strict=True)) or [verdict.without_end[0]]
        waits = tuple(self._wait(progress, device, peer) for device, peer in chain)
        behind = tuple(sorted(stuck - {device for device, _ in chain}))
        stop = progress.stops[chain[0][0]]
        parting = self._parting(progress, *chain[0])

        def differing(one: int, other: int) -> str:
            return progress.stops[one].event.site.difference(progress.stops[other].event.site)

        error = stuck_error(verdict, self._reports(progress, chain), differing)
        return Verdict(
            Outcome.DEADLOCK,
            error.message,
            self.count,
            never_end=len(stuck),
            cycle=waits if is_cycle else (),
            waits=() if is_cycle else waits,
            behind=behind,
            parting=None if parting is None else self._place(*parting),
            hint=self._hint(progress, waits, parting),
            is_mismatch=isinstance(error, CollectiveMismatchError),
            location=error.location,
            channel=_channel(stop.thing),
        )

    def _reports(self, progress: Progress, chain: Iterable[tuple[int, int]]) -> dict[int, DeviceReport]:
        """What these devices do, as a report of the run would have it."""
        modules = {device: module for devices, module in self.communication.programs for device in devices}
        return {
            device: device_report(progress, device, modules[device])
            if device in modules
            else DeviceReport(device, Doing.ABSENT)
            for device in {device for both in chain for device in both}
        }

    def _hint(self, progress: Progress, waits: Sequence[Wait], parting: tuple[int, Instruction] | None) -> str | None:
        """What to change: one of the orders, if data allow another one, or what somebody leaves out."""
        before = [
            wait for wait in waits if wait.peer is not None and wait.needed is not None and wait.behind is not None
        ]
        for wait in before:
            stop, peer = progress.stops[wait.device], wait.peer
            needed = None if peer is None else needed_event(progress, stop, peer)
            if needed is None or peer is None:
                continue
            at = progress.stops[peer].event.by
            if not self._is_given(needed.by, at):
                return f"let device {peer} execute {needed.site} before {at}"
        if before and all(isinstance(progress.stops[wait.device].thing, Meeting) for wait in waits):
            return f"let {named([wait.device for wait in waits])} execute these collectives in the same order"
        if before:
            first = before[0]
            needs = f"{first.needed} needs the result of {first.behind}"
            return f"{needs}, and so on: one device must start with another value"
        for wait in waits:
            if wait.needed is None:
                return self._left_out(progress, wait, parting)
        return None

    def _is_given(self, later: Site, earlier: Site) -> bool:
        """Whether an instruction needs, in its computation, what another one gives."""
        if later.module is not earlier.module:
            return False
        computation = later.module.holder_of(later.instruction)
        if computation is None or computation.by_name.get(earlier.instruction.name) is not earlier.instruction:
            return False
        pending, seen = [later.instruction.name], set()
        while pending:
            name = pending.pop()
            if name == earlier.instruction.name:
                return True
            if name not in seen:
                seen.add(name)
                pending += (*computation[name].operands, *computation[name].control_predecessors)
        return False

    def _left_out(self, progress: Progress, wait: Wait, parting: tuple[int, Instruction] | None) -> str:
        """Somebody never executes what a device waits for."""
        what, lacking = f"{wait.place.instruction} of device {wait.device}", f"device {wait.peer}"
        assert wait.peer is not None
        thing = progress.stops[wait.device].thing
        counts = compared(progress, thing, wait.device, wait.peer, places=parting is None)
        if parting is None and counts is not None:
            return f"{counts}: both must do so equally often"
        if parting is None:
            return f"{lacking} has no instruction left that matches {what}"
        by = parting[1]
        if isinstance(by.op, While):
            return self._iterations(wait.peer, by, counts)
        return (
            f"{lacking} takes a branch of {by.name} that has no match for {what}: all must take one that has, or none"
        )

    @staticmethod
    def _iterations(device: int | None, loop: Instruction, counts: str | None = None) -> str:
        """counts: how often it does what others do, too."""
        often = f"runs another number of iterations of {loop.name}" + (f" ({counts})" if counts else "")
        return f"device {device} {often}: all that meet in it must run the same number"

    def _parting(self, progress: Progress, one: int, other: int) -> tuple[int, Instruction] | None:
        """The first instruction that takes two devices of one program different ways, and the program."""
        if progress.traces[one] is not progress.traces[other]:
            return None
        pending: list[Trace] = [progress.traces[one]]
        while pending:
            for item in pending.pop():
                if not isinstance(item, Split):
                    continue
                mine, theirs = (next((p for ds, p in item.parts if d in ds), None) for d in (one, other))
                if mine is not theirs:
                    program = next(n for n, (ds, _) in enumerate(self.communication.programs) if one in ds)
                    return program, item.by
                if mine is not None:
                    pending.append(mine)
        return None

    def _wait(self, progress: Progress, device: int, peer: int) -> Wait:
        stop = progress.stops[device]
        needed = needed_event(progress, stop, peer)
        behind = progress.stops.get(peer)
        return Wait(
            device,
            self._site(stop.event.by),
            peer,
            tuple(other for other in stop.peers if other != peer),
            _until(stop, peer, is_counted=id(stop.thing) not in progress.uncounted),
            None if needed is None else self._site(needed.site),
            None if behind is None else self._site(behind.event.by),
        )

    # --- what can't be known

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
            place = self._site(event.site)
            found.append(Undecided((device,), place, place, "which transfer it belongs to is known in the run only"))
        if progress.mismatches:
            mismatch = progress.mismatches[0]
            place = self._site(mismatch.sites[1])
            found.append(Undecided(mismatch.devices, place, place, self._differ(progress, mismatch)))
        if not found:
            for device, stop in sorted(progress.stops.items()):
                place = self._site(stop.event.site)
                why = f"the reference waits there for {listed(stop.peers)}, compiled programs don't"
                found.append(Undecided((device,), place, place, why))
        first = found[0]
        locations = [e.site.location for e in progress.lost.values()]
        locations += [
            self.communication.programs[o.choice.decision.program][1].locate(o.choice.decision.by)
            for o in progress.open_.values()
        ]
        location = next((x for x in locations if x is not None and str(x) == first.by.location), None)
        return Verdict(Outcome.UNKNOWN, summary, self.count, undecided=tuple(found), location=location)

    def _why(self, open_: Open) -> str:
        choice = open_.choice
        what = "how many iterations it runs" if choice.is_loop else "which branch is taken"
        site = next((s for s in choice.sites if s.meetings[0] or s.ways), None)
        inside = "" if site is None else f", and {self._site(site)} inside needs others"
        if choice.decision.count is not None and not isinstance(choice.decision.by.op, While):
            return f"the {choice.decision.count} collectives that it executes were not followed one by one{inside}"
        if choice.decision.count is not None:
            return f"its {choice.decision.count} iterations were not followed one by one{inside}"
        if open_.branch is None:
            given = choice.decision.cause
            entry = self.communication.programs[choice.decision.program][1].entry_computation
            alike = f"; give all of them the same {given.name}" if any(given is p for p in entry.parameters) else ""
            return f"{what} may differ between devices{inside}{alike}"
        if choice.is_loop:
            return f"if it turns, not all devices are sure to go on{inside}"
        return f"with branch {open_.branch} not all devices are sure to go on{inside}"

    def _too_long(self, error: TooLongError) -> Verdict:
        place = self._place(error.program, error.instruction)
        devices, module = self.communication.programs[error.program]
        why = "the program does more than is followed before a run"
        return Verdict(
            Outcome.UNKNOWN,
            "whether all devices go on can't be known before the run",
            self.count,
            undecided=(Undecided(devices, place, place, why),),
            location=module.locate(error.instruction),
        )


def _by_device(found: Mismatch) -> tuple[tuple[int, Site], tuple[int, Site]]:
    """The two devices, each with its instruction, in ascending order."""
    one, other = sorted(zip(found.devices, found.sites, strict=True), key=itemgetter(0))
    return one, other


def _channel(thing: Meeting | Way) -> int | None:
    return thing.channel if isinstance(thing, Way) else None


def _called(thing: Meeting | Way, number: int | None) -> str:
    """number: from 0, None where only the run tells."""
    if isinstance(thing, Way):
        which = "a transfer" if number is None else f"transfer {number + 1}"
        return f"{which} from device {thing.source} to device {thing.target} on {thing.ids}"
    return f"{'a round' if number is None else f'round {number + 1}'} of devices {listed(thing.members)}"


def _until(stop: Stop, peer: int, *, is_counted: bool) -> str:
    """What the peer has not done."""
    thing = stop.thing
    if isinstance(thing, Meeting):
        round_ = _called(thing, stop.number if is_counted else None)
        return f"to come to {round_}" + (", since no more may be under way" if stop.limit else "")
    if stop.limit:
        return f"to receive one of those under way on {thing.ids}"
    return f"to {'send' if peer == thing.source else 'execute its recv'} on {thing.ids}"


__all__ = ["examine", "no_deadlock", "refusal", "report_of"]
