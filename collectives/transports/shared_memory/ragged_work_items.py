"""The work of a round whose offsets and sizes are known at run time only (ragged-all-to-all), cut into items.

An item is a stretch of one member's result rows: the member that takes it looks through all senders' entries for that
target and copies what falls into its rows, in the order of senders and entries. So items touch disjoint memory, and
where entries overlap the same one stays, on whatever member.

A member's entries are checked by itself before it reaches the round: nobody is made to read or write beyond an array.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import control_block as block
from distxla.collectives.protocols.work_table import RAGGED_COLUMNS
from distxla.collectives.transports.shared_memory.atomics_builder import I64, VOID, Words, i32, i64
from distxla.collectives.transports.shared_memory.copies import emit_copy
from distxla.collectives.transports.shared_memory.work_items import (
    ITEMS_TYPE,
    PIECE_BYTES,
    SHARED_WORK_BYTES,
    WorkPlan,
    posted_buffer,
)
from distxla.compiler.abi import Status
from distxla.ir.element_type import ElementType
from distxla.ops.support.collective_movement import RaggedMovement


def plan_ragged_work(movement: RaggedMovement, element_bytes: int, operands: Sequence[int], members: int) -> WorkPlan:
    """Items of the movement in a group of `members`: one table row as work_table.RAGGED says.

    element_bytes: of an element of the result.  operands: bytes of each operand leaf.
    """
    row = movement.row * element_bytes
    rows = movement.result_rows
    shared = (movement.operand_rows + rows) * row * members >= SHARED_WORK_BYTES
    piece_rows = max(1, min(rows, PIECE_BYTES // max(1, row) if shared else rows))
    pieces = -(-rows // piece_rows)
    items = members * pieces if row else 0
    read = (movement.operand, movement.starts, movement.sizes, movement.targets)
    leaves = (size if leaf in read else 0 for leaf, size in enumerate(operands))
    return WorkPlan(((movement.stretches, row, pieces, piece_rows, rows, *leaves),), items, shared and items > 1)


def emit_ragged_items(
    llvm_module: ir.Module, movement: RaggedMovement, kind: ElementType, operands: int
) -> ir.Function:
    """The ITEMS_TYPE function for tables of type `kind`. operands: how many leaves stand before the result's."""
    name = f"distxla_ragged_items_{kind.name}_{operands}"
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    function, words = Words.function(llvm_module, name, VOID, list(ITEMS_TYPE.args))
    context, slots, members, size, table, first, end = function.args
    builder, round_ = words.builder, (context, slots, members)
    column = {name: words.load(I64, table, 8 * i) for i, name in enumerate(RAGGED_COLUMNS)}
    with words.count(first, end) as number:
        target = builder.udiv(number, column["pieces"])
        begins = builder.mul(builder.urem(number, column["pieces"]), column["piece_rows"])
        ends = words.smallest(builder.add(begins, column["piece_rows"]), column["rows"])
        result = posted_buffer(words, round_, target, i64(operands))
        first_entry = builder.mul(target, column["stretches"])
        with words.count(i64(0), size) as source:
            sent, starts, sizes, targets = (
                posted_buffer(words, round_, source, i64(leaf))
                for leaf in (movement.operand, movement.starts, movement.sizes, movement.targets)
            )
            with words.count(first_entry, builder.add(first_entry, column["stretches"])) as entry:
                start, count, there = (_integer(words, kind, place, entry) for place in (starts, sizes, targets))
                low = _largest(words, there, begins)
                high = words.smallest(builder.add(there, count), ends)
                with words.when(builder.icmp_signed("<", low, high)):
                    here = builder.add(start, builder.sub(low, there))
                    emit_copy(
                        words,
                        words.at(result, builder.mul(low, column["row_bytes"])),
                        words.at(sent, builder.mul(here, column["row_bytes"])),
                        builder.mul(builder.sub(high, low), column["row_bytes"]),
                    )
    builder.ret_void()
    return function


def emit_ragged_start(
    words: Words,
    memory: ir.Value,
    offsets: tuple[ir.Value, ir.Value],
    record: ir.Value,
    movement: RaggedMovement,
    kind: ElementType,
    bytes_: int,
    entries: int,
) -> None:
    """What a member does before it reaches the round: check its entries, and begin with the values of `output`.

    memory: the member's own.  offsets: u64* of the operand and of the result leaves.  bytes_: of the result.
    Returns Status.OUT_OF_RANGE from the function for an entry that reaches beyond its arrays.
    """
    builder = words.builder
    operands, results = offsets
    starts, sizes, targets = (
        words.at(memory, words.load(I64, operands, 8 * leaf))
        for leaf in (movement.starts, movement.sizes, movement.targets)
    )
    with words.count(i64(0), i64(entries)) as entry:
        start, count, there = (_integer(words, kind, place, entry) for place in (starts, sizes, targets))
        fits = builder.icmp_signed(">", count, i64(0))
        for value, rows in ((start, movement.operand_rows), (there, movement.result_rows)):
            fits = builder.and_(fits, builder.icmp_signed(">=", value, i64(0)))
            # count is positive where it matters, so this does not wrap
            fits = builder.and_(fits, builder.icmp_signed("<=", value, builder.sub(i64(rows), count)))
        fine = builder.or_(fits, builder.icmp_signed("==", count, i64(0)))
        with builder.if_then(builder.not_(fine), likely=False):
            words.store(entry, record, block.R_DETAIL)
            builder.ret(i32(Status.OUT_OF_RANGE))
    kept = words.at(memory, words.load(I64, operands, 8 * movement.output))
    result = words.at(memory, words.load(I64, results))
    apart = builder.icmp_unsigned("!=", builder.ptrtoint(kept, I64), builder.ptrtoint(result, I64))
    with words.when(apart):
        emit_copy(words, result, kept, i64(bytes_))


def _integer(words: Words, kind: ElementType, place: ir.Value, index: ir.Value) -> ir.Value:
    """An element of an array of integers as i64; beyond 2^63 negative."""
    builder = words.builder
    width = 8 * kind.byte_size
    value = words.load(ir.IntType(width), place, builder.mul(index, i64(kind.byte_size)))
    if width == 64:
        return value
    return builder.sext(value, I64) if kind.is_signed else builder.zext(value, I64)


def _largest(words: Words, a: ir.Value, b: ir.Value) -> ir.Value:
    return words.builder.select(words.builder.icmp_signed(">", a, b), a, b)
