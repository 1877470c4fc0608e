"""The order in which a device executes a computation's instructions."""

from __future__ import annotations

from itertools import pairwise

from distxla.errors import InternalError
from distxla.ir.computation import Computation
from distxla.ir.module import Module
from distxla.ir.order import stable_order
from distxla.ops.effects import effectful_computations, has_effects


def schedule(module: Module) -> Module:
    """The module with every computation's instructions in execution order, and is_scheduled set.

    Operands and control predecessors come first. Instructions with effects keep the order in which they stand: of a
    scheduled module that is its schedule, of another one the order in which the program was traced, and since devices
    that run one module share it, their collectives meet. Everything else moves as little as possible.

    Raises InternalError where the edges form a cycle (the verifier rejects such modules).
    """
    effectful = effectful_computations(module)
    computations = tuple(_scheduled(computation, effectful) for computation in module.computations)
    return module.replace(computations=computations, is_scheduled=True)


def _scheduled(computation: Computation, effectful: frozenset[str]) -> Computation:
    chain = []
    if computation.name in effectful:
        chain = [instruction.name for instruction in computation if has_effects(instruction, effectful)]
    try:
        ordered = stable_order(computation.instructions, pairwise(chain))
    except ValueError as error:
        raise InternalError(f"no order of {computation.name}: {error}") from None
    if all(a is b for a, b in zip(ordered, computation.instructions, strict=True)):
        return computation
    return Computation(computation.name, ordered, computation.root, computation.execution_thread, computation.span)
