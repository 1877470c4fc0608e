"""What a command leaves behind of a failure, besides the message: a JSON object, and a page of a run that failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from distxla.errors import (
    ArgumentError,
    DeadlockError,
    DistxlaError,
    HloSyntaxError,
    UnsupportedOpError,
    VerificationError,
)

BEFORE_THE_RUN = (HloSyntaxError, VerificationError, UnsupportedOpError, ArgumentError, DeadlockError)


class TellingCommand(click.Command):
    """A command whose options `as_json` and `report` say what is wanted of its failures."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DistxlaError as error:
            if ctx.params.get("as_json"):
                click.echo(json.dumps(as_json(error)))
            path = ctx.params.get("report")
            if path is not None and error.report is not None:
                _write(path, error)
            elif path is not None:
                why = "nothing ran" if isinstance(error, BEFORE_THE_RUN) else "what devices did isn't known"
                click.echo(f"there is no report for {path}: {why}", err=True)
            raise


def as_json(error: DistxlaError) -> dict[str, Any]:
    """`error`: its code, message, exit status and place; `report`: what every device did at the end, or null."""
    from distxla.collectives.report import location_json

    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "exit_status": error.exit_status,
            "location": location_json(error.location),
            "notes": [str(note) for note in getattr(error, "__notes__", ())],
        },
        "report": None if error.report is None else error.report.as_json(),
    }


def _write(path: str, error: DistxlaError) -> None:
    assert error.report is not None
    try:
        Path(path).write_text(error.report.page(), encoding="utf-8")
    except OSError as reason:
        click.echo(f"the report could not be written to {path}: {reason.strerror}", err=True)
    else:
        click.echo(f"the report is in {path}", err=True)
