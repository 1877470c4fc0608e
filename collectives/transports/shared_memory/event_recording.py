"""The code that writes the flight recorder (collectives/recorder.py).

What an event costs is less its instructions than what a processor that has just switched between devices must fetch and
predict anew: cache lines, calls, and above all returns. So an event is written into lines of the record that routines
use anyway, it goes into the ring when the next one begins, and the routine is jumped to, not called: the caller of the
site counts the event when it is over (R_EVENTS).
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import control_block as block
from distxla.collectives.protocols import event as event_words
from distxla.collectives.transports.shared_memory.atomics_builder import I16, I32, I64, POINTER, VOID, Words, i32, i64
from distxla.targets.code import target_of

STEP_RECORDED_FUNCTION = "distxla_step_recorded"


def emit_recorded(
    words: Words, arguments: Sequence[ir.Value], routine: ir.Function, iterations: int, *, timed: bool
) -> None:
    """Record that the site begins, then jump to its routine with its arguments (Context*, i32 site, ..).

    iterations: the record's field with those of the loop around it.  timed: the clock is to be read at both ends.
    """
    builder = words.builder
    context, site = arguments[:2]
    record = words.context_field(context, "record")
    number = words.load_own(I64, record, block.R_EVENTS)
    _keep(words, context, record, number)
    exact = ir.Constant(ir.IntType(1), 1) if timed else _is_traced(words, record)
    _begin(words, record, number, site, iterations, exact)
    with words.when(exact, likely=timed):
        status = builder.call(routine, arguments)
        words.store(read_clock(words), record, block.R_NOW)
        builder.ret(status)
    builder.ret(builder.call(routine, arguments, tail="musttail"))


def _begin(words: Words, record: ir.Value, number: ir.Value, site: ir.Value, iterations: int, exact: ir.Value) -> None:
    """Write into the record that an event begins. exact: whether the time is to be."""
    builder, event = words.builder, words.at(record, block.R_EVENT)
    busy = builder.icmp_unsigned("!=", words.load(I32, record, block.R_BUSY), i32(0))
    is_turn = builder.icmp_unsigned("==", builder.and_(number, i64(event_words.LOOK_EVERY - 1)), i64(0))
    # who has waited in the event before has looked
    has_not = builder.icmp_unsigned("==", words.load(I64, event, event_words.E_WAITED), i64(0))
    due = builder.or_(busy, builder.and_(is_turn, has_not))
    with words.when(builder.or_(exact, due), likely=False):
        words.store(i32(0), record, block.R_BUSY)
        words.store(read_clock(words), record, block.R_NOW)
    words.store(words.load(I64, record, block.R_NOW), event, event_words.E_BEGUN)
    words.store(i64(0), record, block.R_BEFORE)
    words.store(i64(0), event, event_words.E_WAITED)
    words.store(i64(0), record, block.R_ROUND)
    words.store(i32(0), record, block.R_MEETING)
    words.store(words.load(I32, record, iterations), event, event_words.E_ITERATION)
    words.store(words.load(I64, record, block.R_RUN), event, event_words.E_RUN)  # and R_PROGRAM in E_PROGRAM
    mark = builder.zext(builder.trunc(builder.add(number, i64(1)), I32), I64)
    mark = builder.or_(mark, builder.shl(builder.zext(site, I64), i64(32)))
    words.release(mark, record, block.R_NUMBER)  # and R_SITE


def _is_traced(words: Words, record: ir.Value) -> ir.Value:
    """Whether a trace is taken."""
    return words.builder.icmp_unsigned("!=", words.load(I32, record, block.R_RING_MASK), i32(0))


def _keep(words: Words, context: ir.Value, record: ir.Value, number: ir.Value) -> None:
    """Copy the event before, if it was a site's and has ended, from the record into the ring. number: of the next."""
    builder = words.builder
    mark = words.load_own(I32, record, block.R_NUMBER)
    with words.when(builder.icmp_unsigned("==", mark, builder.trunc(number, I32)), likely=True):
        event = words.at(record, block.R_EVENT)
        place = _place(words, context, record, builder.sub(number, i64(1)))
        pair = target_of(builder).pair_type
        for offset in (48, 32, 16, 0):
            loaded = words.load(pair, event, offset)
            loaded.align = 16
            builder.store(loaded, words.at(place, offset)).align = 16
        words.store(words.load(I64, record, block.R_NOW), place, event_words.E_ENDED)
        round_ = builder.sub(words.load(I64, record, block.R_ROUND), words.load(I64, record, block.R_BEFORE))
        words.store(round_, place, event_words.E_ROUND)


def _place(words: Words, context: ir.Value, record: ir.Value, number: ir.Value) -> ir.Value:
    """Where an event goes in the ring; readers know it to be no event now."""
    builder = words.builder
    ring = builder.mul(builder.zext(words.context_field(context, "device"), I64), i64(block.RECORDER_BYTES))
    ring = builder.add(ring, builder.add(words.load(I64, record, block.R_RING), i64(block.RECORDERS)))
    mask = builder.or_(words.load(I32, record, block.R_RING_MASK), i32(event_words.EVENTS - 1))
    within = builder.mul(builder.and_(number, builder.zext(mask, I64)), i64(event_words.EVENT_BYTES))
    place = words.at(words.context_field(context, "control"), builder.add(ring, within))
    words.release(i32(0), place, event_words.E_NUMBER)
    builder.fence("release")  # a reader that sees a later store sees the 0, too
    return place


def emit_step_recorded(llvm_module: ir.Module) -> ir.Function:
    """void distxla_step_recorded(Context*, i32 step, i64 begun, i64 iterations).

    Records a step that computed from `begun` until now. iterations: as for `emit_recorded`.
    """
    found = llvm_module.globals.get(STEP_RECORDED_FUNCTION)
    if found is not None:
        return found
    function, words = Words.function(
        llvm_module, STEP_RECORDED_FUNCTION, VOID, [POINTER, I32, I64, I64], optimised=True
    )
    function.attributes.add("noinline")
    context, step, begun, iterations = function.args
    builder = words.builder
    ended = read_clock(words)
    record = words.context_field(context, "record")
    number = words.load_own(I64, record, block.R_EVENTS)
    _keep(words, context, record, number)
    place = _place(words, context, record, number)
    words.store(begun, place, event_words.E_BEGUN)
    words.store(ended, place, event_words.E_ENDED)
    words.store(i64(0), place, event_words.E_WAITED)
    words.store(i64(0), place, event_words.E_ROUND)
    words.store(i32(0), place, event_words.E_MEETING)
    words.store(words.load(I32, record, iterations), place, event_words.E_ITERATION)
    words.store(words.load(I64, record, block.R_RUN), place, event_words.E_RUN)  # and R_PROGRAM in E_PROGRAM
    words.store(builder.or_(step, i32(event_words.STEP)), place, event_words.E_SITE)
    count = builder.add(number, i64(1))
    words.release(builder.trunc(count, I32), place, event_words.E_NUMBER)
    words.release(count, record, block.R_EVENTS)
    builder.ret_void()
    return function


def note_wait(words: Words, record: ir.Value, waits_for: ir.Value) -> None:
    """Record for whom the site is about to wait."""
    words.store(i64(0), record, block.R_EVENT + event_words.E_RESUMED)
    words.store(words.builder.trunc(waits_for, I16), record, block.R_EVENT + event_words.E_WAITS_FOR)


def note_waited(words: Words, record: ir.Value, now: ir.Value) -> None:
    """Record when its first wait began."""
    words.store(now, record, block.R_NOW)
    first = words.load(I64, record, block.R_EVENT + event_words.E_WAITED)
    since = words.builder.select(words.builder.icmp_unsigned("==", first, i64(0)), now, first)
    words.store(since, record, block.R_EVENT + event_words.E_WAITED)


def note_resumed(words: Words, record: ir.Value, now: ir.Value) -> None:
    """Record when its wait was over."""
    words.store(now, record, block.R_NOW)
    words.store(now, record, block.R_EVENT + event_words.E_RESUMED)


def read_clock(words: Words) -> ir.Value:
    """The cycle counter, u64."""
    return target_of(words.builder).emit_cycles(words.builder)
