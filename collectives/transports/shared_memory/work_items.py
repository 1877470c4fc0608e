"""The work of a round cut into items that any member can do, because all members' memory is mapped everywhere.

An item is a stretch of one movement (ops/support/collective_movement.py) from one source, or reduced from all, to
one target or all. Items touch disjoint parts of the results, and each reduction runs in group order, so no bit depends
on which member does which item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.transports.shared_memory.copies import emit_stream_copy
from distxla.collectives.transports.shared_memory.reduce_tile import TILE_BYTES, TileReducer, emit_reduce_tile
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I32, I64, POINTER, emit_copy, i32, i64
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.support.collective import RANK, RING
from distxla.ops.support.collective_movement import Movement
from distxla.program.abi import Status
from distxla.program.work_table import COLUMNS, ROW_BYTES

# Measured with 8 devices on 2 cores; bytes read and written by a whole group in one round.
SHARED_WORK_BYTES = 512 * 1024  # from here on the members share the work; below, the last one to arrive does all of it
STREAMED_BYTES = 32 * 1024 * 1024  # from here on results bypass the caches
WORK_PIECE_BYTES = 128 * 1024  # of an operand, in one item of shared work


@dataclass(frozen=True)
class WorkPlan:
    """table: one row of COLUMNS a movement.  items: of the whole round.  shared: whether members share them.

    Members that share items find them in tables of their own, so table and items follow from values that all members
    agree on; the last arriver decides whether the items are shared, and results written once.
    """

    table: tuple[tuple[int, ...], ...]
    items: int
    shared: bool


def plan_work(
    movements: Sequence[Movement],
    sizes: Sequence[int],
    operand_leaves: int,
    members: int,
    *,
    result_leaves: int = 0,
    order: str = RANK,
) -> WorkPlan:
    """Items of the movements in a group of `members`. sizes: bytes of an element, by operand leaf.

    result_leaves: where results may be written once for all members, how many there are.  order: of reductions; the
    chunks of a ring are movements of their own.
    """
    most, traffic = (
        sum(_traffic(m, sizes[m.operand], members, once=once) for m in movements) for once in (False, result_leaves > 0)
    )
    cut, shared = most >= SHARED_WORK_BYTES, traffic >= SHARED_WORK_BYTES
    streamed = int(traffic >= STREAMED_BYTES)
    table, items = [], 0
    for m, begin, first in _parts(movements, members, order):
        size = sizes[m.operand]
        rows, row = (1, m.rows * m.row * size) if m.is_contiguous else (m.rows, m.row * size)
        if rows * row == 0:
            continue
        if rows == 1:
            piece_rows, piece = 1, min(row, WORK_PIECE_BYTES) if cut else row
            pieces = -(-row // piece)
        else:
            piece_rows, piece = (max(1, WORK_PIECE_BYTES // row) if cut else rows), row
            pieces = -(-rows // piece_rows)
        targets = members if m.by_target else 1
        items += (members if m.by_source else 1) * targets * pieces
        offsets = (m.source_offset * size, m.source_stride * size, m.target_offset * size, m.target_stride * size)
        result = operand_leaves + m.result
        shape = (targets, pieces, piece_rows, rows, piece, row)
        common = result + result_leaves
        leaves = (m.operand, m.operand_step, result, m.result_step, common)
        table.append((items, *leaves, *shape, *offsets, streamed, begin * size, first))
    return WorkPlan(tuple(table), items, shared and items > 1)


def _parts(movements: Sequence[Movement], members: int, order: str) -> Iterator[tuple[Movement, int, int]]:
    """Movements with the element at which each begins and, of a ring, the member behind its target that comes first.

    A reduction for all members is cut into as many chunks of ceil(elements / members) as there are members, the last
    ones shorter or empty; a target that reduces for itself has its chunk.
    """
    for m in movements:
        if order != RING or not m.reduces:
            yield m, 0, 0
        elif m.by_target:
            yield m, 0, 1
        else:
            count = m.rows * m.row
            each = max(1, -(-count // members))
            for chunk in range(members):
                begin = min(chunk * each, count)
                yield replace(m, rows=1, row=min(each, count - begin)), begin, chunk + 1


def _traffic(m: Movement, size: int, members: int, *, once: bool) -> int:
    bytes_ = m.rows * m.row * size
    targets, sources = (1 if once else members), (members if m.by_source or m.reduces else 1)
    return bytes_ * (sources * targets if m.by_source else targets + sources)


def posted_buffer(
    atomics: AtomicsBuilder, round_: tuple[ir.Value, ir.Value, ir.Value], member: ir.Value, leaf: ir.Value
) -> ir.Value:
    """A buffer that the member at a position has posted: its address here. round_: context, slots, members."""
    context, slots, members = round_
    builder = atomics.builder
    peer = atomics.load(I32, members, builder.mul(member, i64(4)))
    slot = atomics.at(slots, builder.mul(member, i64(round_words.SLOT_BYTES)))
    offset = atomics.load(I64, atomics.at(slot, round_words.S_OFFSETS), builder.mul(leaf, i64(8)))
    return atomics.at(atomics.peer_memory(context, peer), offset)


class Item:
    """One item while the code that does it is written: the values of its table row and its place in the group."""

    def __init__(self, atomics: AtomicsBuilder, arguments: Sequence[ir.Value], row: ir.Value, number: ir.Value) -> None:
        self.atomics = atomics
        self.context, self.slots, self.members, self.size = arguments[:4]
        self._row = row
        builder = atomics.builder
        pieces, targets = self["pieces"], self["targets"]
        pair = builder.udiv(number, pieces)
        piece = builder.urem(number, pieces)
        self.source = builder.udiv(pair, targets)
        self.target = builder.urem(pair, targets)
        self.to_all = builder.icmp_unsigned("==", targets, i64(1))
        self.first_row = builder.mul(piece, self["piece_rows"])
        self.first_row = builder.select(builder.icmp_unsigned("==", self["rows"], i64(1)), i64(0), self.first_row)
        self.end_row = atomics.smallest(builder.add(self.first_row, self["piece_rows"]), self["rows"])
        whole = builder.icmp_unsigned("==", self["piece_bytes"], self["row_bytes"])
        self.column = builder.select(whole, i64(0), builder.mul(piece, self["piece_bytes"]))
        self.bytes = atomics.smallest(self["piece_bytes"], builder.sub(self["row_bytes"], self.column))
        self.streamed = builder.icmp_unsigned("!=", self["streamed"], i64(0))
        agreed = atomics.load(I32, self.slots, group_words.E_ONCE - group_words.E_SLOTS)
        agrees = builder.icmp_unsigned("!=", agreed, i32(0))
        poster = builder.zext(builder.select(agrees, builder.sub(agreed, i32(1)), i32(0)), I64)
        slot = atomics.at(self.slots, builder.mul(poster, i64(round_words.SLOT_BYTES)))
        posted = atomics.load(I64, atomics.at(slot, round_words.S_OFFSETS), builder.mul(self["common"], i64(8)))
        self.common = builder.select(agrees, posted, i64(0))
        self.once = builder.icmp_unsigned("!=", self.common, i64(0))

    def __getitem__(self, column: str) -> ir.Value:
        return self.atomics.load(I64, self._row, 8 * COLUMNS.index(column))

    def _buffer(self, member: ir.Value, leaf: ir.Value) -> ir.Value:
        return posted_buffer(self.atomics, (self.context, self.slots, self.members), member, leaf)

    def source_place(self, member: ir.Value) -> ir.Value:
        """Where this item begins in a member's operand, for row 0."""
        builder = self.atomics.builder
        leaf = builder.add(self["operand"], builder.mul(self.target, self["operand_step"]))
        offset = builder.add(builder.mul(self.target, self["source_offset"]), self.column)
        return self.atomics.at(self._buffer(member, leaf), builder.add(offset, self["begin"]))

    def _target_place(self, member: ir.Value) -> ir.Value:
        """Where this item begins in a member's result, for row 0."""
        atomics, builder = self.atomics, self.atomics.builder
        leaf = builder.add(self["result"], builder.mul(self.source, self["result_step"]))
        offset = builder.add(builder.mul(self.source, self["target_offset"]), self.column)
        offset = builder.add(offset, self["begin"])
        with builder.if_else(self.once) as (for_all, for_one):
            with for_all:
                own = atomics.device_memory(self.context, atomics.context_field(self.context, "device"))
                shared, shared_block = atomics.at(own, self.common), builder.block
            with for_one:
                private, private_block = self._buffer(member, leaf), builder.block
        place = builder.phi(POINTER)
        place.add_incoming(shared, shared_block)
        place.add_incoming(private, private_block)
        return atomics.at(place, offset)

    @contextmanager
    def targets(self) -> Iterator[ir.Value]:
        """Loop over the places where the item goes, for row 0: of one member, of all, or the one that all see."""
        builder = self.atomics.builder
        first = builder.select(self.to_all, i64(0), self.target)
        several = builder.select(self.once, i64(1), self.size)
        end = builder.select(self.to_all, several, builder.add(self.target, i64(1)))
        with self.atomics.count(first, end) as member:
            yield self._target_place(member)

    @contextmanager
    def rows(self) -> Iterator[ir.Value]:
        with self.atomics.count(self.first_row, self.end_row) as row:
            yield row

    def write(self, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
        """Copy `count` bytes to where they will stay."""
        atomics, builder = self.atomics, self.atomics.builder
        with builder.if_else(self.streamed) as (streamed, plain):
            with streamed:
                builder.call(emit_stream_copy(builder.module), [target, source, count])
            with plain:
                emit_copy(atomics.builder, target, source, count)


ITEMS_TYPE = ir.FunctionType(I32, [POINTER, POINTER, POINTER, I64, POINTER, I64, I64])


def _emit_items(llvm_module: ir.Module, name: str, body: Callable[[Item], None]) -> ir.Function:
    """i32 name(Context*, slots, members, i64 size, table, i64 first, i64 end): do the items first..end-1; a Status."""
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    function, atomics = AtomicsBuilder.function(llvm_module, name, I32, list(ITEMS_TYPE.args), common=True)
    table, first, end = function.args[4:]
    builder = atomics.builder
    row_place, begin_place = atomics.local(POINTER), atomics.local(I64)
    builder.store(table, row_place)
    builder.store(i64(0), begin_place)
    with atomics.count(first, end) as number:
        with atomics.forever() as found_row:
            row = builder.load(row_place, typ=POINTER)
            row_end = atomics.load(I64, row)
            atomics.leave_if(builder.icmp_unsigned("<", number, row_end), found_row)
            builder.store(atomics.at(row, ROW_BYTES), row_place)
            builder.store(row_end, begin_place)
        row = builder.load(row_place, typ=POINTER)
        body(Item(atomics, function.args, row, builder.sub(number, builder.load(begin_place, typ=I64))))
    builder.ret(i32(Status.OK))
    return function


def emit_copy_items(llvm_module: ir.Module) -> ir.Function:
    """Items that move bytes."""

    def body(item: Item) -> None:
        atomics, builder = item.atomics, item.atomics.builder
        source = item.source_place(item.source)
        with item.targets() as target, item.rows() as row:
            there = atomics.at(target, builder.mul(row, item["target_stride"]))
            here = atomics.at(source, builder.mul(row, item["source_stride"]))
            item.write(there, here, item.bytes)

    return _emit_items(llvm_module, "distxla_copy_items", body)


def emit_reduce_items(llvm_module: ir.Module, name: str, reducer: TileReducer) -> ir.Function:
    """Items that reduce the members' operands with a computation of the module."""
    size = reducer.element_type.byte_size
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    tile_function = emit_reduce_tile(llvm_module, f"{name}_tile", reducer)

    def body(item: Item) -> None:
        atomics, builder = item.atomics, item.atomics.builder
        sources = atomics.local(ir.ArrayType(POINTER, reducer.members))
        tile = atomics.local(ir.ArrayType(I8, TILE_BYTES), 64)
        with atomics.count(i64(0), i64(reducer.members)) as place:
            member = place
            if reducer.order == RING:
                first = builder.add(item["first"], item.target)
                member = builder.urem(builder.add(first, place), i64(reducer.members))
            atomics.store(item.source_place(member), sources, builder.mul(place, i64(8)))
        with item.rows() as row, atomics.count(i64(0), item.bytes, TILE_BYTES) as begin:
            count = atomics.smallest(i64(TILE_BYTES), builder.sub(item.bytes, begin))
            offset = builder.add(builder.mul(row, item["source_stride"]), begin)
            elements = builder.udiv(count, i64(size))
            builder.call(tile_function, [tile, sources, offset, elements])
            target_offset = builder.add(builder.mul(row, item["target_stride"]), begin)
            with item.targets() as target:
                item.write(atomics.at(target, target_offset), tile, count)

    return _emit_items(llvm_module, name, body)
