"""Injection points: calls of a hook that may inject a fault, emitted only in programs that are compiled for faults.

Points are steps of the plan; their numbers count from 0, in the order of `CompiledProgram.points`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from llvmlite import ir

from distxla.collectives.transports.injection_point import emit_hook
from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.plan.buffers import Communicate, Copy, Kernel, Plan, PlanStep, Swap, Transfer
from distxla.emit.native_function import I32
from distxla.ir.instruction import Instruction, Span
from distxla.ir.module import Module
from distxla.program.abi import AFTER_STEP, BEFORE_STEP
from distxla.program.artifact import ANY_POINT, InjectionPoint


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
            self._function = emit_hook(llvm_module)
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

    def _names_of(self, step: PlanStep, names: dict[str | Span, str]) -> tuple[str, ...]:
        """The wanted names that the step computes: a fusion computes several."""
        inside: list[Instruction] = [step.instruction]
        if isinstance(step, Kernel):
            called = (self._module[name] for name in step.instruction.op.called_computations)
            inside += [i for computation in called for i in computation if not i.op.role.is_parameter]
        keys = (key for i in inside for key in ((i.span,) if i.span is not None else (i.name,)))
        return tuple(dict.fromkeys(names[key] for key in keys if key in names))

    def is_at(self, step: PlanStep) -> bool:
        return id(step) in self._numbers

    @contextmanager
    def around(self, body: FunctionBody, step: PlanStep) -> Iterator[None]:
        """Call the hook before and after a step, if it is a point."""
        self._emit(body, step, BEFORE_STEP)
        yield
        self._emit(body, step, AFTER_STEP)

    def _emit(self, body: FunctionBody, step: PlanStep, moment: int) -> None:
        if self.is_at(step):
            body.builder.call(self._function, [body.context, I32(4 * self._numbers[id(step)] + moment)])


def _by_name(module: Module) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    for computation in module.computations:
        for instruction in computation:
            found.setdefault(instruction.name, []).append(instruction)
    return found
