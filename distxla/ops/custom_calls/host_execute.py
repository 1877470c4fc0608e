"""The custom-call in which XLA's host offloader wraps a computation for the host, as JAX's `compute_on` asks for it."""

from __future__ import annotations

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.call import Call as CallOp
from distxla.ops.custom_calls.target import Call, CustomCallTarget, target
from distxla.ops.support.rewriter import Rewriter, replaced

HOST_EXECUTE = "HostExecute"


@target(HOST_EXECUTE)
class HostExecute(CustomCallTarget):
    """The computation that the custom-call names, on its operands: here a device computes it itself.

    `with_host_calls` has made a call of each that can be executed; the remaining ones name no computation.
    Source: XLA's host offloading, which gives the name.
    """

    def obstacle(self, call: Call) -> str | None:
        named = ", ".join(call.op.called_computations) or "none of this module"
        return f'custom-call of "{call.name}" runs a computation on the host: it names {named}, not one that fits it'


def with_host_calls(module: Module) -> Module:
    """The module, verified, with calls of the computations that it wants run on the host; the same object where it
    wants none."""
    new = []
    for computation in module.computations:
        rewriter = Rewriter(computation)
        for old in computation:
            instruction, name = rewriter.current(old), _computation(old)
            if name is not None:
                have = module[name].program_shape
                operands = [operand.shape for operand in computation.operands(old)]
                fits = len(have.parameters) == len(operands) and have.result.compatible(old.shape)
                if fits and all(p.compatible(o) for p, o in zip(have.parameters, operands, strict=True)):
                    instruction = instruction.replace(op=CallOp(to_apply=name), backend_config=None)
            rewriter.keep(instruction)
        new.append(rewriter.finish())
    computations = replaced(module.computations, new)
    return module if computations is None else module.replace(computations=computations)


def _computation(instruction: Instruction) -> str | None:
    """The one computation that it wants run on the host, by name."""
    called = instruction.op.called_computations
    return called[0] if instruction.op.called_target == HOST_EXECUTE and len(called) == 1 else None
