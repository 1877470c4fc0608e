"""What native functions are written with, whatever they do: LLVM's types, fields of C structures, declarations, and
calls through addresses in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER, VOID = ir.PointerType(), ir.VoidType()
NULL: Final = ir.Constant(POINTER, None)
FIELD_TYPES: Final[dict[Any, ir.Type]] = {
    ctypes.c_bool: I8,
    ctypes.c_float: ir.FloatType(),
    ctypes.c_int32: I32,
    ctypes.c_int64: I64,
    ctypes.c_uint32: I32,
    ctypes.c_uint64: I64,
    ctypes.c_void_p: POINTER,
}
"""How LLVM calls the types of fields and arguments that ctypes declares."""


class CommonFunction(ir.Function):  # type: ignore[misc]
    """A function that is the same in every program that has one of its name and its kind."""


class _LoadedFunction(ir.instructions.LoadInstr):  # type: ignore[misc]
    """A function's address, read from memory: llvmlite asks a callee for its type, which plain pointers don't tell."""

    def __init__(self, block: ir.Block, place: ir.Value, name: str, function_type: ir.FunctionType) -> None:
        super().__init__(block, place, name, typ=POINTER)
        self._function_type = function_type

    @property
    def function_type(self) -> ir.FunctionType:
        return self._function_type


def i32(value: int) -> ir.Constant:
    return ir.Constant(I32, value & 0xFFFFFFFF)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value & 0xFFFFFFFFFFFFFFFF)


def field_of(structure: type[ctypes.Structure], name: str) -> tuple[ir.Type, int]:
    """The type of a field, and where it begins, in bytes."""
    fields: Any = structure._fields_
    return FIELD_TYPES[dict(fields)[name]], int(getattr(structure, name).offset)


def declared(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """The declaration of an LLVM intrinsic or library function of that very name, made at its first use."""
    found = module.globals.get(name)
    return ir.Function(module, ir.FunctionType(result, list(arguments)), name) if found is None else found


def new_function(
    module: ir.Module,
    name: str,
    result: ir.Type,
    arguments: Sequence[ir.Type],
    *attributes: str,
    internal: bool = True,
    common: bool = False,
) -> ir.Function:
    """A function to be written, with LLVM's attributes of these names. common: see CommonFunction."""
    kind = CommonFunction if common else ir.Function
    function = kind(module, ir.FunctionType(result, list(arguments)), name)
    if internal:
        function.linkage = "internal"
    for attribute in attributes:
        function.attributes.add(attribute)
    return function


def memcpy(module: ir.Module) -> ir.Function:
    """void (target, source, i64 bytes, i1 volatile)."""
    return declared(module, "llvm.memcpy.p0.p0.i64", VOID, (POINTER, POINTER, I64, I1))


def memset(module: ir.Module) -> ir.Function:
    """void (target, i8 value, i64 bytes, i1 volatile)."""
    return declared(module, "llvm.memset.p0.i64", VOID, (POINTER, I8, I64, I1))


def emit_copy(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
    """memcpy of i64 `count` bytes."""
    builder.call(memcpy(builder.module), [target, source, count, I1(0)])


def emit_zero(builder: ir.IRBuilder, target: ir.Value, count: ir.Value) -> None:
    """memset to zero of i64 `count` bytes."""
    builder.call(memset(builder.module), [target, I8(0), count, I1(0)])


def load_function(
    builder: ir.IRBuilder, place: ir.Value, result: ir.Type, arguments: Sequence[ir.Type], name: str
) -> ir.Value:
    """The function whose address is in *place, to be called; `name` is the value's."""
    loaded = _LoadedFunction(builder.block, place, name, ir.FunctionType(result, list(arguments)))
    builder._insert(loaded)
    return loaded


@contextmanager
def counted(
    builder: ir.IRBuilder,
    start: ir.Value,
    end: ir.Value,
    step: ir.Value | None = None,
    *,
    names: tuple[str, str, str] = ("body", "done", ""),
) -> Iterator[ir.Value]:
    """`for index in range(start, end, step)` on i64s from 0 on, by 1 without a step. names: of the loop's block, of the
    one behind it, and of the index."""
    before = builder.block
    body, done = (builder.append_basic_block(name) for name in names[:2])
    builder.cbranch(builder.icmp_signed("<", start, end), body, done)
    builder.position_at_end(body)
    index = builder.phi(I64, names[2])
    index.add_incoming(start, before)
    yield index
    following = builder.add(index, I64(1) if step is None else step, flags=("nuw", "nsw"))
    index.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, end), body, done)
    builder.position_at_end(done)
