"""The native part of joint calls (protocols/launch_board.py): a process logs a call, issues its part, and arrives.

    u64 launch_log(LaunchSet*, u64 ordinal, u32 program, u32 by_frames, ptr site, u64 site_bytes)
        Write a call's entry; its turn. by_frames: BY_FRAMES, or 0.  site: "file:line", UTF-8; of 0 bytes where it is
        not known.
    u32 launch_issue(LaunchSet*, u64 turn, u64 ordinal, u32 sequence, u32 target)
        Say that this process issues its part of a call. Not 0: the owner has the slice. Then nothing of it may be
        written until it lets go (H_HOLD is 0), or the call is refused.
    u32 launch_arrive(LaunchSet*, u64 turn, u64 ordinal, u32 program)
        Once the commands and H_DONE_TARGET of the slice are written: an Arrival. LAST: the devices of all members have
        been started. A set of one starts its own.

None of them blocks. Of one process one thread at a time may be in launch_log, and one in the others: a call is in the
log before it is issued, and the log keeps more calls than a queue holds. A member must not arrive before its calls of
smaller ordinals are over, refused ones among them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import launch_board as board_words
from distxla.collectives.protocols.launch_board import Arrival, LaunchSet, SlotState
from distxla.collectives.transports.shared_memory.wait_and_wake import ALL_SLEEPERS
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I32, I64, POINTER, VOID, counted, emit_copy, emit_zero, i32, i64
from distxla.emit.struct_view import Struct
from distxla.targets.code import target_of

_FNV_BEGIN: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


class LaunchFunctions(NamedTuple):
    """The functions of a module."""

    log: ir.Function
    issue: ir.Function
    arrive: ir.Function


def emit_launches(module: ir.Module) -> LaunchFunctions:
    """Write all of them into a module; they can be called from outside of it, too."""
    return LaunchFunctions(emit_log(module), emit_issue(module), emit_arrive(module))


def emit_log(module: ir.Module) -> ir.Function:
    """launch_log."""
    function, atomics = _function(module, "launch_log", I64, [POINTER, I64, I32, I32, POINTER, I64])
    base, ordinal, program, by_frames, site, given = function.args
    builder, members = atomics.builder, Struct(atomics, LaunchSet, base)
    log = _of_member(members, "logs")
    turn = atomics.load_own(I64, log, board_words.L_NEWEST)
    entry = _entry(atomics, log, turn)
    # a reader that finds any of what follows finds this, too
    atomics.release(i64(0), entry, board_words.C_TURN)
    builder.fence("release")
    atomics.store(ordinal, entry, board_words.C_ORDINAL)
    atomics.store(builder.or_(members.get("set"), by_frames), entry, board_words.C_SET)
    atomics.store(program, entry, board_words.C_PROGRAM)
    atomics.store(_keep_site(atomics, atomics.at(entry, board_words.C_SITE), site, given), entry, board_words.C_HASH)
    after = builder.add(turn, i64(1))
    atomics.release(after, entry, board_words.C_TURN)
    atomics.release(after, log, board_words.L_NEWEST)
    builder.ret(turn)
    return function


def _keep_site(atomics: AtomicsBuilder, place: ir.Value, site: ir.Value, given: ir.Value) -> ir.Value:
    """Copy the end of a line with a zero behind it; its hash (board_words.site_hash)."""
    builder = atomics.builder
    size = atomics.smallest(given, i64(board_words.SITE_BYTES - 1))
    begin = atomics.at(site, builder.sub(given, size))
    emit_zero(builder, place, i64(board_words.SITE_BYTES))
    with builder.goto_entry_block():
        state = builder.alloca(I32)
    atomics.store(i32(_FNV_BEGIN), state)
    with counted(builder, i64(0), size) as k:
        byte = atomics.load(I8, begin, k)
        atomics.store(byte, place, k)
        mixed = builder.xor(atomics.load(I32, state), builder.zext(byte, I32))
        atomics.store(builder.mul(mixed, i32(_FNV_PRIME)), state)
    found = atomics.load(I32, state)
    folded = builder.and_(builder.xor(found, builder.lshr(found, i32(22))), i32(board_words.HASH_MASK))
    folded = builder.select(builder.icmp_unsigned("==", folded, i32(0)), i32(1), folded)
    return builder.select(builder.icmp_unsigned("==", size, i64(0)), i32(0), folded)


def emit_issue(module: ir.Module) -> ir.Function:
    """launch_issue."""
    function, atomics = _function(module, "launch_issue", I32, [POINTER, I64, I64, I32, I32])
    base, turn, ordinal, sequence, target = function.args
    builder, members = atomics.builder, Struct(atomics, LaunchSet, base)
    log = _of_member(members, "logs")
    number = builder.add(atomics.load_own(I64, log, board_words.L_ISSUED), i64(1))
    place = _issue(atomics, log, number)
    atomics.store(turn, place, board_words.I_TURN)
    atomics.store(ordinal, place, board_words.I_ORDINAL)
    atomics.store(members.get("set"), place, board_words.I_SET)
    atomics.store(sequence, place, board_words.I_SEQUENCE)
    atomics.store(target, place, board_words.I_TARGET)
    # the owner stores H_HOLD, then loads L_ISSUED: one of the two at least sees the other
    atomics.sequential_store(number, log, board_words.L_ISSUED)
    builder.ret(atomics.sequential_load(I32, _of_member(members, "headers"), control_words.H_HOLD))
    return function


def emit_arrive(module: ir.Module) -> ir.Function:
    """launch_arrive."""
    note = _emit_note_site(module)
    function, atomics = _function(module, "launch_arrive", I32, [POINTER, I64, I64, I32])
    base, turn, ordinal, program = function.args
    builder, members = atomics.builder, Struct(atomics, LaunchSet, base)
    count = builder.zext(members.get("members"), I64)
    with atomics.when(builder.icmp_unsigned("==", count, i64(1))):
        _note_commands(atomics, members, count)
        _start(atomics, members, count)
        builder.ret(i32(Arrival.LAST))
    slot = _slot(atomics, members.get("board"), ordinal)
    entry = _entry(atomics, _of_member(members, "logs"), turn)
    own = builder.icmp_unsigned("==", atomics.load_own(I64, entry, board_words.C_TURN), builder.add(turn, i64(1)))
    hash_ = builder.select(own, atomics.load(I32, entry, board_words.C_HASH), i32(0))
    with atomics.forever() as counted_in:
        word = atomics.acquire(slot, board_words.S_CALL, I64)
        state, there = _bits(builder, word, 52, 3), builder.lshr(word, i64(54))
        ahead = _ahead(builder, ordinal, word)
        is_empty = builder.icmp_unsigned("==", state, i64(SlotState.EMPTY))
        is_first = builder.or_(is_empty, builder.icmp_signed(">", ahead, i32(0)))
        joins = builder.not_(is_first)
        with atomics.when(joins):
            is_past = builder.icmp_signed("<", ahead, i32(0))
            is_refused = builder.icmp_unsigned("==", state, i64(SlotState.REFUSED))
            is_full = builder.icmp_unsigned("==", there, count)
            wrong = builder.or_(builder.or_(is_past, is_refused), is_full)
            atomics.return_if(wrong, i32(Arrival.REFUSED))
            called = builder.trunc(_bits(builder, word, 32, board_words.MOST_PROGRAMS - 1), I32)
            atomics.return_if(builder.icmp_unsigned("!=", called, program), i32(Arrival.DIFFERS))
            builder.call(note, [base, turn, ordinal, hash_])
        opened = builder.or_(builder.zext(builder.trunc(ordinal, I32), I64), i64(SlotState.OPEN << 52 | 1 << 54))
        opened = builder.or_(opened, builder.shl(builder.zext(program, I64), i64(32)))
        becomes = builder.select(is_first, opened, builder.add(word, i64(1 << 54)))
        is_last = builder.icmp_unsigned("==", builder.lshr(becomes, i64(54)), count)
        with atomics.when(is_last):
            # while the slot stays as it is, all others wait in this call
            _note_commands(atomics, members, count)
        found = atomics.compare_exchange(word, becomes, slot, board_words.S_CALL)
        atomics.leave_if(builder.icmp_unsigned("==", found, word), counted_in)
    with atomics.when(is_first):
        builder.call(note, [base, turn, ordinal, hash_])
    atomics.return_if(builder.not_(is_last), i32(Arrival.WAITS))
    _start(atomics, members, count)
    builder.ret(i32(Arrival.LAST))
    return function


def _note_commands(atomics: AtomicsBuilder, members: Struct, count: ir.Value) -> None:
    with atomics.count(i64(0), count) as k:
        command = atomics.acquire(members.element("headers", k, POINTER), control_words.H_COMMAND)
        atomics.store(command, members.place("commands", k, 4))


def _start(atomics: AtomicsBuilder, members: Struct, count: ir.Value) -> None:
    """Raise H_COMMAND of all slices. The owner may have done that, if this thread was held up; a slice may even be
    further on."""
    builder = atomics.builder
    with atomics.count(i64(0), count) as k:
        header = members.element("headers", k, POINTER)
        before = members.element("commands", k, I32)
        after = builder.add(before, i32(1))
        found = atomics.compare_exchange(before, after, header, control_words.H_COMMAND)
        with atomics.when(builder.icmp_unsigned("==", found, before)):
            target_of(builder).emit_wake(builder, atomics.at(header, control_words.H_COMMAND), i32(ALL_SLEEPERS))


def _emit_note_site(module: ir.Module) -> ir.Function:
    """void launch_note_site(LaunchSet*, u64 turn, u64 ordinal, u32 hash): the first member's line stands in the slot;
    one at another line writes down both, if that was not done before."""
    write = _emit_write_apart(module)
    function, atomics = _function(module, "launch_note_site", VOID, [POINTER, I64, I64, I32], internal=True)
    base, turn, ordinal, hash_ = function.args
    builder, members = atomics.builder, Struct(atomics, LaunchSet, base)
    with builder.if_then(builder.icmp_unsigned("==", hash_, i32(0))):
        builder.ret_void()
    slot = _slot(atomics, members.get("board"), ordinal)
    own = builder.or_(builder.zext(builder.trunc(ordinal, I32), I64), builder.shl(builder.zext(hash_, I64), i64(32)))
    own = builder.or_(own, builder.shl(builder.zext(members.get("position"), I64), i64(54)))
    with atomics.forever() as noted:
        word = atomics.acquire(slot, board_words.S_FIRST, I64)
        first = _bits(builder, word, 32, board_words.HASH_MASK)
        ahead = _ahead(builder, ordinal, word)
        atomics.leave_if(builder.icmp_signed("<", ahead, i32(0)), noted)
        same = builder.icmp_unsigned("==", ahead, i32(0))
        with atomics.when(builder.and_(same, builder.icmp_unsigned("!=", first, i64(0)))):
            with atomics.when(builder.icmp_unsigned("!=", first, builder.zext(hash_, I64))):
                builder.call(write, [base, turn, ordinal, builder.lshr(word, i64(54))])
            builder.branch(noted)
            builder.position_at_end(builder.append_basic_block("never"))
        found = atomics.compare_exchange(word, own, slot, board_words.S_FIRST)
        atomics.leave_if(builder.icmp_unsigned("==", found, word), noted)
    builder.ret_void()
    return function


def _emit_write_apart(module: ir.Module) -> ir.Function:
    """void launch_write_apart(LaunchSet*, u64 turn, u64 ordinal, u64 other's position): what board_words.APART has, but
    where the other is not in this call any more."""
    function, atomics = _function(module, "launch_write_apart", VOID, [POINTER, I64, I64, I64], internal=True)
    base, turn, ordinal, other = function.args
    builder, members = atomics.builder, Struct(atomics, LaunchSet, base)
    gone = builder.append_basic_block("gone")
    apart = atomics.at(members.get("board"), i64(board_words.B_APART))
    claim = atomics.acquire(apart, board_words.A_CLAIM, I64)
    atomics.leave_if(builder.icmp_unsigned("!=", claim, i64(0)), gone)
    log = members.element("logs", other, POINTER)
    issue = _issue(atomics, log, atomics.acquire(log, board_words.L_ISSUED, I64))
    is_in_it = builder.and_(
        builder.icmp_unsigned("==", atomics.load(I64, issue, board_words.I_ORDINAL), ordinal),
        builder.icmp_unsigned("==", atomics.load(I32, issue, board_words.I_SET), members.get("set")),
    )
    atomics.leave_if(builder.not_(is_in_it), gone)
    its_turn = atomics.load(I64, issue, board_words.I_TURN)
    its_entry, entry = _entry(atomics, log, its_turn), _entry(atomics, _of_member(members, "logs"), turn)
    with builder.goto_entry_block():
        sites = builder.alloca(I8, size=2 * board_words.SITE_BYTES)
    sites.type = POINTER
    before = atomics.acquire(its_entry, board_words.C_TURN, I64)
    for number, place in enumerate((its_entry, entry)):
        source = atomics.at(place, board_words.C_SITE)
        _copy(atomics, atomics.at(sites, i64(number * board_words.SITE_BYTES)), source, board_words.SITE_BYTES)
    builder.fence("acquire")
    after = atomics.acquire(its_entry, board_words.C_TURN, I64)
    wanted = builder.add(its_turn, i64(1))
    for found in (before, after):
        atomics.leave_if(builder.icmp_unsigned("!=", found, wanted), gone)
    claim = atomics.compare_exchange(i64(0), i64(1), apart, board_words.A_CLAIM)
    atomics.leave_if(builder.icmp_unsigned("!=", claim, i64(0)), gone)
    atomics.store(builder.trunc(other, I32), apart, board_words.A_MEMBERS)
    atomics.store(members.get("position"), atomics.at(apart, board_words.A_MEMBERS), 4)
    _copy(atomics, atomics.at(apart, board_words.A_SITES), sites, 2 * board_words.SITE_BYTES)
    atomics.release(builder.add(ordinal, i64(1)), apart, board_words.A_ORDINAL)
    builder.branch(gone)
    builder.position_at_end(gone)
    builder.ret_void()
    return function


def _copy(atomics: AtomicsBuilder, target: ir.Value, source: ir.Value, size: int) -> None:
    emit_copy(atomics.builder, target, source, i64(size))


def _function(
    module: ir.Module, name: str, result: ir.Type, arguments: list[ir.Type], *, internal: bool = False
) -> tuple[ir.Function, AtomicsBuilder]:
    return AtomicsBuilder.function(module, name, result, arguments, internal=internal, optimised=True)


def _of_member(members: Struct, field: str) -> ir.Value:
    """This process's own one."""
    builder = members.builder
    return members.element(field, builder.zext(members.get("position"), I64), POINTER)


def _entry(atomics: AtomicsBuilder, log: ir.Value, turn: ir.Value) -> ir.Value:
    number = atomics.builder.and_(turn, i64(board_words.ENTRIES - 1))
    return _element(atomics, log, board_words.L_ENTRY, number, board_words.CALL.size)


def _issue(atomics: AtomicsBuilder, log: ir.Value, number: ir.Value) -> ir.Value:
    parity = atomics.builder.and_(number, i64(1))
    return _element(atomics, log, board_words.L_ISSUE, parity, board_words.ISSUE.size)


def _slot(atomics: AtomicsBuilder, board: ir.Value, ordinal: ir.Value) -> ir.Value:
    parity = atomics.builder.and_(ordinal, i64(1))
    return _element(atomics, board, board_words.B_SLOT, parity, board_words.SLOT.size)


def _element(atomics: AtomicsBuilder, base: ir.Value, begin: int, number: ir.Value, size: int) -> ir.Value:
    builder = atomics.builder
    return atomics.at(base, builder.add(i64(begin), builder.mul(number, i64(size))))


def _ahead(builder: ir.IRBuilder, ordinal: ir.Value, word: ir.Value) -> ir.Value:
    """By how much a call is ahead of the one in a word: an i32."""
    return builder.sub(builder.trunc(ordinal, I32), builder.trunc(word, I32))


def _bits(builder: ir.IRBuilder, word: ir.Value, shift: int, mask: int) -> ir.Value:
    return builder.and_(builder.lshr(word, i64(shift)), i64(mask))


__all__ = ["LaunchFunctions", "emit_arrive", "emit_issue", "emit_launches", "emit_log"]
