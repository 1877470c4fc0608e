"""Feeds and host transfers: items between a stream in shared memory and an instruction's buffers."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import stream as streams
from distxla.collectives.transports.shared_memory.event_recording import (
    note_resumed,
    note_wait,
    note_waited,
    read_clock,
)
from distxla.collectives.transports.shared_memory.round_numbers import count_from, note_round
from distxla.collectives.transports.shared_memory.site_emitter import Routine, SiteEmitter
from distxla.collectives.transports.shared_memory.wait_and_wake import emit_wait, emit_wake
from distxla.emit.atomics_builder import AtomicsBuilder, emitted_once
from distxla.emit.native_function import I1, I32, I64, POINTER, VOID, emit_copy, i32, i64
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.channel import Recv, RecvDone, Send
from distxla.ops.feed import Infeed, Outfeed
from distxla.program.abi import Status
from distxla.program.artifact import CommunicatorSpec
from distxla.targets.code import target_of


class StreamEmitter(SiteEmitter):
    """`site_emitter.SiteEmitter`: a device takes items that its host has put, or puts some that its host will take.

    Outfeed and send wait for room and copy; infeed waits for the next item. A recv only takes a number, its position
    among the recvs of its stream; the recv-done finds that in the context and waits for it. A send-done has nothing to
    do. Results must not overlap operands.
    """

    def handles(self, op: Op) -> bool:
        return op.stream is not None

    def communicator(self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts) -> CommunicatorSpec:
        key = instruction.op.stream
        assert key is not None
        groups = tuple((device,) for device in range(counts.devices))
        return CommunicatorSpec(f"stream {key}", groups, (streams.STATE_BYTES,) * len(groups), stream=key)

    def emit(self, routine: Routine) -> None:
        op = routine.instruction.op
        site = _StreamSite(routine)
        if isinstance(op, Infeed | RecvDone):
            site.take()
        elif isinstance(op, Outfeed | Send):
            site.post()
        elif isinstance(op, Recv):
            site.issue()
        routine.atomics.builder.ret(i32(Status.OK))


class _StreamSite:
    """The routine of one site."""

    def __init__(self, routine: Routine) -> None:
        self.atomics, self.state, self.op = routine.atomics, routine.state, routine.instruction.op
        self.llvm_module = routine.atomics.builder.module
        self.context, self.site, self.sent, self.received = routine.function.args
        self.operands, self.shape = routine.operands, routine.instruction.shape

    def take(self) -> None:
        """Wait for an item, copy it into the result's leaves, and say that it is taken."""
        atomics, builder = self.atomics, self.atomics.builder
        memory = self._memory()
        if isinstance(self.op, RecvDone):
            number = len(self.operands) - 2  # (leaves.., u32[], token[])
            ticket = atomics.load(I32, atomics.at(memory, atomics.load(I64, self.sent, 8 * number)))
        else:
            ticket = atomics.load_own(I32, self.state, streams.T_TAKEN)
        assert self.shape.elements is not None
        item = self.shape.elements[0]
        nested, flat = streams.accepted_types(item)
        slot = atomics.local(POINTER)
        arguments = [self.context, self.state, memory, ticket, i64(nested), i64(flat), slot]
        self.atomics.require_ok(builder.call(emit_await(self.llvm_module), arguments))
        payload = atomics.at(memory, atomics.load(I64, atomics.load(POINTER, slot), streams.L_OFFSET))
        begins, _ = streams.places(item)
        for leaf, (shape, begin) in enumerate(zip(item.leaves(), begins, strict=True)):
            target = atomics.at(memory, atomics.load(I64, self.received, 8 * leaf))
            emit_copy(atomics.builder, target, atomics.at(payload, begin), i64(shape.byte_size))
        builder.call(emit_taken(self.llvm_module), [self.state, memory, atomics.load(POINTER, slot)])

    def post(self) -> None:
        """Wait for room, copy the item there, and say that it is posted."""
        atomics, builder = self.atomics, self.atomics.builder
        memory = self._memory()
        leaves = [shape for shape in self.operands if shape.is_array]
        item = Shape.one_or_tuple(leaves)
        begins, size = streams.places(item)
        place = atomics.local(I64)
        arguments = [self.context, self.state, memory, i64(size), place]
        self.atomics.require_ok(builder.call(emit_room(self.llvm_module), arguments))
        payload = atomics.at(memory, atomics.load(I64, place))
        for leaf, (shape, begin) in enumerate(zip(leaves, begins, strict=True)):
            source = atomics.at(memory, atomics.load(I64, self.sent, 8 * leaf))
            emit_copy(atomics.builder, atomics.at(payload, begin), source, i64(shape.byte_size))
        if self.op.transfer.sends:
            self._store_ticket(memory, atomics.load_own(I32, self.state, streams.T_POSTED), len(leaves))
        arguments = [self.context, self.site, self.state, memory, i64(size), atomics.load(I64, place)]
        builder.call(emit_posted(self.llvm_module), arguments)

    def issue(self) -> None:
        """Take a number for the recv-done."""
        atomics = self.atomics
        _count_from(atomics, self.context, self.state, atomics.load_own(I32, self.state, streams.T_TAKEN))
        issued = atomics.load(I32, self.state, streams.T_ISSUED)
        atomics.store(atomics.builder.add(issued, i32(2)), self.state, streams.T_ISSUED)
        assert self.shape.elements is not None
        self._store_ticket(self._memory(), issued, sum(1 for _ in self.shape.elements[0].leaves()))

    def _store_ticket(self, memory: ir.Value, ticket: ir.Value, leaf: int) -> None:
        place = self.atomics.at(memory, self.atomics.load(I64, self.received, 8 * leaf))
        self.atomics.store(ticket, place)

    def _memory(self) -> ir.Value:
        return self.atomics.device_memory(self.context, self.atomics.context_field(self.context, "device"))


# --- functions that the sites of a program share, one each


def _slot(atomics: AtomicsBuilder, state: ir.Value, memory: ir.Value, word: ir.Value) -> ir.Value:
    """The address of an item's slot. word: twice the item's number."""
    builder = atomics.builder
    index = builder.and_(builder.lshr(word, i32(1)), i32(streams.SLOTS - 1))
    offset = builder.mul(builder.zext(index, I64), i64(streams.SLOT_BYTES))
    return atomics.at(atomics.at(memory, atomics.load(I64, state, streams.T_BLOCK)), offset)


def _note(atomics: AtomicsBuilder, context: ir.Value, state: ir.Value, word: ir.Value) -> None:
    """Say in the record which item is wanted. word: twice its number."""
    record = atomics.context_field(context, "record")
    number = atomics.builder.zext(atomics.builder.lshr(word, i32(1)), I64)
    note_round(atomics, record, atomics.at(state, streams.T_COUNTED), number)


def _count_from(atomics: AtomicsBuilder, context: ir.Value, state: ir.Value, word: ir.Value) -> None:
    """Before the first item of a call note how many there were before. word: twice that."""
    number = atomics.builder.zext(atomics.builder.lshr(word, i32(1)), I64)
    count_from(atomics, atomics.context_field(context, "record"), atomics.at(state, streams.T_COUNTED), number)


def _wait(atomics: AtomicsBuilder, context: ir.Value, state: ir.Value, word: int, seen: ir.Value) -> None:
    """Sleep until the other side's word differs from the value seen; returns from the function if aborted."""
    builder = atomics.builder
    arguments = [
        context,
        atomics.at(state, word),
        seen,
        i32(control_words.WAITS_FOR_HOST),
        atomics.at(state, streams.T_DEVICE_SLEEPS),
    ]
    atomics.require_ok(builder.call(emit_wait(builder.module), arguments))


@emitted_once("distxla_stream_await", I32, [POINTER, POINTER, POINTER, I32, I64, I64, POINTER])
def emit_await(atomics: AtomicsBuilder) -> None:
    """i32 (Context*, ptr state, ptr memory, i32 ticket, i64 type, i64 other_type, ptr* slot).

    Waits for the item of a ticket (twice its number) and gives its slot. An item of neither type is taken: otherwise
    the stream would never get beyond it.
    """
    context, state, memory, ticket, nested, flat, place = atomics.builder.function.args
    builder = atomics.builder
    _count_from(atomics, context, state, atomics.load_own(I32, state, streams.T_TAKEN))
    _note(atomics, context, state, ticket)
    with atomics.forever() as there:
        posted = atomics.acquire(state, streams.T_POSTED)
        atomics.leave_if(builder.icmp_signed(">=", builder.sub(posted, ticket), i32(2)), there)
        ended = builder.icmp_unsigned("!=", builder.and_(posted, i32(1)), i32(0))
        atomics.return_if(ended, i32(Status.STREAM_ENDED))
        _wait(atomics, context, state, streams.T_POSTED, posted)
    slot = _slot(atomics, state, memory, ticket)
    atomics.store(slot, place)
    kind = atomics.load(I64, slot, streams.L_TYPE)
    fits = builder.or_(builder.icmp_unsigned("==", kind, nested), builder.icmp_unsigned("==", kind, flat))
    with atomics.when(builder.not_(fits), likely=False):
        builder.call(emit_taken(atomics.builder.module), [state, memory, slot])
        builder.ret(i32(Status.ITEM_REFUSED))
    builder.ret(i32(Status.OK))


@emitted_once("distxla_stream_taken", VOID, [POINTER, POINTER, POINTER])
def emit_taken(atomics: AtomicsBuilder) -> None:
    """void (ptr state, ptr memory, ptr slot): the item of `slot` is done with, and all before those that are not."""
    state, memory, slot = atomics.builder.function.args
    builder = atomics.builder
    atomics.store(i32(1), slot, streams.L_TAKEN)
    posted = builder.and_(atomics.acquire(state, streams.T_POSTED), i32(-2))
    with atomics.forever() as done:
        taken = atomics.load_own(I32, state, streams.T_TAKEN)
        atomics.leave_if(builder.icmp_unsigned("==", taken, posted), done)
        oldest = atomics.load(I32, _slot(atomics, state, memory, taken), streams.L_TAKEN)
        atomics.leave_if(builder.icmp_unsigned("==", oldest, i32(0)), done)
        atomics.release(builder.add(taken, i32(2)), state, streams.T_TAKEN)
    _wake(atomics, state, streams.T_TAKEN)
    builder.ret_void()


@emitted_once("distxla_stream_room", I32, [POINTER, POINTER, POINTER, I64, POINTER])
def emit_room(atomics: AtomicsBuilder) -> None:
    """i32 (Context*, ptr state, ptr memory, i64 size, i64* place).

    Waits until the next item's payload has room (`streams.room`) and gives its offset in the device's memory.
    """
    context, state, memory, size, place = atomics.builder.function.args
    builder = atomics.builder
    posted = atomics.load_own(I32, state, streams.T_POSTED)
    _count_from(atomics, context, state, posted)
    _note(atomics, context, state, posted)
    area = builder.add(atomics.load(I64, state, streams.T_BLOCK), i64(streams.SLOTS_BYTES))
    capacity = atomics.load(I64, state, streams.T_CAPACITY)
    near_bytes = i64(streams.NEAR_BYTES)
    is_large = builder.icmp_unsigned(">", size, near_bytes)
    atomics.return_if(builder.icmp_unsigned(">", size, builder.sub(capacity, near_bytes)), i32(Status.FAILED))
    ring = _emit_ring(atomics.builder.module)
    with atomics.forever() as found_room:
        taken = atomics.acquire(state, streams.T_TAKEN)
        in_use = [state, memory, taken, posted, area, size]
        full = builder.icmp_unsigned(">=", builder.sub(posted, taken), i32(2 * streams.SLOTS))
        with atomics.when(builder.not_(full)):
            near = builder.call(ring, [*in_use, i64(0), near_bytes, atomics.at(state, streams.T_WRITE), place])
            atomics.leave_if(near, found_room)
            is_idle = builder.icmp_unsigned("==", atomics.load(I32, state, streams.T_IDLE), builder.add(taken, i32(1)))
            with builder.if_else(builder.or_(is_large, is_idle)) as (impatient, patient):
                with impatient:
                    write = atomics.at(state, streams.T_WRITE_FAR)
                    far = builder.call(ring, [*in_use, near_bytes, capacity, write, place])
                    atomics.leave_if(far, found_room)
                    _wait(atomics, context, state, streams.T_TAKEN, taken)
                with patient:
                    _wait_a_little(atomics, context, state, taken)
        with atomics.when(full):
            _wait(atomics, context, state, streams.T_TAKEN, taken)
    builder.ret(i32(Status.OK))


def _wait_a_little(atomics: AtomicsBuilder, context: ir.Value, state: ir.Value, taken: ir.Value) -> None:
    """Give the host PATIENCE_S to take an item; note in T_IDLE if it does not."""
    builder = atomics.builder
    limit = atomics.local(ir.ArrayType(I64, 2))
    atomics.store(i64(0), limit)
    atomics.store(i64(int(streams.PATIENCE_S * 1e9)), limit, 8)
    word = atomics.at(state, streams.T_TAKEN)
    record = atomics.context_field(context, "record")
    note_wait(atomics, record, i32(control_words.WAITS_FOR_HOST))
    note_waited(atomics, record, read_clock(atomics))
    target_of(builder).emit_sleep(builder, word, taken, limit)
    aborted = atomics.acquire(atomics.context_field(context, "call"), control_words.H_ABORT)
    atomics.return_if(builder.icmp_unsigned("!=", aborted, i32(0)), i32(Status.ABORTED))
    note_resumed(atomics, record, read_clock(atomics))
    with atomics.when(builder.icmp_unsigned("==", atomics.acquire(word), taken)):
        atomics.store(builder.add(taken, i32(1)), state, streams.T_IDLE)


@emitted_once("distxla_stream_ring", I1, [POINTER, POINTER, I32, I32, I64, I64, I64, I64, POINTER, POINTER])
def _emit_ring(atomics: AtomicsBuilder) -> None:
    """i1 (state, memory, i32 taken, i32 posted, i64 area, i64 size, i64 begin, i64 end, i64* write, i64* place).

    `streams.room` in one ring of the area: whether the next item has room, and its offset in the device's memory.
    """
    state, memory, taken, posted, area, size, begin, end, write_word, place = atomics.builder.function.args
    builder = atomics.builder
    number, first = atomics.local(I32), atomics.local(I64)
    atomics.store(taken, number)
    with atomics.forever() as seen_all:  # the oldest item in this ring
        at = atomics.load(I32, number)
        with atomics.when(builder.icmp_unsigned("==", at, posted)):
            atomics.store(builder.add(area, begin), place)
            builder.ret(builder.icmp_unsigned("<=", builder.add(begin, size), end))
        offset = builder.sub(atomics.load(I64, _slot(atomics, state, memory, at), streams.L_OFFSET), area)
        atomics.store(offset, first)
        above = builder.icmp_unsigned(">=", offset, begin)
        atomics.leave_if(builder.and_(above, builder.icmp_unsigned("<", offset, end)), seen_all)
        atomics.store(builder.add(at, i32(2)), number)
    oldest, write = atomics.load(I64, first), atomics.load(I64, write_word)
    behind = builder.icmp_unsigned(">", write, oldest)
    limit = builder.select(behind, end, oldest)
    onwards = builder.icmp_unsigned("<=", builder.add(write, size), limit)
    around = builder.and_(behind, builder.icmp_unsigned("<=", builder.add(begin, size), oldest))
    atomics.store(builder.add(area, builder.select(onwards, write, begin)), place)
    builder.ret(builder.or_(onwards, around))


@emitted_once("distxla_stream_posted", VOID, [POINTER, I32, POINTER, POINTER, I64, I64])
def emit_posted(atomics: AtomicsBuilder) -> None:
    """void (Context*, i32 site, ptr state, ptr memory, i64 size, i64 place): the item is there: tell the host."""
    context, site, state, memory, size, place = atomics.builder.function.args
    builder = atomics.builder
    posted = atomics.load_own(I32, state, streams.T_POSTED)
    slot = _slot(atomics, state, memory, posted)
    atomics.store(place, slot, streams.L_OFFSET)
    atomics.store(size, slot, streams.L_BYTES)
    atomics.store(
        atomics.load(I32, atomics.context_field(context, "record"), control_words.R_PROGRAM), slot, streams.L_PROGRAM
    )
    atomics.store(site, slot, streams.L_SITE)
    area = builder.add(atomics.load(I64, state, streams.T_BLOCK), i64(streams.SLOTS_BYTES))
    begin = builder.sub(place, area)
    is_near = builder.icmp_unsigned("<", begin, i64(streams.NEAR_BYTES))
    write = builder.select(is_near, i64(streams.T_WRITE), i64(streams.T_WRITE_FAR))
    atomics.store(builder.add(begin, size), state, write)
    atomics.release(builder.add(posted, i32(2)), state, streams.T_POSTED)
    _wake(atomics, state, streams.T_POSTED)
    builder.ret_void()


def _wake(atomics: AtomicsBuilder, state: ir.Value, word: int) -> None:
    """Wake the host if it sleeps on the word."""
    arguments = [atomics.at(state, word), atomics.at(state, streams.T_HOST_SLEEPS), i32(1)]
    atomics.builder.call(emit_wake(atomics.builder.module), arguments)
