"""The memory that a loaded module and its caller share: declared once, for Python and for the emitted code.

Light: processes that only launch kernels load this file and no LLVM.
"""

from __future__ import annotations

from ctypes import Structure, c_uint32, c_uint64

WARP = 32
MOST_THREADS = 1024  # of a block
DYNAMIC_SHARED_BYTES = 227 << 10  # the most that any of NVIDIA's GPUs gives a block
SHARED_GAP = 64  # bytes behind each shared array, so that running past its end shows
OPERAND_WORDS = 16  # of 32 bits that a thread gives to an operation of its warp, and gets from it

# the status of a thread: what it waits for. From COLLECTIVE on: the module's operations of warps, in their order
READY, ENDED, BARRIER, COLLECTIVE = range(4)

# the kinds of faults; 0: none
OUT_OF_BOUNDS, MISALIGNED, DIVERGENT, MISSING_LANES, RACE, TRAP = range(1, 7)

# how an instruction accesses memory
READ, WRITE, ATOMIC = range(3)

# the name of the state's symbol, and what stands before a kernel's name in that of its launcher
STATE_SYMBOL, LAUNCH_PREFIX = "emulator.state", "emulator.launch."


class ThreadPlace(Structure):
    """A thread of the block: its number, and its threadIdx."""

    _fields_ = (("number", c_uint32), ("x", c_uint32), ("y", c_uint32), ("z", c_uint32))


class Fiber(Structure):
    """A thread of the block while it waits. stack_top never changes.

    mask: of the lanes that an operation of its warp joins, or the number of the barrier.  rounds: how many barriers of
    its warp it passed.
    """

    _fields_ = (
        ("stack_top", c_uint64),
        ("stack_pointer", c_uint64),
        ("status", c_uint32),
        ("site", c_uint32),
        ("mask", c_uint32),
        ("rounds", c_uint32),
    )


class Exchange(Structure):
    """What a thread gives to an operation of its warp, and gets. Apart from Fiber, which then fills few cache lines."""

    _fields_ = (("operands", c_uint32 * OPERAND_WORDS), ("results", c_uint32 * OPERAND_WORDS))


class Range(Structure):
    """Bytes that a kernel may access; the table is sorted by `start`."""

    _fields_ = (("start", c_uint64), ("end", c_uint64), ("writable", c_uint64))


class SharedRange(Structure):
    """A shared array. shadow: two words for each granule of it, about the last write and the last reads."""

    _fields_ = (("start", c_uint64), ("bytes", c_uint64), ("shadow", c_uint64))


class State(Structure):
    """One launch at a time. The first half is given, the second half is the emitted code's.

    first_block, block_step: block k of the launch is number (first_block + k * block_step) % blocks.
    order: a ThreadPlace for each thread of a block, in the order in which they run. seed: 0 keeps the order of threads.
    last_ranges: u32 for each site, the number of the range that it accessed last.
    place, block: of the thread that runs.  epoch: counts blocks and barriers, over all launches.
    """

    _fields_ = (
        ("grid", c_uint32 * 3),
        ("block_shape", c_uint32 * 3),
        ("blocks", c_uint64),
        ("first_block", c_uint64),
        ("block_step", c_uint64),
        ("threads", c_uint32),
        ("fill", c_uint32),
        ("seed", c_uint64),
        ("arguments", c_uint64),
        ("order", c_uint64),
        ("fibers", c_uint64),
        ("exchanges", c_uint64),
        ("stack_bytes", c_uint64),
        ("ranges", c_uint64),
        ("range_count", c_uint64),
        ("last_ranges", c_uint64),
        ("shared", c_uint64),
        ("shared_count", c_uint64),
        # the emitted code's
        ("place", ThreadPlace),
        ("block_index", c_uint32 * 3),
        ("epoch", c_uint32),
        ("block", c_uint64),
        ("fiber", c_uint64),
        ("caller_stack_pointer", c_uint64),
        # a fault, where fault is not 0
        ("fault", c_uint32),
        ("fault_site", c_uint32),
        ("fault_thread", c_uint32),
        ("other_thread", c_uint32),
        ("fault_address", c_uint64),
        ("fault_bytes", c_uint64),
        ("fault_access", c_uint32),
    )
