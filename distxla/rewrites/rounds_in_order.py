"""Collectives that stay apart and in the order of the text, for a program that meets other ones in them.

A program that runs everywhere may have its rounds merged and moved, since all members merge them equally. Two programs
on different devices of a group would not: there every round is the one that the text has.
"""

from __future__ import annotations

import dataclasses

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.support.rewriter import replaced
from distxla.rewrites.async_computations import InlineAsync


def with_rounds_in_order(module: Module) -> Module:
    """The module with each collective waiting, by a control edge, for the one before it in its computation; collectives
    of asynchronous computations count where these are called."""
    module = InlineAsync().run(module)
    computations = replaced(module.computations, [_in_order(computation) for computation in module.computations])
    return module if computations is None else module.replace(computations=computations)


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
