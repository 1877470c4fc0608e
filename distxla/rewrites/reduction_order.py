"""Ask for another order in which reducing collectives combine their members' elements."""

from __future__ import annotations

import dataclasses

from distxla.errors import ArgumentError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.support.collective import REDUCTION_ORDERS


def with_reduction_order(module: Module, order: str | None) -> Module:
    """The module with every all-reduce and reduce-scatter in that order, whatever its text says; None leaves it alone.

    order: one of ops.support.collective.REDUCTION_ORDERS; ArgumentError for another one.  It is an attribute of the
    instructions, so that programs of different orders neither share a place in the cache nor meet in a round.
    """
    if order is None:
        return module
    if order not in REDUCTION_ORDERS:
        raise ArgumentError(f"reduction order {order!r}: expected {', '.join(REDUCTION_ORDERS)}")
    changed = {
        computation.name: dataclasses.replace(
            computation, instructions=tuple(_ordered(i, order) for i in computation.instructions)
        )
        for computation in module.computations
        if any(_ordered(i, order) is not i for i in computation)
    }
    if not changed:
        return module
    return module.replace(computations=tuple(changed.get(c.name, c) for c in module.computations))


def _ordered(instruction: Instruction, order: str) -> Instruction:
    if getattr(instruction.op, "reduction_order", order) == order:
        return instruction
    return instruction.replace(op=dataclasses.replace(instruction.op, reduction_order=order))  # type: ignore[call-arg]
