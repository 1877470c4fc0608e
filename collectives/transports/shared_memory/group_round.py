"""Rounds of a group: members post their buffers, the last one to come starts the work, and each waits for its end.

Nobody copies into shared memory, so operands are read and results written in place. A round has two halves: to begin
it (post, arrive) never waits for others, to end it does. A synchronous collective is both, a start is the first, its
done the second. Members count the rounds that they begin; round r of all of them is one round, in area r % ROUNDS of
the state, so up to ROUNDS rounds may be in flight, and be ended in any order. A member that begins one more ends its
own oldest first, whose done then finds it over: an area is posted to again only when everybody has left the round
that used it before.

The phase word of an area tells what may happen in its g-th round. 2g: it gathers. The last arriver (whose increment
completes `arrived`) is alone between its arrival and its store of the next phase, since no member can arrive again
before the round is over; there it resets the counters. Small work it does itself and stores 2g + 2. Otherwise it
stores 2g + 1, and everyone who ends the round takes items from `next` until there are none left; the member that
finishes the last item stores 2g + 2. A member that is late for `next` gets a number beyond the items: the counter is
reset only after all have reached the area's next round. Those who sleep or compute through the work lose nothing, which
is why only as many are woken for it as there are cores.

Results that are the same for everybody are written once where all members of this host posted the same shared places
for them (why that is safe: compiler/plan/buffers.py). Each member then finds those places in its table of results.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import control_block as block
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.protocols.proxy_queue import Event
from distxla.collectives.protocols.work_table import DESCRIBED
from distxla.collectives.transports.shared_memory.atomics_builder import I32, I64, POINTER, Words, i32, i64
from distxla.collectives.transports.shared_memory.proxy_queue import emit_describe, emit_hand_over
from distxla.collectives.transports.shared_memory.round_numbers import count_from, note_round
from distxla.collectives.transports.shared_memory.wait_and_wake import EVERYBODY, emit_wait, emit_wake
from distxla.collectives.transports.shared_memory.work_items import ITEMS_TYPE
from distxla.compiler.abi import Status

ROUND_FUNCTION, BEGIN_FUNCTION, END_FUNCTION = "distxla_group_round", "distxla_group_begin", "distxla_group_end"
ARGUMENTS = (
    ("context", POINTER),
    ("site", I32),
    ("operands", POINTER),  # u64 offsets
    ("results", POINTER),
    ("operand_count", I64),
    ("result_count", I64),
    ("signature", I64),
    ("state", POINTER),  # of the group
    ("position", I64),
    ("size", I64),
    ("members", POINTER),  # u32 flattened ids in group order
    ("table", POINTER),
    ("items", I64),
    ("shared", I32),  # whether members share the items
    ("do_items", ITEMS_TYPE.as_pointer()),
    ("common", POINTER),  # u64 offsets of the results' shared places, 0 for none; null where no result has one
    ("fold", POINTER),  # for a relay: the function that folds two operands; null where it needs all of them at once
    ("element", I64),  # for a relay: bytes of an element that is folded; 0: nothing is
)
assert tuple(name for name, _ in ARGUMENTS) == DESCRIBED
TICKET = ("ticket", POINTER)  # u64: where the begun round's number goes
END_ARGUMENTS = (
    ("context", POINTER),
    ("state", POINTER),
    ("position", I64),
    ("size", I64),
    ("round", I64),
)
END_TYPE = ir.FunctionType(I32, [kind for _, kind in END_ARGUMENTS])
SAVED = (  # what ending a round needs to know, kept in the member's slot
    ("members", round_words.S_MEMBERS),
    ("table", round_words.S_TABLE),
    ("items", round_words.S_ITEMS),
    ("do_items", round_words.S_DO_ITEMS),
)


class _Round:
    """The parts of a round while a function of them is written."""

    def __init__(self, llvm_module: ir.Module, name: str, arguments: Sequence[tuple[str, ir.Type]]) -> None:
        self.module = llvm_module
        self.function, self.words = Words.function(llvm_module, name, I32, [kind for _, kind in arguments])
        self.argument = {name: value for (name, _), value in zip(arguments, self.function.args, strict=True)}
        self.builder = self.words.builder
        self.record = self.words.context_field(self.argument["context"], "record")

    def emit_round(self) -> ir.Function:
        """Begin and end."""
        self._begin()
        return self._end()

    def emit_begin(self, end: ir.Function) -> ir.Function:
        """Begin, and leave behind what the end will need."""
        number = self._begin(end)
        self.words.store(number, self.argument["ticket"])
        self.builder.ret(i32(Status.OK))
        return self.function

    def emit_end(self) -> ir.Function:
        """End a round that was begun; at once where it was ended before."""
        argument, words = self.argument, self.words
        self._enter(argument["round"])
        self._note(argument["round"])
        slot = self._slot(argument["position"])
        argument["signature"] = words.load(I64, slot, round_words.S_SIGNATURE)
        for name, place in SAVED:
            argument[name] = words.load(dict(ARGUMENTS)[name], slot, place)
        return self._end()

    def _begin(self, end: ir.Function | None = None) -> ir.Value:
        """Post, arrive, and lead if everybody has; the round's number, u64."""
        words, builder, argument = self.words, self.builder, self.argument
        relay = words.load(I32, argument["state"], group_words.G_RELAY)
        with words.when(builder.icmp_unsigned("==", relay, i32(group_words.DESCRIBE)), likely=False):
            emit_describe(words, argument["state"], [argument[name] for name, _ in ARGUMENTS])
            builder.ret(i32(Status.OK))
        counter = self._counter()
        number = words.load(I64, counter)
        count_from(words, self.record, words.at(counter, round_words.COUNTED), number)
        self._enter(number)
        unfinished = builder.icmp_unsigned("!=", words.acquire(self.area, group_words.E_PHASE), self.phase)
        with words.when(unfinished, likely=False):
            self._end_oldest(number)
        self._note(number)
        self._post(end)
        words.store(builder.add(number, i64(1)), counter)
        self._compare_with_the_first()
        arrived = words.fetch_add(1, self.area, group_words.E_ARRIVED)
        local = words.load(I32, argument["state"], group_words.G_LOCAL)
        whole = builder.icmp_unsigned("==", local, i32(0))
        expected = builder.select(whole, builder.trunc(argument["size"], I32), local)
        last = builder.icmp_unsigned("==", builder.add(arrived, i32(1)), expected)
        with builder.if_then(last):
            words.store(i32(0), self.area, group_words.E_ARRIVED)
            words.racing_store(i64(0), self.area, group_words.E_FIRST)
            with builder.if_else(builder.icmp_unsigned("==", relay, i32(0))) as (here, elsewhere):
                with here:
                    self._lead(stays=end is None)
                with elsewhere:
                    control = words.context_field(argument["context"], "control")
                    builder.call(emit_hand_over(self.module), [control, self.area, i64(Event.ROUND)])
        return number

    def _compare_with_the_first(self) -> None:
        """Return MISMATCH at once where an earlier comer runs something else: the rest may never come.

        Two that come at the same time may both take themselves for the first; the last one compares everybody.
        """
        words, builder, argument = self.words, self.builder, self.argument
        first = words.racing_load(I64, self.area, group_words.E_FIRST)
        with builder.if_else(builder.icmp_unsigned("==", first, i64(0))) as (alone, later):
            with alone:
                words.racing_store(argument["signature"], self.area, group_words.E_FIRST)
            with later:
                differs = builder.icmp_unsigned("!=", first, argument["signature"])
                with builder.if_then(differs, likely=False):
                    self._name_the_other()
                    builder.ret(i32(Status.MISMATCH))

    def _end(self) -> ir.Function:
        """Wait until the round is over, doing shared items meanwhile, and return how it went."""
        words, builder = self.words, self.builder
        self._follow()
        outcome = words.load(I32, self.area, group_words.E_OUTCOME)
        with builder.if_then(builder.icmp_unsigned("!=", outcome, i32(Status.OK)), likely=False):
            self._name_the_other()
        if "common" in self.argument:
            self._find_results()
        builder.ret(outcome)
        return self.function

    def _enter(self, number: ir.Value) -> None:
        """Find the area of a round and what its phase is while it gathers."""
        words, builder, argument = self.words, self.builder, self.argument
        self.number = number
        size = argument["size"]
        each = builder.add(builder.mul(size, i64(round_words.SLOT_BYTES)), i64(group_words.E_SLOTS))
        offset = builder.mul(builder.and_(number, i64(group_words.ROUNDS - 1)), each)
        counters = builder.mul(size, i64(round_words.LINE))
        self.area = words.at(words.at(argument["state"], group_words.G_BEGUN), builder.add(counters, offset))
        self.slots = words.at(self.area, group_words.E_SLOTS)
        generation = builder.udiv(number, i64(group_words.ROUNDS))
        self.phase = builder.trunc(builder.mul(generation, i64(2)), I32)
        self.over = builder.add(self.phase, i32(2))

    def _counter(self) -> ir.Value:
        """Where the rounds are counted that this member has begun."""
        place = self.builder.mul(self.argument["position"], i64(round_words.LINE))
        return self.words.at(self.words.at(self.argument["state"], group_words.G_BEGUN), place)

    def _note(self, number: ir.Value) -> None:
        """Write into the device's record where it is, for reports."""
        counted = self.words.at(self._counter(), round_words.COUNTED)
        note_round(self.words, self.record, counted, self.builder.add(number, i64(1)))

    def _end_oldest(self, number: ir.Value) -> None:
        """End this member's unfinished round in the area that the round `number` needs."""
        words, builder, argument = self.words, self.builder, self.argument
        end = words.load(END_TYPE.as_pointer(), self._slot(argument["position"]), round_words.S_END)
        head = [argument[name] for name, _ in END_ARGUMENTS[:-1]]
        status = builder.call(end, [*head, builder.sub(number, i64(group_words.ROUNDS))])
        words.return_if(builder.icmp_unsigned("!=", status, i32(Status.OK)), status)

    def _slot(self, position: ir.Value) -> ir.Value:
        return self.words.at(self.slots, self.builder.mul(position, i64(round_words.SLOT_BYTES)))

    def _post(self, end: ir.Function | None) -> None:
        """Say what this member came with: signature, site, and where its buffers are. end: who will end the round,
        if not this function."""
        words, builder, argument = self.words, self.builder, self.argument
        slot = self._slot(argument["position"])
        words.store(argument["signature"], slot, round_words.S_SIGNATURE)
        words.store(argument["site"], slot, round_words.S_SITE)
        words.store(words.context_field(argument["context"], "device"), slot, round_words.S_DEVICE)
        if end is not None:
            words.store(end, slot, round_words.S_END)
            for name, offset in SAVED:
                words.store(argument[name], slot, offset)
        place = words.at(slot, round_words.S_OFFSETS)
        for side in ("operand", "result"):
            count = argument[f"{side}_count"]
            with words.count(i64(0), count) as leaf:
                at = builder.mul(leaf, i64(8))
                words.store(words.load(I64, argument[f"{side}s"], at), place, at)
            place = words.at(place, builder.mul(count, i64(8)))

        has_common = builder.icmp_unsigned("!=", builder.ptrtoint(argument["common"], I64), i64(0))
        words.store(builder.zext(has_common, I64), slot, round_words.S_SHARES)
        with words.when(has_common), words.count(i64(0), argument["result_count"]) as leaf:
            at = builder.mul(leaf, i64(8))
            words.store(words.load(I64, argument["common"], at), place, at)

    def _common_places(self, member: ir.Value) -> ir.Value:
        """Where a member posted the shared places of its results."""
        words, builder, argument = self.words, self.builder, self.argument
        leaves = builder.add(argument["operand_count"], argument["result_count"])
        return words.at(words.at(self._slot(member), round_words.S_OFFSETS), builder.mul(leaves, i64(8)))

    def _agree_on_places(self) -> None:
        """Whether every member of this host allows that the results be written once, and where."""
        words, builder, argument = self.words, self.builder, self.argument
        has_common = builder.icmp_unsigned("!=", builder.ptrtoint(argument["common"], I64), i64(0))
        mine = builder.trunc(builder.add(argument["position"], i64(1)), I32)
        words.store(builder.select(has_common, mine, i32(0)), self.area, group_words.E_ONCE)
        with words.when(has_common), words.count(i64(0), argument["size"]) as member:
            device = words.load(I32, argument["members"], builder.mul(member, i64(4)))
            memory = words.device_memory(argument["context"], device)
            with words.when(builder.icmp_unsigned("!=", builder.ptrtoint(memory, I64), i64(0))):  # it is on this host
                shares = words.load(I64, self._slot(member), round_words.S_SHARES)
                with builder.if_else(builder.icmp_unsigned("==", shares, i64(0)), likely=False) as (alone, posted):
                    with alone:
                        words.store(i32(0), self.area, group_words.E_ONCE)
                    with posted, words.count(i64(0), argument["result_count"]) as leaf:
                        at = builder.mul(leaf, i64(8))
                        theirs, ours = (
                            words.load(I64, p, at) for p in (self._common_places(member), argument["common"])
                        )
                        with words.when(builder.icmp_unsigned("!=", theirs, ours), likely=False):
                            words.store(i32(0), self.area, group_words.E_ONCE)

    def _find_results(self) -> None:
        """Write the shared places into the table of results where the round has used them."""
        words, builder, argument = self.words, self.builder, self.argument
        has_common = builder.icmp_unsigned("!=", builder.ptrtoint(argument["common"], I64), i64(0))
        once = builder.icmp_unsigned("!=", words.load(I32, self.area, group_words.E_ONCE), i32(0))
        with words.when(builder.and_(has_common, once)), words.count(i64(0), argument["result_count"]) as leaf:
            at = builder.mul(leaf, i64(8))
            place = words.load(I64, argument["common"], at)
            with words.when(builder.icmp_unsigned("!=", place, i64(0))):
                words.store(place, argument["results"], at)

    def _lead(self, *, stays: bool) -> None:
        """What the last arriver does: compare the signatures, then do the work or share it out.

        stays: whether it then helps.
        """
        words, builder, argument = self.words, self.builder, self.argument
        outcome = words.local(I32)
        builder.store(i32(Status.OK), outcome)
        with words.count(i64(0), argument["size"]) as member:
            theirs = words.load(I64, self._slot(member), round_words.S_SIGNATURE)
            with words.when(builder.icmp_unsigned("!=", theirs, argument["signature"]), likely=False):
                builder.store(i32(Status.MISMATCH), outcome)
        found = builder.load(outcome, typ=I32)
        words.store(found, self.area, group_words.E_OUTCOME)
        self._agree_on_places()
        agreed = builder.icmp_unsigned("==", found, i32(Status.OK))
        shared = builder.icmp_unsigned("!=", argument["shared"], i32(0))
        with builder.if_else(builder.and_(agreed, shared)) as (share, alone):
            with share:
                self._share(1 if stays else 0)
            with alone:
                with words.when(agreed, likely=True):
                    self._do_items(i64(0), argument["items"])
                words.release(self.over, self.area, group_words.E_PHASE)
                self._wake(i32(EVERYBODY))

    def _share(self, helpers: int) -> None:
        """Hand out the work to the members that end the round. helpers: how many are awake for it."""
        words, builder, argument = self.words, self.builder, self.argument
        words.store(i32(0), self.area, group_words.E_NEXT)
        words.store(i32(0), self.area, group_words.E_DONE)
        words.release(builder.add(self.phase, i32(1)), self.area, group_words.E_PHASE)
        control = words.context_field(argument["context"], "control")
        cores = builder.zext(words.load(I32, control, block.H_CORES), I64)
        wanted = builder.sub(words.smallest(cores, argument["items"]), i64(helpers))
        with words.when(builder.icmp_signed(">", wanted, i64(0))):
            self._wake(builder.trunc(wanted, I32))

    def _follow(self) -> None:
        """Wait for the end of the round, doing shared items meanwhile."""
        words, builder, argument = self.words, self.builder, self.argument
        wait = emit_wait(self.module)
        with words.forever() as finished:
            now = words.acquire(self.area, group_words.E_PHASE)
            words.leave_if(builder.icmp_signed(">=", builder.sub(now, self.over), i32(0)), finished)
            with words.when(builder.icmp_unsigned("!=", now, self.phase)):
                self._help()
            sleepers = words.at(self.area, group_words.E_SLEEPERS)
            word = words.at(self.area, group_words.E_PHASE)
            status = builder.call(wait, [argument["context"], word, now, i32(-1), sleepers])
            words.return_if(builder.icmp_unsigned("!=", status, i32(Status.OK)), status)

    def _help(self) -> None:
        words, builder, argument = self.words, self.builder, self.argument
        items = builder.trunc(argument["items"], I32)
        with words.forever() as none_left:
            item = words.fetch_add(1, self.area, group_words.E_NEXT)
            words.leave_if(builder.icmp_unsigned(">=", item, items), none_left)
            number = builder.zext(item, I64)
            self._do_items(number, builder.add(number, i64(1)))
            done = builder.add(words.fetch_add(1, self.area, group_words.E_DONE), i32(1))
            with words.when(builder.icmp_unsigned("==", done, items)):
                words.release(self.over, self.area, group_words.E_PHASE)
                self._wake(i32(EVERYBODY))

    def _do_items(self, first: ir.Value, end: ir.Value) -> None:
        argument = self.argument
        arguments = (argument["context"], self.slots, argument["members"], argument["size"], argument["table"])
        self.builder.call(argument["do_items"], [*arguments, first, end])

    def _wake(self, how_many: ir.Value) -> None:
        sleepers, word = self.words.at(self.area, group_words.E_SLEEPERS), self.words.at(self.area, group_words.E_PHASE)
        self.builder.call(emit_wake(self.module), [word, sleepers, how_many])

    def _name_the_other(self) -> None:
        """Write a member that has come with something else into this device's record."""
        words, builder, argument = self.words, self.builder, self.argument
        counters = words.at(argument["state"], group_words.G_BEGUN)
        with words.count(i64(0), argument["size"]) as member:
            slot = self._slot(member)
            begun = words.load(I64, counters, builder.mul(member, i64(round_words.LINE)))
            has_come = builder.icmp_unsigned(">", begun, self.number)  # others' slots tell of an earlier round
            differs = builder.icmp_unsigned("!=", words.load(I64, slot, round_words.S_SIGNATURE), argument["signature"])
            with words.when(builder.and_(has_come, differs)):
                words.store(words.load(I32, slot, round_words.S_DEVICE), self.record, block.R_MISMATCH_DEVICE)
                words.store(words.load(I32, slot, round_words.S_SITE), self.record, block.R_MISMATCH_SITE)


def emit_group_round(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_group_round(ARGUMENTS): OK, RELEASED or MISMATCH. Blocks until the whole group has come."""
    found = llvm_module.globals.get(ROUND_FUNCTION)
    return found or _Round(llvm_module, ROUND_FUNCTION, ARGUMENTS).emit_round()


def emit_group_begin(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_group_begin(ARGUMENTS, ticket): OK, or what ending the oldest round returned.

    Blocks only where ROUNDS rounds of this member are in flight.
    """
    found = llvm_module.globals.get(BEGIN_FUNCTION)
    return found or _Round(llvm_module, BEGIN_FUNCTION, (*ARGUMENTS, TICKET)).emit_begin(emit_group_end(llvm_module))


def emit_group_end(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_group_end(END_ARGUMENTS): OK, RELEASED or MISMATCH. Blocks until the round is over."""
    found = llvm_module.globals.get(END_FUNCTION)
    return found or _Round(llvm_module, END_FUNCTION, END_ARGUMENTS).emit_end()
