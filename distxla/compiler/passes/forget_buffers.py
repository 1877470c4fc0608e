"""Give arrays instead of buffers: the passes behind it know values only."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.custom_calls.buffers import ALLOCATE, CREATE, PIN, UNPIN
from distxla.ops.custom_calls.custom_call import CustomCall
from distxla.ops.support.rewriter import Rewriter
from distxla.rewrites.step import Pass


class ForgetBuffers(Pass):
    """Let every buffer be an array, Pin and Unpin nothing, and CreateBuffer an AllocateBuffer.

    Expects: a verified module, in which a buffer has one writer at most. Ensures: no shape is a buffer's.
    """

    name: ClassVar[str] = "forget-buffers"

    def run(self, module: Module) -> Module:
        # each buffer comes from a custom-call, and the entry has none as a parameter
        if not any(i.op.role.is_custom_call and i.shape.has_buffers for c in module.computations for i in c):
            return module
        new = []
        for computation in module.computations:
            rewriter = Rewriter(computation)
            for old in computation:
                i = rewriter.current(old)
                if i.op.called_target in (PIN, UNPIN):
                    rewriter.forward(i.name, i.operands[0])
                else:
                    rewriter.keep(_of_arrays(i))
            new.append(rewriter.finish())
        return module.with_computations(new)


def _of_arrays(i: Instruction) -> Instruction:
    op = i.op
    if isinstance(op, CustomCall) and op.custom_call_target == CREATE:
        i = i.replace(op=dataclasses.replace(op, custom_call_target=ALLOCATE))
    elif isinstance(op, CustomCall) and op.operand_layout_constraints is not None:
        constraints = tuple(shape.contents for shape in op.operand_layout_constraints)
        i = i.replace(op=dataclasses.replace(op, operand_layout_constraints=constraints))
    return i.replace(shape=i.shape.contents) if i.shape.has_buffers else i
