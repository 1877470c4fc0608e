"""What routines do for the relay of their host: hand work over to it, and tell it what they do."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import control_block as block
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import proxy_queue
from distxla.collectives.protocols.proxy_queue import Event
from distxla.collectives.transports.shared_memory.atomics_builder import I64, POINTER, VOID, Words, i32, i64
from distxla.collectives.transports.shared_memory.wait_and_wake import EVERYBODY
from distxla.targets.code import target_of

HAND_OVER_FUNCTION = "distxla_hand_over"


def emit_hand_over(llvm_module: ir.Module) -> ir.Function:
    """void distxla_hand_over(ptr control, ptr place, i64 event): let the relay look at a place in the control block.

    event: what happened there, and in the upper half the number that belongs to it.
    """
    found = llvm_module.globals.get(HAND_OVER_FUNCTION)
    if found is not None:
        return found
    function, words = Words.function(llvm_module, HAND_OVER_FUNCTION, VOID, [POINTER, POINTER, I64])
    control, place, event = function.args
    builder = words.builder
    ring = words.at(control, words.load(I64, control, block.H_RELAY_RING))
    ticket = builder.zext(words.fetch_add(1, control, block.H_RELAY_TICKETS), I64)
    index = builder.mul(builder.and_(ticket, i64(proxy_queue.ENTRIES - 1)), i64(8))
    offset = builder.sub(builder.ptrtoint(place, I64), builder.ptrtoint(control, I64))
    words.release(builder.add(offset, event), words.at(ring, index), proxy_queue.Q_ENTRY)
    words.fetch_add(1, control, block.H_RELAY_POSTED)
    target_of(builder).emit_wake(builder, words.at(control, block.H_RELAY_POSTED), i32(EVERYBODY))
    builder.ret_void()
    return function


def hand_over(words: Words, context: ir.Value, place: ir.Value, event: Event, number: ir.Value) -> None:
    """Leave an event to the relay. number: u32 that belongs to it."""
    builder = words.builder
    entry = builder.or_(builder.shl(builder.zext(number, I64), i64(32)), i64(event))
    control = words.context_field(context, "control")
    builder.call(emit_hand_over(builder.module), [control, place, entry])


def is_elsewhere(words: Words, context: ir.Value, device: ir.Value) -> ir.Value:
    """Whether a device (u32) lives on another host: then its memory is not mapped here."""
    return words.builder.icmp_unsigned("==", words.builder.ptrtoint(words.device_memory(context, device), I64), i64(0))


def emit_describe(words: Words, place: ir.Value, arguments: Sequence[ir.Value]) -> None:
    """Append the arguments of a round, widened to u64, to the descriptions in the place of a state (DESCRIBE)."""
    builder = words.builder
    assert len(arguments) <= group_words.DESCRIPTION_WORDS
    number = words.load(I64, place, group_words.G_DESCRIBED)
    words.store(builder.add(number, i64(1)), place, group_words.G_DESCRIBED)
    row = words.at(
        place, builder.add(builder.mul(number, i64(8 * group_words.DESCRIPTION_WORDS)), i64(group_words.G_DESCRIPTIONS))
    )
    for k, value in enumerate(arguments):
        if isinstance(value.type, ir.PointerType):
            value = builder.ptrtoint(value, I64)
        elif value.type.width < 64:
            value = builder.zext(value, I64)
        words.store(value, row, 8 * k)
