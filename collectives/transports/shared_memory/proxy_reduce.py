"""The native part of a relay's work: fold pieces of operands in group order and write them to all who get them."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols.proxy_queue import FOLD_RUN
from distxla.collectives.transports.shared_memory.atomics_builder import I8, I32, I64, POINTER, VOID, Words, i32, i64
from distxla.collectives.transports.shared_memory.copies import emit_copy, emit_stream_copy
from distxla.collectives.transports.shared_memory.reduce_tile import TILE_BYTES

FOLD_TYPE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64])  # as fold_tile.emit_fold_tile


def emit_fold_run(llvm_module: ir.Module) -> ir.Function:
    """Add the function that relay_queue.FOLD_RUN describes."""
    arguments = [POINTER, I64, POINTER, I64, I64, FOLD_TYPE.as_pointer(), I64, I32]
    function, words = Words.function(llvm_module, FOLD_RUN, VOID, arguments, internal=False)
    targets, target_count, sources, source_count, size, fold, element, streamed = function.args
    builder = words.builder
    tiles = words.local(ir.ArrayType(I8, 2 * TILE_BYTES), 64)
    pair = words.local(ir.ArrayType(POINTER, 2))
    current = words.local(POINTER)
    with words.count(i64(0), size, TILE_BYTES) as begin:
        count = words.smallest(i64(TILE_BYTES), builder.sub(size, begin))
        words.store(words.at(words.load(POINTER, sources), begin), current)
        with words.count(i64(1), source_count) as k:
            words.store(words.load(POINTER, current), pair)
            words.store(words.at(words.load(POINTER, sources, builder.mul(k, i64(8))), begin), pair, 8)
            tile = words.at(tiles, builder.mul(builder.and_(k, i64(1)), i64(TILE_BYTES)))
            builder.call(fold, [tile, pair, i64(0), builder.udiv(count, element)])
            words.store(tile, current)
        found = words.load(POINTER, current)
        with words.count(i64(0), target_count) as k:
            target = words.at(words.load(POINTER, targets, builder.mul(k, i64(8))), begin)
            elsewhere = builder.icmp_unsigned("!=", builder.ptrtoint(target, I64), builder.ptrtoint(found, I64))
            with words.when(elsewhere), builder.if_else(builder.icmp_unsigned("!=", streamed, i32(0))) as (past, plain):
                with past:
                    builder.call(emit_stream_copy(llvm_module), [target, found, count])
                with plain:
                    emit_copy(words, target, found, count)
    builder.ret_void()
    return function
