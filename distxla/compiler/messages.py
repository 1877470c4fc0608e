"""Messages between the compile server and its process: length-prefixed pickles, and errors that both may raise."""

from __future__ import annotations

import pickle
import struct
from typing import IO, Any

from distxla.compiler.memory_limit import VARIABLE
from distxla.errors import OutOfMemoryError

LENGTH = struct.Struct("<Q")
PROGRESS_BYTES = 512  # of the memory file that names the instruction or stage at work


def send(pipe: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    header = pipe.read(LENGTH.size)
    if len(header) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(header)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def out_of_memory(limit: int, doing: str) -> OutOfMemoryError:
    where = f" (working on {doing})" if doing else ""
    error = OutOfMemoryError(f"the compiler needs more than the {limit / (1 << 30):.3g} GiB that it may have{where}")
    error.add_note(f"hint: {VARIABLE}=16G, for instance, lets it have more")
    return error
