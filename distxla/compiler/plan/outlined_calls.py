"""Plans once each computation that is compiled as a function: its part of the arena and its steps."""

from __future__ import annotations

from distxla.compiler.plan.buffers import TOKEN, Buffer, Routine, place
from distxla.compiler.plan.planner import Planner
from distxla.ir.computation import Computation
from distxla.ir.module import Module
from distxla.ops.call import OutlinedCall


def outlined_computations(module: Module) -> list[str]:
    """The computations that OutlinedCalls call, in the order of the text: callees before callers."""
    outlined = {
        i.op.to_apply for computation in module.computations for i in computation if isinstance(i.op, OutlinedCall)
    }
    return [computation.name for computation in module.computations if computation.name in outlined]


def plan_routine(planner: Planner, computation: Computation) -> Routine:
    """Plan a computation with a planner of its own.

    Arguments and results are in the routine's part of the arena. A caller copies them, so a routine may overwrite its
    arguments.
    """
    frame = planner.frame(computation)
    parameters: list[Buffer] = []
    for parameter, leaves in zip(computation.parameters, frame.values.parameters, strict=True):
        for shape, value in zip(parameter.shape.leaves(), leaves, strict=True):
            parameters.append(TOKEN if value is None else planner.new(shape.byte_size, parameter.name))
            if value is not None:
                frame.buffers[value] = parameters[-1]
                frame.owned.add(value)
    planner.touch(*(buffer for buffer in parameters if buffer is not TOKEN))
    root = computation.root_instruction
    results = [planner.new(s.byte_size, root.name) if s.is_array else TOKEN for s in root.shape.leaves()]
    planner.run(frame, results, [None] * len(results))
    planner.deliver(frame, results, root)
    return Routine(
        computation.name,
        tuple(parameters),
        tuple(results),
        tuple(frame.steps),
        tuple(planner.buffers),
        place(planner.buffers),
        tuple(planner.calls),
    )


__all__ = ["outlined_computations", "plan_routine"]
