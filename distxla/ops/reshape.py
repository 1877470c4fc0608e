"""HLO `reshape` and `dynamic-reshape`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Reshape(Op):
    """The same elements in row-major order with other extents."""

    opcode = "reshape"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True
    inferred_dimension: int | None = attribute("int", default=None)


@register
class DynamicReshape(Op):
    """Reshape to extents given at run time."""

    opcode = "dynamic-reshape"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = None
    needs_shape: ClassVar[bool] = True
