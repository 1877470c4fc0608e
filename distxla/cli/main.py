"""The `distxla` command. Commands are imported when they are asked for, so that `--help` and `check` answer at once."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from distxla.errors import DistxlaError, InternalError

INTERRUPTED = 130

# command -> first line of its help; each lives in distxla/cli/<command>.py as `command`
COMMANDS = {
    "run": "Run a module on all its devices, or several programs on disjoint devices.",
    "check": "Verify modules and say what would keep them from running; run nothing.",
    "compile": "Show a stage of the compiler: HLO, schedule, buffers, LLVM IR, assembly, object code.",
    "ops": "The reference of the op set.",
}


class _Commands(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"distxla.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

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
    """Entry point: run a command and exit with its status. An error is printed once, to stderr, without a traceback."""
    try:
        status = commands.main(args, prog_name="distxla", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except DistxlaError as error:
        _report(error)
        sys.exit(error.exit_status)
    except MemoryError:
        click.echo("memory: there is not enough memory for this program on this machine", err=True)
        sys.exit(1)
    except Exception as error:
        _report(InternalError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__))
        sys.exit(InternalError.exit_status)
    sys.exit(status if isinstance(status, int) else 0)


def _report(error: DistxlaError) -> None:
    click.echo(str(error), err=True)
    for note in getattr(error, "__notes__", ()):
        for line in str(note).splitlines():
            click.echo(f"    {line}", err=True)
    if isinstance(error, InternalError):
        click.echo("This is a bug in distxla. DISTXLA_TRACEBACK=1 shows where it happened.", err=True)
    if os.environ.get("DISTXLA_TRACEBACK") == "1":
        traceback.print_exception(error)
