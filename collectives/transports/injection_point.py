"""The hook that may inject a fault, in programs that are compiled for faults.

    void distxla_inject(Context*, u32 code)

calls `context->inject` unless it is null; distxla/program/abi.py has the codes.
"""

from __future__ import annotations

from llvmlite import ir

from distxla.emit.native_function import I8, I32, I64, POINTER, VOID, load_function, new_function
from distxla.program.abi import INSIDE_WAIT, Context

HOOK = "distxla_inject"


def emit_inside_wait(builder: ir.IRBuilder, context: ir.Value) -> None:
    """Call the hook from within a wait, in a program that has points."""
    hook = builder.module.globals.get(HOOK)
    if hook is not None:
        builder.call(hook, [context, I32(INSIDE_WAIT)])


def emit_hook(llvm_module: ir.Module) -> ir.Function:
    """Emit the function that calls the hook; steps and waits call it."""
    function = new_function(llvm_module, HOOK, VOID, (POINTER, I32), "noinline")
    context, code = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    place = builder.gep(context, [I64(Context.inject.offset)], source_etype=I8)
    hook = load_function(builder, place, VOID, (POINTER, I32), "hook")
    exists = builder.icmp_unsigned("!=", builder.ptrtoint(hook, I64), I64(0))
    with builder.if_then(exists):
        builder.call(hook, [context, code])
    builder.ret_void()
    return function
