"""Put the bodies of calls and fusions in their place."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.effects import effectful_computations, has_effects
from distxla.ops.op import Lowering
from distxla.passes.module_pass import Pass
from distxla.passes.rewriter import Names


class InlineCalls(Pass):
    """Replace every instruction whose lowering is CALL by the instructions of its computation.

    Ensures: no CALL is left in a computation that is reached from the entry other than by the inlined ones; names are
    unique in each computation; an inlined instruction keeps its name where it is free.
    """

    name: ClassVar[str] = "inline-calls"

    def run(self, module: Module) -> Module:
        if not any(i.op.lowering is Lowering.CALL for c in module.computations for i in c):
            return module
        effectful = effectful_computations(module)
        done: dict[str, Computation] = {}
        for computation in module.computations:  # called ones stand before their callers
            done[computation.name] = _inlined(computation, done, effectful)
        reached = _reached(done, module.entry)
        computations = tuple(c for c in done.values() if c.name in reached)
        return module.replace(computations=computations)


def _inlined(computation: Computation, done: dict[str, Computation], effectful: frozenset[str]) -> Computation:
    if not any(i.op.lowering is Lowering.CALL for i in computation):
        return computation
    names = Names(computation.by_name)
    result: list[Instruction] = []
    stands_for: dict[str, str] = {}  # old name -> name of its value
    waits_for: dict[str, tuple[str, ...]] = {}  # call -> what has to end before a control successor may start
    for instruction in computation:
        operands = tuple(stands_for.get(o, o) for o in instruction.operands)
        predecessors = tuple(
            dict.fromkeys(
                n for p in instruction.control_predecessors for n in waits_for.get(p, (stands_for.get(p, p),))
            )
        )
        if instruction.op.lowering is not Lowering.CALL:
            if operands != instruction.operands or predecessors != instruction.control_predecessors:
                instruction = instruction.replace(operands=operands, control_predecessors=predecessors)
            result.append(instruction)
            continue
        body = done[instruction.op.called_computations[0]]
        local: dict[str, str] = {}
        last: list[str] = []
        for inner in body:
            if inner.op.is_parameter:
                local[inner.name] = operands[inner.op.number]  # type: ignore[attr-defined]
                continue
            name = local[inner.name] = names.fresh(inner.name)
            before = tuple(local[p] for p in inner.control_predecessors)
            result.append(
                inner.replace(
                    name=name,
                    operands=tuple(local[o] for o in inner.operands),
                    control_predecessors=tuple(dict.fromkeys((*before, *predecessors))),
                )
            )
            if has_effects(inner, effectful):
                last.append(name)
        stands_for[instruction.name] = local[body.root]
        waits_for[instruction.name] = tuple(dict.fromkeys((*last, local[body.root])))
    root = stands_for.get(computation.root, computation.root)
    return Computation(computation.name, tuple(result), root, computation.execution_thread, computation.span)


def _reached(computations: dict[str, Computation], entry: str) -> set[str]:
    reached: set[str] = set()
    pending = [entry]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(called for i in computations[name] for called in i.op.called_computations)
    return reached
