"""The output of a failure: the message on stderr, a JSON object."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Any

from distxla.cli import terminal
from distxla.errors import DeadlockError, DistxlaError, InternalError


def wants_json(args: Sequence[str]) -> bool:
    """Whether the command line asks for JSON, even if it can't be understood as a whole."""
    return "--json" in args[: args.index("--") if "--" in args else None]


def tell(error: DistxlaError, *, as_json: bool) -> None:
    """The failure on stderr, as JSON on stdout, too: the latter last, since stdout may have no reader any more."""
    terminal.write_at(error.location, f"error: {error.code}: {error.message}")
    # the report of a refused run has no more than the error and its notes
    if error.diagnosis is not None and error.diagnosis.devices and (text := error.diagnosis.text()):
        terminal.write(text, err=True)
    for note in getattr(error, "__notes__", ()):
        lines = str(note).splitlines()
        if len(lines) == 1:
            label = "" if lines[0].startswith(("hint: ", "note: ")) else "note: "
            terminal.write(f"  {label}{lines[0]}", err=True)
        else:  # a traceback
            terminal.write_exactly("\n".join(f"    {line}" for line in lines), err=True)
    if isinstance(error, InternalError):
        terminal.write("note: this is a bug in distxla; DISTXLA_TRACEBACK=1 shows where it happened", err=True)
    if os.environ.get("DISTXLA_TRACEBACK") == "1":
        terminal.write_exactly("".join(traceback.format_exception(error)).rstrip("\n"), err=True)
    if as_json and not terminal.has_written_json():
        terminal.write_json(json_of(error))


def tell_of_interruption(message: str, exit_status: int, *, as_json: bool) -> None:
    """That the user, or the system, ended the command: a line on stderr, as JSON on stdout, too."""
    terminal.write(message, err=True)
    if as_json and not terminal.has_written_json():
        terminal.write_json(_json("interrupted", message, exit_status))


def json_of(error: DistxlaError) -> dict[str, Any]:
    """`error`: its code, message, exit status and place; `diagnosis`: why devices could not go on, or null."""
    found = _json(error.code, error.message, error.exit_status)
    if error.location is not None:  # a limit that runs out amid an import is told without one
        from distxla.diagnosis.report.json import location_json

        found["error"]["location"] = location_json(error.location)
    found["error"]["notes"] = [str(note) for note in getattr(error, "__notes__", ())]
    diagnosis = error.diagnosis
    if diagnosis is None and isinstance(error, DeadlockError):
        from distxla.diagnosis.diagnose import refused

        diagnosis = refused(error)
    found["diagnosis"] = None if diagnosis is None else diagnosis.as_json()
    return found


def _json(code: str, message: str, exit_status: int) -> dict[str, Any]:
    error = {"code": code, "message": message, "exit_status": exit_status, "location": None, "notes": []}
    return {"error": error, "diagnosis": None}


__all__ = ["json_of", "tell", "tell_of_interruption", "wants_json"]
