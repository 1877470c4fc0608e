"""Injection points: calls of a hook that may inject a fault, emitted only in programs that are compiled for faults.

    void distxla_inject(Context*, u32 code)

calls `context->inject` unless it is null; abi.py has the codes. Points are steps of the plan; their numbers count from
0, in the order of `CompiledProgram.points`.
"""

from __future__ import annotations

from collections.abc import Collection

from llvmlite import ir

from distxla.compiler.abi import AFTER_STEP, BEFORE_STEP, INSIDE_WAIT, Context
from distxla.compiler.artifact import ANY_POINT, InjectionPoint
from distxla.compiler.plan.buffers import Communicate, Copy, Kernel, Plan, Step, Swap, Transfer
from distxla.ir.instruction import Instruction, Span
from distxla.ir.module import Module

HOOK = "distxla_inject"
_I8, _I32, _I64, _POINTER, _VOID = (*map(ir.IntType, (8, 32, 64)), ir.PointerType(), ir.VoidType())


class _LoadedHook(ir.instructions.LoadInstr):  # type: ignore[misc]
    """The hook's address, read from the context; llvmlite asks it for the type of the callee."""

    @property
    def function_type(self) -> ir.FunctionType:
        return ir.FunctionType(_VOID, (_POINTER, _I32))


class InjectionPoints:
    """The points of one program.

    wanted: names of instructions of the text, and ANY_POINT for all that communicate; nothing is emitted for ().
    module: the compiled one, after the passes.  text: before them; an instruction keeps its place in the text.
    """

    def __init__(self, llvm_module: ir.Module, module: Module, plan: Plan, wanted: Collection[str], text: Module):
        self._module = module
        self._numbers: dict[int, int] = {}  # by id() of a step
        self.points: list[InjectionPoint] = []
        if wanted:
            self._function = _emit_hook(llvm_module)
            self._choose(plan, wanted, _by_name(text))

    def _choose(self, plan: Plan, wanted: Collection[str], text: dict[str, list[Instruction]]) -> None:
        origins: dict[Span | None, str] = {
            i.span: name for name, instructions in text.items() for i in instructions if i.span is not None
        }
        names: dict[str | Span, str] = {}
        for name in wanted:
            names[name] = name
            names.update({i.span: name for i in text.get(name, ()) if i.span is not None})
        steps = [step for step in plan.walk() if not isinstance(step, Swap | Transfer)]
        found = {id(step): self._names_of(step, names) for step in steps}
        computed = {name for step in steps if not isinstance(step, Copy) for name in found[id(step)]}
        for step in steps:
            mine = found[id(step)]
            if isinstance(step, Copy):  # a copy for the sake of an instruction that has a step itself is no point
                mine = tuple(name for name in mine if name not in computed)
            communicates = isinstance(step, Communicate)
            if communicates and (mine or ANY_POINT in wanted):
                span = step.instruction.span
                mine = tuple(dict.fromkeys((*mine, origins.get(span, step.instruction.name))))
            if mine:
                self._numbers[id(step)] = len(self.points)
                self.points.append(InjectionPoint(mine, communicates))

    def _names_of(self, step: Step, names: dict[str | Span, str]) -> tuple[str, ...]:
        """The wanted names that the step computes: a fusion computes several."""
        inside: list[Instruction] = [step.instruction]
        if isinstance(step, Kernel):
            called = (self._module[name] for name in step.instruction.op.called_computations)
            inside += [i for computation in called for i in computation if not i.op.is_parameter]
        keys = (key for i in inside for key in ((i.span,) if i.span is not None else (i.name,)))
        return tuple(dict.fromkeys(names[key] for key in keys if key in names))

    def is_at(self, step: Step) -> bool:
        return id(step) in self._numbers

    def before(self, builder: ir.IRBuilder, context: ir.Value, step: Step) -> None:
        """Call the hook before a step, if it is a point."""
        self._emit(builder, context, step, BEFORE_STEP)

    def after(self, builder: ir.IRBuilder, context: ir.Value, step: Step) -> None:
        """Call the hook after a step, if it is a point."""
        self._emit(builder, context, step, AFTER_STEP)

    def _emit(self, builder: ir.IRBuilder, context: ir.Value, step: Step, moment: int) -> None:
        if self.is_at(step):
            builder.call(self._function, [context, _I32(4 * self._numbers[id(step)] + moment)])


def emit_inside_wait(builder: ir.IRBuilder, context: ir.Value) -> None:
    """Call the hook from within a wait, in a program that has points."""
    hook = builder.module.globals.get(HOOK)
    if hook is not None:
        builder.call(hook, [context, _I32(INSIDE_WAIT)])


def _emit_hook(llvm_module: ir.Module) -> ir.Function:
    function = ir.Function(llvm_module, ir.FunctionType(_VOID, (_POINTER, _I32)), HOOK)
    function.linkage = "internal"
    function.attributes.add("noinline")
    context, code = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    place = builder.gep(context, [_I64(Context.inject.offset)], source_etype=_I8)
    hook = _LoadedHook(builder.block, place, "hook", typ=_POINTER)
    builder._insert(hook)
    exists = builder.icmp_unsigned("!=", builder.ptrtoint(hook, _I64), _I64(0))
    with builder.if_then(exists):
        builder.call(hook, [context, code])
    builder.ret_void()
    return function


def _by_name(module: Module) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    for computation in module.computations:
        for instruction in computation:
            found.setdefault(instruction.name, []).append(instruction)
    return found


__all__ = ["InjectionPoints", "emit_inside_wait"]
