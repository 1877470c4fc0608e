"""HLO `async-start`, `async-update` and `async-done`: a computation that overlaps with other instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.call import Aliasing, check_arguments
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class AsyncStart(Op):
    """Begin a computation; async-done takes its result.

    Shapes:  (T_0, ..) -> ((T_0, ..), U, context..) for a computation (T_0, ..) -> U.
    Errors:  C1 the computation's signature; C2 the result's shape.
    Source:  XLA's HLO text. `<opcode>-start(..)` is a short form of it where the opcode has no start of its own.
    """

    opcode: ClassVar[str] = "async-start"
    lowering: ClassVar[Lowering] = Lowering.NONE
    needs_shape: ClassVar[bool] = True
    starts_pair: ClassVar[bool] = True
    owns_computations: ClassVar[bool] = True
    async_execution_thread: str = attribute("string", default="main")
    output_to_operand_aliasing: Aliasing = attribute("aliasing", default=())
    calls: str = attribute("computation")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        check_arguments(self, "C1", self.calls, operands, called(self.calls), at="calls")
        parts = shape.elements or ()
        self.require(
            len(parts) >= 2 and parts[0].compatible(Shape.tuple(tuple(operands))),
            "C2",
            f"the result must be ((operands), outputs, ..), it is {shape}",
            at="shape",
        )
        self.require(
            parts[1].compatible(called(self.calls).result),
            "C2",
            f"{self.calls} gives {called(self.calls).result}, the result holds {parts[1]}",
            at="shape",
        )


@register
class AsyncUpdate(Op):
    """Give a computation under way a chance to go on.

    Shapes:  the operand's, which is an async-start's or another async-update's result.
    Errors:  shape: another one.
    """

    opcode: ClassVar[str] = "async-update"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True
    starts_pair: ClassVar[bool] = True
    completes: ClassVar[tuple[str, ...]] = ("async-start", "async-update")
    async_execution_thread: str | None = attribute("string", default=None)
    calls: str | None = attribute("computation", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        return operands[0].without_layout()


@register
class AsyncDone(Op):
    """Wait for a computation and take its result.

    Shapes:  ((operands), U, ..) -> U.
    Errors:  C1 the operand is no such tuple; shape: another one than U.
    """

    opcode: ClassVar[str] = "async-done"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True
    completes: ClassVar[tuple[str, ...]] = ("async-start", "async-update")
    async_execution_thread: str | None = attribute("string", default=None)
    calls: str | None = attribute("computation", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        parts = operands[0].elements or ()
        self.require(
            len(parts) >= 2, "C1", f"the operand must be ((operands), outputs, ..), it is {operands[0]}", at="operands"
        )
        return parts[1].without_layout()
