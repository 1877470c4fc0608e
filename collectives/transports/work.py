"""The work of a round cut into items that any member can do, because all members' memory is mapped everywhere.

An item is a stretch of one movement (ops/movement.py) from one source, or folded from all, to one target or all. Items
touch disjoint parts of the results, and each fold runs in group order, so who does which item changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from distxla.codegen.emitter import ScalarEmitter
from distxla.collectives import state
from distxla.collectives.transports.words import I8, I32, I64, POINTER, VOID, Words, i32, i64
from distxla.ir.element_type import ElementType
from distxla.ir.module import Module
from distxla.ops.movement import Movement

# Measured with 8 devices on 2 cores; bytes read and written by a whole group in one round.
SHARED_WORK_BYTES = 512 * 1024  # from here on the members share the work; below, the last one to come does all of it
STREAMED_BYTES = 32 * 1024 * 1024  # from here on results bypass the caches
PIECE_BYTES = 128 * 1024  # of an operand, in one item of shared work
TILE_BYTES = 32768  # folded near the core before it is written out
FAN_IN = 8  # operands that one pass over a tile reads

COLUMNS = [
    "items_end",
    "operand",
    "operand_step",
    "result",
    "result_step",
    "targets",
    "pieces",
    "piece_rows",
    "rows",
    "piece_bytes",
    "row_bytes",
    "source_offset",
    "source_stride",
    "target_offset",
    "target_stride",
    "streamed",
]
ROW_BYTES = 8 * len(COLUMNS)


@dataclass(frozen=True)
class WorkPlan:
    """table: one row of COLUMNS a movement.  items: of the whole round.  shared: whether members share them."""

    table: tuple[tuple[int, ...], ...]
    items: int
    shared: bool


def plan_work(
    movements: Sequence[Movement], sizes: Sequence[int], operand_leaves: int, members: int, *, cut: bool = True
) -> WorkPlan:
    """Items of the movements in a group of `members`. sizes: bytes of an element, by operand leaf."""
    traffic = sum(_traffic(m, sizes[m.operand], members) for m in movements)
    shared = cut and traffic >= SHARED_WORK_BYTES
    streamed = int(traffic >= STREAMED_BYTES)
    table, items = [], 0
    for m in movements:
        size = sizes[m.operand]
        rows, row = (1, m.rows * m.row * size) if m.is_contiguous else (m.rows, m.row * size)
        if rows * row == 0:
            continue
        if rows == 1:
            piece_rows, piece = 1, min(row, PIECE_BYTES) if shared else row
            pieces = -(-row // piece)
        else:
            piece_rows, piece = (max(1, PIECE_BYTES // row) if shared else rows), row
            pieces = -(-rows // piece_rows)
        targets = members if m.by_target else 1
        items += (members if m.by_source else 1) * targets * pieces
        offsets = (m.source_offset * size, m.source_stride * size, m.target_offset * size, m.target_stride * size)
        result = operand_leaves + m.result
        shape = (targets, pieces, piece_rows, rows, piece, row)
        table.append((items, m.operand, m.operand_step, result, m.result_step, *shape, *offsets, streamed))
    return WorkPlan(tuple(table), items, shared and items > 1)


def _traffic(m: Movement, size: int, members: int) -> int:
    bytes_ = m.rows * m.row * size
    targets, sources = members, (members if m.by_source or m.folds else 1)
    return bytes_ * (sources * targets if m.by_source else targets + sources)


class Item:
    """One item while the code that does it is written: the values of its table row and its place in the group."""

    def __init__(self, words: Words, arguments: Sequence[ir.Value], row: ir.Value, number: ir.Value) -> None:
        self.words = words
        self.context, self.slots, self.members, self.size = arguments[:4]
        self._row = row
        builder = words.builder
        pieces, targets = self["pieces"], self["targets"]
        pair = builder.udiv(number, pieces)
        piece = builder.urem(number, pieces)
        self.source = builder.udiv(pair, targets)
        self.target = builder.urem(pair, targets)
        self.to_all = builder.icmp_unsigned("==", targets, i64(1))
        self.first_row = builder.mul(piece, self["piece_rows"])
        self.first_row = builder.select(builder.icmp_unsigned("==", self["rows"], i64(1)), i64(0), self.first_row)
        self.end_row = words.smallest(builder.add(self.first_row, self["piece_rows"]), self["rows"])
        whole = builder.icmp_unsigned("==", self["piece_bytes"], self["row_bytes"])
        self.column = builder.select(whole, i64(0), builder.mul(piece, self["piece_bytes"]))
        self.bytes = words.smallest(self["piece_bytes"], builder.sub(self["row_bytes"], self.column))
        self.streamed = builder.icmp_unsigned("!=", self["streamed"], i64(0))

    def __getitem__(self, column: str) -> ir.Value:
        return self.words.load(I64, self._row, 8 * COLUMNS.index(column))

    def _buffer(self, member: ir.Value, leaf: ir.Value) -> ir.Value:
        """A posted buffer of the member at a position: its address here."""
        words, builder = self.words, self.words.builder
        device = words.load(I32, self.members, builder.mul(member, i64(4)))
        slot = words.at(self.slots, builder.mul(member, i64(state.SLOT_BYTES)))
        offset = words.load(I64, words.at(slot, state.S_OFFSETS), builder.mul(leaf, i64(8)))
        return words.at(words.device_memory(self.context, device), offset)

    def source_place(self, member: ir.Value) -> ir.Value:
        """Where this item begins in a member's operand, for row 0."""
        builder = self.words.builder
        leaf = builder.add(self["operand"], builder.mul(self.target, self["operand_step"]))
        offset = builder.add(builder.mul(self.target, self["source_offset"]), self.column)
        return self.words.at(self._buffer(member, leaf), offset)

    def target_place(self, member: ir.Value) -> ir.Value:
        """Where this item begins in a member's result, for row 0."""
        builder = self.words.builder
        leaf = builder.add(self["result"], builder.mul(self.source, self["result_step"]))
        offset = builder.add(builder.mul(self.source, self["target_offset"]), self.column)
        return self.words.at(self._buffer(member, leaf), offset)

    @contextmanager
    def targets(self) -> Iterator[ir.Value]:
        """Loop over the positions that get the item."""
        builder = self.words.builder
        first = builder.select(self.to_all, i64(0), self.target)
        end = builder.select(self.to_all, self.size, builder.add(self.target, i64(1)))
        with self.words.count(first, end) as target:
            yield target

    @contextmanager
    def rows(self) -> Iterator[ir.Value]:
        with self.words.count(self.first_row, self.end_row) as row:
            yield row

    def write(self, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
        """Copy `count` bytes to where they will stay."""
        words, builder = self.words, self.words.builder
        with builder.if_else(self.streamed) as (streamed, plain):
            with streamed:
                builder.call(emit_stream_copy(builder.module), [target, source, count])
            with plain:
                emit_copy(words, target, source, count)


ITEMS_TYPE = ir.FunctionType(VOID, [POINTER, POINTER, POINTER, I64, POINTER, I64, I64])


def _emit_items(llvm_module: ir.Module, name: str, body: Callable[[Item], None]) -> ir.Function:
    """void name(Context*, slots, members, i64 size, table, i64 first, i64 end): do the items first..end-1."""
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    function, words = Words.function(llvm_module, name, VOID, list(ITEMS_TYPE.args))
    table, first, end = function.args[4:]
    builder = words.builder
    row_place, begin_place = words.local(POINTER), words.local(I64)
    builder.store(table, row_place)
    builder.store(i64(0), begin_place)
    with words.count(first, end) as number:
        with words.forever() as found_row:
            row = builder.load(row_place, typ=POINTER)
            row_end = words.load(I64, row)
            words.leave_if(builder.icmp_unsigned("<", number, row_end), found_row)
            builder.store(words.at(row, ROW_BYTES), row_place)
            builder.store(row_end, begin_place)
        row = builder.load(row_place, typ=POINTER)
        body(Item(words, function.args, row, builder.sub(number, builder.load(begin_place, typ=I64))))
    builder.ret_void()
    return function


def emit_copy_items(llvm_module: ir.Module) -> ir.Function:
    """Items that move bytes."""

    def body(item: Item) -> None:
        words, builder = item.words, item.words.builder
        source = item.source_place(item.source)
        with item.targets() as member:
            target = item.target_place(member)
            with item.rows() as row:
                there = words.at(target, builder.mul(row, item["target_stride"]))
                here = words.at(source, builder.mul(row, item["source_stride"]))
                item.write(there, here, item.bytes)

    return _emit_items(llvm_module, "distxla_copy_items", body)


def emit_fold_items(
    llvm_module: ir.Module, name: str, module: Module, reduction: str, element_type: ElementType, members: int
) -> ir.Function:
    """Items that fold the operands of `members` members with a computation of the module."""
    size = element_type.byte_size
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    tile_function = _emit_fold_tile(llvm_module, f"{name}_tile", (module, reduction, element_type, members))

    def body(item: Item) -> None:
        words, builder = item.words, item.words.builder
        sources = words.local(ir.ArrayType(POINTER, members))
        tile = words.local(ir.ArrayType(I8, TILE_BYTES), 64)
        with words.count(i64(0), i64(members)) as member:
            words.store(item.source_place(member), sources, builder.mul(member, i64(8)))
        with item.rows() as row, words.count(i64(0), item.bytes, TILE_BYTES) as begin:
            count = words.smallest(i64(TILE_BYTES), builder.sub(item.bytes, begin))
            offset = builder.add(builder.mul(row, item["source_stride"]), begin)
            elements = builder.udiv(count, i64(size))
            builder.call(tile_function, [tile, sources, offset, elements])
            target_offset = builder.add(builder.mul(row, item["target_stride"]), begin)
            with item.targets() as member:
                item.write(words.at(item.target_place(member), target_offset), tile, count)

    return _emit_items(llvm_module, name, body)


def _emit_fold_tile(llvm_module: ir.Module, name: str, fold: tuple[Module, str, ElementType, int]) -> ir.Function:
    """void name(tile, sources, i64 offset, i64 elements): tile[e] = f(..f(f(s0[e], s1[e]), s2[e])..), s0 = sources[0] +
    offset. A pass reads up to FAN_IN operands, the later ones the tile, too.
    """
    module, reduction, element_type, members = fold
    function, words = Words.function(llvm_module, name, VOID, [POINTER, POINTER, I64, I64], optimised=True)
    function.attributes.add("noinline")
    tile, sources, offset, elements = function.args
    tile.add_attribute("noalias")
    builder = words.builder

    def one_pass(first: ir.Value, count: int, *, begins: bool) -> None:
        places = []
        for k in range(count):
            index = builder.add(first, i64(k))
            places.append(words.at(words.load(POINTER, sources, builder.mul(index, i64(8))), offset))
        with words.count(i64(0), elements) as element:
            emit = ScalarEmitter(builder, module)
            at = emit.wrap_index(element, 0, TILE_BYTES)
            total, *values = (emit.load(p, at, element_type) for p in ([] if begins else [tile]) + places)
            for value in values:
                (total,) = emit.apply(reduction, total, value)
            emit.store(tile, at, total)

    begun = min(members, FAN_IN)
    one_pass(i64(0), begun, begins=True)
    full = (members - begun) // FAN_IN * FAN_IN
    if full:
        with words.count(i64(begun), i64(begun + full), FAN_IN) as first:
            one_pass(first, FAN_IN, begins=False)
    if members - begun - full:
        one_pass(i64(begun + full), members - begun - full, begins=False)
    builder.ret_void()
    return function


def emit_copy(words: Words, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
    """memcpy of i64 `count` bytes."""
    module = words.builder.module
    name = "llvm.memcpy.p0.p0.i64"
    function = module.globals.get(name) or ir.Function(
        module, ir.FunctionType(VOID, [POINTER, POINTER, I64, ir.IntType(1)]), name
    )
    words.builder.call(function, [target, source, count, ir.Constant(ir.IntType(1), 0)])


def emit_zero(words: Words, target: ir.Value, count: ir.Value) -> None:
    """memset to zero of i64 `count` bytes."""
    module = words.builder.module
    name = "llvm.memset.p0.i64"
    function = module.globals.get(name) or ir.Function(
        module, ir.FunctionType(VOID, [POINTER, I8, I64, ir.IntType(1)]), name
    )
    words.builder.call(function, [target, ir.Constant(I8, 0), count, ir.Constant(ir.IntType(1), 0)])


def emit_stream_copy(llvm_module: ir.Module) -> ir.Function:
    """void distxla_stream_copy(target, source, i64 bytes): a copy that leaves the target out of the caches."""
    found = llvm_module.globals.get("distxla_stream_copy")
    if found is not None:
        return found
    function, words = Words.function(llvm_module, "distxla_stream_copy", VOID, [POINTER, POINTER, I64], optimised=True)
    target, source, count = function.args
    builder = words.builder
    address = builder.ptrtoint(target, I64)
    head = words.smallest(builder.and_(builder.neg(address), i64(63)), count)
    emit_copy(words, target, source, head)
    body = builder.and_(builder.sub(count, head), i64(-64))
    vector = ir.VectorType(I8, 64)
    mark = llvm_module.add_metadata([i32(1)])
    with words.count(head, builder.add(head, body), 64) as at:
        line = builder.load(words.at(source, at), typ=vector, align=1)
        store = builder.store(line, words.at(target, at), align=64)
        store.set_metadata("nontemporal", mark)
    done = builder.add(head, body)
    emit_copy(words, words.at(target, done), words.at(source, done), builder.sub(count, done))
    fence = ir.InlineAsm(ir.FunctionType(VOID, []), "sfence", "~{memory}", side_effect=True)
    builder.call(fence, [])
    builder.ret_void()
    return function
