"""The work of a round whose buffers are in the memory of kernels on a grid.

Members post addresses that they have exported (targets/grid_calls.py). An item writes a table of them as addresses of
its own process, launches the round's kernel, and waits for it. On one grid the last one to arrive does all the work in
one item. Where there are several, the work has as many equal parts, each an item, as there are members.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.transports.seam import ADDRESSES, PART, PARTS, LaunchedRound
from distxla.collectives.transports.shared_memory.work_items import ITEMS_TYPE
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, i32, i64
from distxla.program.abi import Status
from distxla.targets.grid_calls import GridCalls

ON_GRID = 0x6D656D6F72792121  # in signatures of rounds: members whose arrays are in different memory don't match


def emit_grid_items(
    llvm_module: ir.Module, name: str, calls: GridCalls, launched: LaunchedRound, members: int, leaves: int
) -> ir.Function:
    """The ITEMS_TYPE function of a round. leaves: of operands and results that a member posts."""
    function, atomics = AtomicsBuilder.function(llvm_module, name, ITEMS_TYPE.return_type, list(ITEMS_TYPE.args))
    context, slots, member_ids, _, _, first, end = function.args
    builder = atomics.builder
    table = atomics.local(ir.ArrayType(I64, ADDRESSES + members * leaves))

    with atomics.count(i64(0), i64(members)) as member, atomics.count(i64(0), i64(leaves)) as leaf:
        device = atomics.assigned(context, atomics.load(I32, member_ids, builder.mul(member, i64(4))))
        slot = atomics.at(slots, builder.mul(member, i64(round_words.SLOT_BYTES)))
        posted = atomics.load(I64, atomics.at(slot, round_words.S_OFFSETS), builder.mul(leaf, i64(8)))
        row = builder.add(builder.mul(leaf, i64(members)), builder.add(member, i64(ADDRESSES)))
        place = atomics.at(table, builder.mul(row, i64(8)))
        atomics.require_ok(calls.emit_import(builder, context, device, posted, place))
    atomics.store(grid_parts(calls, builder, context, members), table, 8 * PARTS)
    with atomics.count(first, end) as item:
        atomics.store(item, table, 8 * PART)
        scratch, size = calls.emit_scratch(builder, context), 8 * (ADDRESSES + members * leaves)
        atomics.require_ok(calls.emit_upload(builder, context, scratch, table, size))
        for number, launch in enumerate(launched.launches, launched.launch):
            shape = launch.blocks, launch.threads
            atomics.require_ok(calls.emit_launch(builder, context, launched.step, number, shape, ()))
    emit_end(atomics, calls, context)
    builder.ret(i32(Status.OK))
    return function


def grid_parts(calls: GridCalls, builder: ir.IRBuilder, context: ir.Value, members: int) -> ir.Value:
    """The items of a round, i64."""
    return builder.select(calls.emit_is_one_of_several(builder, context), i64(members), i64(1))


def emit_end(atomics: AtomicsBuilder, calls: GridCalls, context: ir.Value) -> None:
    """Wait for what was queued, before others are told; returns from the function where it failed."""
    atomics.require_ok(calls.emit_wait(atomics.builder, context))


def emit_grid_zeros(
    atomics: AtomicsBuilder, calls: GridCalls, context: ir.Value, exported: ir.Value, sizes: Sequence[int]
) -> None:
    """Fill this device's own arrays with zeros; returns from the function where that fails. exported: their places."""
    builder, place = atomics.builder, atomics.local(I64)
    device = atomics.context_field(context, "device")
    for leaf, size in enumerate(sizes):
        if not size:
            continue
        posted = atomics.load(I64, exported, 8 * leaf)
        atomics.require_ok(calls.emit_import(builder, context, device, posted, place))
        atomics.require_ok(calls.emit_fill(builder, context, atomics.load(I64, place), 0, size))
