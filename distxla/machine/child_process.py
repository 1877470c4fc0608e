"""A Python process that answers this one: its start, its end, and messages of bytes over its stdin and stdout."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

_LENGTH: Final = struct.Struct("<Q")


def started_module(
    module: str, *arguments: object, paths: Sequence[str], environment: Mapping[str, str], messages: int, kept: int
) -> subprocess.Popen[bytes]:
    """Start a module of distxla in a process of its own. OSError where that can't be.

    paths: of modules, beside distxla's own.  messages: a file: its stderr.  kept: a file that it has open, too.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=messages,
        pass_fds=(kept,),
        env={**environment, "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[2]), *paths])},
        start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
    )


def end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Close the pipes, by which the process knows that it is to end; kill it if it hasn't in so many seconds."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read_message(pipe: IO[bytes]) -> bytes:
    """One message; EOFError where the other end has been closed."""
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(header)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


def write_message(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()
