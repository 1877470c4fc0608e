"""The kernel of one instruction for a grid, as functions that launches name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.grid.grid_emitter import GridEmitter, NoGridFormError
from distxla.compiler.lower.grid.launches import GridKernel
from distxla.compiler.lower.kernels import emit_instruction
from distxla.compiler.plan.buffers import Kernel
from distxla.compiler.plan.same_places import positions_in_one_place
from distxla.emit.native_function import I32, POINTER, VOID
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.program.abi import ALIGNMENT
from distxla.program.artifact import Launch
from distxla.targets.grid_module import GridModule


def emit_grid_kernel(grid_module: GridModule, module: Module, step: Kernel, name: str) -> GridKernel:
    """Add the functions that compute the step's instruction to `grid_module`, one a launch.

    Their arguments are those of a kernel (lower/kernels.py), as addresses of the device's memory. NoGridFormError where
    the kernel has to be run by the host; nothing is added then. Other errors as of `emit_kernel_function`.
    """
    instruction = step.instruction
    operands = [step.computation[o].shape for o in instruction.operands]
    operand_leaves = [leaf for shape in operands for leaf in shape.leaves() if leaf.is_array]
    result_leaves = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
    globals_before = dict(grid_module.globals)
    pointers = [POINTER] * (len(operand_leaves) + len(result_leaves) + 2)
    function = ir.Function(grid_module, ir.FunctionType(VOID, [I32, *pointers]), f"{name}_body")
    try:
        emit = _emit_body(function, module, step, operands, operand_leaves, result_leaves)
    except NoGridFormError:
        _restore(grid_module, globals_before)
        raise
    leaves = operand_leaves, result_leaves, positions_in_one_place(step, step.same_places)
    return launched(grid_module, function, emit, name, lambda arguments: _declare_arguments(arguments, *leaves))


def launched(
    grid_module: GridModule,
    body: ir.Function,
    emit: GridEmitter,
    name: str,
    declare: Callable[[Sequence[ir.Argument]], None],
) -> GridKernel:
    """The functions of the launches that `emit` has made in `body`, which gets the launch's number before their own
    arguments. declare: sets what is known of these."""
    launches = []
    for position, (number, blocks, threads) in enumerate(emit.launches):
        symbol = name if len(emit.launches) == 1 else f"{name}_{position}"
        made = ir.Function(grid_module, ir.FunctionType(VOID, body.function_type.args[1:]), symbol)
        declare(made.args)
        grid_module.grid.begin_kernel(made)
        builder = ir.IRBuilder(made.append_basic_block("entry"))
        builder.call(body, [ir.Constant(I32, number), *made.args])
        builder.ret_void()
        launches.append(Launch(symbol, blocks, threads))
    return GridKernel(tuple(launches), emit.scratch_bytes, tuple(emit.products))


def _emit_body(
    function: ir.Function,
    module: Module,
    step: Kernel,
    operands: list[Shape],
    operand_leaves: list[Shape],
    result_leaves: list[Shape],
) -> GridEmitter:
    inline(function)
    instruction = step.instruction
    number, context, *places, scratch = function.args
    count = len(operand_leaves)
    shared = positions_in_one_place(step, step.same_places)
    _declare_arguments(function.args[1:], operand_leaves, result_leaves, shared)
    read_only = [context, *(place for k, place in enumerate(places[:count]) if k not in shared)]
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emit = GridEmitter(builder, module, context, scratch, number, read_only, places)
    emit.for_instruction(instruction, operands)
    arrays = [MemoryArray(emit, p, s) for p, s in zip(places[:count], operand_leaves)]
    results = [MemoryArray(emit, p, s) for p, s in zip(places[count:], result_leaves)]
    begin(emit)
    emit_instruction(emit, module, instruction, operands, arrays, results)
    builder.ret_void()
    return emit


def inline(body: ir.Function) -> None:
    """Every launch has the body's code in its own function."""
    body.linkage = "internal"
    for word in ("alwaysinline", "nounwind"):
        body.attributes.add(word)


def begin(emit: GridEmitter) -> None:
    """Leave the entry block to what the whole function needs."""
    builder = emit.builder
    start = builder.append_basic_block("start")
    emit.entry = builder.block
    builder.branch(start)
    builder.position_at_end(start)


def _declare_arguments(
    arguments: Sequence[ir.Argument], operand_leaves: list[Shape], result_leaves: list[Shape], shared: set[int]
) -> None:
    """arguments: context, operands, results, scratch."""
    for position, argument in enumerate(arguments[1:-1]):
        argument.attributes.align = ALIGNMENT
        if position not in shared:
            argument.add_attribute("noalias")
    arguments[-1].attributes.align = ALIGNMENT
    arguments[-1].add_attribute("noalias")


def _restore(module: GridModule, globals_before: dict[str, ir.GlobalValue]) -> None:
    for name in list(module.globals):
        if name not in globals_before:
            del module.globals[name]
            module.scope._useset.discard(name)
