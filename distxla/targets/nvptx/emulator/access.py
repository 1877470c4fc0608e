"""The checks of loads and stores: functions that instrumented kernels call before each access."""

from __future__ import annotations

from llvmlite import ir

from distxla.emit.native_function import I1, I32, I64, POINTER, VOID
from distxla.targets.nvptx.emulator import layout
from distxla.targets.nvptx.emulator.emit import counted, element, field
from distxla.targets.nvptx.emulator.layout import Fiber, Range, SharedRange
from distxla.targets.nvptx.emulator.runtime import Runtime

CHECK, CHECK_SHARED = "emulator.check", "emulator.check_shared"
PARAMETERS = "ptr, i64, i64, i32, i32"  # address, bytes, alignment, kind of access, site
SEVERAL = 0xFFFF  # in place of the thread that read: more than one


def emit_checks(runtime: Runtime, granule: int | None) -> None:
    """Both functions. granule: bytes of shared memory that a thread accesses at once, to find races; None: don't."""
    race = None if granule is None else _emit_race(runtime, granule)
    shared = _emit_find_shared(runtime, race)
    _emit_check_shared(runtime, shared)
    _emit_check(runtime, shared)


def _emit_check(runtime: Runtime, find_shared: ir.Function) -> None:
    """An access through a generic or global pointer."""
    builder = runtime.function(CHECK, VOID, POINTER, I64, I64, I32, I32)
    pointer, size, _, access, site = builder.function.args
    low, high = builder.alloca(I64), builder.alloca(I64)
    address = builder.ptrtoint(pointer, I64)
    _emit_prologue(runtime, builder, address)
    count = runtime.load(builder, "range_count")
    with builder.if_then(builder.icmp_unsigned("!=", count, I64(0))):
        # most instructions access one range only
        table = builder.inttoptr(runtime.load(builder, "last_ranges"), POINTER)
        remembered = builder.gep(table, [builder.zext(site, I64)], source_etype=I32)
        last = _range(runtime, builder, builder.zext(builder.load(remembered, typ=I32), I64))
        with builder.if_then(_inside(builder, last, address, size, access)):
            builder.ret_void()
        # the last range that begins at the address or below it
        builder.store(I64(0), low)
        builder.store(count, high)
        search, found = builder.append_basic_block("search"), builder.append_basic_block("found")
        builder.branch(search)
        builder.position_at_end(search)
        first, end = builder.load(low, typ=I64), builder.load(high, typ=I64)
        middle = builder.lshr(builder.add(first, end), I64(1))
        start = _word(builder, _range(runtime, builder, middle), "start")
        below = builder.icmp_unsigned("<=", start, address)
        builder.store(builder.select(below, middle, first), low)
        builder.store(builder.select(below, end, middle), high)
        left = builder.sub(builder.load(high, typ=I64), builder.load(low, typ=I64))
        builder.cbranch(builder.icmp_unsigned(">", left, I64(1)), search, found)
        builder.position_at_end(found)
        number = builder.load(low, typ=I64)
        candidate = _range(runtime, builder, number)
        with builder.if_then(_inside(builder, candidate, address, size, access)):
            builder.store(builder.trunc(number, I32), remembered)
            builder.ret_void()
    # the thread's own stack
    top = builder.load(field(builder, Fiber, runtime.own_fiber(builder), "stack_top"), typ=I64)
    bottom = builder.sub(top, runtime.load(builder, "stack_bytes"))
    within = builder.icmp_unsigned("<", builder.sub(address, bottom), runtime.load(builder, "stack_bytes"))
    with builder.if_then(builder.and_(within, _fits(builder, address, size, top))):
        builder.ret_void()
    with builder.if_then(builder.call(find_shared, [address, size, access, site])):
        builder.ret_void()
    _fault(runtime, builder, layout.OUT_OF_BOUNDS)


def _emit_check_shared(runtime: Runtime, find_shared: ir.Function) -> None:
    """An access through a pointer to shared memory."""
    builder = runtime.function(CHECK_SHARED, VOID, POINTER, I64, I64, I32, I32)
    pointer, size, _, access, site = builder.function.args
    address = builder.ptrtoint(pointer, I64)
    _emit_prologue(runtime, builder, address)
    with builder.if_then(builder.call(find_shared, [address, size, access, site])):
        builder.ret_void()
    _fault(runtime, builder, layout.OUT_OF_BOUNDS)


def _emit_prologue(runtime: Runtime, builder: ir.IRBuilder, address: ir.Value) -> None:
    """Copies of no bytes may be anywhere; a misaligned access is a fault, wherever it is."""
    _, size, alignment, _, _ = builder.function.args
    with builder.if_then(builder.icmp_unsigned("==", size, I64(0))):
        builder.ret_void()
    rest = builder.and_(address, builder.sub(alignment, I64(1)))
    with builder.if_then(builder.icmp_unsigned("!=", rest, I64(0))):
        _fault(runtime, builder, layout.MISALIGNED, ends=False)


def _fault(runtime: Runtime, builder: ir.IRBuilder, kind: int, *, ends: bool = True) -> None:
    pointer, size, _, access, site = builder.function.args
    address = builder.ptrtoint(pointer, I64)
    builder.call(runtime.fault, [I32(kind), site, address, size, access, I32(0)])
    if ends:
        builder.ret_void()


def _emit_find_shared(runtime: Runtime, race: ir.Function | None) -> ir.Function:
    """Whether an access lies in one of the block's shared arrays; looks for races there."""
    builder = runtime.function("emulator.find_shared", I1, I64, I64, I32, I32)
    address, size, access, site = builder.function.args
    with counted(builder, runtime.load(builder, "shared_count")) as k:
        shared = element(builder, SharedRange, runtime.load(builder, "shared"), k)
        start, length, shadow = (
            builder.load(field(builder, SharedRange, shared, name), typ=I64) for name in ("start", "bytes", "shadow")
        )
        offset = builder.sub(address, start)
        inside = builder.icmp_unsigned("<", offset, length)
        with builder.if_then(builder.and_(inside, _fits(builder, address, size, builder.add(start, length)))):
            if race is not None:
                builder.call(race, [shadow, offset, size, access, site, address])
            builder.ret(I1(1))
    builder.ret(I1(0))
    return builder.function


def _emit_race(runtime: Runtime, granule: int) -> ir.Function:
    """Compare an access to shared memory with those before it since the last barrier.

    Each granule has the last write and the last reads: (epoch << 32 | rounds << 16 | thread). Threads of one warp are
    in order, too, when the one that came first passed a barrier of its warp since then.
    """
    builder = runtime.function("emulator.race", VOID, I64, I64, I64, I32, I32, I64)
    shadow, offset, size, access, site, address = builder.function.args
    with builder.if_then(builder.icmp_unsigned("==", access, I32(layout.ATOMIC))):
        builder.ret_void()
    thread = builder.zext(runtime.load(builder, "place", 0), I64)
    rounds = builder.load(field(builder, Fiber, runtime.own_fiber(builder), "rounds"), typ=I32)
    epoch = builder.shl(builder.zext(runtime.load(builder, "epoch"), I64), I64(32))
    recent = builder.shl(builder.zext(builder.and_(rounds, I32(0xFFFF)), I64), I64(16))
    mark = builder.or_(builder.or_(epoch, recent), thread)
    writes = builder.icmp_unsigned("==", access, I32(layout.WRITE))
    first = builder.udiv(offset, I64(granule))
    last = builder.udiv(builder.sub(builder.add(offset, size), I64(1)), I64(granule))
    with counted(builder, builder.add(builder.sub(last, first), I64(1))) as k:
        index = builder.shl(builder.add(first, k), I64(1))
        base = builder.inttoptr(shadow, POINTER)
        write = builder.gep(base, [index], source_etype=I64)
        reads = builder.gep(base, [builder.add(index, I64(1))], source_etype=I64)
        for place, matters in ((write, I1(1)), (reads, writes)):
            before = builder.load(place, typ=I64)
            other = builder.trunc(builder.and_(before, I64(0xFFFF)), I32)
            conflict = _unordered(runtime, builder, before, other, epoch, thread)
            with builder.if_then(builder.and_(conflict, matters)):
                arguments = (I32(layout.RACE), site, address, size, access, other)
                builder.call(runtime.fault, arguments)
        with builder.if_else(writes) as (store, note):
            with store:
                builder.store(mark, write)
            with note:
                before = builder.load(reads, typ=I64)
                seen = builder.icmp_unsigned("==", builder.lshr(before, I64(32)), builder.lshr(epoch, I64(32)))
                own = builder.icmp_unsigned("==", builder.and_(before, I64(0xFFFF)), thread)
                shared = builder.and_(seen, builder.not_(own))
                builder.store(builder.select(shared, builder.or_(mark, I64(SEVERAL)), mark), reads)
    builder.ret_void()
    return builder.function


def _unordered(
    runtime: Runtime, builder: ir.IRBuilder, before: ir.Value, other: ir.Value, epoch: ir.Value, thread: ir.Value
) -> ir.Value:
    """Whether nothing orders an earlier access of the block and one of `thread`."""
    this_epoch = builder.icmp_unsigned("==", builder.lshr(before, I64(32)), builder.lshr(epoch, I64(32)))
    another = builder.icmp_unsigned("!=", builder.zext(other, I64), thread)
    several = builder.icmp_unsigned("==", other, I32(SEVERAL))
    known = builder.select(several, I32(0), other)
    passed = builder.load(field(builder, Fiber, runtime.fiber_of(builder, known), "rounds"), typ=I32)
    rounds = builder.and_(builder.trunc(builder.lshr(before, I64(16)), I32), I32(0xFFFF))
    same_round = builder.icmp_unsigned("==", builder.and_(passed, I32(0xFFFF)), rounds)
    shift = I32(layout.WARP.bit_length() - 1)
    warps = builder.icmp_unsigned("!=", builder.lshr(known, shift), builder.lshr(builder.trunc(thread, I32), shift))
    concurrent = builder.or_(several, builder.or_(warps, same_round))
    return builder.and_(builder.and_(this_epoch, another), concurrent)


def _range(runtime: Runtime, builder: ir.IRBuilder, index: ir.Value) -> ir.Value:
    return element(builder, Range, runtime.load(builder, "ranges"), index)


def _word(builder: ir.IRBuilder, place: ir.Value, name: str) -> ir.Value:
    return builder.load(field(builder, Range, place, name), typ=I64)


def _inside(builder: ir.IRBuilder, place: ir.Value, address: ir.Value, size: ir.Value, access: ir.Value) -> ir.Value:
    """Whether an access lies in a range and may be done there."""
    start, end = _word(builder, place, "start"), _word(builder, place, "end")
    starts = builder.and_(builder.icmp_unsigned(">=", address, start), builder.icmp_unsigned("<", address, end))
    writable = builder.icmp_unsigned("!=", _word(builder, place, "writable"), I64(0))
    allowed = builder.or_(writable, builder.icmp_unsigned("==", access, I32(layout.READ)))
    return builder.and_(builder.and_(starts, _fits(builder, address, size, end)), allowed)


def _fits(builder: ir.IRBuilder, address: ir.Value, size: ir.Value, end: ir.Value) -> ir.Value:
    return builder.icmp_unsigned("<=", size, builder.sub(end, address))
