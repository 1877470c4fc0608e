"""Which round of the call a device is in. Counters of rounds go on from call to call; what a counter was when the call
began stands behind it (round_words.N_*)."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols import control_block as block
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.transports.shared_memory.atomics_builder import I32, I64, Words


def count_from(words: Words, record: ir.Value, counted: ir.Value, number: ir.Value) -> None:
    """A counter is about to be raised; if that is for the first time in this call, note what it is. number: that, u64.

    counted: where its N_* are.  record: the device's.
    """
    call = words.load(I32, record, block.R_CALLS)
    is_first = words.builder.icmp_unsigned("!=", words.load(I32, counted, round_words.N_CALL), call)
    with words.when(is_first, likely=False):
        words.store(call, counted, round_words.N_CALL)
        words.store(number, counted, round_words.N_BEFORE)


def note_round(words: Words, record: ir.Value, counted: ir.Value, round_: ir.Value) -> None:
    """Write into the device's record in which round it is. round_: by the counter, u64."""
    words.store(round_, record, block.R_ROUND)
    words.store(words.load(I64, counted, round_words.N_BEFORE), record, block.R_BEFORE)
