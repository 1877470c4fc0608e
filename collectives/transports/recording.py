"""The code that writes the flight recorder (collectives/recorder.py)."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives import control_block as block
from distxla.collectives import recorder
from distxla.collectives.transports.words import I32, I64, POINTER, VOID, Words, i32, i64

BEGIN_FUNCTION, END_FUNCTION = "distxla_record_begin", "distxla_record_end"
STEP_RECORDED_FUNCTION = "distxla_step_recorded"


def emit_recorded(
    words: Words, arguments: Sequence[ir.Value], routine: ir.Function, iterations: int, *, timed: bool
) -> ir.Value:
    """Call the routine of a site with its arguments (Context*, i32 site, ..) and record that; its status.

    iterations: the record's field with those of the loop around it.  timed: the clock is to be read at both ends.
    """
    builder = words.builder
    llvm_module = builder.module
    context, site = arguments[:2]
    # Direct calls: a processor that switches between devices predicts others badly.
    event = builder.call(_emit_begin(llvm_module), [context, site, i64(iterations), i32(timed)])
    status = builder.call(routine, arguments)
    builder.call(_emit_end(llvm_module), [context, event, i32(timed), status])
    return status


def _emit_begin(llvm_module: ir.Module) -> ir.Function:
    """ptr distxla_record_begin(Context*, i32 site, i64 iterations, i32 timed): the event."""
    found = llvm_module.globals.get(BEGIN_FUNCTION)
    if found is not None:
        return found
    function, words = Words.function(llvm_module, BEGIN_FUNCTION, POINTER, [POINTER, I32, I64, I32], optimised=True)
    function.attributes.add("noinline")
    context, site, iterations, timed = function.args
    builder = words.builder
    record, event = begin_event(words, context)
    offset = builder.sub(builder.ptrtoint(event, I64), builder.ptrtoint(words.context_field(context, "control"), I64))
    words.store(offset, record, block.R_EVENT)
    words.store(site, record, block.R_SITE)
    words.store(i64(0), record, block.R_ROUND)
    words.store(i64(0), record, block.R_BEFORE)
    words.store(i32(0), record, block.R_MEETING)
    words.store(i64(0), event, recorder.E_ENDED)
    words.store(i64(0), event, recorder.E_WAITED)
    words.store(i32(0), event, recorder.E_ROUND)
    words.store(words.load(I32, record, iterations), event, recorder.E_ITERATION)
    timed = builder.or_(timed, words.load(I32, record, block.R_RING_MASK))
    is_turn = builder.and_(words.load(I32, record, block.R_EVENTS), i32(recorder.LOOK_EVERY - 1))
    due = builder.or_(builder.or_(timed, words.load(I32, record, block.R_BUSY)), _is_zero(words, is_turn))
    with words.when(builder.icmp_unsigned("!=", due, i32(0)), likely=False):
        words.store(i32(0), record, block.R_BUSY)
        words.store(read_clock(words), record, block.R_NOW)
    words.store(words.load(I64, record, block.R_NOW), event, recorder.E_BEGUN)
    finish_event(words, record, event, site)
    builder.ret(event)
    return function


def _emit_end(llvm_module: ir.Module) -> ir.Function:
    """void distxla_record_end(Context*, ptr event, i32 timed, i32 status)."""
    found = llvm_module.globals.get(END_FUNCTION)
    if found is not None:
        return found
    function, words = Words.function(llvm_module, END_FUNCTION, VOID, [POINTER, POINTER, I32, I32], optimised=True)
    function.attributes.add("noinline")
    context, event, timed, status = function.args
    builder = words.builder
    record = words.context_field(context, "record")
    round_ = builder.sub(words.load(I32, record, block.R_ROUND), words.load(I32, record, block.R_BEFORE))
    words.store(round_, event, recorder.E_ROUND)
    words.store(words.load(I32, record, block.R_MEETING), event, recorder.E_MEETING)
    timed = builder.or_(timed, words.load(I32, record, block.R_RING_MASK))
    with words.when(builder.icmp_unsigned("!=", timed, i32(0)), likely=False):
        words.store(read_clock(words), record, block.R_NOW)
    with words.when(builder.icmp_unsigned("==", status, i32(0)), likely=True):
        words.store(words.load(I64, record, block.R_NOW), event, recorder.E_ENDED)
    builder.ret_void()
    return function


def _is_zero(words: Words, value: ir.Value) -> ir.Value:
    """1 or 0, i32."""
    return words.builder.zext(words.builder.icmp_unsigned("==", value, i32(0)), I32)


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
    record, event = begin_event(words, context)
    words.store(begun, event, recorder.E_BEGUN)
    words.store(ended, event, recorder.E_ENDED)
    words.store(i64(0), event, recorder.E_WAITED)
    words.store(i64(0), event, recorder.E_ROUND)  # and E_MEETING
    words.store(words.load(I32, record, iterations), event, recorder.E_ITERATION)
    finish_event(words, record, event, builder.or_(step, i32(recorder.STEP)))
    builder.ret_void()
    return function


def begin_event(words: Words, context: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The device's record, and the place of its next event, which readers know to be no event now."""
    builder = words.builder
    record = words.context_field(context, "record")
    place = builder.mul(builder.zext(words.context_field(context, "device"), I64), i64(block.RECORDER_BYTES))
    place = builder.add(place, builder.add(words.load(I64, record, block.R_RING), i64(block.RECORDERS)))
    mask = builder.or_(words.load(I32, record, block.R_RING_MASK), i32(recorder.EVENTS - 1))
    number = builder.trunc(words.load(I64, record, block.R_EVENTS), I32)
    within = builder.mul(builder.zext(builder.and_(number, mask), I64), i64(recorder.EVENT_BYTES))
    event = words.at(words.context_field(context, "control"), builder.add(place, within))
    words.release(i32(0), event, recorder.E_NUMBER)
    return record, event


def finish_event(words: Words, record: ir.Value, event: ir.Value, site: ir.Value) -> None:
    """Fill in who has written the event, and make it one."""
    builder = words.builder
    words.store(site, event, recorder.E_SITE)
    words.store(words.load(I32, record, block.R_PROGRAM), event, recorder.E_PROGRAM)
    words.store(words.load(I32, record, block.R_RUN), event, recorder.E_RUN)
    count = builder.add(words.load(I64, record, block.R_EVENTS), i64(1))
    words.release(builder.trunc(count, I32), event, recorder.E_NUMBER)
    words.store(count, record, block.R_EVENTS)


def note_wait(words: Words, context: ir.Value, waits_for: ir.Value) -> ir.Value:
    """Record for whom the site is about to wait; its event."""
    control, record = words.context_field(context, "control"), words.context_field(context, "record")
    event = words.at(control, words.load(I64, record, block.R_EVENT))
    words.store(i64(0), event, recorder.E_RESUMED)
    words.store(waits_for, event, recorder.E_WAITS_FOR)
    return event


def note_waited(words: Words, record: ir.Value, event: ir.Value, now: ir.Value) -> None:
    """Record when its first wait began."""
    words.store(now, record, block.R_NOW)
    first = words.load(I64, event, recorder.E_WAITED)
    since = words.builder.select(words.builder.icmp_unsigned("==", first, i64(0)), now, first)
    words.store(since, event, recorder.E_WAITED)


def note_resumed(words: Words, record: ir.Value, event: ir.Value, now: ir.Value) -> None:
    """Record when its wait was over."""
    words.store(now, record, block.R_NOW)
    words.store(now, event, recorder.E_RESUMED)


def read_clock(words: Words) -> ir.Value:
    """The time-stamp counter, u64."""
    clock = words.builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(I64, []))
    return words.builder.call(clock, [])
