"""Compute equal things once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from distxla.ir.effects import Effects
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.module import Module
from distxla.ir.structure import Structure
from distxla.ops.support.rewriter import Rewriter
from distxla.rewrites.step import Pass


class CommonSubexpressions(Pass):
    """Merge instructions with equal ops, shapes and operands, and computations that differ in names only.

    Instructions with effects, random ones, parameters and those with control predecessors stay as they are.
    """

    name: ClassVar[str] = "common-subexpressions"

    def run(self, module: Module) -> Module:
        structure, effectful = Structure(module), effectful_computations(module)
        first: dict[int, str] = {}
        same: dict[str, str] = {}
        for computation in module.computations:
            if computation.name != module.entry:
                same[computation.name] = first.setdefault(structure.number(computation.name), computation.name)
        new = []
        for computation in module.computations:
            if same.get(computation.name, computation.name) != computation.name:
                continue
            rewriter = Rewriter(computation)
            seen: dict[Hashable, str] = {}
            for old in computation:
                instruction = rewriter.current(old)
                if any(same.get(name, name) != name for name in instruction.op.called_computations):
                    instruction = instruction.replace(
                        op=instruction.op.rename_computations(lambda name: same.get(name, name))
                    )
                    rewriter.changed = True
                op = instruction.op
                if (
                    op.effects is Effects.PURE
                    and not op.role.is_parameter
                    and not instruction.control_predecessors
                    and not has_effects(instruction, effectful)
                ):
                    key = (op, instruction.shape.without_layout(), instruction.operands)
                    earlier = seen.setdefault(key, instruction.name)
                    if earlier != instruction.name:
                        rewriter.forward(instruction.name, earlier)
                        continue
                rewriter.keep(instruction)
            new.append(rewriter.finish())
        return module.with_computations(new)
