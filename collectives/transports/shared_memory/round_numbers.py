"""Which round of the call a device is in. Counters of rounds go on from call to call; the value of a counter when the
call began is in the word after it (round_words.N_*)."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import rounds as round_words
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64


def count_from(atomics: AtomicsBuilder, record: ir.Value, counted: ir.Value, number: ir.Value) -> None:
    """A counter is about to be raised; if that is for the first time in this call, note its value. number: that, u64.

    counted: where its N_* are.  record: the device's.
    """
    call = atomics.load(I32, record, control_words.R_CALLS)
    is_first = atomics.builder.icmp_unsigned("!=", atomics.load(I32, counted, round_words.N_CALL), call)
    with atomics.when(is_first, likely=False):
        atomics.store(call, counted, round_words.N_CALL)
        atomics.store(number, counted, round_words.N_BEFORE)


def note_round(atomics: AtomicsBuilder, record: ir.Value, counted: ir.Value, round_: ir.Value) -> None:
    """Write into the device's record in which round it is. round_: by the counter, u64."""
    atomics.store(round_, record, control_words.R_ROUND)
    atomics.store(atomics.load(I64, counted, round_words.N_BEFORE), record, control_words.R_BEFORE)
