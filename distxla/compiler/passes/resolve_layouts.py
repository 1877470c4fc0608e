"""Turn bitcasts into logical operations and forget layouts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.bitcast import Bitcast
from distxla.ops.constant import Constant
from distxla.ops.pad import Pad
from distxla.ops.support.rewriter import Rewriter
from distxla.rewrites.step import Pass


class ResolveLayouts(Pass):
    """Make memory order explicit, since every array of a compiled program is row-major.

    A bitcast reads its operand's bytes in the operand's layout and calls them its result in the result's layout:
    transpose into physical order, reshape, transpose back. After this pass no shape inside a computation has a layout.
    """

    name: ClassVar[str] = "resolve-layouts"

    def run(self, module: Module) -> Module:
        new = []
        for computation in module.computations:
            rewriter = Rewriter(computation)
            for old in computation:
                instruction = rewriter.current(old)
                if isinstance(instruction.op, Bitcast):
                    source = computation[old.operands[0]].shape
                    rewriter.forward(old.name, _bitcast(rewriter, instruction, source))
                    continue
                shape = instruction.shape.without_layout()
                if shape != instruction.shape:
                    instruction = instruction.replace(shape=shape)
                rewriter.keep(instruction)
            new.append(rewriter.finish())
        return module.with_computations(new)


def _bitcast(rewriter: Rewriter, bitcast: Instruction, source: Shape) -> str:
    """Add the instructions of the bitcast of an operand of shape `source` (with its layout); the result's name."""
    target = bitcast.shape
    name = bitcast.operands[0]
    if target.is_tuple or source.is_tuple:
        return name
    predecessors = bitcast.control_predecessors
    assert isinstance(bitcast.op, Bitcast)
    for op, shape in bitcast.op.logical_steps(target, source):
        operands: tuple[str, ...] = (name,)
        if isinstance(op, Pad):
            zero = Literal(Shape(shape.element_type), np.zeros((), shape.dtype.dtype))
            operands = name, rewriter.add(bitcast, Constant(literal=zero), zero.shape, ()).name
        made = rewriter.add(bitcast, op, shape, operands)
        if predecessors:
            rewriter.instructions[made.name] = made.replace(control_predecessors=predecessors)
            predecessors = ()
        name = made.name
    return name
