"""Let everything belong to the main execution thread."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.ir.attribute import attribute_specs
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.rewrites.step import Pass

_THREAD = "async_execution_thread"


class OneThread(Pass):
    """Forget the execution threads of computations and asynchronous instructions.

    They tell XLA's schedulers which queue of a device runs a computation, and change no result. So the passes behind
    this one may put instructions of asynchronous computations anywhere.
    """

    name: ClassVar[str] = "one-thread"

    def run(self, module: Module) -> Module:
        return module.with_computations([_without_threads(computation) for computation in module.computations])


def _without_threads(computation: Computation) -> Computation:
    instructions = tuple(map(_without_thread, computation))
    if computation.execution_thread is None and all(map(lambda new, old: new is old, instructions, computation)):
        return computation
    return Computation(computation.name, instructions, computation.root, None, computation.span)


def _without_thread(instruction: Instruction) -> Instruction:
    op = instruction.op
    if not hasattr(op, _THREAD):
        return instruction
    (spec,) = (spec for spec in attribute_specs(type(op)) if spec.field == _THREAD)
    if getattr(op, _THREAD) == spec.default:
        return instruction
    return instruction.replace(op=dataclasses.replace(op, **{_THREAD: spec.default}))
