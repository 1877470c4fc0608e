"""The shared segment through which the driver and all replicas of a host see each other: layout in bytes.

    header            4 KiB
    device records    RECORD_BYTES each, by flattened id; room for MOST_DEVICES
    flight recorders  RECORDER_BYTES each, by flattened id (recorder.py)
    communicators     carved out by the driver when a program is loaded, zeroed, 64-byte aligned

Little-endian; every field is written by one side only, except the futex words. Words that somebody sleeps on have a
cache line of their own.
"""

from __future__ import annotations

from enum import IntEnum

MOST_DEVICES = 4096  # that one run may have

MAGIC = 0x42_4C_58_54_53_49_44_31
VERSION = 1

# header
HEADER_BYTES = 4096
H_MAGIC = 0  # u64
H_VERSION = 8  # u32
H_DEVICES = 12  # u32
H_CORES = 16  # u32: CPU cores that the replicas of this host may use together
H_HERE = 20  # u32: devices that live on this host; H_DEVICES and the records count those of the whole run
H_POISON = 64  # u32: 0, or a Status that ends every wait
H_COMMAND = 128  # u32 futex: number of the newest command; idle replicas sleep on it
H_DONE = 192  # u32 futex: calls finished by replicas, counted up; the driver sleeps on it
H_DONE_TARGET = 196  # u32: the value of H_DONE that ends the call under way; who reaches it wakes the driver
# what devices leave to the relay of this host (relay_queue.py)
H_RELAY_RING = 256  # u64: offset of the ring in this block; set before devices run, where the run has several hosts
H_RELAY_TICKETS = 264  # u32: entries that have a place in the ring
H_RELAY_POSTED = 320  # u32 futex: entries that were written; the relay sleeps on it

# device record; what others read often has lines apart from those that every event writes
RECORD_BYTES = 384  # a multiple of two cache lines, which processors fetch together
# (bytes 0..127: the flight recorder, recorder.py; written by native code of the device, but for R_RING, R_RING_MASK)
R_EVENT = (
    0  # the event of the site that it is in or was in last, as recorder.py has it; those up to R_MEETING are parts
)
R_BEFORE = R_EVENT + 8  # u64: of R_ROUND, those that were begun before the call
R_ROUND = R_EVENT + 32  # u64: rounds of the site's communicator (for a permute: with its source) that it has begun
R_NUMBER = R_EVENT + 40  # u32: low half of R_EVENTS + 1 where it has not left the site, of R_EVENTS where it has
R_SITE = R_EVENT + 44  # u32: communicating site it is in, of its program
R_MEETING = R_EVENT + 48  # u32: of a send or recv, where its pair's state lies, in units of 64 bytes; 0 for others
R_EVENTS = 64  # u64: events that it has recorded
R_NOW = 72  # u64: what the time-stamp counter said when the device looked at its clock last
R_RING = 80  # u64: how far behind its place among the recorders its ring lies: 0 but where a trace is taken
R_RING_MASK = 88  # u32: or-ed with recorder.EVENTS - 1, the mask of numbers of events in its ring
R_BUSY = 92  # u32: not 0 where something may have taken a while since R_NOW
R_RUN = 96  # u32: runs of programs that it has begun
R_PROGRAM = 100  # u32: number of the program that runs, below 65536
R_ITERATIONS = 104  # u32 by depth: 0, then iterations begun of each loop around the current step that has rounds in it
LOOP_DEPTHS = 6  # words there; loops that are nested deeper are not counted
# (bytes 128..191: where it is)
R_STATE = 128  # u32: DeviceState
R_PID = 136  # u32
R_WAITS_FOR = 140  # i32: device it waits for, or a negative WAITS_FOR_*
R_WAIT_WORD = 144  # u64: offset in the control block of the futex word it sleeps on, 0 if none
R_WAIT_VALUE = 152  # u32: it sleeps while the word has this value
R_STATUS = 156  # i32: what the last call returned
R_CALLS = 160  # u64: calls finished
R_RUN_NS = 168  # u64: nanoseconds (CLOCK_MONOTONIC) that the last call took on this device
R_RUNS_BEFORE = 176  # u32: R_RUN when it began the command R_SERVED
R_SERVED = 180  # u32: R_COMMAND_SEQUENCE of the command that it is in or was in last
# (bytes 192..255: the command for this device, written by the driver before H_COMMAND is raised)
R_COMMAND_KIND = 192  # u32: CommandKind
R_COMMAND_PROGRAM = 196  # u32
R_COMMAND_SEQUENCE = 200  # u32: the H_COMMAND number that this command belongs to
R_COMMAND_REPEAT = 204  # u32: runs of the program for this command, at least 1
# (bytes 256..383: written by the device's native code)
R_YIELD_SKIP = 256  # u32: waits for which it goes to sleep at once, because giving way has not paid lately
R_YIELD_PENALTY = 260  # u32: how many waits the next disappointment costs
R_MISMATCH_DEVICE = 264  # u32: after Status.MISMATCH, a member that came with another instruction
R_MISMATCH_SITE = 268  # u32: that member's site, of its own program
R_STEP = 272  # u32: number of the step of its program that it is in or was in last
R_SIGNAL = 276  # u32: the signal that ends the process, written by its handler; 0 if none came
R_FAULT = 280  # u64: the address that such a signal complains of
R_DETAIL = 288  # u64: what a status says more (Status.OUT_OF_RANGE: the number of the entry)
R_CLOCK = 296  # u64 four times: the time-stamp counter and the ns of CLOCK_MONOTONIC when the device began to serve,
# and again at the last begin or end of a command
R_INJECTED = 328  # u64: a bit for each injected fault of this device that has happened
R_IS_STOPPED = 336  # u32: 1 if its process is stopped; only in copies of records, never in the block itself

RECORDERS = HEADER_BYTES + MOST_DEVICES * RECORD_BYTES
RECORDER_BYTES = 16384

WAITS_FOR_GROUP = -1  # the missing members of its group
WAITS_FOR_HOST = -2  # the other end of a stream


class DeviceState(IntEnum):
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

    That of depth 0, which is always 0, stands for loops that are not counted.
    """
    return R_ITERATIONS + 4 * (depth if depth < LOOP_DEPTHS else 0)


def recorder_offset(device: int) -> int:
    """Offset of a device's flight recorder in the control block, unless R_RING says otherwise."""
    return RECORDERS + device * RECORDER_BYTES


def fixed_bytes(devices: int) -> int:
    """Bytes before the communicators."""
    return (recorder_offset(devices) + 4095) // 4096 * 4096
