"""Rounds of a group: members post their buffers, the last one to arrive starts the work, and each waits for its end.

Operands are read and results written where they are; nothing is copied into shared memory. A round has an async start
and a done: the start (post, arrive) never waits for others, the done does. A synchronous collective is both. (In the
memory of a GPU the start of the last one to arrive waits for the work that it has launched there.)
Members count the rounds that they begin; round r of all of them is one round, in area r % ROUNDS of the state, so up
to ROUNDS rounds may be in flight, and be ended in any order. A member that begins one more ends its own oldest first,
whose done then finds it over: an area is posted to again only when all members have left the round that used it before.

The phase word of an area holds the state of its g-th round. 2g: it gathers. The last arriver (whose increment
completes `arrived`) is alone between its arrival and its store of the next phase, since no member can arrive again
before the round is over; there it resets the counters. Small work it does itself and stores 2g + 2. Otherwise it
stores 2g + 1, and each member that ends the round takes items from `next` until there are none left; the member that
finishes the last item stores 2g + 2. A member that is late for `next` gets a number beyond the items: the counter is
reset only after all have reached the area's next round. Members that sleep or compute through the work lose nothing, so
only as many are woken for it as there are cores.

Results that are the same for all members are written once where all members of this host posted the same shared places
for them (why that is safe: compiler/plan/buffers.py). Each member then finds those places in its table of results.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.protocols.proxy_queue import ProxyEvent
from distxla.collectives.transports.shared_memory.proxy_queue import emit_enqueue
from distxla.collectives.transports.shared_memory.round_numbers import count_from, note_round
from distxla.collectives.transports.shared_memory.wait_and_wake import ALL_SLEEPERS, emit_wait, emit_wake
from distxla.collectives.transports.shared_memory.work_items import ITEMS_TYPE
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, POINTER, i32, i64
from distxla.program.abi import Status

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
    ("members", POINTER),  # u32 flattened ids of the program in group order
    ("table", POINTER),
    ("items", I64),
    ("shared", I32),  # whether members share the items
    ("do_items", ITEMS_TYPE.as_pointer()),
    ("common", POINTER),  # u64 offsets of the results' shared places, 0 for none; null where no result has one
)
TICKET = ("ticket", POINTER)  # u64: where the begun round's number goes
END_ARGUMENTS = (
    ("context", POINTER),
    ("state", POINTER),
    ("position", I64),
    ("size", I64),
    ("round", I64),
)
END_TYPE = ir.FunctionType(I32, [kind for _, kind in END_ARGUMENTS])
SAVED = (  # values that the end of a round needs, kept in the member's slot
    ("members", round_words.S_MEMBERS),
    ("table", round_words.S_TABLE),
    ("items", round_words.S_ITEMS),
    ("do_items", round_words.S_DO_ITEMS),
)


class _Round:
    """The parts of a round while a function of them is written."""

    def __init__(self, llvm_module: ir.Module, name: str, arguments: Sequence[tuple[str, ir.Type]]) -> None:
        self.module = llvm_module
        self.function, self.atomics = AtomicsBuilder.function(
            llvm_module, name, I32, [kind for _, kind in arguments], common=True
        )
        self.argument = {name: value for (name, _), value in zip(arguments, self.function.args, strict=True)}
        self.builder = self.atomics.builder
        self.record = self.atomics.context_field(self.argument["context"], "record")

    def emit_round(self) -> ir.Function:
        """Begin and end."""
        self._begin()
        return self._end()

    def emit_begin(self, end: ir.Function) -> ir.Function:
        """Begin, and leave in the slot the values that the end needs."""
        number = self._begin(end)
        self.atomics.store(number, self.argument["ticket"])
        self.builder.ret(i32(Status.OK))
        return self.function

    def emit_end(self) -> ir.Function:
        """End a round that was begun; at once where it was ended before."""
        argument, atomics = self.argument, self.atomics
        self._enter(argument["round"])
        self._note(argument["round"])
        slot = self._slot(argument["position"])
        argument["signature"] = atomics.load(I64, slot, round_words.S_SIGNATURE)
        for name, place in SAVED:
            argument[name] = atomics.load(dict(ARGUMENTS)[name], slot, place)
        return self._end()

    def _begin(self, end: ir.Function | None = None) -> ir.Value:
        """Post, arrive, and lead if this member is the last; the round's number, u64."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        counter = self._counter()
        number = atomics.load(I64, counter)
        count_from(atomics, self.record, atomics.at(counter, round_words.COUNTED), number)
        self._enter(number)
        unfinished = builder.icmp_unsigned("!=", atomics.acquire(self.area, group_words.E_PHASE), self.phase)
        with atomics.when(unfinished, likely=False):
            self._end_oldest(number)
        self._note(number)
        self._post(end)
        atomics.store(builder.add(number, i64(1)), counter)
        self._compare_with_the_first()
        arrived = atomics.fetch_add(1, self.area, group_words.E_ARRIVED)
        local = atomics.load(I32, argument["state"], group_words.G_LOCAL)
        whole = builder.icmp_unsigned("==", local, i32(0))
        expected = builder.select(whole, builder.trunc(argument["size"], I32), local)
        last = builder.icmp_unsigned("==", builder.add(arrived, i32(1)), expected)
        with builder.if_then(last):
            atomics.store(i32(0), self.area, group_words.E_ARRIVED)
            atomics.racing_store(i64(0), self.area, group_words.E_FIRST)
            proxy = atomics.load(I32, argument["state"], group_words.G_PROXY)
            with builder.if_else(builder.icmp_unsigned("==", proxy, i32(0))) as (here, elsewhere):
                with here:
                    self._lead(stays=end is None)
                with elsewhere:
                    control = atomics.context_field(argument["context"], "control")
                    builder.call(emit_enqueue(self.module), [control, self.area, i64(ProxyEvent.ROUND)])
        return number

    def _compare_with_the_first(self) -> None:
        """Return MISMATCH at once where an earlier member runs another instruction: the rest may never arrive.

        Two that arrive at the same time may both find no first member; the last arriver compares all members.
        """
        atomics, builder, argument = self.atomics, self.builder, self.argument
        first = atomics.racing_load(I64, self.area, group_words.E_FIRST)
        with builder.if_else(builder.icmp_unsigned("==", first, i64(0))) as (alone, later):
            with alone:
                atomics.racing_store(argument["signature"], self.area, group_words.E_FIRST)
            with later:
                differs = builder.icmp_unsigned("!=", first, argument["signature"])
                with builder.if_then(differs, likely=False):
                    self._name_the_other()
                    builder.ret(i32(Status.MISMATCH))

    def _end(self) -> ir.Function:
        """Wait until the round is over, doing shared items in that time, and return its outcome."""
        atomics, builder = self.atomics, self.builder
        self._follow()
        outcome = atomics.load(I32, self.area, group_words.E_OUTCOME)
        with builder.if_then(builder.icmp_unsigned("!=", outcome, i32(Status.OK)), likely=False):
            self._name_the_other()
        if "common" in self.argument:
            self._find_results()
        builder.ret(outcome)
        return self.function

    def _enter(self, number: ir.Value) -> None:
        """Find the area of a round and the value of its phase while it gathers."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        self.number = number
        size = argument["size"]
        each = builder.add(builder.mul(size, i64(round_words.SLOT_BYTES)), i64(group_words.E_SLOTS))
        offset = builder.mul(builder.and_(number, i64(group_words.ROUNDS - 1)), each)
        counters = builder.mul(size, i64(round_words.LINE))
        self.area = atomics.at(atomics.at(argument["state"], group_words.G_BEGUN), builder.add(counters, offset))
        self.slots = atomics.at(self.area, group_words.E_SLOTS)
        generation = builder.udiv(number, i64(group_words.ROUNDS))
        self.phase = builder.trunc(builder.mul(generation, i64(2)), I32)
        self.over = builder.add(self.phase, i32(2))

    def _counter(self) -> ir.Value:
        """Where the rounds are counted that this member has begun."""
        place = self.builder.mul(self.argument["position"], i64(round_words.LINE))
        return self.atomics.at(self.atomics.at(self.argument["state"], group_words.G_BEGUN), place)

    def _note(self, number: ir.Value) -> None:
        """Write into the device's record where it is, for reports."""
        counted = self.atomics.at(self._counter(), round_words.COUNTED)
        note_round(self.atomics, self.record, counted, self.builder.add(number, i64(1)))

    def _end_oldest(self, number: ir.Value) -> None:
        """End this member's unfinished round in the area that the round `number` needs."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        end = atomics.load(END_TYPE.as_pointer(), self._slot(argument["position"]), round_words.S_END)
        head = [argument[name] for name, _ in END_ARGUMENTS[:-1]]
        atomics.require_ok(builder.call(end, [*head, builder.sub(number, i64(group_words.ROUNDS))]))

    def _slot(self, position: ir.Value) -> ir.Value:
        return self.atomics.at(self.slots, self.builder.mul(position, i64(round_words.SLOT_BYTES)))

    def _post(self, end: ir.Function | None) -> None:
        """Write this member's signature, site and buffers into its slot. end: the routine that will end the round,
        if not this function."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        slot = self._slot(argument["position"])
        atomics.store(argument["signature"], slot, round_words.S_SIGNATURE)
        atomics.store(argument["site"], slot, round_words.S_SITE)
        atomics.store(atomics.context_field(argument["context"], "device"), slot, round_words.S_DEVICE)
        if end is not None:
            atomics.store(end, slot, round_words.S_END)
            for name, offset in SAVED:
                atomics.store(argument[name], slot, offset)
        place = atomics.at(slot, round_words.S_OFFSETS)
        for side in ("operand", "result"):
            count = argument[f"{side}_count"]
            with atomics.count(i64(0), count) as leaf:
                at = builder.mul(leaf, i64(8))
                atomics.store(atomics.load(I64, argument[f"{side}s"], at), place, at)
            place = atomics.at(place, builder.mul(count, i64(8)))

        has_common = builder.icmp_unsigned("!=", builder.ptrtoint(argument["common"], I64), i64(0))
        atomics.store(builder.zext(has_common, I64), slot, round_words.S_SHARES)
        with atomics.when(has_common), atomics.count(i64(0), argument["result_count"]) as leaf:
            at = builder.mul(leaf, i64(8))
            atomics.store(atomics.load(I64, argument["common"], at), place, at)

    def _common_places(self, member: ir.Value) -> ir.Value:
        """Where a member posted the shared places of its results."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        leaves = builder.add(argument["operand_count"], argument["result_count"])
        return atomics.at(atomics.at(self._slot(member), round_words.S_OFFSETS), builder.mul(leaves, i64(8)))

    def _agree_on_places(self) -> None:
        """Whether every member of this host allows that the results be written once, and where."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        has_common = builder.icmp_unsigned("!=", builder.ptrtoint(argument["common"], I64), i64(0))
        mine = builder.trunc(builder.add(argument["position"], i64(1)), I32)
        atomics.store(builder.select(has_common, mine, i32(0)), self.area, group_words.E_ONCE)
        with atomics.when(has_common), atomics.count(i64(0), argument["size"]) as member:
            peer = atomics.load(I32, argument["members"], builder.mul(member, i64(4)))
            memory = atomics.peer_memory(argument["context"], peer)
            with atomics.when(builder.icmp_unsigned("!=", builder.ptrtoint(memory, I64), i64(0))):  # it is on this host
                shares = atomics.load(I64, self._slot(member), round_words.S_SHARES)
                with builder.if_else(builder.icmp_unsigned("==", shares, i64(0)), likely=False) as (alone, posted):
                    with alone:
                        atomics.store(i32(0), self.area, group_words.E_ONCE)
                    with posted, atomics.count(i64(0), argument["result_count"]) as leaf:
                        at = builder.mul(leaf, i64(8))
                        theirs, ours = (
                            atomics.load(I64, p, at) for p in (self._common_places(member), argument["common"])
                        )
                        with atomics.when(builder.icmp_unsigned("!=", theirs, ours), likely=False):
                            atomics.store(i32(0), self.area, group_words.E_ONCE)

    def _find_results(self) -> None:
        """Write the shared places into the table of results where the round has used them."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        has_common = builder.icmp_unsigned("!=", builder.ptrtoint(argument["common"], I64), i64(0))
        once = builder.icmp_unsigned("!=", atomics.load(I32, self.area, group_words.E_ONCE), i32(0))
        with atomics.when(builder.and_(has_common, once)), atomics.count(i64(0), argument["result_count"]) as leaf:
            at = builder.mul(leaf, i64(8))
            place = atomics.load(I64, argument["common"], at)
            with atomics.when(builder.icmp_unsigned("!=", place, i64(0))):
                atomics.store(place, argument["results"], at)

    def _lead(self, *, stays: bool) -> None:
        """The last arriver's part: compare the signatures, then do the work or share it out.

        stays: whether it then helps.
        """
        atomics, builder, argument = self.atomics, self.builder, self.argument
        outcome = atomics.local(I32)
        builder.store(i32(Status.OK), outcome)
        with atomics.count(i64(0), argument["size"]) as member:
            theirs = atomics.load(I64, self._slot(member), round_words.S_SIGNATURE)
            with atomics.when(builder.icmp_unsigned("!=", theirs, argument["signature"]), likely=False):
                builder.store(i32(Status.MISMATCH), outcome)
        found = builder.load(outcome, typ=I32)
        atomics.store(found, self.area, group_words.E_OUTCOME)
        self._agree_on_places()
        agreed = builder.icmp_unsigned("==", found, i32(Status.OK))
        shared = builder.icmp_unsigned("!=", argument["shared"], i32(0))
        with builder.if_else(builder.and_(agreed, shared)) as (share, alone):
            with share:
                self._share(1 if stays else 0)
            with alone:
                with atomics.when(agreed, likely=True):
                    self._do_items(i64(0), argument["items"])
                atomics.release(self.over, self.area, group_words.E_PHASE)
                self._wake(i32(ALL_SLEEPERS))

    def _share(self, helpers: int) -> None:
        """Hand out the work to the members that end the round. helpers: how many are awake for it."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        atomics.store(i32(0), self.area, group_words.E_NEXT)
        atomics.store(i32(0), self.area, group_words.E_DONE)
        atomics.release(builder.add(self.phase, i32(1)), self.area, group_words.E_PHASE)
        control = atomics.context_field(argument["context"], "control")
        cores = builder.zext(atomics.load(I32, control, control_words.H_CORES), I64)
        wanted = builder.sub(atomics.smallest(cores, argument["items"]), i64(helpers))
        with atomics.when(builder.icmp_signed(">", wanted, i64(0))):
            self._wake(builder.trunc(wanted, I32))

    def _follow(self) -> None:
        """Wait for the end of the round, doing shared items in that time."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        wait = emit_wait(self.module)
        with atomics.forever() as finished:
            now = atomics.acquire(self.area, group_words.E_PHASE)
            atomics.leave_if(builder.icmp_signed(">=", builder.sub(now, self.over), i32(0)), finished)
            with atomics.when(builder.icmp_unsigned("!=", now, self.phase)):
                self._help()
            sleepers = atomics.at(self.area, group_words.E_SLEEPERS)
            word = atomics.at(self.area, group_words.E_PHASE)
            atomics.require_ok(builder.call(wait, [argument["context"], word, now, i32(-1), sleepers]))

    def _help(self) -> None:
        atomics, builder, argument = self.atomics, self.builder, self.argument
        items = builder.trunc(argument["items"], I32)
        with atomics.forever() as none_left:
            item = atomics.fetch_add(1, self.area, group_words.E_NEXT)
            atomics.leave_if(builder.icmp_unsigned(">=", item, items), none_left)
            number = builder.zext(item, I64)
            self._do_items(number, builder.add(number, i64(1)))
            done = builder.add(atomics.fetch_add(1, self.area, group_words.E_DONE), i32(1))
            with atomics.when(builder.icmp_unsigned("==", done, items)):
                atomics.release(self.over, self.area, group_words.E_PHASE)
                self._wake(i32(ALL_SLEEPERS))

    def _do_items(self, first: ir.Value, end: ir.Value) -> None:
        """Do these items of the work; returns from the function where one fails."""
        argument = self.argument
        arguments = (argument["context"], self.slots, argument["members"], argument["size"], argument["table"])
        self.atomics.require_ok(self.builder.call(argument["do_items"], [*arguments, first, end]))

    def _wake(self, how_many: ir.Value) -> None:
        sleepers, word = (
            self.atomics.at(self.area, group_words.E_SLEEPERS),
            self.atomics.at(self.area, group_words.E_PHASE),
        )
        self.builder.call(emit_wake(self.module), [word, sleepers, how_many])

    def _name_the_other(self) -> None:
        """Write a member with another instruction into this device's record."""
        atomics, builder, argument = self.atomics, self.builder, self.argument
        counters = atomics.at(argument["state"], group_words.G_BEGUN)
        with atomics.count(i64(0), argument["size"]) as member:
            slot = self._slot(member)
            begun = atomics.load(I64, counters, builder.mul(member, i64(round_words.LINE)))
            has_come = builder.icmp_unsigned(">", begun, self.number)  # others' slots hold an earlier round
            differs = builder.icmp_unsigned(
                "!=", atomics.load(I64, slot, round_words.S_SIGNATURE), argument["signature"]
            )
            with atomics.when(builder.and_(has_come, differs)):
                atomics.store(
                    atomics.load(I32, slot, round_words.S_DEVICE), self.record, control_words.R_MISMATCH_DEVICE
                )
                atomics.store(atomics.load(I32, slot, round_words.S_SITE), self.record, control_words.R_MISMATCH_SITE)


def emit_group_round(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_group_round(ARGUMENTS): OK, ABORTED or MISMATCH. Blocks until the whole group has arrived."""
    found = llvm_module.globals.get(ROUND_FUNCTION)
    return found or _Round(llvm_module, ROUND_FUNCTION, ARGUMENTS).emit_round()


def emit_group_begin(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_group_begin(ARGUMENTS, ticket): OK, or the status with which the oldest round, or the work, ended.

    Waits for others only where ROUNDS rounds of this member are in flight.
    """
    found = llvm_module.globals.get(BEGIN_FUNCTION)
    return found or _Round(llvm_module, BEGIN_FUNCTION, (*ARGUMENTS, TICKET)).emit_begin(emit_group_end(llvm_module))


def emit_group_end(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_group_end(END_ARGUMENTS): OK, ABORTED or MISMATCH. Blocks until the round is over."""
    found = llvm_module.globals.get(END_FUNCTION)
    return found or _Round(llvm_module, END_FUNCTION, END_ARGUMENTS).emit_end()
