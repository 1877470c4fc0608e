"""All instructions of a verified module that this version cannot execute, for callers that don't compile it."""

from __future__ import annotations

from distxla.compiler.passes.dynamic_site import Refused
from distxla.compiler.passes.pad_dynamic_dimensions import PadDynamicDimensions
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.verify.visible_obstacles import Obstacle, visible_obstacles
from distxla.ir.module import Module
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions


def obstacles(module: Module) -> list[Obstacle]:
    """The instructions reachable from the entry that cannot be executed, and why, in the order of the text.

    Of those that only run-time sizes are an obstacle for, the first one: the passes run until they are known.
    """
    found = visible_obstacles(module)
    if found or not has_dynamic_dimensions(module):
        return found
    try:
        Pipeline().through(PadDynamicDimensions.name).run(module)
    except Refused as refused:
        return [(refused.instruction or module.entry_computation.root_instruction, refused.message)]
    return []
