"""`--report`: the page that a command writes about devices that can't go on."""

from __future__ import annotations

import shlex
from typing import Any

import click

from distxla.cli.output_files import written_whole
from distxla.cli.time_limits import LimitedCommand
from distxla.errors import (
    ArgumentError,
    DeadlockError,
    DistxlaError,
    HloSyntaxError,
    UnsupportedOpError,
    VerificationError,
)

BEFORE_THE_RUN = (HloSyntaxError, VerificationError, UnsupportedOpError, ArgumentError, DeadlockError)


class ReportingCommand(LimitedCommand):
    """A command whose option `report` names a page to write if devices can't go on."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DistxlaError as error:
            path = ctx.params.get("report")
            if path is not None and error.diagnosis is not None:
                error.add_note(write_page(path, error.diagnosis.page(command_line())))
            elif path is not None:
                why = "nothing ran" if isinstance(error, BEFORE_THE_RUN) else "what devices did isn't known"
                error.add_note(f"there is no report for {path}: {why}")
            raise


def command_line() -> str:
    """The command that runs, as a shell takes it; "" outside of one."""
    ctx = click.get_current_context(silent=True)
    words = None if ctx is None else ctx.find_root().obj  # from main.py
    return shlex.join(["distxla", *words]) if isinstance(words, tuple) else ""


def write_page(path: str, page: str) -> str:
    """Write a report. Returns where it is, or why it could not be written, in words: the command has more to report."""
    try:
        with written_whole(path) as file:
            file.write(page.encode())
    except ArgumentError as error:
        return f"the report could not be written: {error.message}"
    return f"the report is in {path}"


__all__ = ["ReportingCommand", "command_line", "write_page"]
