"""Aborting a host from a thread of Python, in as little code as possible: no LLVM may be loaded here."""

from __future__ import annotations

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.program.abi import Status
from distxla.targets.registry import wake_all


def abort(block: ControlBlock, device: int | None = None, call: int = 0) -> None:
    """Set the abort flag and wake the thread that waits for the end of the call and releases the other devices.

    device: one to be marked as gone.  call: where the header of the slice is in the control block.
    """
    if device is not None:
        block.store(control_words.R_STATE, control_words.ReplicaState.GONE, control_words.record_offset(device))
    block.store(control_words.H_ABORT, Status.ABORTED, call)
    wake_all(block.segment.address + call + control_words.H_DONE)
