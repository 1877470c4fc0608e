"""Put the bodies of calls and fusions in their place."""

from __future__ import annotations

from typing import ClassVar

from distxla.compiler.passes.inlining_budget import within_budget
from distxla.ir.computation import Computation
from distxla.ir.effects_order import effectful_computations
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ops.support.inlining import inlined
from distxla.rewrites.step import Pass


class InlineCalls(Pass):
    """Replace every instruction whose lowering is CALL by the instructions of its computation.

    Ensures: no CALL is left in a computation that is reached from the entry other than by the inlined ones; those that
    would make too much code are OutlinedCall; names are unique in each computation; an inlined instruction keeps its
    name where it is free.
    Raises UnsupportedOpError where there would be too much code and computations can't be outlined.
    """

    name: ClassVar[str] = "inline-calls"

    def run(self, module: Module) -> Module:
        module = within_budget(module)
        if not any(i.op.lowering is Lowering.CALL for c in module.computations for i in c):
            return module
        effectful = effectful_computations(module)
        done: dict[str, Computation] = {}
        for computation in module.computations:  # called ones precede their callers
            done[computation.name] = inlined(computation, done, effectful)
        reached = _reached(done, module.entry)
        computations = tuple(c for c in done.values() if c.name in reached)
        return module.replace(computations=computations)


def _reached(computations: dict[str, Computation], entry: str) -> set[str]:
    reached: set[str] = set()
    pending = [entry]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(called for i in computations[name] for called in i.op.called_computations)
    return reached
