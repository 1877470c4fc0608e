"""The serve loop and the driver's call, emitted; collectives/protocols/call_loops.py describes them.

Where cores are to spare, both sides spin before they sleep. That does not pay where other processes use the cores: the
one that spins may even have the core that the other side needs. So a side that has spun in vain sleeps at once in its
next waits: in 64, then in twice as many each time, until spinning pays again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.call_loops import (
    CALL,
    CALL_ABORTED,
    CALL_AGAIN,
    CALL_DONE,
    FAULT,
    FAULT_NEXT,
    FAULT_RECORD,
    PROGRAM_ENTRY_BYTES,
    SERVE,
)
from distxla.collectives.transports.shared_memory.event_recording import read_clock
from distxla.collectives.transports.shared_memory.proxy_reduce import emit_reduce_run
from distxla.collectives.transports.shared_memory.wait_and_wake import ALL_SLEEPERS
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, POINTER, VOID, i32, i64, load_function
from distxla.ir.counts import Counts
from distxla.program.artifact import CompiledProgram
from distxla.targets.code import CodeModule, target_of
from distxla.targets.registry import native_target

CALL_SPINS = 20_000  # about 0.3 ms: longer than a driver needs between two calls of a loop
FIRST_PENALTY, LAST_PENALTY = 64, 8192  # waits
ETIMEDOUT, EINTR = 110, 4


def compile_call_loops() -> CompiledProgram:
    """Emit and link both loops: about 50 ms, and the first use of LLVM in a process. Needs llvmlite."""
    code = native_target().code
    module = CodeModule("distxla_support", code)
    emit_serve(module)
    emit_call(module)
    _emit_fault(module)
    emit_reduce_run(module)
    parsed = code.parse(module)
    code.optimise(parsed)
    image = code.link([code.emit_object(parsed)])
    return CompiledProgram(
        name="support",
        image=image,
        counts=Counts(1, 1),
        target=code.name,
    )


def emit_serve(module: ir.Module) -> None:
    function, atomics = AtomicsBuilder.function(
        module, SERVE, I32, [POINTER, POINTER, POINTER, I32], internal=False, optimised=True
    )
    call, record, programs, first = function.args
    builder = atomics.builder
    seen, status, time = builder.alloca(I32), builder.alloca(I32), builder.alloca(I64, size=2)
    skip, penalty = builder.alloca(I32), builder.alloca(I32)
    atomics.store(first, seen)
    atomics.store(i32(0), skip)
    atomics.store(i32(0), penalty)
    _note_time(atomics, record, _nanoseconds(atomics, time), 0)
    with atomics.forever() as stopped:
        atomics.store(_next_command(atomics, call, atomics.load(I32, seen), skip, penalty), seen)
        mine = builder.icmp_unsigned(
            "==", atomics.load(I32, record, control_words.R_COMMAND_SEQUENCE), atomics.load(I32, seen)
        )
        with atomics.when(mine):
            kind = atomics.load_own(I32, record, control_words.R_COMMAND_KIND)
            atomics.leave_if(builder.icmp_unsigned("==", kind, i32(control_words.CommandKind.STOP)), stopped)
            number = atomics.load(I32, record, control_words.R_COMMAND_PROGRAM)
            atomics.store(number, record, control_words.R_PROGRAM)
            _forget_failed(atomics, record)
            row = atomics.at(programs, builder.mul(builder.zext(number, I64), i64(PROGRAM_ENTRY_BYTES)))
            context = atomics.load(POINTER, row, 8)
            atomics.release(i32(control_words.ReplicaState.RUNNING), record, control_words.R_STATE)
            start = _nanoseconds(atomics, time)
            _note_time(atomics, record, start, 1)
            atomics.store(i32(1), record, control_words.R_BUSY)
            atomics.store(i32(0), status)
            atomics.store(atomics.load(I32, record, control_words.R_RUN), record, control_words.R_RUNS_BEFORE)
            atomics.store(atomics.load(I32, seen), record, control_words.R_SERVED)
            repeat = atomics.load(I32, record, control_words.R_COMMAND_REPEAT)
            with atomics.count(i64(0), builder.zext(repeat, I64)), _while_fine(atomics, status):
                atomics.store(
                    builder.add(atomics.load(I32, record, control_words.R_RUN), i32(1)), record, control_words.R_RUN
                )
                atomics.store(_call_pointer(builder, row, I32, [context]), status)
            end = _nanoseconds(atomics, time)
            _note_time(atomics, record, end, 1)
            atomics.store(builder.sub(end, start), record, control_words.R_RUN_NS)
            _finish(atomics, call, record, atomics.load(I32, status))
    builder.ret(i32(0))


def _forget_failed(atomics: AtomicsBuilder, record: ir.Value) -> None:
    """The event in which the device failed in an earlier call goes into no ring."""
    number, count = (atomics.load_own(I32, record, word) for word in (control_words.R_NUMBER, control_words.R_EVENTS))
    with atomics.when(atomics.builder.icmp_unsigned("!=", number, count)):
        atomics.store(i32(0), record, control_words.R_NUMBER)


def _while_fine(atomics: AtomicsBuilder, status: ir.Value) -> AbstractContextManager[None]:
    """The with-body runs where no run before it has failed."""
    return atomics.when(atomics.builder.icmp_unsigned("==", atomics.load(I32, status), i32(0)))


def _call_pointer(builder: ir.IRBuilder, slot: ir.Value, result: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
    """Call the function whose address is in *slot."""
    callee = load_function(builder, slot, result, [argument.type for argument in arguments], "callee")
    return builder.call(callee, arguments)


def _spins(atomics: AtomicsBuilder, call: ir.Value, skip: ir.Value) -> ir.Value:
    """How often to spin: not at all where devices need all cores, or spinning has not paid."""
    builder = atomics.builder
    cores, devices = (atomics.load(I32, call, word) for word in (control_words.H_CORES, control_words.H_HERE))
    left = atomics.load(I32, skip)
    skips = builder.icmp_unsigned("!=", left, i32(0))
    atomics.store(builder.select(skips, builder.sub(left, i32(1)), left), skip)
    may = builder.and_(builder.icmp_unsigned("<", devices, cores), builder.not_(skips))
    return builder.select(may, i64(CALL_SPINS), i64(0))


def _back_off(atomics: AtomicsBuilder, skip: ir.Value, penalty: ir.Value) -> None:
    """It has spun in vain."""
    builder, before = atomics.builder, atomics.load(I32, penalty)
    more = builder.shl(before, i32(1))
    more = builder.select(builder.icmp_unsigned("<", more, i32(FIRST_PENALTY)), i32(FIRST_PENALTY), more)
    more = builder.select(builder.icmp_unsigned(">", more, i32(LAST_PENALTY)), i32(LAST_PENALTY), more)
    atomics.store(more, penalty)
    atomics.store(more, skip)


def _next_command(
    atomics: AtomicsBuilder, call: ir.Value, seen: ir.Value, skip: ir.Value, penalty: ir.Value
) -> ir.Value:
    """Wait until H_COMMAND differs from `seen`: spin, then sleep."""
    builder = atomics.builder
    command = atomics.at(call, control_words.H_COMMAND)
    spins = _spins(atomics, call, skip)
    with builder.goto_entry_block():  # not in the loop, where each pass would take more stack
        left = builder.alloca(I64)
    atomics.store(spins, left)
    with atomics.forever() as spun:
        atomics.leave_if(builder.icmp_unsigned("!=", atomics.acquire(command), seen), spun)
        count = atomics.load(I64, left)
        atomics.leave_if(builder.icmp_signed("<=", count, i64(0)), spun)
        atomics.store(builder.sub(count, i64(1)), left)
        target_of(builder).emit_spin(builder)
    has_spun = builder.icmp_unsigned("!=", spins, i64(0))
    in_vain = builder.icmp_signed("<=", atomics.load(I64, left), i64(0))
    with atomics.when(builder.and_(has_spun, in_vain)):
        _back_off(atomics, skip, penalty)
    with atomics.when(builder.and_(has_spun, builder.not_(in_vain))):
        atomics.store(i32(0), penalty)
    with atomics.forever() as awake:
        atomics.leave_if(builder.icmp_unsigned("!=", atomics.acquire(command), seen), awake)
        target_of(builder).emit_sleep(builder, command, seen)
    return atomics.acquire(command)


def _nanoseconds(atomics: AtomicsBuilder, time: ir.Value) -> ir.Value:
    builder = atomics.builder
    target_of(builder).emit_monotonic(builder, time)
    return builder.add(builder.mul(atomics.load(I64, time), i64(1_000_000_000)), atomics.load(I64, time, 8))


def _note_time(atomics: AtomicsBuilder, record: ir.Value, nanoseconds: ir.Value, moment: int) -> None:
    """Write the time of both clocks, for readers of the flight recorder. moment: 0 or 1 in R_CLOCK."""
    atomics.store(read_clock(atomics), record, control_words.R_CLOCK + 16 * moment)
    atomics.store(nanoseconds, record, control_words.R_CLOCK + 16 * moment + 8)


def _finish(atomics: AtomicsBuilder, call: ir.Value, record: ir.Value, status: ir.Value) -> None:
    """Report the call's end; the last device, or one with an error, wakes the driver."""
    builder = atomics.builder
    failed = builder.icmp_unsigned("!=", status, i32(0))
    atomics.store(status, record, control_words.R_STATUS)
    calls = atomics.at(record, control_words.R_CALLS)
    atomics.store(builder.add(atomics.load(I64, calls), i64(1)), calls)
    state = builder.select(failed, i32(control_words.ReplicaState.FAILED), i32(control_words.ReplicaState.IDLE))
    atomics.release(state, record, control_words.R_STATE)
    with atomics.when(failed):
        atomics.sequential_store(status, call, control_words.H_ABORT)
    atomics.release(i32(control_words.CommandKind.NONE), record, control_words.R_COMMAND_KIND)
    target = atomics.load(I32, call, control_words.H_DONE_TARGET)
    done = atomics.at(call, control_words.H_DONE)
    mine = builder.add(atomics.fetch_add(1, done), i32(1))
    with atomics.when(builder.or_(failed, builder.icmp_unsigned("==", mine, target))):
        target_of(builder).emit_wake(builder, done, i32(ALL_SLEEPERS))


def emit_call(module: ir.Module) -> None:
    function, atomics = AtomicsBuilder.function(
        module, CALL, I32, [POINTER, I32, I32, I64], internal=False, optimised=True
    )
    call, sequence, target, nanoseconds = function.args
    builder = atomics.builder
    command = atomics.at(call, control_words.H_COMMAND)
    with atomics.when(builder.icmp_unsigned("!=", atomics.acquire(command), sequence)):
        atomics.sequential_store(sequence, command)
        target_of(builder).emit_wake(builder, command, i32(ALL_SLEEPERS))
    await_done(atomics, call, target, nanoseconds)


def await_done(atomics: AtomicsBuilder, call: ir.Value, target: ir.Value, nanoseconds: ir.Value) -> None:
    """Wait for the call in flight, as CALL does once it has begun it; ends the function."""
    builder = atomics.builder
    done = atomics.at(call, control_words.H_DONE)
    with builder.goto_entry_block():
        timeout, left = builder.alloca(I64, size=2), builder.alloca(I64)
    atomics.store(builder.sdiv(nanoseconds, i64(1_000_000_000)), timeout)
    atomics.store(builder.srem(nanoseconds, i64(1_000_000_000)), timeout, 8)
    skip, penalty = (atomics.at(call, word) for word in (control_words.H_SPIN_SKIP, control_words.H_SPIN_PENALTY))
    spins = _spins(atomics, call, skip)
    has_spun = builder.icmp_unsigned("!=", spins, i64(0))
    atomics.store(spins, left)
    with atomics.forever():
        finished = atomics.acquire(done)
        with atomics.when(builder.icmp_signed(">=", builder.sub(finished, target), i32(0)), likely=False):
            now = atomics.load(I64, left)
            paid = builder.and_(builder.icmp_signed(">=", now, i64(0)), builder.icmp_signed("<", now, spins))
            with atomics.when(paid):
                atomics.store(i32(0), penalty)
            builder.ret(i32(CALL_DONE))
        aborted = atomics.acquire(call, control_words.H_ABORT)
        atomics.return_if(builder.icmp_unsigned("!=", aborted, i32(0)), i32(CALL_ABORTED))
        count = atomics.load(I64, left)
        atomics.store(builder.sub(count, i64(1)), left)
        target_of(builder).emit_spin(builder)
        with atomics.when(builder.icmp_signed("<=", count, i64(0))):
            with atomics.when(builder.and_(has_spun, builder.icmp_unsigned("==", count, i64(0)))):
                _back_off(atomics, skip, penalty)
            result = target_of(builder).emit_sleep(builder, done, finished, timeout)
            expired = builder.icmp_signed("==", result, i64(-ETIMEDOUT))
            atomics.return_if(expired, i32(CALL_AGAIN))
            atomics.return_if(builder.icmp_signed("==", result, i64(-EINTR)), i32(CALL_AGAIN))
    builder.unreachable()


def _emit_fault(module: ir.Module) -> None:
    """The signal handler; it calls nothing but the handler that was there before, so that it may run anywhere."""
    place, earlier = ir.GlobalVariable(module, POINTER, FAULT_RECORD), ir.GlobalVariable(module, POINTER, FAULT_NEXT)
    place.initializer = earlier.initializer = ir.Constant(POINTER, None)
    function, atomics = AtomicsBuilder.function(
        module, FAULT, VOID, [I32, POINTER, POINTER], internal=False, optimised=True
    )
    number, information, interrupted = function.args
    record = atomics.load(POINTER, place)
    atomics.store(
        atomics.load(I64, information, target_of(atomics.builder).fault_address_offset), record, control_words.R_FAULT
    )
    atomics.store(number, record, control_words.R_SIGNAL)
    builder = atomics.builder
    with builder.if_then(builder.icmp_unsigned("!=", atomics.load(POINTER, earlier), POINTER(None))):
        _call_pointer(builder, earlier, VOID, [number, information, interrupted])
    builder.ret_void()
