"""`distxla check`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from distxla.cli import terminal
from distxla.cli.communication import lines
from distxla.cli.custom_calls import custom_call_option, register_all
from distxla.cli.report_page import ReportingCommand, command_line, write_page
from distxla.cli.time_limits import time_limit_option
from distxla.cli.usage import file_option, files
from distxla.cli.warnings import tell_warnings
from distxla.wording import counted

if TYPE_CHECKING:
    from distxla.ir.instruction import Instruction
    from distxla.scheduler.verdict import Verdict
    from distxla.without_cluster.check import Findings, Obstacles
    from distxla.without_cluster.programs import RunPrograms

MOST_EDGES = 8


@click.command(
    "check",
    cls=ReportingCommand,
    short_help="Verify modules, look for deadlocks, say what would keep them from running.",
)
@click.argument("modules", nargs=-1, required=True, metavar="MODULE[@DEVICES]...", shell_complete=files)
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="Number of replicas, where no header says it.")
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="Number of partitions, where no header says it."
)
@click.option("--strict", is_flag=True, help="Exit with 3 also where nothing is decided.")
@click.option("--json", "as_json", is_flag=True, help="Print what is found, or the error, as JSON only.")
@file_option(
    "--report",
    metavar="FILE.html",
    help="If devices can't go on: a page of who waits for whom, as far as it is known before a run.",
)
@file_option(
    "--against",
    metavar="UNSHARDED",
    help="A module for one device: prove that MODULE gives the same for all inputs, or say where it differs.",
)
@custom_call_option
@time_limit_option
def command(
    modules: tuple[str, ...],
    replicas: int | None,
    partitions: int | None,
    against: str | None,
    strict: bool,
    as_json: bool,
    report: str | None,
    custom_calls: tuple[str, ...],
    time_limit: float | None,
) -> None:
    """Parse and verify every module and print what it holds; look for deadlocks. Starts neither Ray nor LLVM.

    Instructions that are correct but that this version has no code for are listed, and the exit status is 2: `distxla
    run` would refuse them. Where devices would wait for each other for ever it is 3; where only the run can tell, a
    warning names the instruction that decides, and it is 0. Another warning names results that are declared the same
    on several devices, although nothing ensures that. With --against the exit status is 1 where the results differ;
    where that isn't decided, a warning names the instruction, and it is 0.
    """
    from distxla.cli.output_files import require_writable
    from distxla.cli.programs import read_world
    from distxla.without_cluster.check import findings

    if report is not None:
        require_writable(report)
    register_all(custom_calls)
    found = findings(read_world(modules, replicas, partitions))
    if found.refusal is not None and not as_json:
        raise found.refusal
    status = found.exit_status(strict=strict)
    compared = None
    if against is not None and found.refusal is None:
        from distxla.cli import against as comparison

        compared = comparison.proved(found.programs, against)
    if as_json:
        data = found.result(strict=strict).as_json()
        terminal.write_json(data if compared is None else {**data, "against": compared.as_json()}, indent=2)
    else:
        _describe(found, is_fine=status == 0)
        if found.verdict is not None:
            _print_order(found.programs)
            _print(found.verdict)
            _print_hope(found.programs, found.verdict)
        if compared is not None and against is not None:
            comparison.show(compared, against)
        for _, one in found.unsure:
            terminal.write_at(one.location, f"warning: {one.text}", err=True)
        tell_warnings(found.programs)
        for line in lines(found.table, [program.path for program in found.programs.programs]):
            terminal.write(line)
    _write_report(report, found.verdict)
    if compared is not None:
        status = status or comparison.status(compared, strict=strict)
    if status:
        raise SystemExit(status)


def _write_report(path: str | None, verdict: Verdict | None) -> None:
    """The page of the findings, if it is asked for, unless all devices go on."""
    if path is None:
        return
    if verdict is None or verdict.diagnosis is None:
        terminal.write(f"note: there is no report for {path}: all devices go on", err=True)
        return
    terminal.write(f"note: {write_page(path, verdict.diagnosis.page(command_line()))}", err=True)


def _by_reason(found: Obstacles) -> dict[str, list[Instruction]]:
    """Instructions by their obstacle: a dump may call an unknown target hundreds of times, and one line says so."""
    refused: dict[str, list[Instruction]] = {}
    for instruction, why in found:
        refused.setdefault(why, []).append(instruction)
    return refused


def _print(verdict: Verdict) -> None:
    """The verdict: to stderr where it isn't that all is well."""
    from distxla.scheduler.verdict import Outcome

    where, label = verdict.location, "error: " if verdict.outcome is Outcome.DEADLOCK else ""
    frame = None if where is None else where.frame
    is_told = frame is not None and f"from {frame}" in verdict.text
    err = verdict.outcome is not Outcome.SAFE
    terminal.write_at(where, f"{label}{verdict.text}", err=err, shows_frame=not is_told)


def _print_order(world: RunPrograms) -> None:
    """The instructions that are executed earlier than in the text."""
    moves = world.moves()
    if not moves:
        return
    what = "1 instruction is" if len(moves) == 1 else f"{len(moves)} instructions are"
    terminal.write(
        f"schedule: {what} executed earlier than in the text, where devices would wait for each other for ever"
    )
    for move in moves[:MOST_EDGES]:
        where, before = (f" ({at})" if at else "" for at in (move["location"], move["before_location"]))
        terminal.write(f"  {move['instruction']}{where} before {move['before']}{before}")
    if len(moves) > MOST_EDGES:
        terminal.write(f"  … ({len(moves)} in all)")


def _print_hope(world: RunPrograms, verdict: Verdict) -> None:
    """Of a deadlock, whether programs that aren't scheduled could be in another order."""
    from distxla.scheduler.verdict import Outcome

    if verdict.outcome is not Outcome.DEADLOCK or all(p.module.is_scheduled for p in world.programs):
        return
    if world.order is not None and world.order.is_complete:
        text = "no order that data dependencies and given schedules allow lets all devices end"
    else:
        text = "no order in which all devices end was found; not all were tried"
    terminal.write(f"  schedule: {text}", err=True)


def _describe(findings: Findings, *, is_fine: bool) -> None:
    """Print the programs' contents. is_fine: whether nothing speaks against running them all."""
    from distxla.cli.layout_note import ignored_tiles
    from distxla.ir.effects import COMMUNICATING
    from distxla.rewrites.spread_collectives import JoinSpreadCollectives
    from distxla.scheduler.simulation.transfer_rules import notes
    from distxla.wording import named

    world = findings.programs
    for program, found in zip(world.programs, findings.obstacles, strict=True):
        module = program.module
        instructions = [i for computation in module.computations for i in computation]
        counts = f"{counted(len(module.computations), 'computation')}, {counted(len(instructions), 'instruction')}"
        terminal.write(f"{program.path}: {module.name}: {counts}, {named(program.devices)} of {world.counts_text}")
        if program.whole is not None:
            cut = [
                f"arg{k} {placed.shape} into {placed.shard_shape}"
                for k, placed in enumerate(program.whole.parameters)
                if not placed.shards.is_whole
            ]
            terminal.write(f"  global: {world.counts.partitions} partitions; cut: {', '.join(cut) or 'nothing'}")
        joined = JoinSpreadCollectives().run(module).computations
        acting = Counter(i.opcode for c in joined for i in c if i.op.effects in COMMUNICATING)
        if acting:
            terminal.write("  communication: " + ", ".join(f"{n} {opcode}" for opcode, n in sorted(acting.items())))
        if (note := ignored_tiles(module)) is not None:
            terminal.write(f"  note: {note}")
        for text in notes(module):
            terminal.write(f"  note: {text}")
        for why, refused in _by_reason(found).items():
            where = module.locate(refused[0], "opcode")
            place = f" ({where})" if where else ""
            more = f" and {counted(len(refused) - 1, 'other')}" if len(refused) > 1 else ""
            terminal.write(f"  {refused[0].name}{more}: {why}{place}")
        if is_fine:
            terminal.write("  ok")
    for channel, edges in world.channels().items():
        shown = ", ".join(f"{source} to {target}" for source, target in edges[:MOST_EDGES])
        terminal.write(f"channel {channel}: {shown}" + (f", … ({len(edges)} pairs)" if len(edges) > MOST_EDGES else ""))
    for text in world.channel_notes():
        terminal.write(f"note: {text}")
