"""HLO `call` and `fusion`: a computation in place of an instruction."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Call(Op):
    """Run a computation on the operands."""

    opcode = "call"
    lowering = Lowering.CALL
    to_apply: str = attribute("computation")
    is_composite: bool = attribute("bool", default=False)


@register
class Fusion(Op):
    """Run a computation whose intermediate values need no memory of their own."""

    opcode = "fusion"
    lowering = Lowering.CALL
    needs_shape = True
    kind: str = attribute("word")
    output_to_operand_aliasing: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = attribute(
        "aliasing", default=()
    )
    calls: str = attribute("computation")
