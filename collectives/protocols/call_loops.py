"""The native loops on both sides of a call: a replica's serve loop, and the driver's issue-and-wait. Their interface.

Both are emitted as LLVM (transports/shared_memory/emit_call_loops.py) and linked as any program is, so that no replica
needs a compiler and no call needs Ray:

`call` is the header of the device's slice (control_block.py), which is the control block's where there are none.

    i32 distxla_serve(ptr call, ptr record, ptr programs, u32 seen)
        Runs commands for the device of `record` until CommandKind.STOP. programs: a table of (entry, Context*) by
        number. seen: the value of H_COMMAND up to which commands have been handled.
    i32 distxla_call(ptr call, u32 sequence, u32 target, i64 nanoseconds)
        Raises H_COMMAND to `sequence` if it is not there yet, wakes the replicas and waits until H_DONE has reached
        `target` (CALL_DONE), the abort flag was set (CALL_ABORTED) or the time is over or a signal came (CALL_AGAIN).

    void distxla_fault(i32 signal, siginfo_t*, void*)
        A signal handler: notes in the record that `distxla_fault_record` points to by which signal the process ends,
        and calls the handler that `distxla_fault_next` points to, if any.

A program that returns an error sets the abort flag, so that the driver learns of it at once.
"""

from __future__ import annotations

SERVE, CALL = "distxla_serve", "distxla_call"
FAULT, FAULT_RECORD, FAULT_NEXT = "distxla_fault", "distxla_fault_record", "distxla_fault_next"
CALL_DONE, CALL_ABORTED, CALL_AGAIN = 0, 1, 2
PROGRAM_ENTRY_BYTES = 16
MOST_PROGRAMS = 65536  # that a replica has loaded at once
