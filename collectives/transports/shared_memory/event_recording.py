"""The code that writes the flight recorder (collectives/recorder.py).

The cost of an event is less its instructions than what a processor that has just switched between devices must fetch
and predict again: cache lines, calls, and above all returns. So an event is written into lines of the record that
routines use anyway, it is copied into the ring when the next one begins, and the routine is jumped to, not called: the
caller of the site counts the event when it is over (R_EVENTS).
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import event as event_words
from distxla.emit.atomics_builder import AtomicsBuilder, emitted_once
from distxla.emit.native_function import I1, I16, I32, I64, POINTER, VOID, i32, i64
from distxla.targets.code import target_of

STEP_RECORDED_FUNCTION = "distxla_step_recorded"


def emit_recorded(
    atomics: AtomicsBuilder, arguments: Sequence[ir.Value], routine: ir.Function, iterations: int, *, timed: bool
) -> None:
    """Record that the site begins, then jump to its routine with its arguments (Context*, i32 site, ..).

    iterations: the record's field with those of the loop around it.  timed: the clock is to be read at both ends.
    """
    builder = atomics.builder
    context, site = arguments[:2]
    record = atomics.context_field(context, "record")
    number = atomics.load_own(I64, record, control_words.R_EVENTS)
    _keep(atomics, context, record, number)
    exact = ir.Constant(I1, 1) if timed else _is_traced(atomics, record)
    _begin(atomics, record, number, site, iterations, exact)
    with atomics.when(exact, likely=timed):
        status = builder.call(routine, arguments)
        atomics.store(read_clock(atomics), record, control_words.R_NOW)
        builder.ret(status)
    builder.ret(builder.call(routine, arguments, tail="musttail"))


def _begin(
    atomics: AtomicsBuilder, record: ir.Value, number: ir.Value, site: ir.Value, iterations: int, exact: ir.Value
) -> None:
    """Write into the record that an event begins. exact: whether the time is to be."""
    builder, event = atomics.builder, atomics.at(record, control_words.R_EVENT)
    busy = builder.icmp_unsigned("!=", atomics.load(I32, record, control_words.R_BUSY), i32(0))
    is_turn = builder.icmp_unsigned("==", builder.and_(number, i64(event_words.LOOK_EVERY - 1)), i64(0))
    # a device that has waited earlier in the event has read the clock then
    has_not = builder.icmp_unsigned("==", atomics.load(I64, event, event_words.E_WAITED), i64(0))
    due = builder.or_(busy, builder.and_(is_turn, has_not))
    with atomics.when(builder.or_(exact, due), likely=False):
        atomics.store(i32(0), record, control_words.R_BUSY)
        atomics.store(read_clock(atomics), record, control_words.R_NOW)
    atomics.store(atomics.load(I64, record, control_words.R_NOW), event, event_words.E_BEGUN)
    atomics.store(i64(0), record, control_words.R_BEFORE)
    atomics.store(i64(0), event, event_words.E_WAITED)
    atomics.store(i64(0), record, control_words.R_ROUND)
    atomics.store(i32(0), record, control_words.R_EDGE)
    atomics.store(atomics.load(I32, record, iterations), event, event_words.E_ITERATION)
    atomics.store(
        atomics.load(I64, record, control_words.R_RUN), event, event_words.E_RUN
    )  # and R_PROGRAM in E_PROGRAM
    mark = builder.zext(builder.trunc(builder.add(number, i64(1)), I32), I64)
    mark = builder.or_(mark, builder.shl(builder.zext(site, I64), i64(32)))
    atomics.release(mark, record, control_words.R_NUMBER)  # and R_SITE


def _is_traced(atomics: AtomicsBuilder, record: ir.Value) -> ir.Value:
    """Whether a trace is taken."""
    return atomics.builder.icmp_unsigned("!=", atomics.load(I32, record, control_words.R_RING_MASK), i32(0))


def _keep(atomics: AtomicsBuilder, context: ir.Value, record: ir.Value, number: ir.Value) -> None:
    """Copy the event before, if it was a site's and has ended, from the record into the ring. number: of the next."""
    builder = atomics.builder
    mark = atomics.load_own(I32, record, control_words.R_NUMBER)
    with atomics.when(builder.icmp_unsigned("==", mark, builder.trunc(number, I32)), likely=True):
        event = atomics.at(record, control_words.R_EVENT)
        place = _place(atomics, context, record, builder.sub(number, i64(1)))
        pair = target_of(builder).pair_type
        for offset in (48, 32, 16, 0):
            loaded = atomics.load(pair, event, offset)
            loaded.align = 16
            builder.store(loaded, atomics.at(place, offset)).align = 16
        atomics.store(atomics.load(I64, record, control_words.R_NOW), place, event_words.E_ENDED)
        round_ = builder.sub(
            atomics.load(I64, record, control_words.R_ROUND), atomics.load(I64, record, control_words.R_BEFORE)
        )
        atomics.store(round_, place, event_words.E_ROUND)


def _place(atomics: AtomicsBuilder, context: ir.Value, record: ir.Value, number: ir.Value) -> ir.Value:
    """Where an event goes in the ring; readers know it to be no event now."""
    builder = atomics.builder
    ring = builder.mul(builder.zext(atomics.context_field(context, "device"), I64), i64(control_words.RECORDER_BYTES))
    ring = builder.add(ring, builder.add(atomics.load(I64, record, control_words.R_RING), i64(control_words.RECORDERS)))
    mask = builder.or_(atomics.load(I32, record, control_words.R_RING_MASK), i32(event_words.EVENTS - 1))
    within = builder.mul(builder.and_(number, builder.zext(mask, I64)), i64(event_words.EVENT_BYTES))
    place = atomics.at(atomics.context_field(context, "control"), builder.add(ring, within))
    atomics.release(i32(0), place, event_words.E_NUMBER)
    builder.fence("release")  # a reader that sees a later store sees the 0, too
    return place


@emitted_once(STEP_RECORDED_FUNCTION, VOID, [POINTER, I32, I64, I64], optimised=True, common=True)
def emit_step_recorded(atomics: AtomicsBuilder) -> None:
    """void distxla_step_recorded(Context*, i32 step, i64 begun, i64 iterations).

    Records a step that computed from `begun` until now. iterations: as for `emit_recorded`.
    """
    atomics.builder.function.attributes.add("noinline")
    context, step, begun, iterations = atomics.builder.function.args
    builder = atomics.builder
    ended = read_clock(atomics)
    record = atomics.context_field(context, "record")
    number = atomics.load_own(I64, record, control_words.R_EVENTS)
    _keep(atomics, context, record, number)
    place = _place(atomics, context, record, number)
    atomics.store(begun, place, event_words.E_BEGUN)
    atomics.store(ended, place, event_words.E_ENDED)
    atomics.store(i64(0), place, event_words.E_WAITED)
    atomics.store(i64(0), place, event_words.E_ROUND)
    atomics.store(i32(0), place, event_words.E_EDGE)
    atomics.store(atomics.load(I32, record, iterations), place, event_words.E_ITERATION)
    atomics.store(
        atomics.load(I64, record, control_words.R_RUN), place, event_words.E_RUN
    )  # and R_PROGRAM in E_PROGRAM
    atomics.store(builder.or_(step, i32(event_words.STEP)), place, event_words.E_SITE)
    count = builder.add(number, i64(1))
    atomics.release(builder.trunc(count, I32), place, event_words.E_NUMBER)
    atomics.release(count, record, control_words.R_EVENTS)
    builder.ret_void()


def note_wait(atomics: AtomicsBuilder, record: ir.Value, waits_for: ir.Value) -> None:
    """Record the device that the site is about to wait for."""
    atomics.store(i64(0), record, control_words.R_EVENT + event_words.E_RESUMED)
    atomics.store(atomics.builder.trunc(waits_for, I16), record, control_words.R_EVENT + event_words.E_WAITS_FOR)


def note_waited(atomics: AtomicsBuilder, record: ir.Value, now: ir.Value) -> None:
    """Record when its first wait began."""
    atomics.store(now, record, control_words.R_NOW)
    first = atomics.load(I64, record, control_words.R_EVENT + event_words.E_WAITED)
    since = atomics.builder.select(atomics.builder.icmp_unsigned("==", first, i64(0)), now, first)
    atomics.store(since, record, control_words.R_EVENT + event_words.E_WAITED)


def note_resumed(atomics: AtomicsBuilder, record: ir.Value, now: ir.Value) -> None:
    """Record when its wait was over."""
    atomics.store(now, record, control_words.R_NOW)
    atomics.store(now, record, control_words.R_EVENT + event_words.E_RESUMED)


def read_clock(atomics: AtomicsBuilder) -> ir.Value:
    """The cycle counter, u64."""
    return target_of(atomics.builder).emit_cycles(atomics.builder)
