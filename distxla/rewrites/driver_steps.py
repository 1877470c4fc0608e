"""The head of the pipeline, which the driver runs: the verifier, the reference, the checks of memory and the executable
go by the module that it gives.

The process that compiles runs the whole pipeline. It gets no functions and no order, so these steps then change
nothing, and the cache's key goes by the module that they gave.
"""

from __future__ import annotations

from collections.abc import Collection

from distxla.ir.module import Module
from distxla.program.host_call_site import FunctionKey
from distxla.rewrites.host_calls import HostCallsAsTransfers
from distxla.rewrites.reduction_order import AS_WRITTEN, ReductionOrder
from distxla.rewrites.step import Compilation, Step


def driver_steps(reduction_order: str = AS_WRITTEN) -> tuple[Step, ...]:
    """The first steps of the pipeline, in order. ArgumentError for an order that there is not."""
    return HostCallsAsTransfers(), ReductionOrder(reduction_order)


def after_driver_steps(
    module: Module, host_calls: Collection[FunctionKey], reduction_order: str | None = None
) -> Compilation:
    """The module, which need not be verified, after these steps, with its calls of the driver's functions.

    host_calls: the keys of the functions.  reduction_order: None for the text's.  Raises the errors of the steps.
    """
    compilation = Compilation.of(module, host_calls=host_calls)
    for step in driver_steps(AS_WRITTEN if reduction_order is None else reduction_order):
        compilation = step.apply(compilation)
    return compilation
