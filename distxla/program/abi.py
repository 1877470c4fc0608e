"""The binary interface between compiled programs and their callers. One description for ctypes and for LLVM.

A program is one position-independent image with these functions:

    i32 distxla_entry(Context*)                         the whole entry computation; 0, or a Status
    i32 distxla_communicate_<k>(Context*, u32 site, const u64* operands, const u64* results)
                                                        the shared-memory routine of communicating site k
    i32 distxla_round_<k>(Context*, u32 site, const u64* operands, const u64* results)
                                                        the same, without noting it in the flight recorder

The entry calls `context->communicate[k](context, k, operands, results)` for site k: the table holds the routine above,
or whatever the runtime puts there (a proxy); for a custom-call of a Python routine, which has no such function, the
replica's callback. operands and results are byte offsets of the leaves' buffers in the device's own memory.  A non-zero
Status returns at once from every frame of the program.

The results of a site that `shares` may live once for all members of a group: behind the n offsets are n more, places
in memory that the group's members on this host see at the same offset, or 0. The routine may use those places if all
these members passed the same ones, and then writes the offsets that it used over the first n; a callee that does not
know of them leaves the first n as they are.

Before each step that may take long or fail the entry stores its number in the device's record: reports name the
instruction.

A program numbers its devices for itself: tables in the image are by these ids, `replica` and `partition` are of them.
Shared words, and everything else that leaves the program, have the run's device numbers; `assignment` leads from the
first to the second.

All buffers are 64-byte aligned, row-major, in the device's memory: parameters and results where the caller says,
everything else at a fixed offset behind `arena`. A parameter's buffer is never written. Result buffers do not overlap
parameters or one another and may be used as working space before the program ends.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

from distxla.machine import heap

ALIGNMENT = heap.ALIGNMENT
ENTRY_SYMBOL = "distxla_entry"
COMMUNICATE_SYMBOL = "distxla_communicate_{site}"
ROUND_SYMBOL = "distxla_round_{site}"
# codes of Context.inject: 4 * number of the point + one of the first two, or the third from within any wait
BEFORE_STEP, AFTER_STEP, INSIDE_WAIT = 0, 1, 0xFFFFFFFF


class Status(IntEnum):
    """The status that a program returns."""

    OK = 0
    ABORTED = 1  # a wait was ended by the abort flag
    MISMATCH = 2  # members reached a round with different instructions
    FAILED = 3  # an instruction's own error
    ROUTINE_FAILED = 4  # a Python routine raised, or returned an invalid result; the replica keeps the details
    OUT_OF_RANGE = 5  # an entry of a ragged transfer reaches beyond its arrays; R_DETAIL in the record says which
    STREAM_ENDED = 8  # an item was needed of a stream that its host has ended
    ITEM_REFUSED = 9  # an item of a stream was of another type than the instruction states


class Context(ctypes.Structure):
    """A program's access to its surroundings; lives in the replica, one for each loaded program."""

    _fields_ = (
        ("memory", ctypes.c_void_p),  # u8*[device_count]: every device's memory in this process, by flattened id
        ("arena", ctypes.c_uint64),  # offset of this program's arena in the device's own memory
        ("parameters", ctypes.c_void_p),  # const u64*: offset of each parameter leaf in the device's own memory
        ("results", ctypes.c_void_p),  # const u64*: offset of each result leaf in the device's own memory
        ("communicate", ctypes.c_void_p),  # table of routines, one a communicating site
        (
            "communicators",
            ctypes.c_void_p,
        ),  # u8*[n]: shared state of communicator k (collectives/protocols/group.py and others)
        ("control", ctypes.c_void_p),  # the control block (collectives/protocols/control_block.py)
        ("record", ctypes.c_void_p),  # this device's record in it
        ("device", ctypes.c_uint32),  # flattened id, in the run
        ("replica", ctypes.c_uint32),
        ("partition", ctypes.c_uint32),
        ("device_count", ctypes.c_uint32),  # of the run
        ("shared", ctypes.c_void_p),  # const u64*: by shared arena, where this device's group has it; 0 where nowhere
        (
            "inject",
            ctypes.c_void_p,
        ),  # void (Context*, u32 code): compiler/entry/injection.py; null where no faults are injected
        ("assignment", ctypes.c_void_p),  # const u32*: by the program's own flattened id, the device of the run
        ("logical", ctypes.c_uint32),  # this device's flattened id in the program
        ("peers", ctypes.c_void_p),  # u8*[]: by the program's own flattened id, that device's memory in this process
        ("grid", ctypes.c_void_p),  # the target's own, of a program whose kernels run on a grid
        ("call", ctypes.c_void_p),  # the header of the device's slice (control_block.py), which has the abort flag
    )
