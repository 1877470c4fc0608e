"""The form in which the reference, `check` and the compiler all execute a module."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.call import Call
from distxla.ops.custom_calls.host_execute import HOST_EXECUTE
from distxla.ops.support.rewriter import Rewriter
from distxla.rewrites.async_computations import InlineAsync
from distxla.rewrites.explicit_precision import ExplicitPrecision
from distxla.rewrites.spread_collectives import JoinSpreadCollectives
from distxla.rewrites.step import Pass


class CallHostComputations(Pass):
    """Let each device compute the module's host computations.

    Expects: a verified module.
    """

    name: ClassVar[str] = "call-host-computations"

    def run(self, module: Module) -> Module:
        new = []
        for computation in module.computations:
            rewriter = Rewriter(computation)
            for old in computation:
                instruction, name = rewriter.current(old), _host_computation(old)
                if name is not None:
                    have = module[name].program_shape
                    operands = [operand.shape for operand in computation.operands(old)]
                    fits = len(have.parameters) == len(operands) and have.result.compatible(old.shape)
                    if fits and all(p.compatible(o) for p, o in zip(have.parameters, operands, strict=True)):
                        instruction = instruction.replace(op=Call(to_apply=name), backend_config=None)
                rewriter.keep(instruction)
            new.append(rewriter.finish())
        return module.with_computations(new)


def _host_computation(instruction: Instruction) -> str | None:
    """The one computation that it wants run on the host, by name."""
    called = instruction.op.called_computations
    return called[0] if instruction.op.called_target == HOST_EXECUTE and len(called) == 1 else None


REWRITES: tuple[Pass, ...] = (CallHostComputations(), ExplicitPrecision(), JoinSpreadCollectives(), InlineAsync())
"""In order. The compiler's list of steps begins with the same ones (tests/compiler/test_executed_form.py)."""


def executed_form(module: Module) -> Module:
    """A verified module with conversions where floats of several types meet, with collectives that are spread over
    fusions as pairs, with calls of the host computations that it names, and without asynchronous computations that
    communicate in other ways than by one collective; the same object where nothing changes."""
    for rewrite in REWRITES:
        module = rewrite.run(module)
    return module
