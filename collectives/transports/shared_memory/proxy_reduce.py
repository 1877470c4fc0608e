"""The native part of a proxy's work: reduce pieces of operands in group order and write them to all receivers."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols.proxy_queue import REDUCE_RUN
from distxla.collectives.transports.shared_memory.copies import emit_stream_copy
from distxla.collectives.transports.shared_memory.reduce_tile import TILE_BYTES
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I32, I64, POINTER, VOID, emit_copy, i32, i64

REDUCE_TYPE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64])  # as reduce_tile.emit_reduce_tile


def emit_reduce_run(llvm_module: ir.Module) -> ir.Function:
    """Add the function that proxy_queue.REDUCE_RUN describes."""
    arguments = [POINTER, I64, POINTER, I64, I64, REDUCE_TYPE.as_pointer(), I64, I32]
    function, atomics = AtomicsBuilder.function(llvm_module, REDUCE_RUN, VOID, arguments, internal=False)
    targets, target_count, sources, source_count, size, reduce_tile, element, streamed = function.args
    builder = atomics.builder
    tiles = atomics.local(ir.ArrayType(I8, 2 * TILE_BYTES), 64)
    pair = atomics.local(ir.ArrayType(POINTER, 2))
    current = atomics.local(POINTER)
    with atomics.count(i64(0), size, TILE_BYTES) as begin:
        count = atomics.smallest(i64(TILE_BYTES), builder.sub(size, begin))
        atomics.store(atomics.at(atomics.load(POINTER, sources), begin), current)
        with atomics.count(i64(1), source_count) as k:
            atomics.store(atomics.load(POINTER, current), pair)
            atomics.store(atomics.at(atomics.load(POINTER, sources, builder.mul(k, i64(8))), begin), pair, 8)
            tile = atomics.at(tiles, builder.mul(builder.and_(k, i64(1)), i64(TILE_BYTES)))
            builder.call(reduce_tile, [tile, pair, i64(0), builder.udiv(count, element)])
            atomics.store(tile, current)
        found = atomics.load(POINTER, current)
        with atomics.count(i64(0), target_count) as k:
            target = atomics.at(atomics.load(POINTER, targets, builder.mul(k, i64(8))), begin)
            elsewhere = builder.icmp_unsigned("!=", builder.ptrtoint(target, I64), builder.ptrtoint(found, I64))
            with (
                atomics.when(elsewhere),
                builder.if_else(builder.icmp_unsigned("!=", streamed, i32(0))) as (past, plain),
            ):
                with past:
                    builder.call(emit_stream_copy(llvm_module), [target, found, count])
                with plain:
                    emit_copy(atomics.builder, target, found, count)
    builder.ret_void()
    return function
