"""Collectives that stay apart and in the order of the text, for a program that meets other ones in them.

A program that runs everywhere may have its rounds merged and moved, since all members merge them equally. Two programs
on different devices of a group would not: there every round is the one that the text has.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.rewrites.step import Pass


@dataclass(frozen=True)
class RoundsInOrder(Pass):
    """Let each collective wait, by a control edge, for the one before it in its computation, if programs are apart.

    Expects: collectives of asynchronous computations where these are called.
    """

    name: ClassVar[str] = "rounds-in-order"
    apart: int = 0  # not 0: members of the groups run programs that are compiled apart

    def run(self, module: Module) -> Module:
        if not self.apart:
            return module
        return module.with_computations([_in_order(computation) for computation in module.computations])


def _in_order(computation: Computation) -> Computation:
    before: Instruction | None = None
    instructions = []
    for instruction in computation:
        if instruction.op.is_collective and not instruction.op.start_done.completes:
            if before is not None and before.name not in instruction.control_predecessors:
                edges = (*instruction.control_predecessors, before.name)
                instruction = instruction.replace(control_predecessors=edges)
            before = instruction
        instructions.append(instruction)
    changed = any(new is not old for new, old in zip(instructions, computation, strict=True))
    return dataclasses.replace(computation, instructions=tuple(instructions)) if changed else computation
