"""One round of a permute: every device sends to one device and waits only for the one that sends to it.

A pair has a ring of messages. The source writes a message and raises `posted`; the target reads it and raises `taken`.
Each word has one writer, so a source may be RING messages ahead of its target and sleeps only when the ring is full.

Small operands travel in the message. Of large ones the message holds only where they are, and one side copies from the
source's operand into the target's result: both raise `claim`, and who finds it odd came second, knows the other side's
buffer, and copies. If that is the source, the message says so and the source goes on at once; if it is the target, the
source waits until the message is taken, because its operand must stay as it is until then.
"""

from __future__ import annotations

from llvmlite import ir

from distxla.codegen.abi import Status
from distxla.collectives import control_block as block
from distxla.collectives import state
from distxla.collectives.transports.futex import emit_wait, emit_wake
from distxla.collectives.transports.words import I32, I64, POINTER, Words, i32, i64
from distxla.collectives.transports.work import emit_copy, emit_zero

NOBODY = 0xFFFFFFFF


class PermuteRound:
    """Emits i32 name(Context*, u32 site, operands, results, state, device row) for one list of leaf sizes.

    The device row is four u32: the pair in which the device is the source (NOBODY if none), that pair's target device,
    the pair in which it is the target, that pair's source device. A pair is its target's position in the group.
    """

    def __init__(self, llvm_module: ir.Module, name: str, sizes: tuple[int, ...], signature: int) -> None:
        arguments = [POINTER, I32, POINTER, POINTER, POINTER, POINTER]
        self.module, self.sizes, self.signature = llvm_module, sizes, signature
        self.function, self.words = Words.function(llvm_module, name, I32, arguments)
        self.context, self.site, self.operands, self.results, self.state, self.row = self.function.args
        self.builder = self.words.builder
        places, end = [], 0
        for size in sizes:
            places.append(end)
            end += (size + 63) // 64 * 64
        self.is_small = end <= state.MAILBOX_BYTES
        self.places = places if self.is_small else [8 * i for i in range(len(sizes))]

    def emit(self) -> ir.Function:
        words, builder = self.words, self.builder
        record = words.context_field(self.context, "record")
        words.store(self.site, record, block.R_SITE)
        memory = words.device_memory(self.context, words.context_field(self.context, "device"))
        out_pair, target, in_pair, source = (words.load(I32, self.row, 4 * i) for i in range(4))
        sends = builder.icmp_unsigned("!=", out_pair, i32(NOBODY))
        receives = builder.icmp_unsigned("!=", in_pair, i32(NOBODY))
        outgoing, incoming = self._pair(out_pair), self._pair(in_pair)
        must_wait, copied = words.local(I32), words.local(I32)
        builder.store(i32(0), must_wait)
        builder.store(i32(0), copied)
        with words.when(sends):
            self._send(outgoing, target, memory, must_wait)
        with builder.if_else(receives) as (some, none):
            with some:
                begun = builder.add(builder.zext(words.load(I32, incoming, state.P_TAKEN), I64), i64(1))
                words.store(begun, record, block.R_ROUND)
                if not self.is_small:
                    self._claim_as_target(incoming, source, memory, copied, record)
                self._receive(incoming, source, memory, copied, record)
            with none:
                for leaf, size in enumerate(self.sizes):
                    emit_zero(words, self._buffer(memory, self.results, leaf), i64(size))
        with words.when(builder.icmp_unsigned("!=", builder.load(must_wait, typ=I32), i32(0))):
            self._await_taken(outgoing, target)
        builder.ret(i32(Status.OK))
        return self.function

    # --- the source's side

    def _send(self, pair: ir.Value, target: ir.Value, memory: ir.Value, must_wait: ir.Value) -> None:
        words, builder = self.words, self.builder
        posted = words.load(I32, pair, state.P_POSTED)
        with words.forever() as room:
            taken = words.acquire(pair, state.P_TAKEN)
            ahead = builder.sub(posted, taken)
            words.leave_if(builder.icmp_unsigned("<", ahead, i32(state.RING)), room)
            self._wait(pair, state.P_TAKEN, taken, target, state.P_SOURCE_SLEEPS)
        message = self._message(pair, posted)
        self._post(message)
        payload = words.at(message, state.M_PAYLOAD)
        for leaf, (size, place) in enumerate(zip(self.sizes, self.places, strict=True)):
            if self.is_small:
                emit_copy(words, words.at(payload, place), self._buffer(memory, self.operands, leaf), i64(size))
            else:
                words.store(words.load(I64, self.operands, 8 * leaf), payload, place)
        if not self.is_small:
            words.store(i32(0), message, state.M_DELIVERED)
            self._claim_as_source(pair, target, message, memory, must_wait)
        words.release(builder.add(posted, i32(1)), pair, state.P_POSTED)
        self._wake(pair, state.P_POSTED, state.P_TARGET_SLEEPS)

    def _claim_as_source(
        self, pair: ir.Value, target: ir.Value, message: ir.Value, memory: ir.Value, must_wait: ir.Value
    ) -> None:
        """Second: copy, if the target runs the same instruction. First: the operand must stay until it is taken."""
        words, builder = self.words, self.builder
        came_second = self._claim(pair)
        there = words.at(pair, state.P_TARGET_POST)
        agrees = builder.icmp_unsigned("==", words.load(I64, there, state.S_SIGNATURE), i64(self.signature))
        with builder.if_else(builder.and_(came_second, agrees)) as (second, first):
            with second:
                base = words.device_memory(self.context, target)
                for leaf, size in enumerate(self.sizes):
                    result = words.at(base, words.load(I64, there, state.S_OFFSETS + 8 * leaf))
                    emit_copy(words, result, self._buffer(memory, self.operands, leaf), i64(size))
                words.store(i32(1), message, state.M_DELIVERED)
            with first:
                builder.store(i32(1), must_wait)

    def _await_taken(self, pair: ir.Value, target: ir.Value) -> None:
        """Until the target has taken everything that this device has posted."""
        words, builder = self.words, self.builder
        posted = words.load(I32, pair, state.P_POSTED)
        with words.forever() as all_taken:
            taken = words.acquire(pair, state.P_TAKEN)
            words.leave_if(builder.icmp_unsigned("==", taken, posted), all_taken)
            self._wait(pair, state.P_TAKEN, taken, target, state.P_SOURCE_SLEEPS)

    # --- the target's side

    def _claim_as_target(
        self, pair: ir.Value, source: ir.Value, memory: ir.Value, copied: ir.Value, record: ir.Value
    ) -> None:
        """Say where the results go; second: the source's message is posted or about to be, so copy."""
        words = self.words
        post = words.at(pair, state.P_TARGET_POST)
        self._post(post)
        for leaf in range(len(self.sizes)):
            words.store(words.load(I64, self.results, 8 * leaf), post, state.S_OFFSETS + 8 * leaf)
        with words.when(self._claim(pair)):
            message = self._arrived_message(pair, source, record)
            self._take_large(message, source, memory)
            self.builder.store(i32(1), copied)

    def _receive(self, pair: ir.Value, source: ir.Value, memory: ir.Value, copied: ir.Value, record: ir.Value) -> None:
        words, builder = self.words, self.builder
        message = self._arrived_message(pair, source, record)
        if self.is_small:
            payload = words.at(message, state.M_PAYLOAD)
            for leaf, (size, place) in enumerate(zip(self.sizes, self.places, strict=True)):
                emit_copy(words, self._buffer(memory, self.results, leaf), words.at(payload, place), i64(size))
        else:
            delivered = words.load(I32, message, state.M_DELIVERED)
            done = builder.or_(delivered, builder.load(copied, typ=I32))
            with words.when(builder.icmp_unsigned("==", done, i32(0))):
                self._take_large(message, source, memory)
        taken = words.load(I32, pair, state.P_TAKEN)
        words.release(builder.add(taken, i32(1)), pair, state.P_TAKEN)
        self._wake(pair, state.P_TAKEN, state.P_SOURCE_SLEEPS)

    def _arrived_message(self, pair: ir.Value, source: ir.Value, record: ir.Value) -> ir.Value:
        """Wait for the next message; returns MISMATCH from the function if another instruction posted it."""
        words, builder = self.words, self.builder
        taken = words.load(I32, pair, state.P_TAKEN)
        with words.forever() as there:
            posted = words.acquire(pair, state.P_POSTED)
            words.leave_if(builder.icmp_unsigned("!=", posted, taken), there)
            self._wait(pair, state.P_POSTED, posted, source, state.P_TARGET_SLEEPS)
        message = self._message(pair, taken)
        theirs = words.load(I64, message, state.S_SIGNATURE)
        with words.when(builder.icmp_unsigned("!=", theirs, i64(self.signature)), likely=False):
            words.store(words.load(I32, message, state.S_DEVICE), record, block.R_MISMATCH_DEVICE)
            words.store(words.load(I32, message, state.S_SITE), record, block.R_MISMATCH_SITE)
            builder.ret(i32(Status.MISMATCH))
        return message

    def _take_large(self, message: ir.Value, source: ir.Value, memory: ir.Value) -> None:
        words = self.words
        base, payload = words.device_memory(self.context, source), words.at(message, state.M_PAYLOAD)
        for leaf, (size, place) in enumerate(zip(self.sizes, self.places, strict=True)):
            operand = words.at(base, words.load(I64, payload, place))
            emit_copy(words, self._buffer(memory, self.results, leaf), operand, i64(size))

    # --- shared

    def _pair(self, number: ir.Value) -> ir.Value:
        builder = self.builder
        known = builder.icmp_unsigned("!=", number, i32(NOBODY))
        index = builder.select(known, builder.zext(number, I64), i64(0))
        return self.words.at(self.state, builder.mul(index, i64(state.PAIR_BYTES)))

    def _message(self, pair: ir.Value, number: ir.Value) -> ir.Value:
        builder = self.builder
        slot = builder.zext(builder.and_(number, i32(state.RING - 1)), I64)
        return self.words.at(self.words.at(pair, state.P_RING), builder.mul(slot, i64(state.MESSAGE_BYTES)))

    def _post(self, place: ir.Value) -> None:
        words = self.words
        words.store(i64(self.signature), place, state.S_SIGNATURE)
        words.store(self.site, place, state.S_SITE)
        words.store(words.context_field(self.context, "device"), place, state.S_DEVICE)

    def _claim(self, pair: ir.Value) -> ir.Value:
        """Whether the other side of the message has claimed it before."""
        before = self.words.fetch_add(1, pair, state.P_CLAIM)
        return self.builder.icmp_unsigned("!=", self.builder.and_(before, i32(1)), i32(0))

    def _buffer(self, memory: ir.Value, offsets: ir.Value, leaf: int) -> ir.Value:
        return self.words.at(memory, self.words.load(I64, offsets, 8 * leaf))

    def _wait(self, pair: ir.Value, word: int, seen: ir.Value, peer: ir.Value, sleepers: int) -> None:
        """Sleep until the word differs from what was seen; returns from the function if the wait was released."""
        words, builder = self.words, self.builder
        arguments = [self.context, words.at(pair, word), seen, peer, words.at(pair, sleepers)]
        status = builder.call(emit_wait(self.module), arguments)
        words.return_if(builder.icmp_unsigned("!=", status, i32(Status.OK)), status)

    def _wake(self, pair: ir.Value, word: int, sleepers: int) -> None:
        words = self.words
        self.builder.call(emit_wake(self.module), [words.at(pair, word), words.at(pair, sleepers), i32(1)])
