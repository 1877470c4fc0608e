"""Passes and the order in which the compiler runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.run_time_extents import has_dynamic_dimensions
from distxla.passes.bind_custom_calls import BindCustomCalls
from distxla.passes.call_host_computations import CallHostComputations
from distxla.passes.combine_collectives import CombineCollectives
from distxla.passes.common_subexpressions import CommonSubexpressions
from distxla.passes.dead_code import DeadCode
from distxla.passes.effects_in_order import EffectsInOrder
from distxla.passes.expand import Expand
from distxla.passes.explicit_precision import ExplicitPrecision
from distxla.passes.forget_buffers import ForgetBuffers
from distxla.passes.fuse import Fuse
from distxla.passes.fuse_rows import FuseRows
from distxla.passes.inline_async import InlineAsync
from distxla.passes.inline_calls import InlineCalls
from distxla.passes.join_spread_collectives import JoinSpreadCollectives
from distxla.passes.keep_transfers import KeepTransfers
from distxla.passes.module_pass import Pass
from distxla.passes.one_thread import OneThread
from distxla.passes.pad_dynamic_dimensions import PadDynamicDimensions, padded
from distxla.passes.resolve_layouts import ResolveLayouts
from distxla.passes.simplify import Simplify
from distxla.passes.sorts_as_written import SortsAsWritten
from distxla.passes.verify import verify_module
from distxla.time_limit import at


@dataclass(frozen=True)
class Pipeline:
    """Runs passes in order.

    verify: check every module that a pass changed. The compiler leaves it off, since its input is verified and every
    pass is tested with it on.  progress: told the name of each pass before it begins.
    """

    passes: Sequence[Pass]
    verify: bool = False
    progress: Callable[[str], None] = at

    def run(self, module: Module) -> Module:
        for step in self.passes:
            self.progress(f"pass {step.name}")
            try:
                changed = step.run(module)
                if self.verify and changed is not module:
                    verify_module(changed)
            except Exception as error:
                error.add_note(f"in pass {step.name}")
                raise
            module = changed
        return module


def result_shape(module: Module) -> Shape:
    """The entry's result with the dimensions marked whose extents a compiled program gives at run time.

    Raises UnsupportedOpError, located, for what can't be done with dynamic dimensions.
    """
    if has_dynamic_dimensions(module):
        for step in standard_passes():
            if isinstance(step, PadDynamicDimensions):
                return padded(module)[1]
            module = step.run(module)
    return module.entry_computation.root_instruction.shape


def standard_passes() -> tuple[Pass, ...]:
    """From a verified module to one whose every instruction is a kernel, a control structure or a communication."""
    return (
        OneThread(),
        CallHostComputations(),
        SortsAsWritten(),
        ExplicitPrecision(),
        JoinSpreadCollectives(),
        InlineAsync(),
        ForgetBuffers(),
        BindCustomCalls(),
        ResolveLayouts(),
        Expand(),
        InlineCalls(),
        PadDynamicDimensions(),
        Simplify(),
        CommonSubexpressions(),
        DeadCode(),
        CombineCollectives(),
        Simplify(),
        DeadCode(),
        EffectsInOrder(),
        Fuse(),
        FuseRows(),
        DeadCode(),
        KeepTransfers(),
    )
