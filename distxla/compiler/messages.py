"""Messages between the compile server and its process: length-prefixed pickles, and errors that both may raise."""

from __future__ import annotations

import pickle
from typing import IO, Any

from distxla.compiler.memory_limit import VARIABLE
from distxla.errors import OutOfMemoryError
from distxla.machine.child_process import read_message, write_message

PROGRESS_BYTES = 512  # of the memory file that names the instruction or stage at work


def send(pipe: IO[bytes], value: object) -> None:
    write_message(pipe, pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


def receive(pipe: IO[bytes]) -> Any:
    return pickle.loads(read_message(pipe))


def out_of_memory(limit: int, doing: str) -> OutOfMemoryError:
    where = f" (working on {doing})" if doing else ""
    error = OutOfMemoryError(f"the compiler needs more than the {limit / (1 << 30):.3g} GiB that it may have{where}")
    error.add_note(f"hint: {VARIABLE}=16G, for instance, lets it have more")
    return error
