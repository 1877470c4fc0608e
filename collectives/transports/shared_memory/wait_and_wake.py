"""Sleeping on a word of shared memory and waking sleepers: emitted once a module. Releases: transport.py.

How a device waits. It yields the core a few times, then sleeps on the word. Where devices outnumber cores, a yield
lets the very peers run that it waits for; a barrier of 8 on 2 cores takes 5 us instead of 25 to 40. But where another
process competes for the core, a yield costs a time slice (1.5 ms a barrier was measured), so a wait whose yields took
long makes the device sleep at once for its next waits: 64 of them, then twice as many each time, until yielding pays
again. Where cores outnumber devices it spins instead.

Before it sleeps it writes into its record what it waits on, then checks the abort flag; it checks again after every
wake. The thread that aborts sets the abort flag first and then wakes every WAITING device's word until none is WAITING,
so a device that was between its check and its sleep is woken by a later sweep.
"""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.injection_point import emit_inside_wait
from distxla.collectives.transports.shared_memory.event_recording import (
    note_resumed,
    note_wait,
    note_waited,
    read_clock,
)
from distxla.emit.atomics_builder import AtomicsBuilder, emitted_once
from distxla.emit.native_function import I32, I64, POINTER, VOID, i32, i64
from distxla.program.abi import Status
from distxla.targets.code import target_of

ALL_SLEEPERS = 0x7FFFFFFF

YIELDS = 8
WAIT_SPINS = 4000  # about 40 to 60 us
SLOW_YIELDS_US = 160  # longer than any switch between peers
FIRST_PENALTY, LAST_PENALTY = 64, 8192  # waits

WAIT_FUNCTION, WAKE_FUNCTION = "distxla_wait", "distxla_wake"


@emitted_once(WAKE_FUNCTION, VOID, [POINTER, POINTER, I32], common=True)
def emit_wake(atomics: AtomicsBuilder) -> None:
    """void distxla_wake(ptr word, ptr sleepers, i32 how_many): wake that many sleepers on `word`, if there are any.

    The word must have been changed before. `sleepers` counts those about to sleep: no system call without any.
    """
    word, sleepers, how_many = atomics.builder.function.args
    builder = atomics.builder
    builder.fence("seq_cst")
    waiting = atomics.acquire(sleepers)
    with atomics.when(builder.icmp_unsigned("!=", waiting, i32(0))):
        target_of(builder).emit_wake(builder, word, how_many)
    builder.ret_void()


@emitted_once(WAIT_FUNCTION, I32, [POINTER, POINTER, I32, I32, POINTER], optimised=True, common=True)
def emit_wait(atomics: AtomicsBuilder) -> None:
    """i32 distxla_wait(Context*, ptr word, i32 expected, i32 waits_for, ptr sleepers).

    Blocks while *word == expected. Status.OK, with all writes visible that were made before the word was changed, or
    Status.ABORTED when the abort flag was set. waits_for: a device, or one of control_block.WAITS_FOR_*.
    word and sleepers are in the control block.
    """
    # the only waiting code that is made small: 2 ms, and all devices execute it between any two switches
    atomics.builder.function.attributes.add("noinline")
    context, word, expected, waits_for, sleepers = atomics.builder.function.args
    builder = atomics.builder
    control, record = atomics.context_field(context, "control"), atomics.context_field(context, "record")
    note_wait(atomics, record, waits_for)
    emit_inside_wait(builder, context)
    cores, devices = atomics.load(I32, control, control_words.H_CORES), atomics.load(I32, control, control_words.H_HERE)
    slept = builder.append_basic_block("sleep")
    with builder.if_else(builder.icmp_unsigned("<", devices, cores)) as (spare, crowded):
        with spare:
            _spin(atomics, record, word, expected)
            builder.branch(slept)
        with crowded:
            _yield_first(atomics, record, word, expected, slept)
            builder.branch(slept)
    builder.unreachable()
    builder.position_at_end(slept)
    _sleep(atomics, (context, word, expected, waits_for, sleepers), control, record)


def _spin(atomics: AtomicsBuilder, record: ir.Value, word: ir.Value, expected: ir.Value) -> None:
    """More cores than devices: look at the word for a while."""
    note_waited(atomics, record, read_clock(atomics))
    with atomics.count(i64(0), i64(WAIT_SPINS)):
        changed = atomics.builder.icmp_unsigned("!=", atomics.acquire(word), expected)
        with atomics.builder.if_then(changed):
            note_resumed(atomics, record, read_clock(atomics))
            atomics.builder.ret(i32(Status.OK))
        target_of(atomics.builder).emit_spin(atomics.builder)


def _yield_first(
    atomics: AtomicsBuilder, record: ir.Value, word: ir.Value, expected: ir.Value, asleep: ir.Block
) -> None:
    """More devices than cores: let others run a few times unless that took long lately; `asleep` is next."""
    builder = atomics.builder
    skip = atomics.load(I32, record, control_words.R_YIELD_SKIP)
    start = read_clock(atomics)
    note_waited(atomics, record, start)
    with builder.if_else(builder.icmp_unsigned("!=", skip, i32(0))) as (skipping, yielding):
        with skipping:
            atomics.store(builder.sub(skip, i32(1)), record, control_words.R_YIELD_SKIP)
        with yielding, atomics.count(i64(0), i64(YIELDS)):
            target_of(builder).emit_yield(builder)
            now = read_clock(atomics)
            changed = builder.icmp_unsigned("!=", atomics.acquire(word), expected)
            limit = SLOW_YIELDS_US * target_of(builder).cycles_per_us
            slow = builder.icmp_unsigned(">", builder.sub(now, start), i64(limit))
            with builder.if_then(slow, likely=False):
                _back_off(atomics, record)
            with builder.if_then(changed):
                note_resumed(atomics, record, now)
                with builder.if_then(builder.not_(slow), likely=True):
                    penalty = atomics.load(I32, record, control_words.R_YIELD_PENALTY)
                    smaller = builder.sub(penalty, builder.lshr(penalty, i32(6)))
                    atomics.store(smaller, record, control_words.R_YIELD_PENALTY)
                builder.ret(i32(Status.OK))
            with builder.if_then(slow, likely=False):
                builder.branch(asleep)


def _back_off(atomics: AtomicsBuilder, record: ir.Value) -> None:
    """No yields for the next waits; twice as many as the last time."""
    builder = atomics.builder
    penalty = atomics.load(I32, record, control_words.R_YIELD_PENALTY)
    penalty = builder.select(builder.icmp_unsigned("<", penalty, i32(FIRST_PENALTY)), i32(FIRST_PENALTY), penalty)
    atomics.store(penalty, record, control_words.R_YIELD_SKIP)
    doubled = builder.mul(penalty, i32(2))
    capped = builder.select(builder.icmp_unsigned(">", doubled, i32(LAST_PENALTY)), i32(LAST_PENALTY), doubled)
    atomics.store(capped, record, control_words.R_YIELD_PENALTY)


def _sleep(atomics: AtomicsBuilder, arguments: tuple[ir.Value, ...], control: ir.Value, record: ir.Value) -> None:
    """Sleep until the word has changed or the abort flag is set; returns from the function."""
    context, word, expected, waits_for, sleepers = arguments
    builder = atomics.builder
    abort_flag = atomics.at(atomics.context_field(context, "call"), control_words.H_ABORT)
    atomics.store(waits_for, record, control_words.R_WAITS_FOR)
    place = builder.sub(builder.ptrtoint(word, I64), builder.ptrtoint(control, I64))
    atomics.store(expected, record, control_words.R_WAIT_VALUE)
    atomics.store(place, record, control_words.R_WAIT_WORD)
    atomics.fetch_add(1, sleepers)
    atomics.sequential_store(i32(control_words.ReplicaState.WAITING), record, control_words.R_STATE)
    result = atomics.local(I32)
    with atomics.forever() as awake:
        atomics.store(i32(Status.OK), result)
        atomics.leave_if(builder.icmp_unsigned("!=", atomics.acquire(word), expected), awake)
        atomics.store(i32(Status.ABORTED), result)
        aborted = builder.load_atomic(abort_flag, "seq_cst", 4, typ=I32)
        atomics.leave_if(builder.icmp_unsigned("!=", aborted, i32(0)), awake)
        target_of(builder).emit_sleep(builder, word, expected)
    atomics.fetch_add(-1, sleepers)
    atomics.store(i64(0), record, control_words.R_WAIT_WORD)
    atomics.release(i32(control_words.ReplicaState.RUNNING), record, control_words.R_STATE)
    found = atomics.load(I32, result)
    with builder.if_then(builder.icmp_unsigned("==", found, i32(Status.OK)), likely=True):
        note_resumed(atomics, record, read_clock(atomics))
    builder.ret(found)
