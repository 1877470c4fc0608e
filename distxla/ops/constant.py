"""HLO `constant`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.literal import Literal
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Constant(Op):
    """A value written in the program: `constant(literal)`, of any shape, tuples included."""

    opcode = "constant"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    max_operands: ClassVar[int | None] = 0
    needs_shape: ClassVar[bool] = True
    literal: Literal = attribute("literal")
