"""Read-only tables in the image, which a routine indexes by its device's id in the program."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from llvmlite import ir

from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I64, i64
from distxla.ir.shape import Shape

DEVICE_ROW = 16  # bytes of a row of the tables by flattened device id


def digest(value: object) -> str:
    """A name for equal values."""
    return hashlib.blake2b(repr(value).encode(), digest_size=12).hexdigest()


def constant(llvm_module: ir.Module, name: str, kind: ir.IntType, values: Sequence[int]) -> ir.GlobalVariable:
    """A read-only table, made once for a name."""
    found = llvm_module.globals.get(name)
    if found is None:
        mask = (1 << kind.width) - 1
        array = ir.ArrayType(kind, max(1, len(values)))
        found = ir.GlobalVariable(llvm_module, array, name)
        found.linkage, found.global_constant, found.align = "internal", True, 64
        found.initializer = ir.Constant(array, [kind(v & mask) for v in (values or [0])])
    return found


def ticket(atomics: AtomicsBuilder, context: ir.Value, table: ir.Value, result: Shape) -> ir.Value:
    """The place behind those of `result` in a table of buffers: where an async start stores its round number."""
    memory = atomics.device_memory(context, atomics.context_field(context, "device"))
    return atomics.at(memory, atomics.load(I64, table, 8 * sum(1 for _ in result.leaves())))


def by_device(rows: Mapping[int, tuple[int, ...]]) -> list[int]:
    """Rows of four u32 by flattened device id; zeros for ids that no group has."""
    return [value for device in range(max(rows) + 1) for value in rows.get(device, (0, 0, 0, 0))]


def device_row(atomics: AtomicsBuilder, context: ir.Value, table: ir.GlobalVariable) -> ir.Value:
    """The device's own row."""
    device = atomics.builder.zext(atomics.context_field(context, "logical"), I64)
    return atomics.at(table, atomics.builder.mul(device, i64(DEVICE_ROW)))
