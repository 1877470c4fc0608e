"""Mistakes in the command line itself: click's refusals, as errors of distxla with a proposal of a correction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from distxla.errors import UsageError
from distxla.similar_words import did_you_mean, nearest

Command = TypeVar("Command", bound=Callable[..., Any])


class Choice(click.Choice[str]):
    """Values of an option, of which a near one is proposed where another one is given."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = nearest(str(value), self.choices)
            if near is None:
                raise
            message = f"{error.message.rstrip('.')}\n{did_you_mean(near)}"
            raise click.BadParameter(message, ctx, param) from error


def usage_error(error: click.ClickException) -> UsageError:
    """A refusal of click, in the words of the other errors; its notes propose corrections."""
    message, *notes = _message(error).split("\n")
    found = UsageError(message[:1].lower() + message[1:].rstrip("."))
    if isinstance(error, click.UsageError) and error.ctx is not None:
        notes += _proposals(error, error.ctx)
        notes.append(f"hint: `{error.ctx.command_path} --help` says what it takes")
    for note in notes:
        found.add_note(note)
    return found


def files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For `shell_complete`: the shell completes names of files."""
    return [CompletionItem(incomplete, type="file")]


def file_option(*names: str, metavar: str = "FILE.npz", help: str) -> Callable[[Command], Command]:
    """An option whose value is the name of a file."""
    return click.option(*names, metavar=metavar, shell_complete=files, help=help)


def _message(error: click.ClickException) -> str:
    """click's own, without its proposals, which differ between its versions, and without its names of types."""
    if isinstance(error, click.NoSuchOption):
        return f"no such option: {error.option_name}"
    return re.sub(r"is not a valid (?:(integer)|float)( range)?", _plainly, error.format_message())


def _plainly(found: re.Match[str]) -> str:
    return f"is not {'an integer' if found[1] else 'a number'}"


def _proposals(error: click.UsageError, ctx: click.Context) -> list[str]:
    if isinstance(error, click.NoSuchOption):
        names = [name for parameter in ctx.command.get_params(ctx) for name in parameter.opts if name[:2] == "--"]
        near = nearest(error.option_name, names)
        return [] if near is None else [did_you_mean(near)]
    return []


def no_such_command(ctx: click.Context, word: str, commands: Iterable[str]) -> click.UsageError:
    """An error for a first word that is no command: perhaps a misspelt one, perhaps a module."""
    near = nearest(word, commands)
    path = word.rpartition("@")[0] or word
    if near is None and (Path(path).is_file() or word.endswith((".hlo", ".txt"))):
        near = f"{ctx.command_path} run {word}"
    message = f"no such command: {word}"
    return click.UsageError(message if near is None else f"{message}\n{did_you_mean(near)}", ctx)


__all__ = ["Choice", "did_you_mean", "file_option", "files", "nearest", "no_such_command", "usage_error"]
