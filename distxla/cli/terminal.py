"""The commands' output on stdout and stderr. Everything but the output of click's own `--help` goes through here.

On a terminal lines wrap between words at its width, and kinds of messages have colours: `error:` is bold red,
`warning:` bold yellow, hints and notes are cyan. NO_COLOR and TERM=dumb turn colours off. In a pipe or a file each line
is whole and plain, so that tools can search it.

When stdout cannot be written any more, further output is dropped and the command runs to its end; `lost_output` then
gives the reason. Failed writes to stderr are ignored, since there is no stream left to report them on.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from distxla.location import Location, printable
from distxla.runtime.values.interrupts import deferred_interrupt

DEFAULT_WIDTH = 80  # of a terminal that doesn't tell
LEAST_WIDTH = 20
BOLD, RED, YELLOW, CYAN = "\x1b[1m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[36m"
PLAIN = "\x1b[0m"
LABELLED = re.compile(r"( *)(\S+:\d+:\d+: )?(error|warning|note|hint):(?= )")
CARETS = re.compile(r"( *)(\^+)")


class StdoutError(Exception):
    """Why stdout cannot be written. reader_has_gone: it is a pipe without a reader, which is no error to report."""

    def __init__(self, error: OSError) -> None:
        super().__init__("stdout is closed" if error.errno == errno.EBADF else error.strerror)
        self.reader_has_gone = error.errno == errno.EPIPE


_lost: list[StdoutError] = []  # the first failure of a write to stdout
_json: list[bool] = []  # whether an object has been written


def begin() -> None:
    """Forget the failures and the output of an earlier command."""
    _lost.clear()
    _json.clear()


def lost_output() -> StdoutError | None:
    """The first failure of a write to stdout; None if all output was written."""
    return _lost[0] if _lost else None


def lose_output(error: StdoutError) -> None:
    """Drop text buffered for stdout, and all further output to it."""
    _lost.append(error)
    _discard(_descriptor(sys.stdout, 1))


def write(text: str, *, err: bool = False, hang: int | None = None) -> None:
    """Lines of prose. hang: the column at which the further lines of a wrapped one begin; two to the right of where it
    begins by default."""
    stream = stream_of(err)
    width, coloured = _width(stream), _has_colours(stream)
    for line in printable(text).split("\n"):
        begin = len(line) - len(line.lstrip(" "))
        lines = [line] if width is None else wrapped(line, width, begin + 2 if hang is None else hang)
        _put("\n".join(_coloured(lines) if coloured else lines) + "\n", err=err)


def write_exactly(text: str, *, err: bool = False) -> None:
    """Lines that stay as they are: listings, source with carets, tracebacks. Carets have the colour of errors."""
    stream = stream_of(err)
    lines = printable(text).split("\n")
    if _has_colours(stream):
        lines = [f"{m[1]}{RED}{m[2]}{PLAIN}" if (m := CARETS.fullmatch(line)) else line for line in lines]
    _put("\n".join(lines) + "\n", err=err)


def write_json(data: Any, *, indent: int | None = None) -> None:
    """One JSON object on stdout. Stop requests are deferred until it is written."""
    text = json.dumps(data, indent=indent) + "\n"
    with deferred_interrupt():
        _json.append(True)
        _put(text, err=False)


def has_written_json() -> bool:
    """Whether the command has: a failure behind it adds no second object."""
    return bool(_json)


def write_bytes(data: bytes, *, err: bool = False) -> None:
    """Write binary data to stdout, or to stderr."""
    stream = stream_of(err)
    with _stderr() if err else _stdout():
        stream.buffer.write(data)
        stream.buffer.flush()


def require_stdout() -> None:
    """StdoutError if stdout is closed: checked before a run rather than after hours of it."""
    try:
        os.write(_descriptor(sys.stdout, 1), b"")
    except OSError as error:
        raise StdoutError(error) from error


def reader_has_gone() -> bool:
    """Whether stdout is a pipe without a reader."""
    poll = select.poll()
    poll.register(_descriptor(sys.stdout, 1), 0)
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0))


def write_at(location: Location | None, text: str, *, err: bool = True, shows_frame: bool = True) -> None:
    """A message with the place that it is about: `file:line:column: text`, then the source line with a caret, then the
    further lines of the text. shows_frame: whether the user's own source line is shown, too."""
    first, *others = text.split("\n")
    write(first if location is None else f"{location}: {first}", err=err)
    if location is not None:
        excerpt = location.shown()
        if location.frame and not shows_frame:
            excerpt.pop()
        if excerpt:
            write_exactly("\n".join(excerpt), err=err)
    if others:
        write("\n".join(others), err=err)


class _Notices(logging.Handler):
    """Writes the library's notices on a run while it goes on."""

    def emit(self, record: logging.LogRecord) -> None:
        write(f"note: {record.getMessage().removeprefix('distxla: ')}", err=True)


def show_notices() -> None:
    """From here on the notices of the library go through this module."""
    logger = logging.getLogger("distxla")
    logger.propagate = False
    if not any(isinstance(handler, _Notices) for handler in logger.handlers):
        logger.addHandler(_Notices())


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show the phase of the work, on stderr, while the with-body runs: on a terminal only."""
    if not _is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def wrapped(line: str, width: int, hang: int) -> list[str]:
    """The line cut between words into lines of at most `width` columns, of which the second and further ones begin at
    column `hang`. A word that is longer stays whole."""
    hang = min(hang, width // 2)
    begin = len(line) - len(line.lstrip(" "))
    lines = []
    while len(line) > width:
        cut = line.rfind(" ", begin + 1, width + 1)
        if cut < 0 or not line[begin:cut].strip():
            cut = line.find(" ", max(width, begin + 1))
        if cut < 0 or not line[cut:].strip():
            break
        lines.append(line[:cut].rstrip(" "))
        line, begin = " " * hang + line[cut:].lstrip(" "), hang
    return [*lines, line.rstrip(" ")]


def _coloured(lines: list[str]) -> list[str]:
    """The lines of one message: its place and its kind are in the first one."""
    match = LABELLED.match(lines[0])
    if match is None:
        return lines
    indent, place, kind = match[1], match[2] or "", match[3]
    rest = lines[0][match.end() :]
    if kind in ("hint", "note"):
        further = [f"{CYAN}{line}{PLAIN}" for line in lines[1:]]
        return [f"{indent}{place}{CYAN}{kind}:{rest}{PLAIN}", *further]
    shown = f"{BOLD}{place}{PLAIN}" if place else ""
    return [f"{indent}{shown}{RED if kind == 'error' else YELLOW}{kind}:{PLAIN}{rest}", *lines[1:]]


def stream_of(err: bool) -> TextIO:
    return sys.stderr if err else sys.stdout


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def _has_colours(stream: TextIO) -> bool:
    return _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width(stream: TextIO) -> int | None:
    """Columns of the terminal, or those of COLUMNS; None where the stream is none."""
    if not _is_terminal(stream):
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return max(LEAST_WIDTH, int(given))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(LEAST_WIDTH, columns or DEFAULT_WIDTH)


def _put(text: str, *, err: bool) -> None:
    stream = stream_of(err)
    with _stderr() if err else _stdout():
        try:
            stream.write(text)
        except UnicodeEncodeError:  # the terminal's encoding lacks a letter
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _descriptor(stream: TextIO, usual: int) -> int:
    """The file descriptor of a stream; `usual` if a program has put another object in its place."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return usual


def _discard(descriptor: int) -> None:
    """From here on its output goes nowhere, including text that a stream still holds for it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


@contextmanager
def _stderr() -> Iterator[None]:
    """Output of the body, and all that follows, may be lost; Python 3.12 would end with status 120 for it."""
    try:
        yield
    except OSError:
        _discard(_descriptor(sys.stderr, 2))


@contextmanager
def _stdout() -> Iterator[None]:
    """Keep a failed write of the with-body for `lost_output`, and drop further output."""
    try:
        yield
    except OSError as error:
        lose_output(StdoutError(error))


__all__ = [
    "StdoutError",
    "begin",
    "has_written_json",
    "lose_output",
    "lost_output",
    "progress",
    "reader_has_gone",
    "require_stdout",
    "show_notices",
    "wrapped",
    "write",
    "write_at",
    "write_bytes",
    "write_exactly",
    "write_json",
]
