"""Plans a program: first the outlined computations, then the entry, which may call them."""

from __future__ import annotations

from distxla.compiler.plan.buffers import MemoryRegion, Plan, place, place_routines, place_shared
from distxla.compiler.plan.outlined_calls import outlined_computations, plan_routine
from distxla.compiler.plan.planner import Planner
from distxla.ir.counts import UNKNOWN, Counts
from distxla.ir.module import Module
from distxla.program.options import InPlace


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
