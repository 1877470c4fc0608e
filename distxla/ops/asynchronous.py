"""HLO `async-start`, `async-update` and `async-done`: a computation that may overlap with other instructions.

One that is a single collective begins its round when it is started, and async-done waits for the round's end. Of others
that communicate the start begins all transfers and collectives, the done waits for them and computes the rest: they are
put in the place of both before anything executes them (distxla/rewrites/async_computations.py). One that doesn't
communicate runs when it is started.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, StartDone, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.call import Aliasing, Call, check_aliasing, check_arguments
from distxla.ops.channel import zeros
from distxla.ops.support.collective_start_done import EndOfPair, begin, is_begun, single_collective
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import register
from distxla.ops.token import AfterAll


@register
class AsyncStart(ExecutableOp):
    """Begin a computation; async-done takes its result. All its transfers and collectives begin together.

    A start never waits. Readers of the result of a transfer or a collective are executed by async-done, and so are
    feeds, and loops and conditionals that communicate. A send or recv without a done of its own is ended by async-done,
    and its context is then (the value that was sent or received, 0, token); another one's context may come from outside
    or go there, to its done.

    Shapes:  (T_0, ..) -> ((T_0, ..), U, context..) for a computation (T_0, ..) -> U. The context is zeros.
    Errors:  C1 the computation's signature; C2 the result's shape; aliasing: an alias of an operand or output that
             doesn't exist or differs in shape.
    Source:  XLA's HLO text. `<opcode>-start(..)` is a short form of it where the opcode has no start of its own.
    """

    opcode: ClassVar[str] = "async-start"
    start_done: ClassVar[StartDone] = StartDone(starts_async=True, starts_pair=True, owns_computations=True)
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    needs_shape: ClassVar[bool] = True
    async_execution_thread: str = attribute("string", default="main")
    output_to_operand_aliasing: Aliasing = attribute("aliasing", default=())
    calls: str = attribute("computation")

    @property
    def begun_computation(self) -> str:  # type: ignore[override]
        return self.calls

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
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
        check_aliasing(self, self.output_to_operand_aliasing, called(self.calls).result, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        context = (run.shape.elements or ())[2:]
        return operands, run.exchange.start(self.calls, *operands), *map(zeros, context)

    def expand(self, build: Build, instruction: Instruction) -> str:
        context = (instruction.shape.elements or ())[2:]
        collective = single_collective(build.called(self.calls))
        if collective is not None:
            outputs = begin(build, instruction, collective, (instruction.shape.elements or ())[1])
            if is_begun(build, outputs):
                return outputs
        else:
            outputs = build.add(Call(to_apply=self.calls), *instruction.operands)
        return build.join(
            build.join(*instruction.operands), outputs, *(_build_nothing(build, part) for part in context)
        )


@register
class AsyncUpdate(ExecutableOp):
    """Give a computation in flight a chance to go on: none needs it.

    Shapes:  the operand's, which is an async-start's or another async-update's result.
    Errors:  shape: another one.
    """

    opcode: ClassVar[str] = "async-update"
    start_done: ClassVar[StartDone] = StartDone(
        updates_async=True, starts_pair=True, completes=("async-start", "async-update")
    )
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True
    async_execution_thread: str | None = attribute("string", default=None)
    calls: str | None = attribute("computation", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return operands[0].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0]

    def expand(self, build: Build, instruction: Instruction) -> str:
        return instruction.operands[0]


@register
class AsyncDone(EndOfPair):
    """Take the result of a computation that async-start began.

    Shapes:  ((operands), U, ..) -> U.
    Errors:  C1 the operand is no such tuple; shape: another one than U.
    """

    opcode: ClassVar[str] = "async-done"
    start_done: ClassVar[StartDone] = StartDone(completes_async=True, completes=("async-start", "async-update"))
    needs_shape: ClassVar[bool] = True
    async_execution_thread: str | None = attribute("string", default=None)
    calls: str | None = attribute("computation", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        parts = operands[0].elements or ()
        self.require(
            len(parts) >= 2, "C1", f"the operand must be ((operands), outputs, ..), it is {operands[0]}", at="operands"
        )
        return parts[1].without_layout()


def _build_nothing(build: Build, shape: Shape) -> str:
    if shape.elements is not None:
        return build.join(*(_build_nothing(build, part) for part in shape.elements))
    return build.constant(0, shape.dtype, shape.dims) if shape.is_array else build.add(AfterAll())
