"""Code that fills memory with a marker before a step writes it (ir/unwritten.py): for test runs only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from llvmlite import ir

from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.plan.buffers import Buffer, Communicate, Kernel, MemoryRegion, Plan, PlanStep
from distxla.emit.native_function import I8, I32, I64, POINTER, declared
from distxla.ir.shape import Shape
from distxla.ir.unwritten import MARKER


def written_anew(step: Kernel | Communicate) -> Iterator[Buffer]:
    """The results in memory that holds no operand, wherever the caller has put parameters."""
    taken = step.operands
    if isinstance(step, Kernel) and step.same_places:
        places = [buffer for buffer in step.results if buffer.region is not MemoryRegion.NONE]
        taken = (*taken, *(places[result] for _, result in step.same_places))
    for result in step.results:
        has_memory = result.size and result.region in (MemoryRegion.ARENA, MemoryRegion.RESULT, MemoryRegion.SHARED)
        if has_memory and not any(_overlap(result, operand) for operand in taken):
            yield result


@contextmanager
def filled(body: FunctionBody, step: PlanStep) -> Iterator[None]:
    """Fill what the step is to write, so that a read of bytes that it doesn't write shows."""
    if isinstance(step, Kernel | Communicate):
        fill(body, written_anew(step))
    yield


def fill(body: FunctionBody, buffers: Iterable[Buffer]) -> None:
    """Fill buffers before the next step."""
    for buffer in buffers:
        shared = buffer.region is MemoryRegion.SHARED  # of which the device's own place is filled
        offset = body.in_arena(buffer) if shared else body.offset(buffer)
        _emit_fill(body.builder, body.own_memory, offset, buffer.size)


def fill_at_begin(body: FunctionBody, plan: Plan, result: Shape, scratch_bytes: int) -> None:
    """Fill the arena and the results before the first step, so that a read of bytes that no step writes shows."""
    given = {k for k, _ in plan.in_place}  # where the caller's arguments may be
    leaves = enumerate(result.leaves())
    buffers = [Buffer(leaf.byte_size, MemoryRegion.RESULT, k) for k, leaf in leaves if leaf.is_array and k not in given]
    for buffer in (*buffers, Buffer(plan.arena_bytes + scratch_bytes, MemoryRegion.ARENA, 0)):
        _emit_fill(body.begin, body.own_memory, body.offset(buffer), buffer.size)


def _emit_fill(builder: ir.IRBuilder, memory: ir.Value, offset: ir.Value, size: int) -> None:
    """Write the marker over `size` bytes of a memory; the C library's functions do it, which costs hardly any code."""
    pointer = builder.gep(memory, [offset], source_etype=I8)
    for name, kind, value, count in (
        ("wmemset", I32, MARKER << 16 | MARKER, size // 4),
        ("memset", I32, MARKER & 0xFF, size % 4),
    ):
        if count:
            function = declared(builder.module, name, POINTER, (POINTER, kind, I64))
            builder.call(function, [pointer, kind(value), I64(count)])
            pointer = builder.gep(pointer, [I64(size - size % 4)], source_etype=I8)


def _overlap(one: Buffer, other: Buffer) -> bool:
    if one is other or one.region is not other.region:
        return one is other
    if one.region is MemoryRegion.ARENA:
        return one.number < other.number + other.size and other.number < one.number + one.size
    return one.number == other.number
