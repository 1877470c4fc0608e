"""HLO `infeed` and `outfeed`: queues between a device and the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, OpRole, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.stream_key import INFEED, OUTFEED, StreamKey
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Infeed(ExecutableOp):
    """Take the next item of the device's infeed, which the host fills; waits for it.

    Shapes:  token[] -> (T, token[]).
    Errors:  C1 the operand is no token; C3 the result is not (T, token[]).
             While it runs: the item is not of T, or the host has closed the infeed.
    Source:  StableHLO spec, "infeed"; Operation Semantics, "Infeed".
    """

    opcode: ClassVar[str] = "infeed"
    role: ClassVar[OpRole] = OpRole(given_by_caller=True)
    mixes_precision: ClassVar[bool] = False
    effects: ClassVar[Effects] = Effects.FEED
    lowering: ClassVar[Lowering] = Lowering.COMMUNICATION
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True
    infeed_config: str = attribute("string", default="")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        self.require(operands[0].is_token, "C1", f"the operand is {operands[0]}, not token[]", at="operands")
        parts = shape.elements or ()
        self.require(
            len(parts) == 2 and parts[1].is_token, "C3", f"the result must be (T, token[]), it is {shape}", at="shape"
        )

    @property
    def stream(self) -> StreamKey:
        return INFEED

    def stream_item(self, shape: Shape, operands: Sequence[Shape]) -> Shape | None:
        assert shape.elements is not None
        return shape.elements[0]

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        return super().obstacle(shape, operands) or item_obstacle(
            self.opcode, shape.elements[0] if shape.elements else shape
        )

    def evaluation_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        return self.obstacle(instruction.shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.exchange.take(run.exchange.ask()), None


@register
class Outfeed(ExecutableOp):
    """Append a value to the device's outfeed, which the host empties; waits for room.

    Shapes:  (T, token[]) as two operands -> token[].
    Errors:  C1 the second operand is no token; C2 outfeed_shape is not the first one's shape.
    Source:  StableHLO spec, "outfeed"; Operation Semantics, "Outfeed".
    """

    opcode: ClassVar[str] = "outfeed"
    mixes_precision: ClassVar[bool] = False
    effects: ClassVar[Effects] = Effects.FEED
    lowering: ClassVar[Lowering] = Lowering.COMMUNICATION
    operand_count: ClassVar[OperandCount] = exactly(2)
    outfeed_shape: str | None = attribute("raw", default=None)
    outfeed_config: str = attribute("string", default="")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
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

    @property
    def stream(self) -> StreamKey:
        return OUTFEED

    def stream_item(self, shape: Shape, operands: Sequence[Shape]) -> Shape | None:
        return operands[0]

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        return super().obstacle(shape, operands) or item_obstacle(self.opcode, operands[0])

    def evaluation_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        return self.obstacle(instruction.shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        run.exchange.give(operands[0])
        return None


def item_obstacle(opcode: str, item: Shape) -> str | None:
    """The reason why items of a shape can't move between host and device, in a sentence; None if they can."""
    for leaf in item.leaves():
        if not leaf.is_array:
            return f"this version cannot execute {opcode} of {leaf}, which has no bytes"
        if leaf.is_dynamic:
            return f"this version cannot execute {opcode} of {leaf}: what host and device exchange has static sizes"
    return None
