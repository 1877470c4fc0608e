"""Copies of bytes, as LLVM IR."""

from __future__ import annotations

from distxla.emit.atomics_builder import AtomicsBuilder, emitted_once
from distxla.emit.native_function import I64, POINTER, VOID, emit_copy, i64
from distxla.targets.code import target_of


@emitted_once("distxla_stream_copy", VOID, [POINTER, POINTER, I64], optimised=True, common=True)
def emit_stream_copy(atomics: AtomicsBuilder) -> None:
    """void distxla_stream_copy(target, source, i64 bytes): a copy that leaves the target out of the caches."""
    target, source, count = atomics.builder.function.args
    builder = atomics.builder
    address = builder.ptrtoint(target, I64)
    head = atomics.smallest(builder.and_(builder.neg(address), i64(63)), count)
    emit_copy(atomics.builder, target, source, head)
    body = builder.and_(builder.sub(count, head), i64(-64))
    cpu = target_of(builder)
    with atomics.count(head, builder.add(head, body), 64) as at:
        line = builder.load(atomics.at(source, at), typ=cpu.line_type, align=1)
        cpu.emit_streamed_store(builder, line, atomics.at(target, at))
    done = builder.add(head, body)
    emit_copy(atomics.builder, atomics.at(target, done), atomics.at(source, done), builder.sub(count, done))
    cpu.emit_streamed_fence(builder)
    builder.ret_void()
