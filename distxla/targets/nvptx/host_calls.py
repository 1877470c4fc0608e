"""`targets.grid_calls.GridCalls`: the host's code calls the driver, without Python between two kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from distxla.collectives.protocols import exported_memory
from distxla.emit.native_function import (
    FIELD_TYPES,
    I1,
    I8,
    I32,
    I64,
    POINTER,
    declared,
    emit_copy,
    field_of,
    load_function,
    new_function,
)
from distxla.errors import InternalError
from distxla.ir.element_type import F64
from distxla.program.abi import Context, Status
from distxla.program.artifact import MatrixProduct
from distxla.targets.grid_calls import ArrayKind
from distxla.targets.nvptx.call_state import (
    BEGIN,
    CALLED,
    CONSTANT,
    DRIVER,
    FAILED,
    OPEN,
    STAGED_ALIGNMENT,
    STAGED_BYTES,
    STAGING_BYTES,
    CallState,
)
from distxla.targets.nvptx.cublas.gemm import NUMBERS, gemm_numbers
from distxla.targets.nvptx.interfaces import driver as interface
from distxla.targets.nvptx.interfaces.cublas import FUNCTIONS, GEMM, GEMM_PARAMETERS


class HostCalls:
    """Each kind of call is a small function of the module, made at its first use."""

    def emit_begin(self, builder: ir.IRBuilder, context: ir.Value, constants: int) -> ir.Value:
        return builder.call(declared(builder.module, BEGIN, I32, [POINTER, I32]), [context, I32(constants)])

    def emit_constant(
        self, builder: ir.IRBuilder, context: ir.Value, number: int, place: ir.Value, size: int
    ) -> ir.Value:
        function = _made(builder.module, "gpu_constant", [POINTER, I32, POINTER, I64], _emit_constant)
        return builder.call(function, [context, I32(number), place, I64(size)])

    def emit_wait(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
        return builder.call(_made(builder.module, "gpu_wait", [POINTER], _emit_wait), [context])

    def emit_arena(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
        return _field(builder, _state(builder, context), "arena")

    def emit_address(self, builder: ir.IRBuilder, context: ir.Value, kind: ArrayKind, number: int) -> ir.Value:
        table = _field(builder, _state(builder, context), kind.value)
        return builder.load(builder.gep(table, [I64(number)], source_etype=I64), typ=I64)

    def emit_scratch(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
        return _field(builder, _state(builder, context), "scratch")

    def emit_export(self, builder: ir.IRBuilder, context: ir.Value, address: ir.Value) -> ir.Value:
        return builder.add(address, _field(builder, _state(builder, context), "export"))

    def emit_is_one_of_several(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
        return builder.trunc(_field(builder, _state(builder, context), "is_one_of_several"), I1)

    def emit_import(
        self, builder: ir.IRBuilder, context: ir.Value, device: ir.Value, exported: ir.Value, place: ir.Value
    ) -> ir.Value:
        function = _made(builder.module, "gpu_import", [POINTER, I32, I64, POINTER], _emit_import)
        return builder.call(function, [context, device, exported, place])

    def emit_launch(
        self,
        builder: ir.IRBuilder,
        context: ir.Value,
        step: int,
        launch: int,
        shape: tuple[int, int],
        addresses: Sequence[ir.Value],
    ) -> ir.Value:
        kinds = [POINTER, I32, I32, I32, I32, *[I64] * len(addresses)]
        function = _made(builder.module, f"gpu_launch_{len(addresses)}", kinds, _emit_launch)
        return builder.call(function, [context, I32(step), I32(launch), *map(I32, shape), *addresses])

    def emit_has_products(self, builder: ir.IRBuilder, context: ir.Value, product: MatrixProduct) -> ir.Value | None:
        if gemm_numbers(product) is None:
            return None
        return builder.icmp_unsigned("!=", _field(builder, _state(builder, context), "multiply"), POINTER(None))

    def emit_product(
        self,
        builder: ir.IRBuilder,
        context: ir.Value,
        step: int,
        product: MatrixProduct,
        addresses: tuple[ir.Value, ir.Value, ir.Value],
    ) -> ir.Value:
        known = gemm_numbers(product)
        if known is None:
            raise InternalError(f"cuBLAS can't compute {product}")
        kinds = [I64 if GEMM_PARAMETERS[name] is ctypes.c_int64 else I32 for name in NUMBERS]
        numbers = [kind(known[name]) for kind, name in zip(kinds, NUMBERS, strict=True)]
        sums = product.c.element_type
        emit = partial(_emit_product, ir.DoubleType() if sums is F64 else ir.FloatType())
        function = _made(builder.module, f"gpu_product_{sums.name}", [POINTER, I32, I64, I64, I64, *kinds], emit)
        return builder.call(function, [context, I32(step), *addresses, *numbers])

    def emit_upload(
        self, builder: ir.IRBuilder, context: ir.Value, address: ir.Value, place: ir.Value, size: int
    ) -> ir.Value:
        name, emit = ("gpu_upload", _emit_upload) if size <= STAGED_BYTES else ("gpu_upload_large", _emit_large_upload)
        function = _made(builder.module, name, [POINTER, I64, POINTER, I64], emit)
        return builder.call(function, [context, address, place, I64(size)])

    def emit_copy(
        self, builder: ir.IRBuilder, context: ir.Value, target: ir.Value, source: ir.Value, size: int
    ) -> ir.Value:
        function = _made(builder.module, "gpu_copy", [POINTER, I64, I64, I64], _emit_copy)
        return builder.call(function, [context, target, source, I64(size)])

    def emit_fill(self, builder: ir.IRBuilder, context: ir.Value, address: ir.Value, value: int, size: int) -> ir.Value:
        function = _made(builder.module, "gpu_fill", [POINTER, I64, I32, I64], _emit_fill)
        return builder.call(function, [context, address, I32(value), I64(size)])

    def emit_download(
        self, builder: ir.IRBuilder, context: ir.Value, place: ir.Value, address: ir.Value, size: int
    ) -> ir.Value:
        function = _made(builder.module, "gpu_download", [POINTER, POINTER, I64, I64], _emit_download)
        return builder.call(function, [context, place, address, I64(size)])


# --- functions: each returns a Status


def _emit_constant(builder: ir.IRBuilder, context: ir.Value, number: ir.Value, place: ir.Value, size: ir.Value) -> None:
    table = _field(builder, _state(builder, context), "constants")
    address = builder.load(builder.gep(table, [builder.zext(number, I64)], source_etype=I64), typ=I64)
    with builder.if_then(builder.icmp_unsigned("!=", address, I64(0))):
        builder.ret(I32(Status.OK))
    function = declared(builder.module, CONSTANT, I32, [POINTER, I32, POINTER, I64])
    builder.ret(builder.call(function, [context, number, place, size]))


def _emit_import(
    builder: ir.IRBuilder, context: ir.Value, device: ir.Value, exported: ir.Value, place: ir.Value
) -> None:
    """Through the table of opened blocks; the first time the block is opened. 0 stays 0."""
    with builder.if_then(builder.icmp_unsigned("==", exported, I64(0)), likely=False):
        builder.store(exported, place)
        builder.ret(I32(Status.OK))
    number = builder.lshr(exported, I64(exported_memory.NUMBER_SHIFT))
    row = builder.add(builder.mul(builder.zext(device, I64), I64(exported_memory.BLOCKS)), number)
    begin = builder.gep(_field(builder, _state(builder, context), "opened"), [row], source_etype=I64)
    with builder.if_then(builder.icmp_unsigned("==", builder.load(begin, typ=I64), I64(0)), likely=False):
        function = declared(builder.module, OPEN, I32, [POINTER, I32, I32])
        status = builder.call(function, [context, device, builder.trunc(number, I32)])
        with builder.if_then(builder.icmp_unsigned("!=", status, I32(Status.OK))):
            builder.ret(status)
    offset = builder.and_(exported, I64((1 << exported_memory.NUMBER_SHIFT) - 1))
    builder.store(builder.add(builder.load(begin, typ=I64), offset), place)
    builder.ret(I32(Status.OK))


def _emit_launch(
    builder: ir.IRBuilder,
    context: ir.Value,
    step: ir.Value,
    launch: ir.Value,
    blocks: ir.Value,
    threads: ir.Value,
    *addresses: ir.Value,
) -> None:
    state = _state(builder, context)
    arguments = [_field(builder, state, "context"), *addresses, _field(builder, state, "scratch")]
    values = builder.alloca(I64, size=len(arguments))
    places = builder.alloca(POINTER, size=len(arguments))
    for number, argument in enumerate(arguments):
        value = builder.gep(values, [I64(number)], source_etype=I64)
        builder.store(argument, value)
        builder.store(value, builder.gep(places, [I64(number)], source_etype=POINTER))
    builder.store(builder.add(step, I32(1)), _place(builder, state, "last"))
    table = _field(builder, state, "functions")
    function = builder.load(builder.gep(table, [builder.zext(launch, I64)], source_etype=POINTER), typ=POINTER)
    one, stream = I32(1), _field(builder, state, "stream")
    grid = [blocks, one, one, threads, one, one, I32(0)]
    _call(builder, context, "cuLaunchKernel", function, *grid, stream, places, POINTER(None))
    builder.ret(I32(Status.OK))


def _emit_product(
    sums: ir.Type,
    builder: ir.IRBuilder,
    context: ir.Value,
    step: ir.Value,
    a: ir.Value,
    b: ir.Value,
    c: ir.Value,
    *numbers: ir.Value,
) -> None:
    """1 * a b + 0 * c, for which c isn't read."""
    state = _state(builder, context)
    one = builder.alloca(sums, size=2)
    zero = builder.gep(one, [I64(1)], source_etype=sums)
    builder.store(sums(1.0), one)
    builder.store(sums(0.0), zero)
    builder.store(builder.add(step, I32(1)), _place(builder, state, "last"))
    given = dict(zip(NUMBERS, numbers, strict=True)) | {"alpha": one, "A": b, "B": a, "beta": zero, "C": c}
    kinds = [FIELD_TYPES[kind] for kind in FUNCTIONS[GEMM]]
    multiply = load_function(builder, _place(builder, state, "multiply"), I32, kinds, "multiply")
    handle = _field(builder, state, "cublas")
    result = builder.call(multiply, [handle, *(given[name] for name in GEMM_PARAMETERS)])
    _return_failure(builder, context, GEMM, result)
    builder.ret(I32(Status.OK))


def _emit_upload(builder: ir.IRBuilder, context: ir.Value, address: ir.Value, place: ir.Value, size: ir.Value) -> None:
    """From a copy, since the place may be written before the queue gets here."""
    state = _state(builder, context)
    used = _field(builder, state, "staged")
    needed = builder.and_(builder.add(size, I64(STAGED_ALIGNMENT - 1)), I64(-STAGED_ALIGNMENT))
    with builder.if_then(builder.icmp_unsigned(">", builder.add(used, needed), I64(STAGING_BYTES))):
        _wait(builder, context, state)
    used = _field(builder, state, "staged")
    copied = builder.gep(_field(builder, state, "staging"), [used], source_etype=I8)
    emit_copy(builder, copied, place, size)
    builder.store(builder.add(used, needed), _place(builder, state, "staged"))
    _call(builder, context, "cuMemcpyHtoDAsync_v2", address, copied, size, _field(builder, state, "stream"))
    builder.ret(I32(Status.OK))


def _emit_large_upload(
    builder: ir.IRBuilder, context: ir.Value, address: ir.Value, place: ir.Value, size: ir.Value
) -> None:
    state = _state(builder, context)
    _call(builder, context, "cuMemcpyHtoDAsync_v2", address, place, size, _field(builder, state, "stream"))
    _wait(builder, context, state)
    builder.ret(I32(Status.OK))


def _emit_download(
    builder: ir.IRBuilder, context: ir.Value, place: ir.Value, address: ir.Value, size: ir.Value
) -> None:
    state = _state(builder, context)
    _call(builder, context, "cuMemcpyDtoHAsync_v2", place, address, size, _field(builder, state, "stream"))
    _wait(builder, context, state)
    builder.ret(I32(Status.OK))


def _emit_copy(builder: ir.IRBuilder, context: ir.Value, target: ir.Value, source: ir.Value, size: ir.Value) -> None:
    with builder.if_then(builder.icmp_unsigned("!=", target, source)):
        stream = _field(builder, _state(builder, context), "stream")
        _call(builder, context, "cuMemcpyDtoDAsync_v2", target, source, size, stream)
    builder.ret(I32(Status.OK))


def _emit_fill(builder: ir.IRBuilder, context: ir.Value, address: ir.Value, value: ir.Value, size: ir.Value) -> None:
    _call(
        builder, context, "cuMemsetD8Async", address, value, size, _field(builder, _state(builder, context), "stream")
    )
    builder.ret(I32(Status.OK))


def _emit_wait(builder: ir.IRBuilder, context: ir.Value) -> None:
    _wait(builder, context, _state(builder, context))
    builder.ret(I32(Status.OK))


# --- parts of them


def _wait(builder: ir.IRBuilder, context: ir.Value, state: ir.Value) -> None:
    _call(builder, context, "cuStreamSynchronize", _field(builder, state, "stream"))
    builder.store(I64(0), _place(builder, state, "staged"))


def _call(builder: ir.IRBuilder, context: ir.Value, name: str, *arguments: ir.Value) -> None:
    """Call the driver; its error ends the function."""
    function = declared(builder.module, DRIVER + name, I32, [argument.type for argument in arguments])
    _return_failure(builder, context, name, builder.call(function, arguments))


def _return_failure(builder: ir.IRBuilder, context: ir.Value, name: str, result: ir.Value) -> None:
    with builder.if_then(builder.icmp_unsigned("!=", result, I32(interface.SUCCESS)), likely=False):
        failed = declared(builder.module, FAILED, I32, [POINTER, I32, I32])
        builder.ret(builder.call(failed, [context, I32(CALLED.index(name)), result]))


def _state(builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
    place = builder.gep(context, [I64(Context.grid.offset)], source_etype=I8)
    return builder.load(place, typ=POINTER)


def _place(builder: ir.IRBuilder, state: ir.Value, field: str) -> ir.Value:
    return builder.gep(state, [I64(getattr(CallState, field).offset)], source_etype=I8)


def _field(builder: ir.IRBuilder, state: ir.Value, field: str) -> ir.Value:
    kind, _ = field_of(CallState, field)
    return builder.load(_place(builder, state, field), typ=kind)


def _made(module: ir.Module, name: str, arguments: Sequence[ir.Type], emit: Callable[..., None]) -> ir.Function:
    """A function of this module; `emit` gets a builder and the arguments, and ends it."""
    function = module.globals.get(name)
    if function is None:
        function = new_function(module, name, I32, arguments, "noinline")
        emit(ir.IRBuilder(function.append_basic_block("entry")), *function.args)
    return function
