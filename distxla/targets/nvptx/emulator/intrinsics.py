"""What the emulator makes of each intrinsic of NVIDIA's GPUs: a function that device modules call in its place.

To add one, add a row to `INTRINSICS`. An operation of a whole warp is a `Collective`: each lane gives words, and when
all lanes of the mask have come, `resolve` computes the words that one lane gets from those that all gave.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from distxla.emit.native_function import I1, I16, I32, I64, VOID
from distxla.lazy_dataclass import dataclass
from distxla.targets.nvptx.emulator import layout
from distxla.targets.nvptx.emulator.emit import field
from distxla.targets.nvptx.emulator.layout import WARP, Exchange, Fiber
from distxla.targets.nvptx.emulator.runtime import Runtime

FLOAT, DOUBLE, HALF = ir.FloatType(), ir.DoubleType(), I16
FULL = 0xFFFFFFFF
PREFIX = "emulator."  # before the name of the function that stands for an intrinsic

Body = Callable[[Runtime, ir.IRBuilder, list[ir.Value]], ir.Value | None]


@dataclass(frozen=True)
class Intrinsic:
    """emit: the body, from the arguments; the first one is the site of the call, an i32.

    waits: for other threads, so that a kernel that calls it needs fibers.
    """

    result: ir.Type
    parameters: tuple[ir.Type, ...]
    emit: Body
    waits: bool = False


def emit_intrinsic(runtime: Runtime, name: str) -> None:
    """The function that stands for an intrinsic."""
    intrinsic = INTRINSICS[name]
    builder = runtime.function(PREFIX + name, intrinsic.result, I32, *intrinsic.parameters, inline=not intrinsic.waits)
    value = intrinsic.emit(runtime, builder, list(builder.function.args))
    if builder.block.is_terminated:
        return
    if value is None:
        builder.ret_void()
    else:
        builder.ret(value)


# --- where a thread is


def _coordinate(name: str, *index: int) -> Intrinsic:
    return Intrinsic(I32, (), lambda runtime, builder, _: runtime.load(builder, name, *index))


def _from_lane(compute: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Intrinsic:
    def emit(runtime: Runtime, builder: ir.IRBuilder, _: list[ir.Value]) -> ir.Value:
        return compute(builder, builder.and_(runtime.load(builder, "place", 0), I32(WARP - 1)))

    return Intrinsic(I32, (), emit)


def _registers() -> dict[str, Intrinsic]:
    found = {}
    for axis, letter in enumerate("xyz"):
        found[f"tid.{letter}"] = _coordinate("place", 1 + axis)
        found[f"ntid.{letter}"] = _coordinate("block_shape", axis)
        found[f"ctaid.{letter}"] = _coordinate("block_index", axis)
        found[f"nctaid.{letter}"] = _coordinate("grid", axis)

    def below(builder: ir.IRBuilder, lane: ir.Value) -> ir.Value:
        return builder.sub(builder.shl(I32(1), lane), I32(1))

    def equal(builder: ir.IRBuilder, lane: ir.Value) -> ir.Value:
        return builder.shl(I32(1), lane)

    found["laneid"] = _from_lane(lambda _, lane: lane)
    found["warpsize"] = _from_lane(lambda *_: I32(WARP))
    found["lanemask.eq"] = _from_lane(equal)
    found["lanemask.lt"] = _from_lane(below)
    found["lanemask.le"] = _from_lane(lambda b, lane: b.or_(below(b, lane), equal(b, lane)))
    found["lanemask.ge"] = _from_lane(lambda b, lane: b.not_(below(b, lane)))
    found["lanemask.gt"] = _from_lane(lambda b, lane: b.not_(b.or_(below(b, lane), equal(b, lane))))
    return {f"llvm.nvvm.read.ptx.sreg.{name}": intrinsic for name, intrinsic in found.items()}


# --- the block


def _barrier(runtime: Runtime, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    site, number = arguments
    runtime.wait(builder, layout.BARRIER, site, number)


def _trap(runtime: Runtime, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    builder.call(runtime.fault, [I32(layout.TRAP), arguments[0], I64(0), I64(0), I32(0), I32(0)])
    builder.unreachable()


def _nothing(*_: object) -> None:
    """Fences: threads run one after the other, so all memory is in order."""


# --- the warp

Resolve = Callable[[Runtime, ir.IRBuilder, "Warp"], None]


@dataclass(frozen=True)
class Warp:
    """One lane's view while its operation is resolved. first: the warp's first thread."""

    runtime: Runtime
    builder: ir.IRBuilder
    first: ir.Value
    lane: ir.Value
    mask: ir.Value

    @property
    def thread(self) -> ir.Value:
        return self.builder.add(self.first, self.lane)

    def given(self, lane: ir.Value, word: int) -> ir.Value:
        """A word that a lane gave."""
        return self.builder.load(self._place(self.builder.add(self.first, lane), "operands", word), typ=I32)

    def own(self, word: int) -> ir.Value:
        return self.given(self.lane, word)

    def get(self, word: int, value: ir.Value) -> None:
        """A word that this lane gets."""
        self.builder.store(value, self._place(self.thread, "results", word))

    def _place(self, thread: ir.Value, name: str, word: int) -> ir.Value:
        return field(self.builder, Exchange, self.runtime.exchange_of(self.builder, thread), name, word)


def collective(
    runtime: Runtime, builder: ir.IRBuilder, site: ir.Value, mask: ir.Value, words: list[ir.Value], resolve: Resolve
) -> Callable[[int], ir.Value]:
    """Give words, wait for the lanes of the mask, and get words: the function that loads result k, an i32."""
    own = runtime.exchange_of(builder, runtime.load(builder, "place", 0))
    for number, word in enumerate(words):
        builder.store(word, field(builder, Exchange, own, "operands", number))
    name = f"{builder.function.name}.resolve"
    inner = runtime.function(name, VOID, I32, I32, I32)
    resolve(runtime, inner, Warp(runtime, inner, *inner.function.args))
    if not inner.block.is_terminated:
        inner.ret_void()
    runtime.wait(builder, runtime.add_collective(inner.function), site, mask)
    return lambda word: builder.load(field(builder, Exchange, own, "results", word), typ=I32)


def _tuple_of(builder: ir.IRBuilder, kind: ir.LiteralStructType, values: list[ir.Value]) -> ir.Value:
    found: ir.Value = ir.Constant(kind, ir.Undefined)
    for number, value in enumerate(values):
        found = builder.insert_value(found, value, number)
    return found


def _shuffle(mode: str, kind: ir.Type, *, paired: bool) -> Intrinsic:
    def emit(runtime: Runtime, builder: ir.IRBuilder, arguments: list[ir.Value]) -> ir.Value:
        site, mask, value, offset, clamp = arguments
        word = value if kind is I32 else builder.bitcast(value, I32)
        result = collective(runtime, builder, site, mask, [word, offset, clamp], _shuffled(mode))
        found = result(0) if kind is I32 else builder.bitcast(result(0), kind)
        if not paired:
            return found
        return _tuple_of(builder, ir.LiteralStructType([kind, I1]), [found, builder.trunc(result(1), I1)])

    result = ir.LiteralStructType([kind, I1]) if paired else kind
    return Intrinsic(result, (I32, kind, I32, I32), emit, waits=True)


def _shuffled(mode: str) -> Resolve:
    """PTX's rule for `shfl.sync`. A lane that is not in the mask gives the fill pattern: PTX leaves the value open."""

    def resolve(runtime: Runtime, builder: ir.IRBuilder, warp: Warp) -> None:
        by, clamp = (builder.and_(warp.own(word), I32(WARP - 1)) for word in (1, 2))
        segment = builder.and_(builder.lshr(warp.own(2), I32(8)), I32(WARP - 1))
        lowest = builder.and_(warp.lane, segment)
        end = builder.or_(lowest, builder.and_(clamp, builder.not_(segment)))
        source = {
            "up": lambda: builder.sub(warp.lane, by),
            "down": lambda: builder.add(warp.lane, by),
            "bfly": lambda: builder.xor(warp.lane, by),
            "idx": lambda: builder.or_(lowest, builder.and_(by, builder.not_(segment))),
        }[mode]()
        inside = builder.icmp_signed(">=" if mode == "up" else "<=", source, end)
        source = builder.select(inside, source, warp.lane)
        joined = builder.trunc(builder.lshr(warp.mask, source), I1)
        fill = builder.mul(builder.and_(runtime.load(builder, "fill"), I32(0xFF)), I32(0x01010101))
        warp.get(0, builder.select(joined, warp.given(source, 0), fill))
        warp.get(1, builder.zext(inside, I32))

    return resolve


def _vote(combine: str) -> Intrinsic:
    result = I32 if combine == "ballot" else I1

    def emit(runtime: Runtime, builder: ir.IRBuilder, arguments: list[ir.Value]) -> ir.Value:
        site, mask, predicate = arguments
        votes = collective(runtime, builder, site, mask, [builder.zext(predicate, I32)], _ballot)(0)
        every, none = builder.icmp_unsigned("==", votes, mask), builder.icmp_unsigned("==", votes, I32(0))
        return {
            "ballot": votes,
            "all": every,
            "any": builder.not_(none),
            "uni": builder.or_(every, none),
        }[combine]

    return Intrinsic(result, (I32, I1), emit, waits=True)


def _ballot(_: Runtime, builder: ir.IRBuilder, warp: Warp) -> None:
    votes: ir.Value = I32(0)
    for lane in range(WARP):
        vote = builder.shl(warp.given(I32(lane), 0), I32(lane))
        votes = builder.or_(votes, vote)
    warp.get(0, builder.and_(votes, warp.mask))


def _warp_barrier(runtime: Runtime, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    def resolve(_: Runtime, inner: ir.IRBuilder, warp: Warp) -> None:
        rounds = field(inner, Fiber, runtime.fiber_of(inner, warp.thread), "rounds")
        inner.store(inner.add(inner.load(rounds, typ=I32), I32(1)), rounds)

    collective(runtime, builder, arguments[0], arguments[1], [], resolve)


def _warp_operations() -> dict[str, Intrinsic]:
    found = {"bar.warp.sync": Intrinsic(VOID, (I32,), _warp_barrier, waits=True)}
    for mode in ("up", "down", "bfly", "idx"):
        for kind, suffix in ((I32, "i32"), (FLOAT, "f32")):
            found[f"shfl.sync.{mode}.{suffix}"] = _shuffle(mode, kind, paired=False)
            found[f"shfl.sync.{mode}.{suffix}p"] = _shuffle(mode, kind, paired=True)
    for combine in ("ballot", "all", "any", "uni"):
        found[f"vote.{combine}.sync"] = _vote(combine)
    return {f"llvm.nvvm.{name}": intrinsic for name, intrinsic in found.items()}


def _matrix_product(given: ir.Type, widen: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Intrinsic:
    """`mma.m16n8k16` with sums in f32. PTX leaves the order open: terms are added in f64 here, and rounded once.

    widen: the f32 value of 16 bits.
    """
    result = ir.LiteralStructType([FLOAT] * 4)

    def emit(runtime: Runtime, builder: ir.IRBuilder, arguments: list[ir.Value]) -> ir.Value:
        site, *values = arguments
        words = [value if value.type == I32 else builder.bitcast(value, I32) for value in values]
        found = collective(runtime, builder, site, I32(FULL), words, resolve)
        return _tuple_of(builder, result, [builder.bitcast(found(number), FLOAT) for number in range(4)])

    def terms(builder: ir.IRBuilder, word: ir.Value) -> list[ir.Value]:
        halves = builder.trunc(word, HALF), builder.trunc(builder.lshr(word, I32(16)), HALF)
        return [builder.fpext(widen(builder, half), DOUBLE) for half in halves]

    def resolve(_: Runtime, builder: ir.IRBuilder, warp: Warp) -> None:
        group, pair = (builder.and_(warp.lane, I32(mask)) for mask in (~3, 3))
        sums = [builder.fpext(builder.bitcast(warp.own(6 + number), FLOAT), DOUBLE) for number in range(4)]
        for on in range(2):
            for lane in range(4):
                rows = [terms(builder, warp.given(builder.add(group, I32(lane)), 2 * on + down)) for down in range(2)]
                first = builder.mul(pair, I32(8))
                columns = [
                    terms(builder, warp.given(builder.add(first, I32(4 * number + lane)), 4 + on))
                    for number in range(2)
                ]
                for number in range(4):
                    for x, y in zip(rows[number // 2], columns[number % 2], strict=True):
                        sums[number] = builder.fadd(sums[number], builder.fmul(x, y))
        for number, value in enumerate(sums):
            warp.get(number, builder.bitcast(builder.fptrunc(value, FLOAT), I32))

    return Intrinsic(result, (*[given] * 6, *[FLOAT] * 4), emit, waits=True)


def _double_matrix_product() -> Intrinsic:
    """`mma.m8n8k4` of f64: a fused multiplication and addition for each term, in their order."""
    result = ir.LiteralStructType([DOUBLE] * 2)

    def emit(runtime: Runtime, builder: ir.IRBuilder, arguments: list[ir.Value]) -> ir.Value:
        site, *values = arguments
        bits = [builder.bitcast(value, I64) for value in values]
        words = [builder.trunc(part, I32) for value in bits for part in (value, builder.lshr(value, I64(32)))]
        found = collective(runtime, builder, site, I32(FULL), words, resolve)
        return _tuple_of(builder, result, [double(builder, found(word), found(word + 1)) for word in (0, 2)])

    def double(builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
        bits = builder.or_(builder.shl(builder.zext(high, I64), I64(32)), builder.zext(low, I64))
        return builder.bitcast(bits, DOUBLE)

    def resolve(_: Runtime, builder: ir.IRBuilder, warp: Warp) -> None:
        def given(lane: ir.Value, number: int) -> ir.Value:
            return double(builder, warp.given(lane, 2 * number), warp.given(lane, 2 * number + 1))

        row, columns = builder.and_(warp.lane, I32(~3)), builder.mul(builder.and_(warp.lane, I32(3)), I32(8))
        for number in range(2):
            total = given(warp.lane, 2 + number)
            for term in range(4):
                left = given(builder.add(row, I32(term)), 0)
                right = given(builder.add(columns, I32(4 * number + term)), 1)
                total = builder.fma(left, right, total)
            bits = builder.bitcast(total, I64)
            warp.get(2 * number, builder.trunc(bits, I32))
            warp.get(2 * number + 1, builder.trunc(builder.lshr(bits, I64(32)), I32))

    return Intrinsic(result, (DOUBLE,) * 4, emit, waits=True)


def _matrix_products() -> dict[str, Intrinsic]:
    def from_bf16(builder: ir.IRBuilder, half: ir.Value) -> ir.Value:
        return builder.bitcast(builder.shl(builder.zext(half, I32), I32(16)), FLOAT)

    def from_f16(builder: ir.IRBuilder, half: ir.Value) -> ir.Value:
        return builder.fpext(builder.bitcast(half, ir.HalfType()), FLOAT)

    name = "llvm.nvvm.mma.m16n8k16.row.col"
    return {
        f"{name}.bf16": _matrix_product(I32, from_bf16),
        f"{name}.f32.f32": _matrix_product(ir.VectorType(ir.HalfType(), 2), from_f16),
        "llvm.nvvm.mma.m8n8k4.row.col.f64": _double_matrix_product(),
    }


INTRINSICS: dict[str, Intrinsic] = {
    **_registers(),
    "llvm.nvvm.barrier.cta.sync.aligned.all": Intrinsic(VOID, (I32,), _barrier, waits=True),
    "llvm.nvvm.barrier.cta.sync.all": Intrinsic(VOID, (I32,), _barrier, waits=True),
    **_warp_operations(),
    **_matrix_products(),
    **{f"llvm.nvvm.membar.{scope}": Intrinsic(VOID, (), _nothing) for scope in ("cta", "gl", "sys")},
    "llvm.trap": Intrinsic(VOID, (), _trap),
}
