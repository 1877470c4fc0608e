"""Operations that exchange values with the host or with another computation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from distxla.builder.accepted_values import ShapeLike, as_flag, as_integer, as_integers, as_sequence, as_shape, as_word
from distxla.builder.blame import broken_rule
from distxla.builder.tuples import Tuples
from distxla.builder.xla_op import XlaOp
from distxla.ir.element_type import U32
from distxla.ir.shape import Shape
from distxla.ops.channel import Recv, RecvDone, Send, SendDone
from distxla.ops.feed import Infeed, Outfeed
from distxla.text.shapes import print_shape

_PAIRS = "_xla_send_recv_source_target_pairs"


class Transfers(Tuples):
    """Pages Infeed, Outfeed, Send, Recv.

    channel_handle: the number that a send and its receive share, one pair a number.  source_target_pairs: the source
    and target of each transfer, where all devices run this one program.
    """

    _feed_token: XlaOp | None = None

    # --- feeds ------------------------------------------------------------------------------------------------------

    def infeed(self, shape: ShapeLike, config: str = "") -> XlaOp:
        """The next item of the device's input queue. The feeds of a computation happen in the order of their calls."""
        taken = self.infeed_with_token(self._feeds(), shape, config)
        data, self._feed_token = taken
        return data

    def infeed_with_token(self, token: XlaOp, shape: ShapeLike, config: str = "") -> XlaOp:
        """(the next item, a token), not before `token`."""
        result = Shape.tuple((as_shape(shape), Shape.token()))
        return self._add(Infeed(infeed_config=as_word(config, "config")), [self._operand(token)], result)

    def outfeed(self, operand: Any, shape_with_layout: ShapeLike | None = None, outfeed_config: str = "") -> XlaOp:
        """Append a value to the device's output queue, in the order of the calls; the result is a token."""
        value = self._value(operand)
        self._feed_token = self.outfeed_with_token(value, self._feeds(), shape_with_layout, outfeed_config)
        return self._feed_token

    def outfeed_with_token(
        self, operand: Any, token: XlaOp, shape_with_layout: ShapeLike | None = None, outfeed_config: str = ""
    ) -> XlaOp:
        """`outfeed`, not before `token`; the result is a token."""
        value = self._value(operand)
        shape = value.shape if shape_with_layout is None else as_shape(shape_with_layout, "shape_with_layout")
        op = Outfeed(outfeed_shape=print_shape(shape), outfeed_config=as_word(outfeed_config, "outfeed_config"))
        return self._add(op, [value, self._operand(token)])

    def _feeds(self) -> XlaOp:
        if self._feed_token is None:
            self._feed_token = self.create_token()
        return self._feed_token

    # --- channels ---------------------------------------------------------------------------------------------------

    def send(
        self, operand: Any, channel_handle: int, source_target_pairs: Sequence[Sequence[int]] | None = None
    ) -> XlaOp:
        """Send a value to the `recv` of the same channel, and wait until it is over; the result is a token."""
        value = self._value(operand)
        return self.send_with_token(value, self.create_token(), channel_handle, source_target_pairs)

    def send_with_token(
        self,
        operand: Any,
        token: XlaOp,
        channel_handle: int,
        source_target_pairs: Sequence[Sequence[int]] | None = None,
    ) -> XlaOp:
        """`send`, not before `token`; the result is a token."""
        return self.send_done(self.send_start(operand, token, channel_handle, source_target_pairs))

    def send_start(
        self,
        operand: Any,
        token: XlaOp,
        channel_handle: int,
        source_target_pairs: Sequence[Sequence[int]] | None = None,
        *,
        is_host_transfer: bool = False,
    ) -> XlaOp:
        """Begin to send: HLO's `send`. The result is the context that `send_done` takes."""
        op = Send(
            channel_id=self._handle(channel_handle), is_host_transfer=as_flag(is_host_transfer, "is_host_transfer")
        )
        with self._pairs(source_target_pairs):
            return self._add(op, [self._value(operand), self._operand(token)])

    def send_done(self, context: XlaOp) -> XlaOp:
        """Wait until a send is over; the result is a token."""
        start = self._start(context, Send)
        op = SendDone(channel_id=start.channel_id, is_host_transfer=start.is_host_transfer)
        return self._add(op, [context])

    def recv(
        self, shape: ShapeLike, channel_handle: int, source_target_pairs: Sequence[Sequence[int]] | None = None
    ) -> XlaOp:
        """The value that the `send` of the same channel sends."""
        received = self.recv_with_token(self.create_token(), shape, channel_handle, source_target_pairs)
        return self.get_tuple_element(received, 0)

    def recv_with_token(
        self,
        token: XlaOp,
        shape: ShapeLike,
        channel_handle: int,
        source_target_pairs: Sequence[Sequence[int]] | None = None,
    ) -> XlaOp:
        """(the value, a token), not before `token`."""
        return self.recv_done(self.recv_start(shape, token, channel_handle, source_target_pairs))

    def recv_start(
        self,
        shape: ShapeLike,
        token: XlaOp,
        channel_handle: int,
        source_target_pairs: Sequence[Sequence[int]] | None = None,
        *,
        is_host_transfer: bool = False,
    ) -> XlaOp:
        """Begin to receive: HLO's `recv`. The result is the context that `recv_done` takes."""
        op = Recv(
            channel_id=self._handle(channel_handle), is_host_transfer=as_flag(is_host_transfer, "is_host_transfer")
        )
        result = Shape.tuple((as_shape(shape), Shape(U32), Shape.token()))
        with self._pairs(source_target_pairs):
            return self._add(op, [self._operand(token)], result)

    def recv_done(self, context: XlaOp) -> XlaOp:
        """Wait for a value: (the value, a token)."""
        start = self._start(context, Recv)
        op = RecvDone(channel_id=start.channel_id, is_host_transfer=start.is_host_transfer)
        return self._add(op, [context])

    def send_to_host(self, operand: Any, token: XlaOp, channel_handle: int) -> XlaOp:
        """Send a value to the host; the result is a token."""
        return self.send_done(self.send_start(operand, token, channel_handle, is_host_transfer=True))

    def recv_from_host(self, token: XlaOp, shape: ShapeLike, channel_handle: int) -> XlaOp:
        """(a value from the host, a token)."""
        return self.recv_done(self.recv_start(shape, token, channel_handle, is_host_transfer=True))

    def _start(self, context: XlaOp, kind: type[Send] | type[Recv]) -> Send | Recv:
        self._check_own(context)
        op = context.instruction.op
        if not isinstance(op, kind):
            raise broken_rule(f"{kind.opcode}-done.pair: {context.name} does not begin a {kind.opcode}", "context")
        return op

    def _handle(self, given: int) -> int:
        handle = as_integer(given, "channel_handle")
        if handle < 0:
            raise broken_rule(f"channel.id: channel_handle={handle} is negative", "channel_handle")
        return handle

    def _pairs(self, given: Sequence[Sequence[int]] | None) -> AbstractContextManager[None]:
        if given is None:
            return self._annotated()
        pairs = [
            "{" + ",".join(map(str, as_integers(pair, "source_target_pairs"))) + "}"
            for pair in as_sequence(given, "source_target_pairs")
        ]
        return self.frontend_attributes(**{_PAIRS: "{" + ",".join(pairs) + "}"})
