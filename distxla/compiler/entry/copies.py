"""Copies of arrays in the host's memory, and exchanges of their places."""

from __future__ import annotations

from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.plan.buffers import Copy, MemoryRegion, Swap
from distxla.emit.native_function import I1, I64, memcpy


def emit_copy(body: FunctionBody, step: Copy) -> None:
    function = memcpy(body.builder.module)
    builder, target, source = body.builder, body.pointer(step.target), body.pointer(step.source)
    arguments = [target, source, I64(step.source.size), I1(0)]
    if step.source.region is MemoryRegion.PARAMETER and step.target.region is MemoryRegion.RESULT:
        with builder.if_then(builder.icmp_unsigned("!=", target, source)):  # the caller may have given one place
            builder.call(function, arguments)
    else:
        builder.call(function, arguments)


def emit_swap(body: FunctionBody, step: Swap) -> None:
    first, second = body.place_of(step.first), body.place_of(step.second)
    offset = body.builder.load(first, typ=I64)
    body.builder.store(body.builder.load(second, typ=I64), first)
    body.builder.store(offset, second)


__all__ = ["emit_copy", "emit_swap"]
