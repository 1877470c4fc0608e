"""HLO `parameter`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Parameter(Op):
    """Argument `number` of the computation: `parameter(number)`."""

    opcode = "parameter"
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    max_operands: ClassVar[int | None] = 0
    needs_shape: ClassVar[bool] = True
    is_parameter: ClassVar[bool] = True
    number: int = attribute("number")
