"""Routines that enqueue work for the proxy of their host, and tell it of events."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import proxy_queue
from distxla.collectives.protocols.proxy_queue import ProxyEvent
from distxla.collectives.transports.shared_memory.wait_and_wake import ALL_SLEEPERS
from distxla.emit.atomics_builder import AtomicsBuilder, emitted_once
from distxla.emit.native_function import I64, POINTER, VOID, i32, i64
from distxla.targets.code import target_of

ENQUEUE_FUNCTION = "distxla_enqueue"


@emitted_once(ENQUEUE_FUNCTION, VOID, [POINTER, POINTER, I64], common=True)
def emit_enqueue(atomics: AtomicsBuilder) -> None:
    """void distxla_enqueue(ptr control, ptr place, i64 event): let the proxy look at a place in the control block.

    event: its kind, and in the upper half the number that belongs to it.
    """
    control, place, event = atomics.builder.function.args
    builder = atomics.builder
    ring = atomics.at(control, atomics.load(I64, control, control_words.H_PROXY_RING))
    ticket = builder.zext(atomics.fetch_add(1, control, control_words.H_PROXY_TICKETS), I64)
    index = builder.mul(builder.and_(ticket, i64(proxy_queue.ENTRIES - 1)), i64(8))
    offset = builder.sub(builder.ptrtoint(place, I64), builder.ptrtoint(control, I64))
    atomics.release(builder.add(offset, event), atomics.at(ring, index), proxy_queue.Q_ENTRY)
    atomics.fetch_add(1, control, control_words.H_PROXY_POSTED)
    target_of(builder).emit_wake(builder, atomics.at(control, control_words.H_PROXY_POSTED), i32(ALL_SLEEPERS))
    builder.ret_void()


def enqueue(atomics: AtomicsBuilder, context: ir.Value, place: ir.Value, event: ProxyEvent, number: ir.Value) -> None:
    """Leave an event to the proxy. number: u32 that belongs to it."""
    builder = atomics.builder
    entry = builder.or_(builder.shl(builder.zext(number, I64), i64(proxy_queue.NUMBER_SHIFT)), i64(event))
    control = atomics.context_field(context, "control")
    builder.call(emit_enqueue(builder.module), [control, place, entry])


def is_elsewhere(atomics: AtomicsBuilder, memory: ir.Value) -> ir.Value:
    """Whether a device of this memory lives on another host: then the memory is not mapped here."""
    return atomics.builder.icmp_unsigned("==", atomics.builder.ptrtoint(memory, I64), i64(0))
