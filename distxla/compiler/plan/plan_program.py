"""The last step of the pipeline, the place of each value in a device's memory: first the computations that are compiled
as functions, then the entry, which may call them."""

from __future__ import annotations

from typing import ClassVar

from distxla.compiler.plan.buffers import (
    TOKEN,
    Buffer,
    MemoryRegion,
    Plan,
    Routine,
    place,
    place_routines,
    place_shared,
)
from distxla.compiler.plan.planner import Planner
from distxla.errors import ArgumentError
from distxla.ir.computation import Computation
from distxla.ir.counts import UNKNOWN, Counts
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, fields
from distxla.ops.call import Call, OutlinedCall
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.program.options import InPlace
from distxla.rewrites.step import Compilation, Step


@dataclass(frozen=True, kw_only=True)
class Planned(Compilation):
    """A compilation behind the step `plan`."""

    plan: Plan


@dataclass(frozen=True)
class PlanMemory(Step):
    """Plan the memory of a device and the steps of the program.

    Requires: a scheduled module without calls, but outlined ones, and without dynamic dimensions.
    """

    name: ClassVar[str] = "plan"

    def apply(self, compilation: Compilation) -> Planned:
        if missing := _missing_before(compilation.module):
            raise ArgumentError(f"the module can't be planned: the step {missing} must come before plan")
        known = {item.name: getattr(compilation, item.name) for item in fields(Compilation)}
        return Planned(**known, plan=plan(compilation.module, compilation.counts, compilation.in_place))


def _missing_before(module: Module) -> str:
    """The step without which the module is no input of this one; "" if there is none."""
    if has_dynamic_dimensions(module):
        return "pad-dynamic-dimensions"
    if any(type(i.op) is Call for computation in module.reached() for i in computation):
        return "inline-calls"
    return "" if module.is_scheduled else "schedule"


def plan(module: Module, counts: Counts = UNKNOWN, in_place: InPlace = ()) -> Plan:
    """Plan the memory of a scheduled module and the steps of its entry computation.

    counts: of the run; where they are not known no memory is shared among devices.
    in_place: (result leaf, parameter leaf) of the same type that may have the same memory in a call; the plan has those
    of which the result can be computed there.

    Raises UnsupportedOpError for an instruction that this version cannot execute, CompileError for a constant whose
    value the text leaves out; both name its place.
    """
    planner = Planner(module, counts)
    for name in outlined_computations(module):  # called ones first
        planner.program.numbers[name] = len(planner.program.routines)
        planner.program.routines.append(plan_routine(Planner(module, program=planner.program), module[name]))
    steps, kept, copied = planner.entry(in_place)
    planner.join_lifetimes()
    shared = [b for b in planner.buffers if b.region is MemoryRegion.SHARED]
    arena = [b for b in planner.buffers if b.region is MemoryRegion.ARENA]
    arenas = place_shared(shared, tuple(planner.groups))
    size = place_routines(planner.program.routines, planner.calls, place(arena + shared))
    program = planner.program
    return Plan(
        steps,
        tuple(program.constants),
        size,
        tuple(planner.buffers),
        arenas,
        routines=tuple(program.routines),
        in_place=kept,
        copied=copied,
    )


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


__all__ = ["PlanMemory", "Planned", "outlined_computations", "plan"]
