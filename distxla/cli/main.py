"""The `distxla` command. Commands are imported when they are asked for, so that `--help` and `check` answer at once."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import click

from distxla.cli.failures import tell, tell_of_interruption, wants_json
from distxla.cli.terminal import write_exactly
from distxla.cli.usage import no_such_command, usage_error
from distxla.errors import ArgumentError, DistxlaError, InternalError, OutOfMemoryError, UsageError

INTERRUPTED = 130
TERMINATED = 128 + signal.SIGTERM
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

# command -> first line of its help; each lives in distxla/cli/<command>.py as `command`
COMMANDS = {
    "run": "Run a module on all its devices, or several programs on disjoint devices.",
    "check": "Verify modules and say what would keep them from running; run nothing.",
    "compile": "Show a stage of the compiler: HLO, schedule, buffers, LLVM IR, assembly, object code.",
    "ops": "The reference of the op set.",
    "cache": "Show or clear the folder of compiled programs.",
}


class _Commands(click.Group):
    """A group whose commands are imported on first use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            write_exactly(self.get_help(ctx), err=True)
            ctx.exit(UsageError.exit_status)
        return super().parse_args(ctx, args)

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
    "3 deadlock or mismatched collectives; 4 a replica was lost; 5 time limit; 130 interrupted.",
)
@click.version_option(package_name="distxla", prog_name="distxla")
def commands() -> None:
    """Run XLA HLO programs on all their replicas and partitions, as real processes."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point: run a command and exit with its status. A failure is told once, on stderr, without a traceback; with
    --json one object on stdout tells of it, too, whatever failed."""
    as_json = wants_json(sys.argv[1:] if args is None else args)
    try:
        status = commands.main(args, prog_name="distxla", standalone_mode=False)
    except click.ClickException as error:
        _end(usage_error(error), as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        _interrupted("interrupted", INTERRUPTED, as_json=as_json)
    except SystemExit as ended:
        if ended.code == TERMINATED:
            _interrupted("terminated", TERMINATED, as_json=as_json)
        raise
    except BrokenPipeError:
        _close_stdout()
        sys.exit(1)
    except DistxlaError as error:
        _end(error, as_json=as_json)
    except MemoryError:
        _end(OutOfMemoryError("there is not enough memory for this program on this machine"), as_json=as_json)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            _end(_no_room(error), as_json=as_json)
        internal = InternalError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
        _end(internal, as_json=as_json)
    sys.exit(status if isinstance(status, int) else 0)


def _end(error: DistxlaError, *, as_json: bool) -> NoReturn:
    with _stdout_may_fail():
        tell(error, as_json=as_json)
    sys.exit(error.exit_status)


def _interrupted(message: str, exit_status: int, *, as_json: bool) -> NoReturn:
    with _stdout_may_fail():  # a Ctrl-C ends the reader of a pipe, too
        tell_of_interruption(message, exit_status, as_json=as_json)
    sys.exit(exit_status)


@contextmanager
def _stdout_may_fail() -> Iterator[None]:
    """Whatever failed has been told on stderr when stdout takes no JSON."""
    try:
        yield
    except BrokenPipeError:
        pass
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _close_stdout()


def _no_room(error: OSError) -> ArgumentError:
    """A full disk: mostly it is stdout's, whose text can't be written later either."""
    if error.filename is None:
        _close_stdout()
    return ArgumentError(f"cannot write {error.filename or 'the output'}: {error.strerror}")


def _close_stdout() -> None:
    """The reader of our output has gone, or takes no more: nothing is left to be written when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
