"""Drop instructions without readers."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.computation import Computation
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.rewrites.step import Pass


class DeadCode(Pass):
    """Remove instructions without effects that neither the root nor an instruction with effects needs, and computations
    that are never called.

    Parameters stay. An order between two instructions that went through a removed one by control edges is kept.
    """

    name: ClassVar[str] = "dead-code"

    def run(self, module: Module) -> Module:
        effectful = effectful_computations(module)
        called: set[str] = {module.entry}
        kept: list[Computation] = []
        for computation in reversed(module.computations):
            if computation.name in called:
                computation = _without_dead(computation, effectful)
                kept.append(computation)
                called.update(name for i in computation for name in i.op.called_computations)
        kept.reverse()
        return module.with_computations(kept)


def _async_start(computation: Computation, instruction: Instruction) -> Instruction:
    """The async-start that an async-update or async-done belongs to; any other instruction itself."""
    while instruction.op.start_done.updates_async or instruction.op.start_done.completes_async:
        instruction = computation[instruction.operands[0]]
    return instruction


def _without_dead(computation: Computation, effectful: frozenset[str]) -> Computation:
    alive: set[str] = set()
    for instruction in reversed(computation.instructions):
        if (
            instruction.name in alive
            or instruction.name == computation.root
            or instruction.op.role.is_parameter
            or has_effects(_async_start(computation, instruction), effectful)
        ):
            alive.add(instruction.name)
            alive.update(instruction.operands)
    if len(alive) == len(computation.instructions):
        return computation
    through: dict[str, tuple[str, ...]] = {}  # dead instruction -> living ones that had to come before it
    result = []
    for instruction in computation:
        before = instruction.control_predecessors
        if any(p in through for p in before):
            before = tuple(dict.fromkeys(n for p in before for n in through.get(p, (p,))))
        if instruction.name not in alive:
            inherited = (n for o in instruction.operands for n in through.get(o, ()))
            through[instruction.name] = tuple(dict.fromkeys((*before, *inherited)))
        elif before != instruction.control_predecessors:
            result.append(instruction.replace(control_predecessors=before))
        else:
            result.append(instruction)
    return Computation(
        computation.name, tuple(result), computation.root, computation.execution_thread, computation.span
    )
