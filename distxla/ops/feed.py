"""HLO `infeed` and `outfeed`: queues between a device and the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Infeed(Op):
    """Take the next item of the device's input queue.

    Shapes:  token[] -> (T, token[]).
    Errors:  C1 the operand is no token; C3 the result is not (T, token[]).
    Source:  StableHLO spec, "infeed"; Operation Semantics, "Infeed".
    """

    opcode: ClassVar[str] = "infeed"
    effects: ClassVar[Effects] = Effects.FEED
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True
    infeed_config: str = attribute("string", default="")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        self.require(operands[0].is_token, "C1", f"the operand is {operands[0]}, not token[]", at="operands")
        parts = shape.elements or ()
        self.require(
            len(parts) == 2 and parts[1].is_token, "C3", f"the result must be (T, token[]), it is {shape}", at="shape"
        )


@register
class Outfeed(Op):
    """Append a value to the device's output queue.

    Shapes:  (T, token[]) as two operands -> token[].
    Errors:  C1 the second operand is no token; C2 outfeed_shape is not the first one's shape.
    Source:  StableHLO spec, "outfeed"; Operation Semantics, "Outfeed".
    """

    opcode: ClassVar[str] = "outfeed"
    effects: ClassVar[Effects] = Effects.FEED
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    outfeed_shape: str | None = attribute("raw", default=None)
    outfeed_config: str = attribute("string", default="")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        self.require(operands[1].is_token, "C1", f"operand 1 is {operands[1]}, not token[]", at="operands")
        if self.outfeed_shape is not None:
            stated, have = (re.sub(r"\{[^{}]*\}|/\*.*?\*/|\s", "", s) for s in (self.outfeed_shape, str(operands[0])))
            self.require(
                stated == have,
                "C2",
                f"outfeed_shape={self.outfeed_shape}, operand 0 is {operands[0]}",
                at="outfeed_shape",
            )
        return Shape.token()
