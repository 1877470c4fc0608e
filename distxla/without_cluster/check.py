"""Checks before a run: whether all devices can go on, which instructions communicate, what would be refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import DeadlockError, UnsupportedOpError
from distxla.ir.effects import COMMUNICATING
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.sharding import DECLARED_SHARDING
from distxla.lazy_dataclass import dataclass
from distxla.scheduler.tpu_kernel import communicates
from distxla.scheduler.verdict import Outcome, Verdict
from distxla.time_limit import phase
from distxla.time_limit import time_limit as within
from distxla.without_cluster.given_programs import ModuleOrPrograms, given_programs

if TYPE_CHECKING:
    from distxla.scheduler.communication_table import CommunicationRow
    from distxla.scheduler.replication import UnsureResult
    from distxla.without_cluster.programs import DeviceProgram, RunPrograms

Obstacles = list[tuple[Instruction, str]]


@dataclass(frozen=True)
class Findings:
    """programs: verified, with their communication in the order that is executed; where they are refused, as they were
    given.  obstacles: of each, the instructions that this version can't execute, and why.  verdict: on deadlocks; None
    where the devices have nothing to do with each other.  table: what communicates.
    unsure: results that are declared the same on several devices, and aren't surely, each with its program's path.
    refusal: the error that says that a program waits for a transfer that no program makes, else None.
    """

    programs: RunPrograms
    obstacles: tuple[Obstacles, ...]
    verdict: Verdict | None
    table: tuple[CommunicationRow, ...] = ()
    unsure: tuple[tuple[str, UnsureResult], ...] = ()
    refusal: DeadlockError | None = None

    def exit_status(self, *, strict: bool) -> int:
        """Of `distxla check`."""
        if self.verdict is not None and self.verdict.fails(strict=strict):
            return DeadlockError.exit_status if self.refusal is None else self.refusal.exit_status
        return UnsupportedOpError.exit_status if any(self.obstacles) else 0

    def result(self, *, strict: bool) -> CheckResult:
        from distxla.scheduler.deadlocks import no_deadlock

        verdict = self.verdict or no_deadlock(sum(len(p.devices) for p in self.programs.programs))
        is_refused = self.refusal is not None
        return CheckResult(
            verdict,
            tuple(self._row(row) for row in self.table),
            self._refused(),
            () if is_refused else tuple(self.programs.moves()),
            () if is_refused else tuple(self.programs.channel_notes()),
            () if is_refused else tuple(found.message for found in self.programs.one_device_groups()),
            tuple({"program": path, **one.as_json()} for path, one in self.unsure),
            self.exit_status(strict=strict),
        )

    def _row(self, row: CommunicationRow) -> dict[str, Any]:
        return {"program": self.programs.programs[row.program].path, **row.as_json()}

    def _refused(self) -> tuple[dict[str, str | None], ...]:
        return tuple(
            {
                "program": program.path,
                "instruction": instruction.name,
                "location": str(where) if (where := program.module.locate(instruction, "opcode")) else None,
                "why": why,
            }
            for program, found in zip(self.programs.programs, self.obstacles)
            for instruction, why in found
        )


@dataclass(frozen=True)
class CheckResult:
    """What `distxla check` finds out, as `distxla.check` returns it; `as_json` is what `distxla check --json` prints.

    verdict: on deadlocks.  communication: what communicates, in the order of the texts, a mapping for each instruction:
    `program`, `instruction`, `kind`, `groups`, `channel`, `bytes` (that a device gives in one execution), `devices`
    (how many give some), `trips` (executions by each device), `bytes_in_all`, `source` (the user's line), `location`;
    None for what only the run tells.  refused: the instructions that this version has no code for: `program`,
    `instruction`, `location`, `why`.  moves: those that are executed earlier than in the text.  notes: on channels.
    warnings: on collectives whose groups have one device each.  replication: results, and values inside of the
    programs, that are declared the same on several devices, although nothing ensures that: `program`, `result` (number
    of the leaf, None for a value inside), `value` (its instruction, None for a result), `op_name`, `devices`,
    `cause` (in words), `cause_instruction`, `instruction` (where it enters the result), `opcode`, `location`, `source`.
    exit_status: of the command.
    """

    verdict: Verdict
    communication: tuple[dict[str, Any], ...]
    refused: tuple[dict[str, str | None], ...]
    moves: tuple[dict[str, str | None], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    replication: tuple[dict[str, Any], ...]
    exit_status: int

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against a run: no deadlock, nothing refused. True also where only the run can tell
        whether all devices go on, unless the check was `strict`."""
        return self.exit_status == 0

    @property
    def outcome(self) -> Outcome:
        """ "safe", "deadlock" or "unknown", equal to these strings."""
        return self.verdict.outcome

    @property
    def summary(self) -> str:
        """A line about deadlocks."""
        return self.verdict.summary

    @property
    def text(self) -> str:
        """The verdict in lines: of a deadlock who waits for whom, and what to change."""
        return self.verdict.text

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Why devices may not go on; None where all of them do."""
        return self.verdict.diagnosis

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from distxla.without_cluster.check_html import fragment

        return fragment(self.summary, self.diagnosis, self.communication, self.refused, (*self.notes, *self.warnings))

    def as_json(self) -> dict[str, Any]:
        """Objects of JSON."""
        return {
            **self.verdict.as_json(),
            "notes": [*self.notes],
            "warnings": [*self.warnings],
            "replication": [*self.replication],
            "moves": [*self.moves],
            "refused": [*self.refused],
            "communication": [*self.communication],
        }

    def __str__(self) -> str:
        return self.text


def check(
    module: ModuleOrPrograms,
    *,
    replicas: int | None = None,
    partitions: int | None = None,
    strict: bool = False,
    time_limit: float | None = None,
) -> CheckResult:
    """What `distxla check` finds out about a run, in this process: no cluster, no Ray, nothing is compiled.

        found = distxla.check(module)
        assert found.ok, found.text

    module: a Module, also a global one, which is partitioned; or for several programs a list of (devices, module), the
    flattened ids of the devices that run it, as in [(range(0, 4), producer), (range(4, 8), consumer)].  replicas,
    partitions: where no header says them; one is assumed of each.  strict: only the run can tell whether all devices go
    on: that isn't `ok`.  time_limit: seconds.

    A deadlock is no error here: it is the result's outcome. Raises VerificationError where a program breaks a rule,
    ArgumentError where counts or devices contradict each other, UnsupportedOpError and PartitioningError for global
    modules that can't be partitioned, TimeLimitError. Blocks.
    """
    with within(time_limit):
        return findings(given_programs(module, replicas, partitions)).result(strict=strict)


def findings(programs: RunPrograms) -> Findings:
    """All that is known about a run of these programs before it; raises the verifier's errors."""
    try:
        settled = programs.settled()
    except DeadlockError as error:
        from distxla.scheduler.deadlocks import refusal

        refused = refusal(error, programs.device_count)
        error.diagnosis = refused.diagnosis
        return Findings(programs, (), refused, refusal=error)
    with phase("checking what can be executed"):
        obstacles = tuple(obstacles_of(program.module) for program in settled.programs)
    with phase("looking for deadlocks"):
        verdict = examined(settled)
    with phase("looking for results that are declared the same"):
        unsure = tuple((p.path, one) for p in settled.programs for one in unsure_of(settled, p))
    with phase("counting what communicates"):
        return Findings(settled, obstacles, verdict, communication_of(settled), unsure)


def obstacles_of(module: Module) -> Obstacles:
    """As compiler.obstacles, without the compiler's hundred files where nothing depends on run-time sizes."""
    from distxla.compiler.verify.visible_obstacles import visible_obstacles
    from distxla.ops.support.run_time_sizes import has_dynamic_dimensions

    found = visible_obstacles(module)
    if found or not has_dynamic_dimensions(module):
        return found
    from distxla.compiler.obstacles import obstacles

    return obstacles(module)


def examined(programs: RunPrograms) -> Verdict | None:
    """The verdict on deadlocks; None where the devices have nothing to do with each other."""
    from distxla.ir.effects import Effects

    if not any(i.op.effects in (Effects.COLLECTIVE, Effects.CHANNEL) or communicates(i) for i in _all(programs)):
        return None
    from distxla.scheduler.deadlocks import examine, no_deadlock

    if programs.order is not None and programs.order.is_safe:
        return no_deadlock(sum(len(p.devices) for p in programs.programs))
    return examine(_named(programs), programs.counts)


def unsure_of(programs: RunPrograms, program: DeviceProgram) -> Iterator[UnsureResult]:
    """The results of one of the programs, and values in it, that are declared the same on several devices, and aren't
    surely."""
    module = program.module
    stated = any(i.frontend_attribute(DECLARED_SHARDING) is not None for i in _instructions(module))
    if program.whole is None and module.entry_computation.root_instruction.sharding is None and not stated:
        return
    from distxla.compiler.passes.placements import declared_values, placements_of
    from distxla.scheduler.replication import unsure_results

    partitions = programs.counts.partitions
    placements = placements_of(module, partitions, program.whole)
    values = declared_values(module, partitions, placements.results) if stated else {}
    yield from unsure_results(module, programs.counts, placements.parameters, placements.results, values)


def communication_of(programs: RunPrograms) -> tuple[CommunicationRow, ...]:
    """What communicates in programs that are verified."""
    if not any(i.op.effects in COMMUNICATING or communicates(i) for i in _all(programs)):
        return ()
    from distxla.scheduler.communication_table import communication_table

    return tuple(communication_table(_named(programs), programs.counts))


def _named(programs: RunPrograms) -> Sequence[tuple[Sequence[int], Module]]:
    return [(p.devices, p.module) for p in programs.programs]


def _all(programs: RunPrograms) -> Iterable[Instruction]:
    return (i for p in programs.programs for i in _instructions(p.module))


def _instructions(module: Module) -> Iterable[Instruction]:
    return (i for c in module.computations for i in c)


__all__ = ["CheckResult", "Findings", "check", "findings"]
