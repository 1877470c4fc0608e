"""Frames between a JAX process and the owner of its cluster, over one connection (distxla/wire/).

A request has a number, which its answer repeats; answers come in any order. All else is told without an answer. The
owner unpickles nothing: a process sends fields, JSON and bytes. A process unpickles the program of COMPILED alone,
which its own owner has sent.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from distxla.errors import ClusterError
from distxla.wire.checksums import Buffer
from distxla.wire.frame import Frame, Frames, frame, u8, u32, u64

LARGEST: Final = 1 << 33  # bytes of a payload: a module with its constants
MOST_JSON: Final = 1 << 26  # bytes

# kinds of Trouble
SLOW: Final = 1  # the devices of a call here are not done after 50 ms
ABORTED: Final = 2  # the abort flag of this process's devices is set
CALLBACK: Final = 3  # a function of this process, which a device called, has raised
INTERRUPTED: Final = 4  # Ctrl-C
SKIPPED: Final = 5  # this process can't run its call: an argument is of a call that failed, memory lacks, ...
DISAGREES: Final = 6  # this process has found another program in the call

# kinds of News
LATE: Final = 1
ENDED: Final = 2
RAISED: Final = 3

_LENGTH: Final = struct.Struct("<I")
_REQUEST: Final = "number of the request"
_SET: Final = "number of the set of processes"
_PROGRAM: Final = "the owner's number of the program, from 1"
_ORDINAL: Final = "of the call among those of its set, from 0"


# --- from a process


@frame(1, payload="JSON of an Introduction")
class Hello(Frame):
    """The first frame. Answered by ATTACHED, or by FAILED with request 0, once all processes have said it."""

    process: int = u32("its index")
    pid: int = u32("its process id")
    generation: int = u32("how many clients of JAX it has had before this one")


@frame(2, payload="u32 length, JSON of a PartitionRequest, the module")
class Partition(Frame):
    """Partition a module; answered by ANSWER."""

    request: int = u32(_REQUEST)


@frame(3, payload="u32 length, JSON of a CompileRequest, a packed Partitioned")
class Compile(Frame):
    """Compile a program; answered by COMPILED."""

    request: int = u32(_REQUEST)


@frame(4)
class Load(Frame):
    """Load a program on its devices; answered by LOADED."""

    request: int = u32(_REQUEST)
    program: int = u32(_PROGRAM)


@frame(5)
class Drop(Frame):
    """The process has no executable of a program any more; it is unloaded when that is so of all."""

    program: int = u32(_PROGRAM)


@frame(6, payload="file, line, function, program of a LaunchSite, UTF-8, a zero between two")
class Launch(Frame):
    """The process has submitted a call, which its devices are ready for later."""

    set: int = u32(_SET)
    program: int = u32(_PROGRAM)
    ordinal: int = u64(_ORDINAL)
    turn: int = u64("position of the call among all of this process")


@frame(7, payload="offsets of arguments and results, u64 each, a row for each device of this process")
class Ready(Frame):
    """The call is the first in the process's queue; answered by OVER."""

    set: int = u32(_SET)
    ordinal: int = u64(_ORDINAL)


@frame(8, payload="JSON {error, by_argument}, either may be absent")
class Trouble(Frame):
    """A call does not go on as it should. All but SLOW are answered by OVER, with the verdict. by_argument: of SKIPPED,
    whether a call has failed whose result it takes."""

    set: int = u32(_SET)
    ordinal: int = u64(_ORDINAL)
    kind: int = u8("SLOW, ABORTED, CALLBACK, INTERRUPTED, SKIPPED or DISAGREES")


@frame(9, payload='JSON {how: "end" or "raised", error, site}')
class Bye(Frame):
    """The process ends and calls nothing more."""


@frame(10, payload="JSON of a Stack")
class Told(Frame):
    """The answer to ASK."""

    request: int = u32(_REQUEST)


@frame(11, payload="nothing, or JSON of the error of a function")
class Served(Frame):
    """All functions of this process that devices have called during a call have returned; the answer to DONE."""

    set: int = u32(_SET)
    ordinal: int = u64(_ORDINAL)


# --- from the owner


@frame(32, payload="JSON of an AttachedMemory")
class Attached(Frame):
    """The cluster serves, and all processes are there."""


@frame(33, payload="JSON of an error")
class Failed(Frame):
    """A request has failed."""

    request: int = u32("number of the request; 0: HELLO")


@frame(34, payload="a packed Partitioned")
class Answer(Frame):
    """The answer to PARTITION."""

    request: int = u32(_REQUEST)


@frame(35, payload="u32 length, JSON of a CompiledFacts, the pickled program without its image")
class Compiled(Frame):
    """The answer to COMPILE."""

    request: int = u32(_REQUEST)
    program: int = u32(_PROGRAM)


@frame(36, payload="JSON of a LoadedFacts")
class Loaded(Frame):
    """The answer to LOAD."""

    request: int = u32(_REQUEST)
    number: int = u32("of the program on its devices")


@frame(37, payload="nothing where it went well, else JSON of an error, and whether no call can run any more")
class Over(Frame):
    """A call has ended on all devices, or has failed."""

    set: int = u32(_SET)
    ordinal: int = u64(_ORDINAL)


@frame(38, payload="JSON of an error")
class Refused(Frame):
    """A call will never run. It comes at any time, also before this process has submitted the call."""

    set: int = u32(_SET)
    ordinal: int = u64(_ORDINAL)


@frame(39, payload="JSON {text}")
class News(Frame):
    """What is to be known of another process."""

    process: int = u32("which one")
    kind: int = u8("LATE, ENDED or RAISED")


@frame(40)
class Ask(Frame):
    """Where is the main thread? Answered by TOLD."""

    request: int = u32(_REQUEST)


@frame(41)
class Done(Frame):
    """All devices have ended a call that calls functions of processes; answered by SERVED, and then OVER comes."""

    set: int = u32(_SET)
    ordinal: int = u64(_ORDINAL)


PROCESS_FRAMES: Final = Frames(
    3,
    "between a JAX process and the owner",
    *(Hello, Partition, Compile, Load, Drop, Launch, Ready, Trouble, Bye, Told, Served),
    *(Attached, Failed, Answer, Compiled, Loaded, Over, Refused, News, Ask, Done),
)


def pack_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def unpack_json(payload: Buffer, expected: type = dict) -> Any:
    """ClusterError where it is no JSON of the expected type."""
    if len(payload) > MOST_JSON:
        raise ClusterError(f"JSON of {len(payload)} bytes; the limit is {MOST_JSON}")
    try:
        found = json.loads(bytes(payload))
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"a payload is not JSON: {type(error).__name__}") from error
    if not isinstance(found, expected):
        raise ClusterError(f"a payload is JSON of the type {type(found).__name__}; expected {expected.__name__}")
    return found


def pack_parts(head: Any, rest: Buffer = b"") -> list[Buffer]:
    """A payload of JSON and bytes behind it."""
    data = pack_json(head)
    return [_LENGTH.pack(len(data)), data, rest]


def unpack_parts(payload: Buffer) -> tuple[Any, memoryview]:
    """The JSON object and the bytes of `pack_parts`. ClusterError for other payloads."""
    view = memoryview(payload)
    if len(view) < _LENGTH.size:
        raise ClusterError(f"a payload of {len(view)} bytes is too short")
    (length,) = _LENGTH.unpack_from(view)
    end = _LENGTH.size + length
    if end > len(view):
        raise ClusterError(f"a payload of {len(view)} bytes states JSON of {length} bytes")
    return unpack_json(view[_LENGTH.size : end]), view[end:]


__all__ = [
    "ABORTED",
    "CALLBACK",
    "DISAGREES",
    "ENDED",
    "INTERRUPTED",
    "LARGEST",
    "LATE",
    "PROCESS_FRAMES",
    "RAISED",
    "SKIPPED",
    "SLOW",
    "Answer",
    "Ask",
    "Attached",
    "Bye",
    "Compile",
    "Compiled",
    "Done",
    "Drop",
    "Failed",
    "Hello",
    "Launch",
    "Load",
    "Loaded",
    "News",
    "Over",
    "Partition",
    "Ready",
    "Refused",
    "Served",
    "Told",
    "Trouble",
    "pack_json",
    "pack_parts",
    "unpack_json",
    "unpack_parts",
]
