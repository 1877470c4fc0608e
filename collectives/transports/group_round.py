"""One round of a group: members post their buffers, the last one to come starts the work, all leave when it is done.

Nobody copies into shared memory and nobody leaves before the round is over, so operands are read and results written in
place, each member waits once, and a slot is posted to again only when everybody has left the round that read it.

The phase word tells what may happen. 2r: round r gathers. The last arriver (whose increment completes `arrived`) is
alone between its arrival and its store of the next phase, since no member can arrive again before round r is over;
there it resets the counters. Small work it does itself and stores 2r + 2. Otherwise it stores 2r + 1, and everyone
who is awake takes items from `next` until there are none left; whoever finishes the last item stores 2r + 2. A
member that is late for `next` gets a number beyond the items: the counter is reset only after all have come to the
next round. Those who sleep through the work lose nothing, which is why only as many are woken for it as there are
cores.
"""

from __future__ import annotations

from llvmlite import ir

from distxla.codegen.abi import Status
from distxla.collectives import control_block as block
from distxla.collectives import state
from distxla.collectives.transports.futex import EVERYBODY, emit_wait, emit_wake
from distxla.collectives.transports.words import I32, I64, POINTER, Words, i32, i64
from distxla.collectives.transports.work import ITEMS_TYPE

ROUND_FUNCTION = "distxla_group_round"
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
)


class _Round:
    """The parts of the round function while it is written."""

    def __init__(self, llvm_module: ir.Module) -> None:
        self.module = llvm_module
        self.function, self.words = Words.function(llvm_module, ROUND_FUNCTION, I32, [kind for _, kind in ARGUMENTS])
        self.argument = {name: value for (name, _), value in zip(ARGUMENTS, self.function.args, strict=True)}
        self.builder = self.words.builder
        self.state = self.argument["state"]
        self.slots = self.words.at(self.state, state.G_SLOTS)

    def emit(self) -> ir.Function:
        words, builder, argument = self.words, self.builder, self.argument
        phase = words.acquire(self.state, state.G_PHASE)
        record = words.context_field(argument["context"], "record")
        words.store(argument["site"], record, block.R_SITE)
        begun = builder.add(builder.zext(builder.lshr(phase, i32(1)), I64), i64(1))
        words.store(begun, record, block.R_ROUND)
        self._post()
        arrived = words.fetch_add(1, self.state, state.G_ARRIVED)
        last = builder.icmp_unsigned("==", builder.add(arrived, i32(1)), builder.trunc(argument["size"], I32))
        over = builder.add(phase, i32(2))
        with builder.if_then(last):
            words.store(i32(0), self.state, state.G_ARRIVED)
            self._lead(phase, over)
        self._follow(phase, over)
        outcome = words.load(I32, self.state, state.G_OUTCOME)
        with builder.if_then(builder.icmp_unsigned("!=", outcome, i32(Status.OK)), likely=False):
            self._name_the_other(record)
        builder.ret(outcome)
        return self.function

    def _slot(self, position: ir.Value) -> ir.Value:
        return self.words.at(self.slots, self.builder.mul(position, i64(state.SLOT_BYTES)))

    def _post(self) -> None:
        """Say what this member came with: signature, site, and where its buffers are."""
        words, builder, argument = self.words, self.builder, self.argument
        slot = self._slot(argument["position"])
        words.store(argument["signature"], slot, state.S_SIGNATURE)
        words.store(argument["site"], slot, state.S_SITE)
        words.store(words.context_field(argument["context"], "device"), slot, state.S_DEVICE)
        place = words.at(slot, state.S_OFFSETS)
        for side in ("operand", "result"):
            count = argument[f"{side}_count"]
            with words.count(i64(0), count) as leaf:
                at = builder.mul(leaf, i64(8))
                words.store(words.load(I64, argument[f"{side}s"], at), place, at)
            place = words.at(place, builder.mul(count, i64(8)))

    def _lead(self, phase: ir.Value, over: ir.Value) -> None:
        """What the last arriver does: compare the signatures, then do the work or share it out."""
        words, builder, argument = self.words, self.builder, self.argument
        outcome = words.local(I32)
        builder.store(i32(Status.OK), outcome)
        with words.count(i64(0), argument["size"]) as member:
            theirs = words.load(I64, self._slot(member), state.S_SIGNATURE)
            with words.when(builder.icmp_unsigned("!=", theirs, argument["signature"]), likely=False):
                builder.store(i32(Status.MISMATCH), outcome)
        found = builder.load(outcome, typ=I32)
        words.store(found, self.state, state.G_OUTCOME)
        agreed = builder.icmp_unsigned("==", found, i32(Status.OK))
        shared = builder.icmp_unsigned("!=", argument["shared"], i32(0))
        with builder.if_else(builder.and_(agreed, shared)) as (share, alone):
            with share:
                words.store(i32(0), self.state, state.G_NEXT)
                words.store(i32(0), self.state, state.G_DONE)
                words.release(builder.add(phase, i32(1)), self.state, state.G_PHASE)
                control = words.context_field(argument["context"], "control")
                cores = builder.zext(words.load(I32, control, block.H_CORES), I64)
                helpers = words.smallest(builder.sub(cores, i64(1)), builder.sub(argument["items"], i64(1)))
                with words.when(builder.icmp_signed(">", helpers, i64(0))):
                    self._wake(builder.trunc(helpers, I32))
            with alone:
                with words.when(agreed, likely=True):
                    self._do_items(i64(0), argument["items"])
                words.release(over, self.state, state.G_PHASE)
                self._wake(i32(EVERYBODY))

    def _follow(self, phase: ir.Value, over: ir.Value) -> None:
        """Wait for the end of the round, doing shared items meanwhile."""
        words, builder, argument = self.words, self.builder, self.argument
        wait = emit_wait(self.module)
        with words.forever() as finished:
            now = words.acquire(self.state, state.G_PHASE)
            words.leave_if(builder.icmp_unsigned("==", now, over), finished)
            with words.when(builder.icmp_unsigned("!=", now, phase)):
                self._help(over)
            sleepers = words.at(self.state, state.G_SLEEPERS)
            word = words.at(self.state, state.G_PHASE)
            status = builder.call(wait, [argument["context"], word, now, i32(-1), sleepers])
            words.return_if(builder.icmp_unsigned("!=", status, i32(Status.OK)), status)

    def _help(self, over: ir.Value) -> None:
        words, builder, argument = self.words, self.builder, self.argument
        items = builder.trunc(argument["items"], I32)
        with words.forever() as none_left:
            item = words.fetch_add(1, self.state, state.G_NEXT)
            words.leave_if(builder.icmp_unsigned(">=", item, items), none_left)
            number = builder.zext(item, I64)
            self._do_items(number, builder.add(number, i64(1)))
            done = builder.add(words.fetch_add(1, self.state, state.G_DONE), i32(1))
            with words.when(builder.icmp_unsigned("==", done, items)):
                words.release(over, self.state, state.G_PHASE)
                self._wake(i32(EVERYBODY))

    def _do_items(self, first: ir.Value, end: ir.Value) -> None:
        argument = self.argument
        arguments = (argument["context"], self.slots, argument["members"], argument["size"], argument["table"])
        self.builder.call(argument["do_items"], [*arguments, first, end])

    def _wake(self, how_many: ir.Value) -> None:
        sleepers, word = self.words.at(self.state, state.G_SLEEPERS), self.words.at(self.state, state.G_PHASE)
        self.builder.call(emit_wake(self.module), [word, sleepers, how_many])

    def _name_the_other(self, record: ir.Value) -> None:
        """Write a member that came with something else into this device's record."""
        words, builder, argument = self.words, self.builder, self.argument
        with words.count(i64(0), argument["size"]) as member:
            slot = self._slot(member)
            differs = builder.icmp_unsigned("!=", words.load(I64, slot, state.S_SIGNATURE), argument["signature"])
            with words.when(differs):
                words.store(words.load(I32, slot, state.S_DEVICE), record, block.R_MISMATCH_DEVICE)
                words.store(words.load(I32, slot, state.S_SITE), record, block.R_MISMATCH_SITE)


def emit_group_round(llvm_module: ir.Module) -> ir.Function:
    """i32 distxla_group_round(ARGUMENTS): OK, RELEASED or MISMATCH. Blocks until the whole group has come."""
    return llvm_module.globals.get(ROUND_FUNCTION) or _Round(llvm_module).emit()
