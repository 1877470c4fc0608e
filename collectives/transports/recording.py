"""The code that writes the flight recorder (collectives/recorder.py)."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives import control_block as block
from distxla.collectives import recorder
from distxla.collectives.transports.words import I32, I64, POINTER, VOID, Words, i32, i64

RECORDED_FUNCTION, STEP_RECORDED_FUNCTION = "distxla_recorded", "distxla_step_recorded"
ROUTINE_TYPE = ir.FunctionType(I32, [POINTER, I32, POINTER, POINTER])


def emit_recorded(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_recorded(Context*, i32 site, u64* operands, u64* results, ptr routine, i64 iterations).

    Calls the routine of a site and records that. iterations: the record's field with those of the loop around it.
    """
    found = llvm_module.globals.get(RECORDED_FUNCTION)
    if found is not None:
        return found
    arguments = [*ROUTINE_TYPE.args, ROUTINE_TYPE.as_pointer(), I64]
    function, words = Words.function(llvm_module, RECORDED_FUNCTION, I32, arguments, optimised=True)
    function.attributes.add("noinline")
    context, site, operands, results, routine, iterations = function.args
    builder = words.builder
    record, event = begin_event(words, context)
    offset = builder.sub(builder.ptrtoint(event, I64), builder.ptrtoint(words.context_field(context, "control"), I64))
    words.store(offset, record, block.R_EVENT)
    words.store(site, record, block.R_SITE)
    words.store(i64(0), record, block.R_ROUND)
    words.store(i32(0), record, block.R_MEETING)
    words.store(i64(0), event, recorder.E_ENDED)
    words.store(i64(0), event, recorder.E_WAITED)
    words.store(i32(0), event, recorder.E_ROUND)
    words.store(words.load(I32, record, iterations), event, recorder.E_ITERATION)
    words.store(read_clock(words), event, recorder.E_BEGUN)
    finish_event(words, record, event, site)
    status = builder.call(routine, [context, site, operands, results])
    words.store(words.load(I32, record, block.R_ROUND), event, recorder.E_ROUND)
    words.store(words.load(I32, record, block.R_MEETING), event, recorder.E_MEETING)
    with words.when(builder.icmp_unsigned("==", status, i32(0)), likely=True):
        words.store(read_clock(words), event, recorder.E_ENDED)
    builder.ret(status)
    return function


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


def note_waited(words: Words, event: ir.Value, now: ir.Value) -> None:
    """Record when its first wait began."""
    first = words.load(I64, event, recorder.E_WAITED)
    since = words.builder.select(words.builder.icmp_unsigned("==", first, i64(0)), now, first)
    words.store(since, event, recorder.E_WAITED)


def note_resumed(words: Words, event: ir.Value, now: ir.Value) -> None:
    """Record when its wait was over."""
    words.store(now, event, recorder.E_RESUMED)


def read_clock(words: Words) -> ir.Value:
    """The time-stamp counter, u64."""
    clock = words.builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(I64, []))
    return words.builder.call(clock, [])
