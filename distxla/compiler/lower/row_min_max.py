"""Extremes of long lines in memory, several lines side by side, in vector registers and with prefetches.

The compiler's vectoriser takes no loop with prefetches in it, and with as many streams as accumulators the processor's
own prefetching falls behind by a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import BufferEmitter
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_expression import suffix
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.emit.native_function import I8, I32, POINTER, VOID, declared
from distxla.ir.element_type import ElementType
from distxla.targets.code import target_of
from distxla.targets.processor import Processor

_READ, _KEEP, _DATA = 0, 3, 1  # arguments of llvm.prefetch


def has_whole_vectors(processor: Processor, kind: ElementType, length: int) -> bool:
    return length * kind.byte_size % processor.vector_bytes == 0


def emit_row_min_max(
    emit: BufferEmitter,
    array: MemoryArray,
    starts: Sequence[IndexExpression],
    length: int,
    initial: Sequence[ScalarValue],
    functions: Sequence[str],
) -> list[list[ScalarValue]]:
    """For each line of `length` elements from a linear position in `starts` on: for each of `functions` (LLVM's smax,
    umax, umin) the extreme of the bits of its elements and of `initial`. `length` must make up whole vectors."""
    builder = emit.builder
    processor = target_of(builder).processor
    kind = array.shape.dtype
    lanes = processor.vector_bytes // kind.byte_size
    scalar = ir.IntType(kind.bits)
    vector = ir.VectorType(scalar, lanes)
    name = f"v{lanes}{suffix(scalar)}"
    slots = [[emit.stack_slot(vector) for _ in functions] for _ in starts]
    for own in slots:
        for slot, value in zip(own, initial):
            builder.store(_broadcast(builder, vector, value.llvm), slot)
    prefetch = declared(builder.module, "llvm.prefetch.p0", VOID, [POINTER, I32, I32, I32])
    hints = [ir.Constant(I32, hint) for hint in (_READ, _KEEP, _DATA)]
    with emit.loops([length // lanes]) as (step,):
        for start, own in zip(starts, slots):
            address = emit.element_pointer(array.pointer, start + step * lanes, kind)
            # beyond the array's end it is no access
            builder.call(
                prefetch,
                [
                    builder.gep(address, [ir.Constant(I32, processor.prefetch_bytes)], source_etype=I8),
                    *hints,
                ],
            )
            bits = builder.load(address, typ=vector, align=kind.byte_size)
            for function, slot in zip(functions, own):
                combine = declared(builder.module, f"llvm.{function}.{name}", vector, [vector, vector])
                builder.store(builder.call(combine, [builder.load(slot, typ=vector), bits]), slot)
    found = []
    for own in slots:
        line = []
        for function, slot, value in zip(functions, own, initial):
            across = declared(builder.module, f"llvm.vector.reduce.{function}.{name}", scalar, [vector])
            line.append(ScalarValue(value.element_type, builder.call(across, [builder.load(slot, typ=vector)])))
        found.append(line)
    return found


def _broadcast(builder: ir.IRBuilder, vector: ir.VectorType, scalar: ir.Value) -> ir.Value:
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, vector.count), None))
