"""The body of a called computation in place of the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from distxla.ir.computation import Computation
from distxla.ir.effects_order import has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.names import Names
from distxla.ir.op import Lowering


def is_call(instruction: Instruction) -> bool:
    """Whether the body of its computation may replace the instruction."""
    return instruction.op.lowering is Lowering.CALL


def inlined(
    computation: Computation,
    done: Mapping[str, Computation],
    effectful: frozenset[str],
    chosen: Callable[[Instruction], bool] = is_call,
) -> Computation:
    """The computation with the bodies of calls in their place; the same object where it has none.

    done: called computations, without such calls of their own.  effectful: `effectful_computations`.  chosen: which
    calls.  An inlined instruction keeps its name where that is free. Instructions behind a call by a control edge are
    then behind everything of it that has effects.
    """
    if not any(map(chosen, computation)):
        return computation
    names = Names(computation.by_name)
    result: list[Instruction] = []
    stands_for: dict[str, str] = {}  # old name -> name of its value
    waits_for: dict[str, tuple[str, ...]] = {}  # call -> instructions to end before a control successor may start
    for instruction in computation:
        operands = tuple(stands_for.get(o, o) for o in instruction.operands)
        predecessors = tuple(
            dict.fromkeys(
                n for p in instruction.control_predecessors for n in waits_for.get(p, (stands_for.get(p, p),))
            )
        )
        if not chosen(instruction):
            if operands != instruction.operands or predecessors != instruction.control_predecessors:
                instruction = instruction.replace(operands=operands, control_predecessors=predecessors)
            result.append(instruction)
            continue
        body = done[instruction.op.called_computations[0]]
        local: dict[str, str] = {}
        last: list[str] = []
        for inner in body:
            if inner.op.role.is_parameter:
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
