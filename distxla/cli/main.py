"""The `distxla` command. Commands are imported when they are asked for, so that `--help` and `check` answer at once."""

from __future__ import annotations

import errno
import importlib
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from distxla import clock
from distxla.cli import terminal
from distxla.cli.failures import tell, tell_of_interruption, wants_json
from distxla.cli.stop_requests import INTERRUPTED, TERMINATED, StopRequests, stops
from distxla.cli.terminal import StdoutError
from distxla.cli.usage import no_such_command, usage_error
from distxla.errors import (
    ArgumentError,
    DistxlaError,
    InternalError,
    OutOfMemoryError,
    TimeLimitError,
    UsageError,
)
from distxla.machine.shortages import unwritten

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
READER_GONE = 1

# command -> first line of its help; each lives in distxla/cli/<command>.py as `command`
COMMANDS = {
    "run": "Run a module on all its devices, or several programs on disjoint devices.",
    "launch": "Start several JAX processes that share distxla's devices.",
    "check": "Verify modules and say what would keep them from running; run nothing.",
    "differ": "Say where a sharded program's values first leave the unsharded ones.",
    "compile": "Show a stage of the compiler: HLO, schedule, buffers, LLVM IR, assembly, object code.",
    "partition": "Partition a global module by XLA's own partitioner; write HLO text.",
    "ops": "The reference of the op set.",
    "hosts": "Say what the hosts of a Ray cluster are, and how fast they reach each other.",
    "cache": "Show or clear the folder of compiled programs.",
    "conformance": "Run another implementation on the collective matrix and say what differs.",
}


class _Commands(click.Group):
    """A group whose commands are imported on first use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            terminal.write_exactly(self.get_help(ctx), err=True)
            ctx.exit(UsageError.exit_status)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # for click any pipe is stdout
            if terminal.reader_has_gone():
                raise StdoutError(error) from error
            raise InternalError(f"{type(error).__name__}: {error}") from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"distxla.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise no_such_command(ctx, args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 fine; 1 an error of distxla's own, or results that differ; 2 bad usage, module or inputs; "
    "3 deadlock or mismatched collectives; 4 a replica or a host was lost; 5 time limit; 130 interrupted.",
)
@click.version_option(package_name="distxla", prog_name="distxla")
def commands() -> None:
    """Run XLA HLO programs on all their replicas and partitions, as real processes."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point: run a command and exit with its status. A failure is reported once, on stderr, without a traceback;
    with --json one object on stdout reports it, too, whatever failed."""
    # in other threads nothing is handled, and each command tells how it ended by itself
    requests = stops if threading.current_thread() is threading.main_thread() else StopRequests()
    with requests.handled():
        terminal.begin()
        as_json = wants_json(sys.argv[1:] if args is None else args)
        outcome = _outcome(args, requests)
        while not requests.may_tell():
            clock.sleep(1.0)  # the thread of the time limit tells it, and ends the process
        status = _reported(outcome, requests.first, as_json=as_json)
        if (lost := terminal.lost_output()) is not None:
            if lost.reader_has_gone:  # as `head` has when it has read enough
                status = status or READER_GONE
            else:
                status = _told(ArgumentError(f"cannot write the output: {lost}"), as_json=False, status=status)
    sys.exit(status)


def _outcome(args: Sequence[str] | None, requests: StopRequests) -> object:
    """The result of the command, or its exception; from here on nothing interrupts."""
    try:
        try:
            words = tuple(sys.argv[1:] if args is None else args)  # for pages, which tell the command
            return commands.main(args, prog_name="distxla", standalone_mode=False, obj=words)
        finally:
            requests.report()  # a signal just before it is caught below
    except BaseException as error:
        requests.report()
        return error


def _reported(outcome: object, first: int | TimeLimitError | None, *, as_json: bool) -> int:
    """The exit status of the command; a failure has been reported. first: the first stop request. It counts first: its
    exception may have arrived as another one."""
    if isinstance(outcome, TimeLimitError) and outcome.diagnosis is not None and not isinstance(first, int):
        return _told(outcome, as_json=as_json)
    if isinstance(first, TimeLimitError):
        return _told(first, as_json=as_json)
    if isinstance(outcome, BaseException):
        if first == TERMINATED:
            return _interrupted("terminated", TERMINATED, as_json=as_json)
        if first == INTERRUPTED or isinstance(outcome, KeyboardInterrupt | click.Abort):
            return _interrupted("interrupted", INTERRUPTED, as_json=as_json)
        return _failed(outcome, as_json=as_json)
    return outcome if isinstance(outcome, int) else 0


def _failed(error: BaseException, *, as_json: bool) -> int:
    """Report what the command raised."""
    if isinstance(error, click.ClickException):
        return _told(usage_error(error), as_json=as_json)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, StdoutError):
        terminal.lose_output(error)
        return 0
    if isinstance(error, DistxlaError):
        return _told(error, as_json=as_json)
    if isinstance(error, MemoryError):
        return _told(OutOfMemoryError("there is not enough memory for this program on this machine"), as_json=as_json)
    if isinstance(error, OSError):
        if error.errno in NO_ROOM and error.filename is not None:
            return _told(ArgumentError(f"cannot write {error.filename}: {unwritten(error)}"), as_json=as_json)
        if error.errno in {*NO_ROOM, errno.EBADF}:  # of click's --help
            terminal.lose_output(StdoutError(error))
            return 0
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return _told(ArgumentError(f"{error.strerror}: see `ulimit -n`"), as_json=as_json)
    internal = InternalError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    return _told(internal, as_json=as_json)


def _told(error: DistxlaError, *, as_json: bool, status: int = 0) -> int:
    """Report a failure. status: of one that has been reported before."""
    tell(error, as_json=as_json)
    return status or error.exit_status


def _interrupted(message: str, exit_status: int, *, as_json: bool) -> int:
    tell_of_interruption(message, exit_status, as_json=as_json)
    return exit_status
