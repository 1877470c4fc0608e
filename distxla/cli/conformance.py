"""`distxla conformance`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distxla.cli import terminal
from distxla.cli.time_limits import LimitedCommand
from distxla.cli.usage import files as complete_files
from distxla.errors import ArgumentError, UsageError
from distxla.wording import counted

if TYPE_CHECKING:
    from distxla.cli.conformance_outcome import Outcome
    from distxla.conformance.case import Case

DIFFER = 1  # exit status
MOST_ROWS = 60


@click.command(
    "conformance",
    cls=LimitedCommand,
    short_help="Run another implementation on the collective matrix and say what differs.",
)
@click.argument("command_line", nargs=-1, metavar="[-- COMMAND [ARG]...]", type=click.UNPROCESSED)
@click.option("--only", multiple=True, metavar="PATTERN", help="Cases of this name, or below it; * is any text.")
@click.option("--skip", multiple=True, metavar="PATTERN", help="No cases of this name, or below it.")
@click.option("--list", "lists", is_flag=True, help="Print the names of the cases; run nothing.")
@click.option("--batch", is_flag=True, help="Start COMMAND once: it reads the paths of each case from stdin.")
@click.option("--keep", metavar="FOLDER", shell_complete=complete_files, help="Leave the files of every case there.")
@click.option("--jobs", type=click.IntRange(1), default=1, metavar="N", help="Cases at the same time (1).")
@click.option(
    "--time-limit",
    "case_limit",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    metavar="S",
    help="Seconds for each case, the start of COMMAND included (60).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    command_line: tuple[str, ...],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    lists: bool,
    batch: bool,
    keep: str | None,
    jobs: int,
    case_limit: float,
    as_json: bool,
) -> None:
    """Run COMMAND on small programs with collectives and compare its results with those of distxla's reference.

    COMMAND is called for each case as COMMAND MODULE.hlo ARGS.npz OUT.npz, or, if its words have {module}, {args} and
    {out}, with these filled in ({replicas} and {partitions}, too, which the module's header has). The files are those
    of `distxla run`. With --batch it is started once: for each case it reads a line from stdin, the three paths with
    tabs between, and answers on stdout with a line `ok` or `error: REASON`.

    Results are compared bit for bit, any NaN with any other; sums and products of floats that round differently in
    another order are compared within a tolerance.

    Without COMMAND, --keep writes the cases with their expected results. Exit status 0: all cases are the same; 1: some
    differ, or were refused.
    """
    cases = _chosen(only, skip)
    if lists:
        if as_json:
            terminal.write_json({"format": 1, "cases": [case.name for case in cases]}, indent=2)
        else:
            terminal.write_exactly("\n".join(case.name for case in cases))
        return
    if not command_line and keep is None:
        raise UsageError("expected a command behind --, or --keep FOLDER, or --list")
    with _folder(keep) as folder:
        if not command_line:
            _write(cases, folder)
            return
        outcomes = _run(cases, command_line, folder, batch=batch, jobs=jobs, case_limit=case_limit)
    if as_json:
        terminal.write_json(_json(outcomes), indent=2)
    else:
        _print(outcomes)
    if any(outcome.kind != "same" for outcome in outcomes):
        raise SystemExit(DIFFER)


def _chosen(only: tuple[str, ...], skip: tuple[str, ...]) -> list[Case]:
    from distxla.conformance.suite import chosen

    for option, patterns in (("--only", only), ("--skip", skip)):
        for pattern in patterns:
            if not chosen([pattern]):
                error = ArgumentError(f"{option}: no case is {pattern} or below it")
                error.add_note("hint: `distxla conformance --list` names all cases")
                raise error
    if not (cases := chosen(only, skip)):
        raise ArgumentError("no case is left: --skip names all of --only")
    return cases


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """A folder for the cases' files, absolute: the command may run elsewhere. Without `keep` it goes in the end."""
    if keep is not None:
        folder = Path(keep).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(f"cannot write {keep}: {error.strerror}") from error
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="distxla-conformance-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(cases: list[Case], folder: Path) -> None:
    from distxla.cli.conformance_outcome import write_case
    from distxla.cli.conformance_run import files_of

    with terminal.progress(f"writing {counted(len(cases), 'case')}"):
        for case in cases:
            write_case(case, files_of(case, folder), case.expected())
    terminal.write(f"{folder}: {counted(len(cases), 'case')}, each a folder with module.hlo, args.npz, expected.npz")


def _run(
    cases: list[Case], command_line: tuple[str, ...], folder: Path, *, batch: bool, jobs: int, case_limit: float
) -> list[Outcome]:
    from distxla.cli.conformance_run import run_all
    from distxla.cli.foreign_executor import ProcessEach, ProcessForMany, checked_command

    words = checked_command(command_line, batch=batch)
    kind = ProcessForMany if batch else ProcessEach
    executors = [kind(words, case_limit) for _ in range(min(jobs, len(cases)))]
    with terminal.progress(f"running {counted(len(cases), 'case')}"):
        return run_all(cases, executors, folder)


def _counts(outcomes: list[Outcome]) -> dict[str, int]:
    kinds = [outcome.kind for outcome in outcomes]
    return {kind: kinds.count(kind) for kind in ("same", "differs", "no results", "refused", "crashed", "time limit")}


def _json(outcomes: list[Outcome]) -> dict[str, object]:
    others = [outcome.as_json() for outcome in outcomes if outcome.kind != "same"]
    return {"format": 1, "same": not others, "cases": len(outcomes), "counts": _counts(outcomes), "others": others}


def _print(outcomes: list[Outcome]) -> None:
    """A row for each case that is not the same, and how many there are of each kind."""
    others = [outcome for outcome in outcomes if outcome.kind != "same"]
    differing = [outcome for outcome in others if outcome.kind == "differs"]
    if differing:
        _print_differing(differing[:MOST_ROWS])
        _print_more(len(differing) - MOST_ROWS)
    failed = [outcome for outcome in others if outcome.kind != "differs"]
    width = max((len(outcome.case) for outcome in failed[:MOST_ROWS]), default=0)
    for outcome in failed[:MOST_ROWS]:
        terminal.write(f"{outcome.case:{width}}  {outcome.kind}: {outcome.message}", hang=width + 2)
    _print_more(len(failed) - MOST_ROWS)
    counts = _counts(outcomes)
    words = {"same": "the same", "differs": "differs" if counts["differs"] == 1 else "differ"}
    parts = [f"{n} {words.get(kind, kind)}" for kind, n in counts.items() if n]
    terminal.write(f"{counted(len(outcomes), 'case')}: {', '.join(parts)}")


def _print_differing(outcomes: list[Outcome]) -> None:
    rows = [("case", "first", "expected", "found", "elements")]
    for each in outcomes:
        counts = f"{each.differing}/{each.size}"
        rows.append((each.case, each.where, str(each.expected), str(each.found), counts))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        terminal.write_exactly("  ".join(f"{word:{width}}" for word, width in zip(row, widths, strict=True)).rstrip())


def _print_more(count: int) -> None:
    if count > 0:
        terminal.write(f"… and {count} more, which --json has")
