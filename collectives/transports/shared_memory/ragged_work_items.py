"""The work of a round whose offsets and sizes are known at run time only (ragged-all-to-all), cut into items.

An item is a stretch of one member's result rows: the member that takes it looks through all senders' entries for that
target and copies the parts that fall into its rows, in the order of senders and entries. So items touch disjoint
memory, and where entries overlap the same one stays, whichever member copies.

Each member checks its own entries before it reaches the round, so no member reads or writes beyond an array.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.shared_memory.work_items import (
    ITEMS_TYPE,
    SHARED_WORK_BYTES,
    WORK_PIECE_BYTES,
    WorkPlan,
    posted_buffer,
)
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, emit_copy, i32, i64
from distxla.ir.element_type import ElementType
from distxla.ops.support.collective_movement import RaggedMovement
from distxla.program.abi import Status
from distxla.program.work_table import RAGGED_COLUMNS


def plan_ragged_work(movement: RaggedMovement, element_bytes: int, members: int) -> WorkPlan:
    """Items of the movement in a group of `members`: one table row of RAGGED_COLUMNS.

    element_bytes: of an element of the result.
    """
    row = movement.row * element_bytes
    rows = movement.result_rows
    shared = (movement.operand_rows + rows) * row * members >= SHARED_WORK_BYTES
    piece_rows = max(1, min(rows, WORK_PIECE_BYTES // max(1, row) if shared else rows))
    pieces = -(-rows // piece_rows)
    items = members * pieces if row else 0
    return WorkPlan(((movement.stretches, row, pieces, piece_rows, rows),), items, shared and items > 1)


def bytes_read(movement: RaggedMovement, operands: Sequence[int]) -> tuple[int, ...]:
    """RoundWork.read. operands: bytes of each operand leaf."""
    read = (movement.operand, movement.starts, movement.sizes, movement.targets)
    return tuple(size if leaf in read else 0 for leaf, size in enumerate(operands))


def emit_ragged_items(
    llvm_module: ir.Module, movement: RaggedMovement, kind: ElementType, operands: int
) -> ir.Function:
    """The ITEMS_TYPE function for tables of type `kind`. operands: number of leaves before the result's."""
    name = f"distxla_ragged_items_{kind.name}_{operands}"
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    function, atomics = AtomicsBuilder.function(llvm_module, name, I32, list(ITEMS_TYPE.args))
    context, slots, members, size, table, first, end = function.args
    builder, round_ = atomics.builder, (context, slots, members)
    column = {name: atomics.load(I64, table, 8 * i) for i, name in enumerate(RAGGED_COLUMNS)}
    with atomics.count(first, end) as number:
        target = builder.udiv(number, column["pieces"])
        begins = builder.mul(builder.urem(number, column["pieces"]), column["piece_rows"])
        ends = atomics.smallest(builder.add(begins, column["piece_rows"]), column["rows"])
        result = posted_buffer(atomics, round_, target, i64(operands))
        first_entry = builder.mul(target, column["stretches"])
        with atomics.count(i64(0), size) as source:
            sent, starts, sizes, targets = (
                posted_buffer(atomics, round_, source, i64(leaf))
                for leaf in (movement.operand, movement.starts, movement.sizes, movement.targets)
            )
            with atomics.count(first_entry, builder.add(first_entry, column["stretches"])) as entry:
                start, count, there = (_integer(atomics, kind, place, entry) for place in (starts, sizes, targets))
                low = _largest(atomics, there, begins)
                high = atomics.smallest(builder.add(there, count), ends)
                with atomics.when(builder.icmp_signed("<", low, high)):
                    here = builder.add(start, builder.sub(low, there))
                    emit_copy(
                        atomics.builder,
                        atomics.at(result, builder.mul(low, column["row_bytes"])),
                        atomics.at(sent, builder.mul(here, column["row_bytes"])),
                        builder.mul(builder.sub(high, low), column["row_bytes"]),
                    )
    builder.ret(i32(Status.OK))
    return function


def emit_ragged_start(
    atomics: AtomicsBuilder,
    memory: ir.Value,
    offsets: tuple[ir.Value, ir.Value],
    record: ir.Value,
    movement: RaggedMovement,
    kind: ElementType,
    bytes_: int,
    entries: int,
) -> None:
    """A member's part before it reaches the round: check its entries, and begin with the values of `output`.

    memory: the member's own.  offsets: u64* of the operand and of the result leaves.  bytes_: of the result.
    Returns Status.OUT_OF_RANGE from the function for an entry that reaches beyond its arrays.
    """
    builder = atomics.builder
    operands, results = offsets
    starts, sizes, targets = (
        atomics.at(memory, atomics.load(I64, operands, 8 * leaf))
        for leaf in (movement.starts, movement.sizes, movement.targets)
    )
    with atomics.count(i64(0), i64(entries)) as entry:
        start, count, there = (_integer(atomics, kind, place, entry) for place in (starts, sizes, targets))
        fits = builder.icmp_signed(">", count, i64(0))
        for value, rows in ((start, movement.operand_rows), (there, movement.result_rows)):
            fits = builder.and_(fits, builder.icmp_signed(">=", value, i64(0)))
            # count is positive where it matters, so this does not wrap
            fits = builder.and_(fits, builder.icmp_signed("<=", value, builder.sub(i64(rows), count)))
        fine = builder.or_(fits, builder.icmp_signed("==", count, i64(0)))
        with builder.if_then(builder.not_(fine), likely=False):
            atomics.store(entry, record, control_words.R_DETAIL)
            builder.ret(i32(Status.OUT_OF_RANGE))
    kept = atomics.at(memory, atomics.load(I64, operands, 8 * movement.output))
    result = atomics.at(memory, atomics.load(I64, results))
    apart = builder.icmp_unsigned("!=", builder.ptrtoint(kept, I64), builder.ptrtoint(result, I64))
    with atomics.when(apart):
        emit_copy(atomics.builder, result, kept, i64(bytes_))


def _integer(atomics: AtomicsBuilder, kind: ElementType, place: ir.Value, index: ir.Value) -> ir.Value:
    """An element of an array of integers as i64; beyond 2^63 negative."""
    builder = atomics.builder
    width = 8 * kind.byte_size
    value = atomics.load(ir.IntType(width), place, builder.mul(index, i64(kind.byte_size)))
    if width == 64:
        return value
    return builder.sext(value, I64) if kind.is_signed else builder.zext(value, I64)


def _largest(atomics: AtomicsBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return atomics.builder.select(atomics.builder.icmp_signed(">", a, b), a, b)
