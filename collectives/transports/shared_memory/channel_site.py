"""Sends and recvs between devices: eager messages, rendezvous (zero-copy), bounce buffers.

How a value travels. A value of up to EAGER_VALUE_BYTES is in the message: the send copies it there, the recv-done from
there.
A larger one that is `zero_copy` (compiler/passes/zero_copy_transfers.py) is posted as a rendezvous: the first of
send-done and recv-done claims the message by compare-and-swap and copies the value, into the receive buffer that a
zero-copy recv has posted or into the result of the recv-done. Where no receive buffer is posted (the recv's context
travels, or RING recvs before it are in flight), a send-done that is first copies into a bounce buffer of the pair. A
send that is not zero-copy copies its value at once: into the receive buffer if one is posted, otherwise into the bounce
buffer.

Between hosts each side has the pair's state, and bounce buffers, on its own host. A value goes into the message or a
bounce buffer; the proxies carry it, and the words that the other side waits for, across.

So the four edges hold, and no others: a send does not wait while fewer than RING values are in flight, a send-done
waits for the recv, a recv-done for the send. Each word has one writer, but for the claim.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from llvmlite import ir

from distxla.collectives.channels import read_end
from distxla.collectives.protocols import channel as channel_words
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.protocols.layout import Word
from distxla.collectives.protocols.proxy_queue import ProxyEvent
from distxla.collectives.transports.shared_memory.proxy_queue import enqueue, is_elsewhere
from distxla.collectives.transports.shared_memory.round_numbers import count_from, note_round
from distxla.collectives.transports.shared_memory.site_emitter import Routine, SiteEmitter
from distxla.collectives.transports.shared_memory.wait_and_wake import emit_wait, emit_wake
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I1, I32, I64, POINTER, emit_copy, emit_zero, i32, i64
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.channel import Recv, RecvDone, Send, SendDone, ZeroCopyRecv, ZeroCopyRecvDone, ZeroCopySend
from distxla.program.abi import Status
from distxla.program.artifact import CommunicatorSpec

ARGUMENTS = [POINTER, I32, POINTER, POINTER, POINTER]  # the routine's, then the communicator's state


class ChannelEmitter(SiteEmitter):
    """`site_emitter.SiteEmitter`: the number in the context of a send or recv identifies the transfer.

    The driver writes into the state of each end which pair the device is in for the call (protocols/channel.py).
    """

    def handles(self, op: Op) -> bool:
        return op.is_device_transfer

    def communicator(self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts) -> CommunicatorSpec:
        devices = range(counts.devices)
        if not instruction.op.transfer.starts:
            return CommunicatorSpec(channel_words.DIRECTORY_KEY, (tuple(devices),), (channel_words.DIRECTORY_BYTES,))
        end = read_end(instruction)
        groups = tuple((device,) for device in devices)
        return CommunicatorSpec(f"channel end {end!r}", groups, (channel_words.END_BYTES,) * len(groups), channel=end)

    def emit(self, routine: Routine) -> None:
        op, shape = routine.instruction.op, routine.instruction.shape
        leaves = (shape if isinstance(op, Send | Recv | RecvDone) else None, routine.operands)
        payload = _payload(*leaves)
        kind = ROUTINES[type(op)]
        module = routine.atomics.builder.module
        name = f"distxla_{kind.__name__.strip('_').lower()}_{_signature(payload):016x}"
        function = module.globals.get(name)
        if function is None:
            function = kind(module, name, payload).emit()
        builder = routine.atomics.builder
        builder.ret(builder.call(function, [*routine.function.args, routine.state]))


def _payload(shape: Shape | None, operands: Sequence[Shape]) -> Shape:
    """The type of the value: the first part of the result, or of a send-done's operand, whose leaves are given."""
    if shape is not None:
        assert shape.elements is not None
        return shape.elements[0].without_layout()
    return Shape.tuple(tuple(leaf.without_layout() for leaf in operands[:-2]))


def _signature(payload: Shape) -> int:
    """u64: equal for values of one type. A tuple of leaves, since a send-done knows no more."""
    flat = ", ".join(str(leaf.without_layout()) for leaf in payload.leaves())
    return int.from_bytes(hashlib.blake2b(flat.encode(), digest_size=8).digest(), "little")


class _Routine(ABC):
    """Shared by send, recv and their dones: i32 name(Context*, u32 site, u64* operands, u64* results, state)."""

    def __init__(self, module: ir.Module, name: str, payload: Shape) -> None:
        self.module, self.signature = module, _signature(payload)
        self.function, self.atomics = AtomicsBuilder.function(module, name, I32, ARGUMENTS)
        self.context, self.site, self.sent, self.received, self.state = self.function.args
        self.builder = self.atomics.builder
        self.sizes = [channel_words.byte_size(leaf) for leaf in payload.leaves()]
        self.places, self.size = channel_words.packed(payload)
        self.is_eager = self.size <= channel_words.EAGER_VALUE_BYTES
        self.record = self.atomics.context_field(self.context, "record")
        self.device = self.atomics.context_field(self.context, "device")
        self.memory = self.atomics.device_memory(self.context, self.device)

    @abstractmethod
    def emit(self) -> ir.Function:
        """Write the body, with all its returns."""

    # --- pairs and slots

    def end_pair(self) -> tuple[ir.Value, ir.Value]:
        """The pair of this send or recv and its number; a device without a pair returns from the function."""
        atomics, builder = self.atomics, self.builder
        run = atomics.load(I32, self.record, control_words.R_RUN)
        known = builder.icmp_unsigned("==", run, atomics.load(I32, self.state, channel_words.E_RUN))
        number = builder.select(known, atomics.load(I32, self.state, channel_words.E_EXECUTIONS), i32(0))
        atomics.store(run, self.state, channel_words.E_RUN)
        atomics.store(builder.add(number, i32(1)), self.state, channel_words.E_EXECUTIONS)
        pair = atomics.load(I64, self.state, channel_words.E_PAIR)
        early = builder.icmp_unsigned("<", number, atomics.load(I32, self.state, channel_words.E_FIRST))
        late = builder.icmp_unsigned(">", number, atomics.load(I32, self.state, channel_words.E_LAST))
        no_pair = builder.icmp_unsigned("==", pair, i64(0))
        with builder.if_then(builder.or_(no_pair, builder.or_(early, late))):
            atomics.store(i32(0), self.ticket_place(self.received))
            builder.ret(i32(Status.OK))
        control = atomics.context_field(self.context, "control")
        return atomics.at(control, pair), atomics.load(I32, self.state, channel_words.E_NUMBER)

    def ticket_place(self, offsets: ir.Value) -> ir.Value:
        """Where a context has its u32."""
        return self.buffer(self.memory, offsets, len(self.sizes))

    def store_ticket(self, number: ir.Value, transfer: ir.Value) -> None:
        builder = self.builder
        low = builder.and_(transfer, i32(0xFFFF))
        ticket = builder.or_(builder.shl(number, i32(16)), low)
        self.atomics.store(ticket, self.ticket_place(self.received))

    def done_pair(self, counter: Word, nothing: Callable[[], None]) -> tuple[ir.Value, ir.Value]:
        """The pair and the transfer of the context's ticket; without one does `nothing` and returns.

        counter: the word that counts this side's transfers.
        """
        atomics, builder = self.atomics, self.builder
        ticket = atomics.load(I32, self.ticket_place(self.sent))
        with builder.if_then(builder.icmp_unsigned("==", ticket, i32(0))):
            nothing()
            builder.ret(i32(Status.OK))
        row = builder.mul(builder.zext(builder.lshr(ticket, i32(16)), I64), i64(8))
        pair = atomics.at(atomics.context_field(self.context, "control"), atomics.load(I64, self.state, row))
        last = builder.sub(atomics.load_own(I32, pair, counter), i32(1))
        ago = builder.and_(builder.sub(last, ticket), i32(0xFFFF))
        return pair, builder.sub(last, ago)

    def slot(self, pair: ir.Value, transfer: ir.Value) -> ir.Value:
        atomics, builder = self.atomics, self.builder
        index = builder.zext(builder.and_(transfer, i32(channel_words.RING - 1)), I64)
        offset = builder.mul(index, atomics.load(I64, pair, channel_words.C_SLOT_BYTES))
        return atomics.at(atomics.at(pair, channel_words.C_SLOTS), offset)

    def bounce_buffer(self, pair: ir.Value, transfer: ir.Value) -> ir.Value:
        """The transfer's bounce buffer."""
        atomics, builder = self.atomics, self.builder
        index = builder.zext(builder.and_(transfer, i32(channel_words.RING - 1)), I64)
        offset = builder.mul(index, atomics.load(I64, pair, channel_words.C_BOUNCE_BUFFER_BYTES))
        base = atomics.device_memory(self.context, atomics.load(I32, pair, channel_words.C_BOUNCE_BUFFER_DEVICE))
        return atomics.at(base, builder.add(atomics.load(I64, pair, channel_words.C_BOUNCE_BUFFERS), offset))

    def note_round(self, pair: ir.Value, transfer: ir.Value, counter: Word, *, begins: bool = False) -> ir.Value:
        """Write the pair and the number of the transfer into the record; return the value of its words.

        counter: the word that counts this side's transfers.  begins: whether this is a new one.
        """
        atomics, builder, control = self.atomics, self.builder, self.atomics.context_field(self.context, "control")
        offset = builder.sub(builder.ptrtoint(pair, I64), builder.ptrtoint(control, I64))
        edge = builder.trunc(builder.lshr(offset, i64(6)), I32)
        atomics.store(edge, self.record, control_words.R_EDGE)
        counted = atomics.at(pair, counter + round_words.COUNTED)
        if begins:
            count_from(atomics, self.record, counted, builder.zext(transfer, I64))
        mark = builder.add(transfer, i32(1))
        note_round(atomics, self.record, counted, builder.zext(mark, I64))
        return mark

    # --- the other end on another host

    def is_elsewhere(self, pair: ir.Value, device: int) -> ir.Value:
        """Whether the device whose number is at `device` of the pair belongs to another host."""
        memory = self.atomics.device_memory(self.context, self.atomics.load(I32, pair, device))
        return is_elsewhere(self.atomics, memory)

    def tell(self, pair: ir.Value, device: int, event: ProxyEvent, mark: ir.Value) -> None:
        """Let the proxy tell that device, if it lives on another host."""
        with self.atomics.when(self.is_elsewhere(pair, device), likely=False):
            enqueue(self.atomics, self.context, pair, event, mark)

    # --- waiting

    def reached(self, word: ir.Value, mark: ir.Value) -> ir.Value:
        return self.builder.icmp_signed(">=", self.builder.sub(word, mark), i32(0))

    def wait(self, base: ir.Value, word: int, mark: ir.Value, peer: ir.Value, sleepers: int) -> None:
        """Until the word has reached the mark; returns from the function if the wait was aborted."""
        atomics, builder = self.atomics, self.builder
        with atomics.forever() as over:
            seen = atomics.acquire(base, word)
            atomics.leave_if(self.reached(seen, mark), over)
            arguments = [self.context, atomics.at(base, word), seen, peer, atomics.at(base, sleepers)]
            atomics.require_ok(builder.call(emit_wait(self.module), arguments))

    def publish(self, mark: ir.Value, base: ir.Value, word: int, sleepers: int) -> None:
        """Set the word, after all earlier writes, and wake the device that sleeps on it."""
        atomics = self.atomics
        atomics.release(mark, base, word)
        self.builder.call(emit_wake(self.module), [atomics.at(base, word), atomics.at(base, sleepers), i32(1)])

    def claims(self, slot: ir.Value, mark: ir.Value) -> ir.Value:
        """Whether this side is the first to claim the message."""
        before = self.builder.atomic_rmw("xchg", self.atomics.at(slot, channel_words.W_CLAIM), mark, "seq_cst")
        return self.builder.icmp_unsigned("!=", before, mark)

    # --- values

    def buffer(self, memory: ir.Value, offsets: ir.Value, leaf: int) -> ir.Value:
        return self.atomics.at(memory, self.atomics.load(I64, offsets, 8 * leaf))

    def own(self, offsets: ir.Value) -> list[ir.Value]:
        """The value's leaves in this device's memory."""
        return [self.buffer(self.memory, offsets, leaf) for leaf in range(len(self.sizes))]

    def elsewhere(self, pair: ir.Value, device: int, offsets: ir.Value) -> list[ir.Value]:
        """The value's leaves in the memory of the device whose number is at `device` of the pair."""
        memory = self.atomics.device_memory(self.context, self.atomics.load(I32, pair, device))
        return [self.buffer(memory, offsets, leaf) for leaf in range(len(self.sizes))]

    def packed(self, base: ir.Value) -> list[ir.Value]:
        return [self.atomics.at(base, place) for place in self.places]

    def copy(self, targets: Sequence[ir.Value], sources: Sequence[ir.Value]) -> None:
        for target, source, size in zip(targets, sources, self.sizes, strict=True):
            if size:
                emit_copy(self.atomics.builder, target, source, i64(size))

    def return_mismatch(self, device: ir.Value, site: ir.Value) -> None:
        """Name the other side in the record."""
        self.atomics.store(device, self.record, control_words.R_MISMATCH_DEVICE)
        self.atomics.store(site, self.record, control_words.R_MISMATCH_SITE)
        self.builder.ret(i32(Status.MISMATCH))

    def has_receive_buffer(self, slot: ir.Value, mark: ir.Value) -> ir.Value:
        """Whether the recv of this transfer has posted where its value goes."""
        return self.builder.icmp_unsigned("==", self.atomics.load(I32, slot, channel_words.L_NUMBER), mark)

    def unless_same(self, base: ir.Value, signature: int, device: int, site: int) -> None:
        """Return MISMATCH where the other side posted another type."""
        atomics, builder = self.atomics, self.builder
        differs = builder.icmp_unsigned("!=", atomics.load(I64, base, signature), i64(self.signature))
        with builder.if_then(differs, likely=False):
            self.return_mismatch(atomics.load(I32, base, device), atomics.load(I32, base, site))


class _Send(_Routine):
    """Post the value; waits only while RING values are in flight."""

    zero_copy = False

    def emit(self) -> ir.Function:
        atomics, builder = self.atomics, self.builder
        pair, number = self.end_pair()
        transfer = atomics.load(I32, pair, channel_words.C_SENDS)
        mark = self.note_round(pair, transfer, channel_words.C_SENDS, begins=True)
        slot = self.slot(pair, transfer)
        target = atomics.load(I32, pair, channel_words.C_TARGET)
        self.wait(
            slot,
            channel_words.W_TAKEN,
            builder.sub(mark, i32(channel_words.RING)),
            target,
            channel_words.W_TAKEN_SLEEPERS,
        )
        atomics.store(i64(self.signature), slot, channel_words.M_SIGNATURE)
        atomics.store(self.site, slot, channel_words.M_SITE)
        atomics.store(self.device, slot, channel_words.M_DEVICE)
        self._post(pair, slot, transfer, mark)
        atomics.store(mark, pair, channel_words.C_SENDS)
        self.publish(mark, slot, channel_words.W_SENT, channel_words.W_SENT_SLEEPERS)
        self.tell(pair, channel_words.C_TARGET, ProxyEvent.SENT, mark)
        self.store_ticket(number, transfer)
        builder.ret(i32(Status.OK))
        return self.function

    def _post(self, pair: ir.Value, slot: ir.Value, transfer: ir.Value, mark: ir.Value) -> None:
        """Fill the message."""
        atomics, builder = self.atomics, self.builder
        if self.is_eager:
            atomics.store(i32(channel_words.EAGER), slot, channel_words.M_KIND)
            self.copy(self.packed(atomics.at(slot, channel_words.M_PAYLOAD)), self.own(self.sent))
            return
        if self.zero_copy:
            with builder.if_else(self.is_elsewhere(pair, channel_words.C_TARGET), likely=False) as (apart, together):
                with apart:
                    self._copy_to_bounce_buffer(pair, slot, transfer)
                with together:
                    atomics.store(i32(channel_words.RENDEZVOUS), slot, channel_words.M_KIND)
                    for leaf in range(len(self.sizes)):
                        atomics.store(atomics.load(I64, self.sent, 8 * leaf), slot, channel_words.M_OFFSETS + 8 * leaf)
            return
        received = self.reached(atomics.acquire(pair, channel_words.C_RECVS), mark)
        agrees = builder.icmp_unsigned("==", atomics.load(I64, slot, channel_words.L_SIGNATURE), i64(self.signature))
        at_once = builder.and_(received, builder.and_(self.has_receive_buffer(slot, mark), agrees))
        if len(self.sizes) > channel_words.MOST_LEAVES:
            at_once = ir.Constant(I1, 0)
        with builder.if_else(at_once) as (direct, later):
            with direct:
                atomics.store(i32(channel_words.RECEIVE_BUFFER), slot, channel_words.M_KIND)
                if len(self.sizes) <= channel_words.MOST_LEAVES:
                    there = self.elsewhere(pair, channel_words.C_TARGET, atomics.at(slot, channel_words.L_OFFSETS))
                    self.copy(there, self.own(self.sent))
            with later:
                self._copy_to_bounce_buffer(pair, slot, transfer)

    def _copy_to_bounce_buffer(self, pair: ir.Value, slot: ir.Value, transfer: ir.Value) -> None:
        self.atomics.store(i32(channel_words.BOUNCE_BUFFER), slot, channel_words.M_KIND)
        self.copy(self.packed(self.bounce_buffer(pair, transfer)), self.own(self.sent))


class _ZeroCopySend(_Send):
    zero_copy = True


class _SendDone(_Routine):
    """Wait for the recv, and copy a rendezvous value if the recv side has not."""

    def emit(self) -> ir.Function:
        atomics, builder = self.atomics, self.builder
        pair, transfer = self.done_pair(channel_words.C_SENDS, lambda: None)
        mark = self.note_round(pair, transfer, channel_words.C_SENDS)
        target = atomics.load(I32, pair, channel_words.C_TARGET)
        self.wait(pair, channel_words.C_RECVS, mark, target, channel_words.C_SOURCE_SLEEPS)
        if not self.is_eager:
            slot = self.slot(pair, transfer)
            taken = self.reached(atomics.acquire(slot, channel_words.W_TAKEN), mark)
            rendezvous = builder.icmp_unsigned(
                "==", atomics.load(I32, slot, channel_words.M_KIND), i32(channel_words.RENDEZVOUS)
            )
            with builder.if_then(builder.and_(rendezvous, builder.not_(taken))):
                self._move(pair, slot, transfer, mark, target)
        builder.ret(i32(Status.OK))
        return self.function

    def _move(self, pair: ir.Value, slot: ir.Value, transfer: ir.Value, mark: ir.Value, target: ir.Value) -> None:
        atomics, builder = self.atomics, self.builder
        if len(self.sizes) > channel_words.MOST_LEAVES:
            return
        with builder.if_else(self.claims(slot, mark)) as (first, second):
            with first:
                mine = self.elsewhere(pair, channel_words.C_SOURCE, atomics.at(slot, channel_words.M_OFFSETS))
                with builder.if_else(self.has_receive_buffer(slot, mark)) as (direct, bounced):
                    with direct:
                        self.unless_same(slot, channel_words.L_SIGNATURE, channel_words.L_DEVICE, channel_words.L_SITE)
                        self.copy(
                            self.elsewhere(pair, channel_words.C_TARGET, atomics.at(slot, channel_words.L_OFFSETS)),
                            mine,
                        )
                        atomics.store(i32(channel_words.RECEIVE_BUFFER), slot, channel_words.M_COPIED_TO)
                    with bounced:
                        self.copy(self.packed(self.bounce_buffer(pair, transfer)), mine)
                        atomics.store(i32(channel_words.BOUNCE_BUFFER), slot, channel_words.M_COPIED_TO)
                self.publish(mark, slot, channel_words.W_MOVED, channel_words.W_MOVED_SLEEPERS)
            with second:
                self.wait(slot, channel_words.W_MOVED, mark, target, channel_words.W_MOVED_SLEEPERS)


class _Recv(_Routine):
    """Announce that the value may come, and its destination if that is known; never waits."""

    zero_copy = False

    def emit(self) -> ir.Function:
        atomics, builder = self.atomics, self.builder
        pair, number = self.end_pair()
        transfer = atomics.load_own(I32, pair, channel_words.C_RECVS)
        mark = self.note_round(pair, transfer, channel_words.C_RECVS, begins=True)
        if self.zero_copy:
            slot = self.slot(pair, transfer)
            free = self.reached(
                atomics.load_own(I32, slot, channel_words.W_TAKEN), builder.sub(mark, i32(channel_words.RING))
            )
            with builder.if_then(free):  # otherwise an earlier recv's place is still needed there
                atomics.store(i64(self.signature), slot, channel_words.L_SIGNATURE)
                atomics.store(self.site, slot, channel_words.L_SITE)
                atomics.store(self.device, slot, channel_words.L_DEVICE)
                for leaf in range(len(self.sizes)):
                    atomics.store(atomics.load(I64, self.received, 8 * leaf), slot, channel_words.L_OFFSETS + 8 * leaf)
                atomics.store(mark, slot, channel_words.L_NUMBER)
        self.publish(mark, pair, channel_words.C_RECVS, channel_words.C_SOURCE_SLEEPS)
        self.tell(pair, channel_words.C_SOURCE, ProxyEvent.RECEIVING, mark)
        self.store_ticket(number, transfer)
        builder.ret(i32(Status.OK))
        return self.function


class _ZeroCopyRecv(_Recv):
    zero_copy = True


class _RecvDone(_Routine):
    """Wait for the message and take the value out of it."""

    def emit(self) -> ir.Function:
        atomics, builder = self.atomics, self.builder
        pair, transfer = self.done_pair(channel_words.C_RECVS, self._zeros)
        mark = self.note_round(pair, transfer, channel_words.C_RECVS)
        slot = self.slot(pair, transfer)
        source = atomics.load(I32, pair, channel_words.C_SOURCE)
        self.wait(slot, channel_words.W_SENT, mark, source, channel_words.W_SENT_SLEEPERS)
        self.unless_same(slot, channel_words.M_SIGNATURE, channel_words.M_DEVICE, channel_words.M_SITE)
        mine = self.own(self.received)
        if self.is_eager:
            self.copy(mine, self.packed(atomics.at(slot, channel_words.M_PAYLOAD)))
        else:
            self._take_large(pair, slot, transfer, mark, source, mine)
        self.publish(mark, slot, channel_words.W_TAKEN, channel_words.W_TAKEN_SLEEPERS)
        self.tell(pair, channel_words.C_SOURCE, ProxyEvent.RECEIVED, mark)
        builder.ret(i32(Status.OK))
        return self.function

    def _zeros(self) -> None:
        for target, size in zip(self.own(self.received), self.sizes, strict=True):
            if size:
                emit_zero(self.atomics.builder, target, i64(size))

    def _take_large(
        self,
        pair: ir.Value,
        slot: ir.Value,
        transfer: ir.Value,
        mark: ir.Value,
        source: ir.Value,
        mine: Sequence[ir.Value],
    ) -> None:
        atomics, builder = self.atomics, self.builder
        how = atomics.local(I32)
        atomics.store(atomics.load(I32, slot, channel_words.M_KIND), how)
        if len(self.sizes) <= channel_words.MOST_LEAVES:
            rendezvous = builder.icmp_unsigned("==", atomics.load(I32, how), i32(channel_words.RENDEZVOUS))
            with builder.if_then(rendezvous), builder.if_else(self.claims(slot, mark)) as (first, second):
                with first:
                    self.copy(
                        mine, self.elsewhere(pair, channel_words.C_SOURCE, atomics.at(slot, channel_words.M_OFFSETS))
                    )
                    atomics.store(i32(channel_words.RECEIVE_BUFFER), how)
                    self.publish(mark, slot, channel_words.W_MOVED, channel_words.W_MOVED_SLEEPERS)
                with second:
                    self.wait(slot, channel_words.W_MOVED, mark, source, channel_words.W_MOVED_SLEEPERS)
                    atomics.store(atomics.load(I32, slot, channel_words.M_COPIED_TO), how)
        with atomics.when(builder.icmp_unsigned("==", atomics.load(I32, how), i32(channel_words.BOUNCE_BUFFER))):
            self.copy(mine, self.packed(self.bounce_buffer(pair, transfer)))


ROUTINES: dict[type[Op], type[_Routine]] = {
    Send: _Send,
    ZeroCopySend: _ZeroCopySend,
    SendDone: _SendDone,
    Recv: _Recv,
    ZeroCopyRecv: _ZeroCopyRecv,
    RecvDone: _RecvDone,
    ZeroCopyRecvDone: _RecvDone,
}
