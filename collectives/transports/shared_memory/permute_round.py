"""Rounds of a permute: every device sends to one device and waits only for the one that sends to it.

A pair has a ring of messages. The source may be RING messages ahead of its target and waits only when the ring is full.
A round has an async start and a done. The start sends, and posts where the device wants to receive; the done waits for
the message, and until the device's own operand may be overwritten. A synchronous permute is both.
A device counts the rounds that it begins; round r is message r of both its pairs, in slot r % RING, so rounds
may be ended in any order. A device that begins one more than RING ends its own oldest first, whose done then finds it
over.

No device waits for one that has begun the round and computes something else: the device that begins second copies
before it goes on.
Small operands travel in the message. A target that has begun a round which it will end later has set `ready`: if the
message is there, it takes it at once, otherwise the source puts the operands straight into the results behind its post.
If both come at the same time, the one whose change of `copier` succeeds does it. A target that will wait anyway does
not set `ready`.
Of large operands the message holds only the addresses, and one side copies from the source's operand into the target's
result: both raise `claim`, and the side that finds it odd is second, knows the other side's buffer, and copies. If that
is the source, it goes on at once; if it is the target, the source's operand must stay as it is until the message is
taken. The side that has copied raises `taken`, and the slot is free.
Where one end is on another host, its proxy and the one of this host take its part: they post and take messages, and a
large target asks the source's host for the bytes of its operand.
"""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.protocols.proxy_queue import ProxyEvent
from distxla.collectives.transports.shared_memory.grid_items import emit_end
from distxla.collectives.transports.shared_memory.proxy_queue import enqueue, is_elsewhere
from distxla.collectives.transports.shared_memory.round_numbers import count_from, note_round
from distxla.collectives.transports.shared_memory.wait_and_wake import ALL_SLEEPERS, emit_wait, emit_wake
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, POINTER, emit_copy, emit_zero, i32, i64
from distxla.program.abi import Status
from distxla.targets.grid_calls import GridCalls

NO_PAIR = 0xFFFFFFFF
ROUND_ARGUMENTS = (
    ("context", POINTER),
    ("site", I32),
    ("operands", POINTER),  # u64 offsets
    ("results", POINTER),
    ("state", POINTER),  # of the group
    ("row", POINTER),  # the device's
)
TICKET = ("ticket", POINTER)  # u64: where the begun round's number goes
END_ARGUMENTS = (("context", POINTER), ("state", POINTER), ("row", POINTER), ("round", I64))
END_TYPE = ir.FunctionType(I32, [kind for _, kind in END_ARGUMENTS])


class _Round:
    """The parts of a round while a function of them is written.

    The device row is four u32: the pair in which the device is the source (NO_PAIR if none), that pair's target device,
    the pair in which it is the target, that pair's source device; these as the program's ids, its own where it is in no
    pair. A pair is its target's position in the group.
    """

    def __init__(
        self,
        llvm_module: ir.Module,
        name: str,
        arguments: tuple[tuple[str, ir.Type], ...],
        sizes: tuple[int, ...],
        signature: int,
        calls: GridCalls | None,
    ) -> None:
        """calls: where the buffers are in the memory of kernels on a grid, and tables have exported addresses."""
        self.module, self.sizes, self.signature, self.calls = llvm_module, sizes, signature, calls
        self.function, self.atomics = AtomicsBuilder.function(llvm_module, name, I32, [kind for _, kind in arguments])
        self.argument = {name: value for (name, _), value in zip(arguments, self.function.args, strict=True)}
        self.context = self.argument["context"]
        self.builder = self.atomics.builder
        places, end = [], 0
        for size in sizes:
            places.append(end)
            end += (size + 63) // 64 * 64
        self.bytes = end
        self.is_small = calls is None and end <= permute_words.MAILBOX_BYTES
        self.places = places if self.is_small else [8 * i for i in range(len(sizes))]
        atomics, builder = self.atomics, self.builder
        self.record = atomics.context_field(self.context, "record")
        own = atomics.context_field(self.context, "device")
        self.own = own if calls is not None else atomics.device_memory(self.context, own)
        out_pair, self.target, in_pair, self.source = (
            atomics.load(I32, self.argument["row"], 4 * i) for i in range(4)
        )  # the program's ids
        self.sends = builder.icmp_unsigned("!=", out_pair, i32(NO_PAIR))
        self.receives = builder.icmp_unsigned("!=", in_pair, i32(NO_PAIR))
        self.out_pair, self.in_pair = self._pair(out_pair), self._pair(in_pair)

    # --- the functions

    def emit_round(self) -> ir.Function:
        """Begin and end."""
        self._begin()
        self._end(ready=False)
        return self.function

    def emit_begin(self, end: ir.Function) -> ir.Function:
        """Begin, and leave in the slot the values that the end needs."""
        number = self._begin(end)
        self.atomics.store(number, self.argument["ticket"])
        self.builder.ret(i32(Status.OK))
        return self.function

    def emit_end(self) -> ir.Function:
        """End a round that was begun; at once where it was ended before."""
        self.atomics.return_if(self._alone(), i32(Status.OK))
        self._enter(self.argument["round"])
        self._note(self.argument["round"])
        self.argument["results"] = self.atomics.at(self.incoming, permute_words.M_TARGET_POST + round_words.S_OFFSETS)
        self._end(ready=True)
        return self.function

    def _alone(self) -> ir.Value:
        """Whether the device is in no pair; then its group may have no state."""
        return self.builder.not_(self.builder.or_(self.sends, self.receives))

    def _begin(self, end: ir.Function | None = None) -> ir.Value:
        """Send, and say where to receive. The round's number, u64."""
        atomics, builder = self.atomics, self.builder
        with atomics.when(builder.not_(self.receives)):
            for leaf, size in self._leaves():
                self._zero(self._buffer(self.own, self.argument["results"], leaf), size)
            atomics.return_if(self._alone(), i32(Status.OK))
        counter = self._counter()
        number = atomics.load(I64, counter)
        count_from(atomics, self.record, atomics.at(counter, round_words.COUNTED), number)
        self._enter(number)
        self._note(number)
        unfinished = builder.icmp_unsigned("!=", atomics.acquire(self.incoming, permute_words.M_TAKEN), self.before)
        with atomics.when(builder.and_(self.receives, unfinished), likely=False):
            self._end_oldest(number)
            self._note(number)
        atomics.store(builder.add(number, i64(1)), counter)
        with atomics.when(self.sends):
            self._send()
        with atomics.when(self.receives):
            if end is not None or not self.is_small:
                self._post_results(end)
            if not self.is_small:
                with builder.if_else(self._is_elsewhere(self.source), likely=False) as (apart, together):
                    with apart:
                        enqueue(atomics, self.context, self.incoming, ProxyEvent.READY, self.after)
                    with together, atomics.when(self._claim(self.incoming)):
                        self._await_message()
                        self._take_large()
            elif end is not None:
                self._ask()
        return number

    def _end(self, *, ready: bool) -> None:
        """Wait for the message and until the operand may be overwritten; returns from the function.

        ready: whether a small message may have been taken already.
        """
        atomics, builder = self.atomics, self.builder
        with atomics.when(self.receives):
            if ready or not self.is_small:
                with atomics.when(builder.not_(self._is_taken())):
                    self._await_message()
                    if self.is_small:
                        self._take_small_once()
                    self._await_taken(self.incoming, self.source, self.after)
            else:
                self._await_message()
                self._take_small()
        if not self.is_small:
            with atomics.when(self.sends):
                zero_copy = atomics.load(I32, self.outgoing, permute_words.M_ZERO_COPY)
                with atomics.when(builder.icmp_unsigned("!=", zero_copy, i32(0))):
                    self._await_taken(self.outgoing, self.target, self.after)
        builder.ret(i32(Status.OK))

    def _enter(self, number: ir.Value) -> None:
        """Find the messages of a round, and the values of their words before and after it."""
        builder = self.builder
        offset = builder.mul(builder.and_(number, i64(permute_words.RING - 1)), i64(permute_words.MESSAGE_BYTES))
        offset = builder.add(offset, i64(permute_words.P_RING))
        self.outgoing, self.incoming = (self.atomics.at(pair, offset) for pair in (self.out_pair, self.in_pair))
        self.before = builder.trunc(builder.udiv(number, i64(permute_words.RING)), I32)
        self.after = builder.add(self.before, i32(1))

    def _counter(self) -> ir.Value:
        """Where the rounds are counted that the device has begun."""
        ready, sent = (
            self.atomics.at(self.in_pair, permute_words.P_READY),
            self.atomics.at(self.out_pair, permute_words.P_SENT),
        )
        return self.builder.select(self.receives, ready, sent)

    def _note(self, number: ir.Value) -> None:
        """Write into the device's record where it is, for reports."""
        counted = self.atomics.at(self._counter(), round_words.COUNTED)
        note_round(self.atomics, self.record, counted, self.builder.add(number, i64(1)))

    def _end_oldest(self, number: ir.Value) -> None:
        """End this device's unfinished round whose messages the round `number` needs."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        post = atomics.at(self.incoming, permute_words.M_TARGET_POST)
        end = atomics.load(END_TYPE.as_pointer(), post, round_words.S_END)
        head = [argument[name] for name, _ in END_ARGUMENTS[:-1]]
        atomics.require_ok(builder.call(end, [*head, builder.sub(number, i64(permute_words.RING))]))

    # --- the source's side

    def _send(self) -> None:
        atomics, builder, message = self.atomics, self.builder, self.outgoing
        self._await_taken(message, self.target, self.before)
        self._post(message)
        payload = atomics.at(message, permute_words.M_PAYLOAD)
        for leaf, (size, place) in enumerate(zip(self.sizes, self.places, strict=True)):
            if self.is_small:
                operand = self._buffer(self.own, self.argument["operands"], leaf)
                emit_copy(atomics.builder, atomics.at(payload, place), operand, i64(size))
            else:
                atomics.store(atomics.load(I64, self.argument["operands"], 8 * leaf), payload, place)
        if not self.is_small:
            came_second = self._claim(message)
            delivers = builder.and_(came_second, self._target_agrees())
            atomics.store(builder.zext(builder.not_(delivers), I32), message, permute_words.M_ZERO_COPY)
            with atomics.when(delivers):
                self._deliver()
        atomics.release(self.after, message, permute_words.M_POSTED)
        self._wake(message, permute_words.M_POSTED, permute_words.M_TARGET_SLEEPS)  # a full fence is in it
        if self.is_small:
            ready = builder.icmp_unsigned("==", atomics.acquire(message, permute_words.M_READY), self.after)
            with (
                atomics.when(ready, likely=False),
                atomics.when(self._target_agrees()),
                atomics.when(self._copies(message)),
            ):
                self._deliver()
        with atomics.when(self._is_elsewhere(self.target), likely=False):
            atomics.store(i32(0 if self.is_small else len(self.sizes)), message, permute_words.M_LEAVES)
            atomics.store(i64(self.bytes), message, permute_words.M_BYTES)
            for leaf, size in enumerate(() if self.is_small else self.sizes):
                atomics.store(i64(size), payload, 8 * (len(self.sizes) + leaf))
            enqueue(atomics, self.context, message, ProxyEvent.POSTED, self.after)

    def _target_agrees(self) -> ir.Value:
        """Whether the target, which has posted where it receives, runs the same instruction."""
        theirs = self.atomics.load(I64, self.outgoing, permute_words.M_TARGET_POST + round_words.S_SIGNATURE)
        return self.builder.icmp_unsigned("==", theirs, i64(self.signature))

    def _deliver(self) -> None:
        """Copy the operands into the target's results."""
        there = self.atomics.at(self.outgoing, permute_words.M_TARGET_POST + round_words.S_OFFSETS)
        owner = self._owner(self.target)
        for leaf, size in self._leaves():
            operand = self._buffer(self.own, self.argument["operands"], leaf)
            self._copy(self._buffer(owner, there, leaf), operand, size)
        self._raise_taken_after_copies(self.outgoing)

    # --- the target's side

    def _post_results(self, end: ir.Function | None) -> None:
        """Post where the results go. end: the routine that will end the round, if not this function."""
        atomics = self.atomics
        post = atomics.at(self.incoming, permute_words.M_TARGET_POST)
        self._post(post)
        for leaf in range(len(self.sizes)):
            atomics.store(atomics.load(I64, self.argument["results"], 8 * leaf), post, round_words.S_OFFSETS + 8 * leaf)
        if end is not None:
            atomics.store(end, post, round_words.S_END)

    def _ask(self) -> None:
        """Let the source put the results in their places, or take them if they are there."""
        atomics, builder, message = self.atomics, self.builder, self.incoming
        atomics.sequential_store(self.after, message, permute_words.M_READY)
        builder.fence("seq_cst")
        posted = atomics.acquire(message, permute_words.M_POSTED)
        with atomics.when(builder.icmp_unsigned("==", posted, self.after)):
            self._check_signature()
            self._take_small_once()

    def _await_message(self) -> None:
        """Wait for the message; returns MISMATCH from the function if another instruction posted it."""
        atomics, builder, message = self.atomics, self.builder, self.incoming
        with atomics.forever() as there:
            posted = atomics.acquire(message, permute_words.M_POSTED)
            atomics.leave_if(builder.icmp_signed(">=", builder.sub(posted, self.after), i32(0)), there)
            self._wait(message, permute_words.M_POSTED, posted, self.source, permute_words.M_TARGET_SLEEPS)
        self._check_signature()

    def _check_signature(self) -> None:
        """Return MISMATCH if the post belongs to another instruction; not if it was taken, as then the slot may
        hold the next message already."""
        atomics, builder, message = self.atomics, self.builder, self.incoming
        theirs = atomics.load(I64, message, round_words.S_SIGNATURE)
        differs = builder.icmp_unsigned("!=", theirs, i64(self.signature))
        with atomics.when(differs, likely=False):
            builder.fence("acquire")  # the slot's next message is posted only after `taken` was raised
            self._return_mismatch()

    def _return_mismatch(self) -> None:
        atomics, builder, message = self.atomics, self.builder, self.incoming
        with atomics.when(builder.not_(self._is_taken())):
            atomics.store(
                atomics.load(I32, message, round_words.S_DEVICE), self.record, control_words.R_MISMATCH_DEVICE
            )
            atomics.store(atomics.load(I32, message, round_words.S_SITE), self.record, control_words.R_MISMATCH_SITE)
            builder.ret(i32(Status.MISMATCH))

    def _is_taken(self) -> ir.Value:
        builder = self.builder
        taken = self.atomics.acquire(self.incoming, permute_words.M_TAKEN)
        return builder.icmp_signed(">=", builder.sub(taken, self.after), i32(0))

    def _take_small(self) -> None:
        atomics, payload = self.atomics, self.atomics.at(self.incoming, permute_words.M_PAYLOAD)
        for leaf, (size, place) in enumerate(zip(self.sizes, self.places, strict=True)):
            result = self._buffer(self.own, self.argument["results"], leaf)
            emit_copy(atomics.builder, result, atomics.at(payload, place), i64(size))
        self._raise_taken(self.incoming)
        with atomics.when(self._is_elsewhere(self.source), likely=False):
            enqueue(atomics, self.context, self.incoming, ProxyEvent.TAKEN, self.after)

    def _take_small_once(self) -> None:
        """Take the message unless the source is about to deliver it."""
        with self.atomics.when(self._copies(self.incoming)):
            self._take_small()

    def _take_large(self) -> None:
        payload, owner = self.atomics.at(self.incoming, permute_words.M_PAYLOAD), self._owner(self.source)
        for leaf, size in self._leaves():
            operand = self._buffer(owner, payload, leaf)
            self._copy(self._buffer(self.own, self.argument["results"], leaf), operand, size)
        self._raise_taken_after_copies(self.incoming)

    # --- shared

    def _pair(self, number: ir.Value) -> ir.Value:
        builder = self.builder
        known = builder.icmp_unsigned("!=", number, i32(NO_PAIR))
        index = builder.select(known, builder.zext(number, I64), i64(0))
        return self.atomics.at(self.argument["state"], builder.mul(index, i64(permute_words.PAIR_BYTES)))

    def _post(self, place: ir.Value) -> None:
        atomics = self.atomics
        atomics.store(i64(self.signature), place, round_words.S_SIGNATURE)
        atomics.store(self.argument["site"], place, round_words.S_SITE)
        atomics.store(atomics.context_field(self.context, "device"), place, round_words.S_DEVICE)

    def _is_elsewhere(self, peer: ir.Value) -> ir.Value:
        """Whether the other end lives on another host: then a proxy takes its part."""
        return is_elsewhere(self.atomics, self.atomics.peer_memory(self.context, peer))

    def _claim(self, message: ir.Value) -> ir.Value:
        """Whether the other side of the message has claimed it before."""
        before = self.atomics.fetch_add(1, message, permute_words.M_CLAIM)
        return self.builder.icmp_unsigned("!=", self.builder.and_(before, i32(1)), i32(0))

    def _copies(self, message: ir.Value) -> ir.Value:
        """Whether this side of a small message, of which the other side knows, is the one that copies it."""
        place = self.atomics.at(message, permute_words.M_COPIER)
        seen = self.atomics.acquire(place)
        swapped = self.builder.cmpxchg(place, seen, self.after, "seq_cst", "seq_cst")
        free = self.builder.icmp_unsigned("!=", seen, self.after)
        return self.builder.and_(free, self.builder.extract_value(swapped, 1))

    def _raise_taken(self, message: ir.Value) -> None:
        self.atomics.release(self.after, message, permute_words.M_TAKEN)
        self._wake(message, permute_words.M_TAKEN, permute_words.M_TAKEN_SLEEPS, ALL_SLEEPERS)

    def _await_taken(self, message: ir.Value, peer: ir.Value, generation: ir.Value) -> None:
        """Until that many messages were taken out of the slot."""
        atomics, builder = self.atomics, self.builder
        with atomics.forever() as enough:
            taken = atomics.acquire(message, permute_words.M_TAKEN)
            atomics.leave_if(builder.icmp_signed(">=", builder.sub(taken, generation), i32(0)), enough)
            self._wait(message, permute_words.M_TAKEN, taken, peer, permute_words.M_TAKEN_SLEEPS)

    # --- buffers: of a device's memory in this process, or of a grid's kernels

    def _leaves(self) -> list[tuple[int, int]]:
        """The number and the size of each leaf that isn't empty."""
        return [(leaf, size) for leaf, size in enumerate(self.sizes) if size]

    def _owner(self, peer: ir.Value) -> ir.Value:
        """What `_buffer` asks for of another device, given by its id in the program."""
        if self.calls is not None:
            return self.atomics.assigned(self.context, peer)
        return self.atomics.peer_memory(self.context, peer)

    def _buffer(self, owner: ir.Value, offsets: ir.Value, leaf: int) -> ir.Value:
        posted = self.atomics.load(I64, offsets, 8 * leaf)
        if self.calls is None:
            return self.atomics.at(owner, posted)
        place = self.atomics.local(I64)
        self.atomics.require_ok(self.calls.emit_import(self.builder, self.context, owner, posted, place))
        return self.atomics.load(I64, place)

    def _copy(self, target: ir.Value, source: ir.Value, size: int) -> None:
        if self.calls is None:
            emit_copy(self.atomics.builder, target, source, i64(size))
        else:
            self.atomics.require_ok(self.calls.emit_copy(self.builder, self.context, target, source, size))

    def _zero(self, target: ir.Value, size: int) -> None:
        if self.calls is None:
            emit_zero(self.atomics.builder, target, i64(size))
        else:
            self.atomics.require_ok(self.calls.emit_fill(self.builder, self.context, target, 0, size))

    def _raise_taken_after_copies(self, message: ir.Value) -> None:
        if self.calls is not None:
            emit_end(self.atomics, self.calls, self.context)
        self._raise_taken(message)

    def _wait(self, message: ir.Value, word: int, seen: ir.Value, peer: ir.Value, sleepers: int) -> None:
        """Sleep until the word differs from the value seen; returns from the function if the call was aborted."""
        atomics, builder = self.atomics, self.builder
        device = atomics.assigned(self.context, peer)
        arguments = [self.context, atomics.at(message, word), seen, device, atomics.at(message, sleepers)]
        atomics.require_ok(builder.call(emit_wait(self.module), arguments))

    def _wake(self, message: ir.Value, word: int, sleepers: int, how_many: int = 1) -> None:
        places = [self.atomics.at(message, word), self.atomics.at(message, sleepers)]
        self.builder.call(emit_wake(self.module), [*places, i32(how_many)])


def emit_permute_round(
    llvm_module: ir.Module, sizes: tuple[int, ...], signature: int, calls: GridCalls | None = None
) -> ir.Function:
    """i32 (ROUND_ARGUMENTS): OK, or why it failed, for leaves of so many bytes. Blocks. calls: as for _Round."""
    name = f"distxla_permute_{signature:016x}"
    found = llvm_module.globals.get(name)
    return found or _Round(llvm_module, name, ROUND_ARGUMENTS, sizes, signature, calls).emit_round()


def emit_permute_begin(
    llvm_module: ir.Module, sizes: tuple[int, ...], signature: int, calls: GridCalls | None = None
) -> ir.Function:
    """i32 (ROUND_ARGUMENTS, ticket): OK, or why it failed. Blocks only where RING rounds of the device are in flight,
    or as many messages not taken."""
    name = f"distxla_permute_begin_{signature:016x}"
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    end = emit_permute_end(llvm_module, sizes, signature, calls)
    return _Round(llvm_module, name, (*ROUND_ARGUMENTS, TICKET), sizes, signature, calls).emit_begin(end)


def emit_permute_end(
    llvm_module: ir.Module, sizes: tuple[int, ...], signature: int, calls: GridCalls | None = None
) -> ir.Function:
    """i32 (END_ARGUMENTS): OK, or why it failed. Blocks until the device has received."""
    name = f"distxla_permute_end_{signature:016x}"
    found = llvm_module.globals.get(name)
    return found or _Round(llvm_module, name, END_ARGUMENTS, sizes, signature, calls).emit_end()
