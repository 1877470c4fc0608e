"""The serve loop and the driver's call, emitted: see collectives/protocols/call_loops.py for what they do."""

from __future__ import annotations

from contextlib import AbstractContextManager

from llvmlite import ir

from distxla.collectives.protocols import control_block as block
from distxla.collectives.protocols.call_loops import (
    CALL,
    CALL_AGAIN,
    CALL_DONE,
    CALL_POISONED,
    FAULT,
    FAULT_RECORD,
    PROGRAM_ENTRY_BYTES,
    SERVE,
)
from distxla.collectives.transports.shared_memory.atomics_builder import I32, I64, POINTER, VOID, Words, i32, i64
from distxla.collectives.transports.shared_memory.event_recording import read_clock
from distxla.collectives.transports.shared_memory.proxy_reduce import emit_fold_run
from distxla.collectives.transports.shared_memory.shared_word_functions import emit_shared_access
from distxla.collectives.transports.shared_memory.wait_and_wake import EVERYBODY
from distxla.compiler.artifact import CompiledProgram
from distxla.ir.shape import Shape
from distxla.targets.code import CodeModule, target_of
from distxla.targets.registry import native_target

SPINS = 20_000  # about 0.3 ms: longer than a driver needs between two calls of a loop
ETIMEDOUT, EINTR = 110, 4


def compile_call_loops() -> CompiledProgram:
    """Emit and link both loops: about 50 ms, and the first use of LLVM in a process. Needs llvmlite."""
    code = native_target().code
    module = CodeModule("distxla_support", code)
    _emit_serve(module)
    _emit_call(module)
    _emit_fault(module)
    emit_fold_run(module)
    emit_shared_access(module)
    parsed = code.parse(module)
    code.optimise(parsed)
    image = code.link(code.emit_object(parsed))
    return CompiledProgram(
        name="support",
        image=image.data,
        symbols=image.symbols,
        imports=image.imports,
        imports_offset=image.imports_offset,
        code_bytes=image.code_bytes,
        replicas=1,
        partitions=1,
        parameters=(),
        result=Shape.tuple(()),
        arena_bytes=0,
        sites=(),
        communicators=(),
        timings={},
        target=code.name,
    )


def _emit_serve(module: ir.Module) -> None:
    function, words = Words.function(
        module, SERVE, I32, [POINTER, POINTER, POINTER, I32], internal=False, optimised=True
    )
    control, record, programs, first = function.args
    builder = words.builder
    seen, status, time = builder.alloca(I32), builder.alloca(I32), builder.alloca(I64, size=2)
    words.store(first, seen)
    _note_time(words, record, _nanoseconds(words, time), 0)
    with words.forever() as stopped:
        words.store(_next_command(words, control, words.load(I32, seen)), seen)
        mine = builder.icmp_unsigned("==", words.load(I32, record, block.R_COMMAND_SEQUENCE), words.load(I32, seen))
        with words.when(mine):
            kind = words.load_own(I32, record, block.R_COMMAND_KIND)
            words.leave_if(builder.icmp_unsigned("==", kind, i32(block.CommandKind.STOP)), stopped)
            number = words.load(I32, record, block.R_COMMAND_PROGRAM)
            words.store(number, record, block.R_PROGRAM)
            _forget_failed(words, record)
            row = words.at(programs, builder.mul(builder.zext(number, I64), i64(PROGRAM_ENTRY_BYTES)))
            context = words.load(POINTER, row, 8)
            words.release(i32(block.DeviceState.RUNNING), record, block.R_STATE)
            start = _nanoseconds(words, time)
            _note_time(words, record, start, 1)
            words.store(i32(1), record, block.R_BUSY)
            words.store(i32(0), status)
            words.store(words.load(I32, record, block.R_RUN), record, block.R_RUNS_BEFORE)
            words.store(words.load(I32, seen), record, block.R_SERVED)
            repeat = words.load(I32, record, block.R_COMMAND_REPEAT)
            with words.count(i64(0), builder.zext(repeat, I64)), _while_fine(words, status):
                words.store(builder.add(words.load(I32, record, block.R_RUN), i32(1)), record, block.R_RUN)
                words.store(_call_pointer(builder, row, context), status)
            end = _nanoseconds(words, time)
            _note_time(words, record, end, 1)
            words.store(builder.sub(end, start), record, block.R_RUN_NS)
            _finish(words, control, record, words.load(I32, status))
    builder.ret(i32(0))


def _forget_failed(words: Words, record: ir.Value) -> None:
    """The event in which the device failed in an earlier call goes into no ring."""
    number, count = (words.load_own(I32, record, word) for word in (block.R_NUMBER, block.R_EVENTS))
    with words.when(words.builder.icmp_unsigned("!=", number, count)):
        words.store(i32(0), record, block.R_NUMBER)


def _while_fine(words: Words, status: ir.Value) -> AbstractContextManager[None]:
    """The with-body runs where no run before it has failed."""
    return words.when(words.builder.icmp_unsigned("==", words.load(I32, status), i32(0)))


def _call_pointer(builder: ir.IRBuilder, slot: ir.Value, context: ir.Value) -> ir.Value:
    """Call the `i32 (Context*)` whose address is in *slot; llvmlite asks the loaded value for its callee type."""

    class Entry(ir.instructions.LoadInstr):  # type: ignore[misc]
        """A loaded pointer that is called as an entry function."""

        @property
        def function_type(self) -> ir.FunctionType:
            return ir.FunctionType(I32, [POINTER])

    entry = Entry(builder.block, slot, "entry", typ=POINTER)
    builder._insert(entry)
    return builder.call(entry, [context])


def _next_command(words: Words, control: ir.Value, seen: ir.Value) -> ir.Value:
    """Wait until H_COMMAND differs from `seen`: spin where cores are to spare, then sleep."""
    builder = words.builder
    command = words.at(control, block.H_COMMAND)
    cores, devices = words.load(I32, control, block.H_CORES), words.load(I32, control, block.H_HERE)
    spins = builder.select(builder.icmp_unsigned("<", devices, cores), i64(SPINS), i64(0))
    with builder.goto_entry_block():  # not in the loop, where each pass would take more stack
        left = builder.alloca(I64)
    words.store(spins, left)
    with words.forever() as spun:
        words.leave_if(builder.icmp_unsigned("!=", words.acquire(command), seen), spun)
        count = words.load(I64, left)
        words.leave_if(builder.icmp_signed("<=", count, i64(0)), spun)
        words.store(builder.sub(count, i64(1)), left)
        target_of(builder).emit_spin(builder)
    with words.forever() as awake:
        words.leave_if(builder.icmp_unsigned("!=", words.acquire(command), seen), awake)
        target_of(builder).emit_sleep(builder, command, seen)
    return words.acquire(command)


def _nanoseconds(words: Words, time: ir.Value) -> ir.Value:
    builder = words.builder
    target_of(builder).emit_monotonic(builder, time)
    return builder.add(builder.mul(words.load(I64, time), i64(1_000_000_000)), words.load(I64, time, 8))


def _note_time(words: Words, record: ir.Value, nanoseconds: ir.Value, moment: int) -> None:
    """Write what both clocks say now, for readers of the flight recorder. moment: 0 or 1 in R_CLOCK."""
    words.store(read_clock(words), record, block.R_CLOCK + 16 * moment)
    words.store(nanoseconds, record, block.R_CLOCK + 16 * moment + 8)


def _finish(words: Words, control: ir.Value, record: ir.Value, status: ir.Value) -> None:
    """Report the call's end; the last device, or one with an error, wakes the driver."""
    builder = words.builder
    failed = builder.icmp_unsigned("!=", status, i32(0))
    words.store(status, record, block.R_STATUS)
    calls = words.at(record, block.R_CALLS)
    words.store(builder.add(words.load(I64, calls), i64(1)), calls)
    state = builder.select(failed, i32(block.DeviceState.FAILED), i32(block.DeviceState.IDLE))
    words.release(state, record, block.R_STATE)
    with words.when(failed):
        words.sequential_store(status, control, block.H_POISON)
    words.release(i32(block.CommandKind.NONE), record, block.R_COMMAND_KIND)
    target = words.load(I32, control, block.H_DONE_TARGET)
    done = words.at(control, block.H_DONE)
    mine = builder.add(words.fetch_add(1, done), i32(1))
    with words.when(builder.or_(failed, builder.icmp_unsigned("==", mine, target))):
        target_of(builder).emit_wake(builder, done, i32(EVERYBODY))


def _emit_call(module: ir.Module) -> None:
    function, words = Words.function(module, CALL, I32, [POINTER, I32, I32, I64], internal=False, optimised=True)
    control, sequence, target, nanoseconds = function.args
    builder = words.builder
    command, done = words.at(control, block.H_COMMAND), words.at(control, block.H_DONE)
    timeout = builder.alloca(I64, size=2)
    words.store(builder.sdiv(nanoseconds, i64(1_000_000_000)), timeout)
    words.store(builder.srem(nanoseconds, i64(1_000_000_000)), timeout, 8)
    with words.when(builder.icmp_unsigned("!=", words.acquire(command), sequence)):
        words.sequential_store(sequence, command)
        target_of(builder).emit_wake(builder, command, i32(EVERYBODY))
    cores, devices = words.load(I32, control, block.H_CORES), words.load(I32, control, block.H_HERE)
    left = builder.alloca(I64)
    words.store(builder.select(builder.icmp_unsigned("<", devices, cores), i64(SPINS), i64(0)), left)
    with words.forever():
        finished = words.acquire(done)
        words.return_if(builder.icmp_signed(">=", builder.sub(finished, target), i32(0)), i32(CALL_DONE))
        poison = words.acquire(control, block.H_POISON)
        words.return_if(builder.icmp_unsigned("!=", poison, i32(0)), i32(CALL_POISONED))
        count = words.load(I64, left)
        words.store(builder.sub(count, i64(1)), left)
        target_of(builder).emit_spin(builder)
        with words.when(builder.icmp_signed("<=", count, i64(0))):
            result = target_of(builder).emit_sleep(builder, done, finished, timeout)
            expired = builder.icmp_signed("==", result, i64(-ETIMEDOUT))
            words.return_if(expired, i32(CALL_AGAIN))
            words.return_if(builder.icmp_signed("==", result, i64(-EINTR)), i32(CALL_AGAIN))
    builder.unreachable()


def _emit_fault(module: ir.Module) -> None:
    """The signal handler; it calls nothing, so that it may run anywhere."""
    place = ir.GlobalVariable(module, POINTER, FAULT_RECORD)
    place.initializer = ir.Constant(POINTER, None)
    function, words = Words.function(module, FAULT, VOID, [I32, POINTER, POINTER], internal=False, optimised=True)
    number, information, _ = function.args
    record = words.load(POINTER, place)
    words.store(words.load(I64, information, target_of(words.builder).fault_address_offset), record, block.R_FAULT)
    words.store(number, record, block.R_SIGNAL)
    words.builder.ret_void()
