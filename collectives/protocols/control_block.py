"""The shared segment through which the driver and all replicas of a host see each other: layout in bytes.

    header            4 KiB
    device records    RECORD_BYTES each, by flattened id; room for MOST_DEVICES
    flight recorders  RECORDER_BYTES each, by flattened id (collectives/recorder.py)
    exported blocks   exported_memory.TABLE_BYTES each, by flattened id
    communicators     carved out by the driver when a program is loaded, zeroed, 64-byte aligned

Little-endian. A word has the writers that its declaration names; the host process is the driver, and on a further host
its agent. Words that a device sleeps on have a cache line of their own.

Calls of one host run one at a time, unless its devices are divided into slices, each of which has calls of its own: the
words of the header that belong to a call (H_ABORT to H_DONE_TARGET, and what its waits look at: H_CORES to
H_SPIN_PENALTY) are then, for each slice, in a header of its own, HEADER_BYTES that are carved out of the block; the
others are in the block's own header only. The address of such a header is named `call`; without slices it is the
block's.
"""

from __future__ import annotations

from enum import IntEnum

from distxla.collectives.protocols.event import EVENT, EVENT_BYTES, EVENTS
from distxla.collectives.protocols.exported_memory import EXPORTED, TABLE_BYTES
from distxla.collectives.protocols.layout import Area, Order

MOST_DEVICES = 4096  # that one run may have

MAGIC = 0x42_4C_58_54_53_49_44_31
VERSION = 2

HOST_PROCESS, DEVICE = "host process", "its device"

HEADER_BYTES = 4096
EXPORTED_ALIGNMENT = 4096  # whatever the pages of the hosts
HEADER = Area("header of the control block", "one a host", HEADER_BYTES)
_H = HEADER
H_MAGIC = _H.u64(0, "magic", HOST_PROCESS, Order.PLAIN, "MAGIC")
H_VERSION = _H.u32(8, "version", HOST_PROCESS, Order.PLAIN, "VERSION")
H_DEVICES = _H.u32(12, "devices", HOST_PROCESS, Order.PLAIN, "devices of the whole run, which have records")
H_CORES = _H.u32(16, "cores", HOST_PROCESS, Order.PLAIN, "CPU cores that the replicas of this host may use together")
H_HERE = _H.u32(20, "here", HOST_PROCESS, Order.PLAIN, "devices that live on this host")
H_SPIN_SKIP = _H.u32(
    24, "spin skip", HOST_PROCESS, Order.PLAIN, "waits for calls in which the host process sleeps at once"
)
H_SPIN_PENALTY = _H.u32(28, "spin penalty", HOST_PROCESS, Order.PLAIN, "how many the last vain spinning cost")
H_ABORT = _H.u32(64, "abort", "any side", Order.FENCED, "0, or a Status that ends every wait")
H_HOLD = _H.u32(
    68,
    "hold",
    "owner",
    Order.FENCED,
    "not 0: the owner of several processes' devices has the call of this slice, or keeps it from the next one",
)
H_FAILED = _H.u32(
    72,
    "failed",
    HOST_PROCESS,
    Order.FENCED,
    "number of the newest command of the slice whose call has failed; written before `abort` is cleared",
)
H_COMMAND = _H.u32(
    128, "command", HOST_PROCESS, Order.FENCED, "number of the newest command; idle replicas sleep on it", futex=True
)
H_DONE = _H.u32(
    192,
    "done",
    "devices",
    Order.UPDATED,
    "calls finished by replicas, counted up; the host process sleeps on it",
    futex=True,
)
H_DONE_TARGET = _H.u32(
    196,
    "done target",
    HOST_PROCESS,
    Order.PLAIN,
    "value of `done` that ends the call in flight; the device that reaches it wakes the host process",
)
# the queue from devices to this host's proxy (proxy_queue.py); set before devices run where there are several hosts
H_PROXY_RING = _H.u64(256, "proxy ring", "proxy", Order.PLAIN, "offset of the ring in this block")
H_PROXY_TICKETS = _H.u32(264, "proxy tickets", "devices", Order.UPDATED, "entries that have a place in the ring")
H_PROXY_POSTED = _H.u32(
    320, "proxy posted", "devices", Order.UPDATED, "entries that were written; the proxy sleeps on it", futex=True
)

# words that others read often have lines apart from those that every event writes
RECORD_BYTES = 384  # a multiple of two cache lines, which processors fetch together
RECORD = Area("device record", "one a device, by flattened id", RECORD_BYTES)
_R = RECORD
LOOP_DEPTHS = 6  # loops that are nested deeper are not counted
# bytes 0..127: the flight recorder, written by native code of the device, but for R_RING, R_RING_MASK
R_EVENT = 0  # the event of the site that it is in or was in last, as in its ring (event.py), with these differences
R_BEFORE = _R.u64(R_EVENT + 8, "before", DEVICE, Order.PLAIN, "of `round`, those that were begun before the call")
R_ROUND = _R.u64(
    R_EVENT + 32,
    "round",
    DEVICE,
    Order.PLAIN,
    "rounds of the site's communicator (for a permute: with its source) that it has begun",
)
R_NUMBER = _R.u32(
    R_EVENT + 40,
    "number",
    DEVICE,
    Order.RELEASE,
    "low half of `events` + 1 where it has not left the site, of `events` where it has",
    reset=True,
)
R_SITE = _R.u32(R_EVENT + 44, "site", DEVICE, Order.PLAIN, "communicating site it is in, of its program")
R_EDGE = _R.u32(
    R_EVENT + 48, "edge", DEVICE, Order.PLAIN, "of a send or recv: offset of its pair's state, in units of 64 bytes"
)
for _word in EVENT.words:
    if _word not in (R_BEFORE - R_EVENT, R_ROUND - R_EVENT, R_NUMBER - R_EVENT, R_SITE - R_EVENT, R_EDGE - R_EVENT):
        RECORD.place(_word, R_EVENT, DEVICE)
R_EVENTS = _R.u64(64, "events", DEVICE, Order.RELEASE, "events that it has recorded")
R_NOW = _R.u64(72, "now", DEVICE, Order.PLAIN, "the cycle counter when the device looked at its clock last")
R_RING = _R.u64(
    80, "ring", HOST_PROCESS, Order.PLAIN, "distance of its ring from its place: 0 but where a trace is taken"
)
R_RING_MASK = _R.u32(88, "ring mask", HOST_PROCESS, Order.PLAIN, "or-ed with EVENTS - 1: mask of numbers in its ring")
R_BUSY = _R.u32(92, "busy", DEVICE, Order.PLAIN, "not 0 where something may have taken a while since `now`")
R_RUN = _R.u32(96, "run", DEVICE, Order.PLAIN, "runs of programs that it has begun")
R_PROGRAM = _R.u32(100, "program", DEVICE, Order.PLAIN, "number of the program that runs, below 65536")
R_ITERATIONS = _R.u32(
    104,
    "iterations",
    DEVICE,
    Order.PLAIN,
    "by depth: 0, then iterations begun of each loop around the current step that has rounds in it",
    count=LOOP_DEPTHS,
)
# bytes 128..191: where it is
R_STATE = _R.u32(
    128, "state", "its device; host process when it has ended", Order.RELEASE, "ReplicaState; seq_cst before it sleeps"
)
R_PID = _R.u32(136, "pid", DEVICE, Order.PLAIN, "of its process")
R_WAITS_FOR = _R.i32(140, "waits for", DEVICE, Order.PLAIN, "device it waits for, or WAITS_FOR_*")
R_WAIT_WORD = _R.u64(144, "wait word", DEVICE, Order.PLAIN, "offset of the futex word it sleeps on, 0 if none")
R_WAIT_VALUE = _R.u32(152, "wait value", DEVICE, Order.PLAIN, "it sleeps while the word has this value")
R_STATUS = _R.i32(156, "status", DEVICE, Order.PLAIN, "status that the last call returned")
R_CALLS = _R.u64(160, "calls", DEVICE, Order.PLAIN, "calls finished")
R_RUN_NS = _R.u64(168, "run ns", DEVICE, Order.PLAIN, "ns (CLOCK_MONOTONIC) that the last call took on this device")
R_RUNS_BEFORE = _R.u32(176, "runs before", DEVICE, Order.PLAIN, "`run` when it began the command `served`")
R_SERVED = _R.u32(180, "served", DEVICE, Order.PLAIN, "sequence of the command that it is in or was in last")
# bytes 192..255: the command for this device, written by the host process before H_COMMAND is raised
R_COMMAND_KIND = _R.u32(
    192, "command kind", "host process; device at its end", Order.RELEASE, "CommandKind", reset=True
)
R_COMMAND_PROGRAM = _R.u32(196, "command program", HOST_PROCESS, Order.PLAIN, "number of the program to run")
R_COMMAND_SEQUENCE = _R.u32(
    200, "command sequence", HOST_PROCESS, Order.PLAIN, "the H_COMMAND that this command belongs to"
)
R_COMMAND_REPEAT = _R.u32(204, "command repeat", HOST_PROCESS, Order.PLAIN, "runs of the program, at least 1")
# bytes 256..383: written by the device's native code
R_YIELD_SKIP = _R.u32(
    256, "yield skip", DEVICE, Order.PLAIN, "waits for which it sleeps at once: yielding has not paid"
)
R_YIELD_PENALTY = _R.u32(260, "yield penalty", DEVICE, Order.PLAIN, "how many waits the next disappointment costs")
R_MISMATCH_DEVICE = _R.u32(264, "mismatch device", DEVICE, Order.PLAIN, "a member with another instruction")
R_MISMATCH_SITE = _R.u32(268, "mismatch site", DEVICE, Order.PLAIN, "that member's site, of its own program")
R_STEP = _R.u32(272, "step", DEVICE, Order.PLAIN, "number of the step of its program that it is in or was in last")
R_SIGNAL = _R.u32(276, "signal", DEVICE, Order.PLAIN, "the signal that ends the process, by its handler; 0 if none")
R_FAULT = _R.u64(280, "fault", DEVICE, Order.PLAIN, "the address that such a signal complains of")
R_DETAIL = _R.u64(288, "detail", DEVICE, Order.PLAIN, "detail of the status (OUT_OF_RANGE: number of the entry)")
R_CLOCK = _R.u64(
    296,
    "clock",
    DEVICE,
    Order.PLAIN,
    "cycle counter and ns of CLOCK_MONOTONIC when it began to serve; again at the last begin or end of a command",
    count=4,
)
R_INJECTED = _R.u64(328, "injected", DEVICE, Order.PLAIN, "a bit for each injected fault of this device that happened")
R_IS_STOPPED = _R.u32(336, "is stopped", "no device", Order.PLAIN, "1 in copies of records of stopped processes")

RECORDERS = HEADER_BYTES + MOST_DEVICES * RECORD_BYTES
RECORDER_BYTES = EVENTS * EVENT_BYTES

WAITS_FOR_GROUP = -1  # the missing members of its group
WAITS_FOR_HOST = -2  # the other end of a stream
UNSIGNED = 1 << 32  # added to these by loads that read all words as unsigned


class ReplicaState(IntEnum):
    IDLE = 0
    RUNNING = 1
    WAITING = 2
    FAILED = 3
    GONE = 4


class CommandKind(IntEnum):
    NONE = 0
    RUN = 1
    STOP = 2


def record_offset(device: int) -> int:
    """Offset of a device's record in the control block."""
    return HEADER_BYTES + device * RECORD_BYTES


def iterations_field(depth: int) -> int:
    """Field of the record that counts the iterations of a loop; depth: loops with rounds around its body, itself too.

    Depth 0 has a field of its own, always 0, for loops that are not counted.
    """
    return R_ITERATIONS + 4 * (depth if depth < LOOP_DEPTHS else 0)


def recorder_offset(device: int) -> int:
    """Offset of a device's flight recorder in the control block, unless R_RING says otherwise."""
    return RECORDERS + device * RECORDER_BYTES


def exported_offset(devices: int, device: int, block: int) -> int:
    """Offset of a device's exported block in the control block of a run of so many devices."""
    begin = -(-recorder_offset(devices) // EXPORTED_ALIGNMENT) * EXPORTED_ALIGNMENT
    return begin + device * TABLE_BYTES + block * EXPORTED.size


def fixed_bytes(devices: int) -> int:
    """Bytes before the communicators."""
    return exported_offset(devices, devices, 0)
