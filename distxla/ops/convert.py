"""HLO `convert`, `bitcast-convert`, `reduce-precision` and `stochastic-convert`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Convert(Op):
    """Every element as another type."""

    opcode = "convert"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True


@register
class BitcastConvert(Op):
    """The same bits as another type."""

    opcode = "bitcast-convert"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True


@register
class ReducePrecision(Op):
    """Round to a float format given by its bit counts."""

    opcode = "reduce-precision"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    exponent_bits: int = attribute("int")
    mantissa_bits: int = attribute("int")


@register
class StochasticConvert(Op):
    """Convert with random rounding."""

    opcode = "stochastic-convert"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    needs_shape: ClassVar[bool] = True
