"""HLO `send`, `send-done`, `recv` and `recv-done`: point-to-point transfers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.element_type import U32
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Send(Op):
    """Begin to send a value over a channel; returns at once.

    Shapes:  (T, token[]) as two operands -> (T, u32[], token[]).
    Errors:  C1 the second operand is no token.
    Source:  Operation Semantics, "Send"; StableHLO spec, "send".
    """

    opcode: ClassVar[str] = "send"
    effects: ClassVar[Effects] = Effects.CHANNEL
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        self.require(operands[1].is_token, "C1", f"operand 1 is {operands[1]}, not token[]", at="operands")
        return Shape.tuple((operands[0].without_layout(), Shape(U32), Shape.token()))


@register
class SendDone(Op):
    """Wait until a send is over.

    Shapes:  (T, u32[], token[]) -> token[].
    Errors:  C1 the operand is not what send gives.
    Source:  Operation Semantics, "Send"; StableHLO spec, "send".
    """

    opcode: ClassVar[str] = "send-done"
    completes: ClassVar[tuple[str, ...]] = ("send",)
    completes_indirectly: ClassVar[bool] = True
    effects: ClassVar[Effects] = Effects.CHANNEL
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        check_context(self, operands[0])
        return Shape.token()


@register
class Recv(Op):
    """Begin to receive a value over a channel; returns at once.

    Shapes:  token[] -> (T, u32[], token[]).
    Errors:  C1 the operand is no token; C2 the result is not of that form.
    Source:  Operation Semantics, "Recv"; StableHLO spec, "recv".
    """

    opcode: ClassVar[str] = "recv"
    effects: ClassVar[Effects] = Effects.CHANNEL
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        self.require(operands[0].is_token, "C1", f"the operand is {operands[0]}, not token[]", at="operands")
        self.require(is_context(shape), "C2", f"the result must be (T, u32[], token[]), it is {shape}", at="shape")


@register
class RecvDone(Op):
    """Wait for a received value.

    Shapes:  (T, u32[], token[]) -> (T, token[]).
    Errors:  C1 the operand is not what recv gives.
    Source:  Operation Semantics, "Recv"; StableHLO spec, "recv".
    """

    opcode: ClassVar[str] = "recv-done"
    completes: ClassVar[tuple[str, ...]] = ("recv",)
    completes_indirectly: ClassVar[bool] = True
    effects: ClassVar[Effects] = Effects.CHANNEL
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        value = check_context(self, operands[0])
        return Shape.tuple((value.without_layout(), Shape.token()))


def is_context(shape: Shape) -> bool:
    """Whether a shape is that of a transfer under way: (T, u32[], token[])."""
    parts = shape.elements or ()
    return len(parts) == 3 and parts[1].compatible(Shape(U32)) and parts[2].is_token


def check_context(op: Op, shape: Shape) -> Shape:
    """The T of an operand (T, u32[], token[])."""
    op.require(is_context(shape), "C1", f"the operand must be (T, u32[], token[]), it is {shape}", at="operands")
    assert shape.elements is not None
    return shape.elements[0]
