"""HLO `send`, `send-done`, `recv` and `recv-done`: point-to-point transfers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.effects import Effects
from distxla.ir.element_type import U32
from distxla.ir.instruction import Instruction
from distxla.ir.op import NO_MEMORY, Lowering, Op
from distxla.ir.op_traits import OperandCount, StartDone, TransferEnd, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.stream_key import StreamKey, StreamKind
from distxla.lazy_dataclass import dataclass
from distxla.ops.feed import item_obstacle
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@dataclass(frozen=True, eq=False, repr=False)
class ChannelOp(ExecutableOp):
    """Common to the four: they name a channel, and keep their order among instructions with effects.

    A context is (T, u32[], token[]): the value or its place, the number of the transfer, and a token. It may travel
    through tuples and loops to the instruction that ends the transfer.
    """

    effects: ClassVar[Effects] = Effects.CHANNEL
    lowering: ClassVar[Lowering] = Lowering.COMMUNICATION
    mixes_precision: ClassVar[bool] = False
    host_stream: ClassVar[StreamKind]  # of host transfers
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)

    @property
    def channel(self) -> int | None:
        return self.channel_id

    @property
    def is_device_transfer(self) -> bool:
        return not self.is_host_transfer

    def context_leaves(self, shape: Shape) -> tuple[int | None, ...]:
        """`aliased_leaves` of a send or recv: the first part of its context has no reader."""
        return (NO_MEMORY,) * (_count(shape) - 2) + (None, None)

    @property
    def stream(self) -> StreamKey | None:
        return StreamKey(self.host_stream, self.channel_id or 0) if self.is_host_transfer else None

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        found = super().obstacle(shape, operands)
        item = self.stream_item(shape, operands)
        if found is None and self.is_host_transfer and item is not None:
            return item_obstacle(self.opcode, item)
        return found

    def evaluation_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        return self.obstacle(instruction.shape, operands) if self.is_host_transfer else None


@register
class Send(ChannelOp):
    """Begin to send a value over a channel; returns at once, unless 8 values of it are in flight to the same device.

    The receiver: source-target pairs in the frontend attributes, or without them the device at the same place of the
    program that has the recv.

    Shapes:  (T, token[]) as two operands -> (T, u32[], token[]).
    Errors:  C1 the second operand is no token.
    Source:  Operation Semantics, "Send"; StableHLO spec, "send".
    """

    opcode: ClassVar[str] = "send"
    transfer: ClassVar[TransferEnd] = TransferEnd(
        starts=True,
        sends=True,
        peer_action="receive a value that is on its way",  # a channel holds a limited number of values
    )
    host_stream: ClassVar[StreamKind] = StreamKind.SEND
    operand_count: ClassVar[OperandCount] = exactly(2)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        self.require(operands[1].is_token, "C1", f"operand 1 is {operands[1]}, not token[]", at="operands")
        return Shape.tuple((operands[0].without_layout(), Shape(U32), Shape.token()))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        exchange = run.exchange
        return operands[0], (exchange.give if self.is_host_transfer else exchange.send)(operands[0]), None

    def stream_item(self, shape: Shape, operands: Sequence[Shape]) -> Shape | None:
        return operands[0]

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        return self.context_leaves(shape)


@register
class SendDone(ChannelOp):
    """Wait until a send is over: the target has executed its recv.

    Shapes:  (T, u32[], token[]) -> token[].
    Errors:  C1 the operand is not a send's result.
    Source:  Operation Semantics, "Send"; StableHLO spec, "send".
    """

    opcode: ClassVar[str] = "send-done"
    transfer: ClassVar[TransferEnd] = TransferEnd(completes=True, sends=True)
    host_stream: ClassVar[StreamKind] = StreamKind.SEND
    start_done: ClassVar[StartDone] = StartDone(completes=("send",), completes_indirectly=True)
    operand_count: ClassVar[OperandCount] = exactly(1)

    @property
    def only_waits(self) -> bool:  # type: ignore[override]
        """Between devices: a send waits for recv-dones alone."""
        return self.is_device_transfer

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        check_context(self, operands[0])
        return Shape.token()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        if not self.is_host_transfer:
            run.exchange.finish_send(operands[0][1])


@register
class Recv(ChannelOp):
    """Begin to receive a value over a channel; returns at once. The first part of its result is not the value yet.

    Shapes:  token[] -> (T, u32[], token[]).
    Errors:  C1 the operand is no token; C2 the result is not of that form.
    Source:  Operation Semantics, "Recv"; StableHLO spec, "recv".
    """

    opcode: ClassVar[str] = "recv"
    transfer: ClassVar[TransferEnd] = TransferEnd(starts=True, receives=True)
    host_stream: ClassVar[StreamKind] = StreamKind.RECV
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        self.require(operands[0].is_token, "C1", f"the operand is {operands[0]}, not token[]", at="operands")
        self.require(is_context(shape), "C2", f"the result must be (T, u32[], token[]), it is {shape}", at="shape")

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        begin = run.exchange.ask if self.is_host_transfer else run.exchange.receive
        return zeros((run.shape.elements or ())[0]), begin(), None

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        return self.context_leaves(shape)


@register
class RecvDone(ChannelOp):
    """Wait for a received value: zeros on a device that is no pair's target.

    Shapes:  (T, u32[], token[]) -> (T, token[]).
    Errors:  C1 the operand is not a recv's result.
    Source:  Operation Semantics, "Recv"; StableHLO spec, "recv".
    """

    opcode: ClassVar[str] = "recv-done"
    transfer: ClassVar[TransferEnd] = TransferEnd(completes=True, receives=True, peer_action="send")
    host_stream: ClassVar[StreamKind] = StreamKind.RECV
    start_done: ClassVar[StartDone] = StartDone(completes=("recv",), completes_indirectly=True)
    operand_count: ClassVar[OperandCount] = exactly(1)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        value = check_context(self, operands[0])
        return Shape.tuple((value.without_layout(), Shape.token()))

    def stream_item(self, shape: Shape, operands: Sequence[Shape]) -> Shape | None:
        return (shape.elements or (None,))[0]

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        if self.is_host_transfer:
            return run.exchange.take(operands[0][1]), None
        value = run.exchange.finish_receive(operands[0][1])
        return zeros((run.shape.elements or ())[0]) if value is None else value, None


@dataclass(frozen=True, eq=False, repr=False)
class ZeroCopySend(Send):
    """A send whose send-done takes its context directly: until then the operand's memory stays as it is."""

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        return (*range(_count(operands[0])), None, None)


@dataclass(frozen=True, eq=False, repr=False)
class ZeroCopyRecv(Recv):
    """A recv whose recv-done takes its context directly: the context's first part is where the value will be."""

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        return (None,) * _count(shape)


@dataclass(frozen=True, eq=False, repr=False)
class ZeroCopyRecvDone(RecvDone):
    """The recv-done of a ZeroCopyRecv."""

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        return (*range(_count(shape) - 1), None)


def _count(shape: Shape) -> int:
    return sum(1 for _ in shape.leaves())


def is_context(shape: Shape) -> bool:
    """Whether a shape is that of a transfer in flight: (T, u32[], token[])."""
    parts = shape.elements or ()
    return len(parts) == 3 and parts[1].compatible(Shape(U32)) and parts[2].is_token


def check_context(op: Op, shape: Shape) -> Shape:
    """The T of an operand (T, u32[], token[])."""
    op.require(is_context(shape), "C1", f"the operand must be (T, u32[], token[]), it is {shape}", at="operands")
    assert shape.elements is not None
    return shape.elements[0]


def zeros(shape: Shape) -> Any:
    """The received value of a device that is no target: zeros, and None for tokens."""
    if shape.elements is not None:
        return tuple(map(zeros, shape.elements))
    return np.zeros(shape.dims, shape.dtype.dtype) if shape.is_array else None
