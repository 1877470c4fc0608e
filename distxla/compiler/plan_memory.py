"""The last step of the pipeline: the place of each value in a device's memory."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.compiler.plan.plan_program import plan
from distxla.errors import ArgumentError
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.ops.call import Call
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.rewrites.step import Compilation, Step


@dataclass(frozen=True)
class PlanMemory(Step):
    """Plan the memory of a device and the steps of the program.

    Requires: a scheduled module without calls, but outlined ones, and without dynamic dimensions.
    """

    name: ClassVar[str] = "plan"

    def apply(self, compilation: Compilation) -> Compilation:
        if missing := _missing_before(compilation.module):
            raise ArgumentError(f"the module can't be planned: the step {missing} must come before plan")
        found = plan(compilation.module, compilation.counts, compilation.in_place)
        return dataclasses.replace(compilation, plan=found)


def _missing_before(module: Module) -> str:
    """The step without which the module is no input of this one; "" if there is none."""
    if has_dynamic_dimensions(module):
        return "pad-dynamic-dimensions"
    if any(type(i.op) is Call for computation in module.reached() for i in computation):
        return "inline-calls"
    return "" if module.is_scheduled else "schedule"
