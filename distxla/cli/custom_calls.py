"""`--custom-call NAME=…`, `--stub-custom-call NAME=zeros`: the routines of a module's custom-calls, and stand-ins for
them, named by the user and never by the module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from distxla.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])
_STUBS = "distxla.stubs"  # of the context's meta


def custom_call_option(command: F) -> F:
    """Adds `custom_calls`, a tuple of the option's values, and the option of stubs, which `register_all` finds."""
    command = click.option(
        "--stub-custom-call",
        multiple=True,
        metavar="NAME=zeros",
        expose_value=False,
        callback=_keep_stubs,
        help="Put zeros in place of what custom-calls of NAME compute; the summary says so.",
    )(command)
    return click.option(
        "--custom-call",
        "custom_calls",
        multiple=True,
        metavar="NAME=ROUTINE",
        help="Let custom-calls of NAME run LIBRARY.so:SYMBOL, or a Python function package.module:function.",
    )(command)


def _keep_stubs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    context.meta[_STUBS] = given


def register_all(given: Sequence[str]) -> None:
    """Register the options' routines, and stubs. ArgumentError for those that cannot be read, loaded or found."""
    stubs: Sequence[str] = click.get_current_context().meta.get(_STUBS, ())
    if not given and not stubs:
        return
    from distxla.ops.custom_calls.user import register_custom_call

    names = set()
    for text in stubs:
        name, _, what = text.rpartition("=")
        if not name or what != "zeros":
            raise ArgumentError(f"--stub-custom-call {text}: expected NAME=zeros")
        names.add(name)
        register_custom_call(name, stub="zeros")
    for text in given:
        name, equals, routine = text.partition("=")
        place, colon, symbol = routine.rpartition(":")
        if not (name and equals and place and colon and symbol):
            raise ArgumentError(
                f"--custom-call {text}: expected NAME=LIBRARY.so:SYMBOL or NAME=package.module:function"
            )
        if name in names:
            raise ArgumentError(f'--custom-call names the target "{name}" twice')
        names.add(name)
        if "/" in place or place.endswith(".so") or ".so." in place:
            register_custom_call(name, library=place, symbol=symbol)
        else:
            register_custom_call(name, _function(place, symbol))


def _function(module: str, name: str) -> Any:
    """The object of that name; modules of the current folder can be named, as with `python -m`."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise ArgumentError(f"--custom-call: cannot import {module}: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"--custom-call: {module} has no {name}")
        found = getattr(found, part)
    return found
