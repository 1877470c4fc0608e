"""HLO text of single kernels at the sizes that real programs have them: what one device spends its time on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

M = 1 << 20
F32, BF16, S32 = "f32", "bf16", "s32"


@dataclass(frozen=True)
class KernelProgram:
    """A program of one device.

    integers: integer arguments are in [0, integers).  floats: the range of float arguments.  target: the ratio of
    distxla's time to XLA's that is to be held; None where nobody has set one.
    """

    group: str
    name: str
    text: str
    target: float | None = None
    integers: int = 100
    floats: tuple[float, float] = (-1.0, 1.0)


def kernel_programs() -> list[KernelProgram]:
    """All of them, by group."""
    makers = (sorts, transposes, cumulative, convolutions, gathers, reductions, products, converts, elementwise, loops)
    return [kernel for maker in makers for kernel in maker()]


ADD = "add_{t} {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] add(a, b)\n}}\n"
MAXIMUM = "max_{t} {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] maximum(a, b)\n}}\n"


def program(parameters: Sequence[str], body: str, computations: str = "") -> str:
    """A module whose entry has the parameters p0, p1 … of the given shapes and the lines of `body`."""
    lines = [f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(parameters)]
    lines += [f"  {line.strip()}" for line in body.strip().splitlines()]
    return f"HloModule kernel\n\n{computations}\nENTRY main {{\n" + "\n".join(lines) + "\n}\n"


# --- sort ------------------------------------------------------------------------------------------------------------


def sorts() -> Iterator[KernelProgram]:
    for t in (F32, S32):
        less = f"a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT"
        text = program(
            [f"{t}[{M}]"],
            f"ROOT r = {t}[{M}] sort(p0), dimensions={{0}}, to_apply=less",
            f"less {{\n  {less}\n}}\n",
        )
        yield KernelProgram("sort", f"{t} 1M", text, integers=1 << 30)
    pairs = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""
    for name, dims in (("1M", f"{M}"), ("1024 rows of 1024", "1024,1024")):
        dimension = dims.count(",")
        body = f"""i = s32[{dims}] iota(), iota_dimension={dimension}
        ROOT r = (f32[{dims}], s32[{dims}]) sort(p0, i), dimensions={{{dimension}}}, is_stable=true, to_apply=less"""
        yield KernelProgram("sort", f"f32 with positions {name}", program([f"f32[{dims}]"], body, pairs))


# --- transpose -------------------------------------------------------------------------------------------------------


def transposes() -> Iterator[KernelProgram]:
    cases = [
        ("f32", (4096, 4096), (1, 0)),
        ("u8", (4096, 4096), (1, 0)),
        ("bf16", (4096, 4096), (1, 0)),
        ("f64", (2048, 2048), (1, 0)),
        ("f32", (64, 256, 256), (0, 2, 1)),
        ("f32", (256, 256, 256), (2, 1, 0)),
        ("f32", (256, 256, 256), (1, 0, 2)),
        ("f32", (32, 128, 16, 64), (0, 2, 1, 3)),
        ("f32", (32, 64, 56, 56), (0, 2, 3, 1)),
        ("f32", (32, 56, 56, 64), (0, 3, 1, 2)),
    ]
    for t, dims, order in cases:
        result = ",".join(str(dims[d]) for d in order)
        permutation = ",".join(map(str, order))
        text = program(
            [f"{t}[{','.join(map(str, dims))}]"],
            f"ROOT r = {t}[{result}] transpose(p0), dimensions={{{permutation}}}",
        )
        yield KernelProgram(
            "transpose",
            f"{t} {'x'.join(map(str, dims))} by {permutation}",
            text,
            0.5 if (t, dims) == ("f32", (4096, 4096)) else 1.0,
        )


# --- cumulative sums -------------------------------------------------------------------------------------------------


def cumulative() -> Iterator[KernelProgram]:
    for dims, axis in (((16 * M,), 0), ((4096, 4096), 1), ((4096, 4096), 0)):
        shape = f"f32[{','.join(map(str, dims))}]"
        sizes = "x".join(str(e) if d == axis else "1" for d, e in enumerate(dims))
        pads = "x".join(f"{e - 1}_0" if d == axis else "0_0" for d, e in enumerate(dims))
        body = f"""zero = f32[] constant(0)
        ROOT r = {shape} reduce-window(p0, zero), window={{size={sizes} pad={pads}}}, to_apply=add_f32"""
        text = program([shape], body, ADD.format(t="f32"))
        yield KernelProgram("cumulative sum", f"reduce-window {shape} along {axis}", text)
    yield KernelProgram("cumulative sum", f"halving, f32[{16 * M}]", halving(16 * M))


def halving(count: int) -> str:
    """Neighbours added, the half as long sums cumulated, the others filled in: what jnp.cumsum is on CPU."""
    lines: list[str] = []

    def step(text: str, dim_size: int, root: str = "") -> str:
        name = f"v{len(lines)}"
        lines.append(f"{root}{name} = f32[{dim_size}] {text}")
        return name

    def scan(x: str, n: int, root: str = "") -> str:
        if n == 1:
            return x
        half = n // 2
        left = step(f"slice({x}), slice={{[0:{2 * half - 1}:2]}}", half)
        right = step(f"slice({x}), slice={{[1:{2 * half}:2]}}", half)
        odd = scan(step(f"add({left}, {right})", half), half)
        count = (n - 1) // 2
        even = step(f"slice({x}), slice={{[0:1]}}", 1)
        if count:
            before = odd if count == half else step(f"slice({odd}), slice={{[0:{count}]}}", count)
            own = step(f"slice({x}), slice={{[2:{n}:2]}}", count)
            even = step(f"concatenate({even}, {step(f'add({before}, {own})', count)}), dimensions={{0}}", count + 1)
        spread = [
            step(f"pad({part}, zero), padding={low}_{n - low - (2 * dim_size - 1)}_1", n)
            for part, dim_size, low in ((even, count + 1, 0), (odd, half, 1))
        ]
        return step(f"add({spread[0]}, {spread[1]})", n, root)

    scan("p0", count, "ROOT ")
    return program([f"f32[{count}]"], "zero = f32[] constant(0)\n" + "\n".join(lines))


# --- convolution -----------------------------------------------------------------------------------------------------


def convolutions() -> Iterator[KernelProgram]:
    same = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    cases: list[tuple[str, str, str, str, str]] = [
        ("3x3x64x64 on 8x56x56x64", "f32[8,56,56,64]", "f32[8,56,56,64]", "f32[3,3,64,64]", same),
        ("3x3x256x256 on 8x14x14x256", "f32[8,14,14,256]", "f32[8,14,14,256]", "f32[3,3,256,256]", same),
        (
            "1x1x256x64 on 8x56x56x256", "f32[8,56,56,64]", "f32[8,56,56,256]", "f32[1,1,256,64]",
            "window={size=1x1}, dim_labels=b01f_01io->b01f",
        ),
        (
            "3x3x128x128 stride 2 on 8x56x56x128", "f32[8,28,28,128]", "f32[8,56,56,128]", "f32[3,3,128,128]",
            "window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f",
        ),
        (
            "stem 7x7x3x64 stride 2 on 8x224x224x3", "f32[8,112,112,64]", "f32[8,224,224,3]", "f32[7,7,3,64]",
            "window={size=7x7 stride=2x2 pad=2_3x2_3}, dim_labels=b01f_01io->b01f",
        ),
        (
            "depthwise 3x3x128 on 8x56x56x128", "f32[8,56,56,128]", "f32[8,56,56,128]", "f32[3,3,1,128]",
            f"{same}, feature_group_count=128",
        ),
        (
            "grouped 3x3, 32 groups of 4, on 8x56x56x128", "f32[8,56,56,128]", "f32[8,56,56,128]", "f32[3,3,4,128]",
            f"{same}, feature_group_count=32",
        ),
        (
            "NCHW 3x3x64x64 on 8x64x56x56", "f32[8,64,56,56]", "f32[8,64,56,56]", "f32[64,64,3,3]",
            "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01",
        ),
        (
            "NCHW depthwise 3x3x128 on 8x128x56x56", "f32[8,128,56,56]", "f32[8,128,56,56]", "f32[128,1,3,3]",
            "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=128",
        ),
        (
            "backward input of 3x3x64x64", "f32[8,56,56,64]", "f32[8,56,56,64]", "f32[3,3,64,64]",
            "window={size=3x3 pad=1_1x1_1 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f",
        ),
        (
            "backward filter of 3x3x64x64", "f32[3,3,64,64]", "f32[8,56,56,64]", "f32[8,56,56,64]",
            "window={size=56x56 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
        ),
        (
            "backward input of stride 2", "f32[8,56,56,64]", "f32[8,28,28,128]", "f32[3,3,64,128]",
            "window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f",
        ),
        (
            "one-dimensional, 9 wide, on 16x4096x64", "f32[16,4096,64]", "f32[16,4096,64]", "f32[9,64,64]",
            "window={size=9 pad=4_4}, dim_labels=b0f_0io->b0f",
        ),
        ("bf16 3x3x64x64", "bf16[8,56,56,64]", "bf16[8,56,56,64]", "bf16[3,3,64,64]", same),
        ("f64 3x3x64x64", "f64[8,56,56,64]", "f64[8,56,56,64]", "f64[3,3,64,64]", same),
        ("s32 3x3x32x32", "s32[4,28,28,32]", "s32[4,28,28,32]", "s32[3,3,32,32]", same),
    ]  # fmt: skip
    for name, result, lhs, rhs, attributes in cases:
        text = program([lhs, rhs], f"ROOT r = {result} convolution(p0, p1), {attributes}")
        yield KernelProgram("convolution", name, text, 1.2)


# --- gather, scatter -------------------------------------------------------------------------------------------------

GATHER_ROWS = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,128}"
SCATTER_ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
GATHER_ONE = "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
SCATTER_ONE = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def gathers() -> Iterator[KernelProgram]:
    table, rows, count = 100_000, 8192, M
    text = program([f"f32[{table},128]", f"s32[{rows},1]"], f"ROOT r = f32[{rows},128] gather(p0, p1), {GATHER_ROWS}")
    yield KernelProgram("gather", "8192 rows of 100000x128", text, integers=table)
    text = program([f"f32[{M}]", f"s32[{count},1]"], f"ROOT r = f32[{count}] gather(p0, p1), {GATHER_ONE}")
    yield KernelProgram("gather", "1M elements of 1M", text, integers=M)
    text = program(
        [f"f32[{table},128]", f"s32[{rows},1]", f"f32[{rows},128]"],
        f"ROOT r = f32[{table},128] scatter(p0, p1, p2), {SCATTER_ROWS}, to_apply=add_f32",
        ADD.format(t="f32"),
    )
    yield KernelProgram("scatter", "add 8192 rows to 100000x128", text, integers=table)
    text = program(
        [f"f32[{M}]", f"s32[{count},1]", f"f32[{count}]"],
        f"ROOT r = f32[{M}] scatter(p0, p1, p2), {SCATTER_ONE}, to_apply=add_f32",
        ADD.format(t="f32"),
    )
    yield KernelProgram("scatter", "add 1M elements to 1M", text, integers=M)


# --- reductions ------------------------------------------------------------------------------------------------------

ARGMAX = """argmax {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  unordered = pred[] compare(a, a), direction=NE
  better = pred[] or(more, unordered)
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  take = pred[] or(better, tie)
  x = f32[] select(better, a, b)
  k = s32[] select(take, i, j)
  ROOT r = (f32[], s32[]) tuple(x, k)
}
"""
SOFTMAX = """low = f32[] constant(-inf)
zero = f32[] constant(0)
m = f32[4096] reduce(p0, low), dimensions={1}, to_apply=max_f32
mb = f32[4096,4096] broadcast(m), dimensions={0}
d = f32[4096,4096] subtract(p0, mb)
e = f32[4096,4096] exponential(d)
s = f32[4096] reduce(e, zero), dimensions={1}, to_apply=add_f32
sb = f32[4096,4096] broadcast(s), dimensions={0}
ROOT r = f32[4096,4096] divide(e, sb)"""
LAYER_NORM = """zero = f32[] constant(0)
count = f32[] constant(1024)
small = f32[] constant(1e-5)
counts = f32[8192] broadcast(count), dimensions={}
smalls = f32[8192] broadcast(small), dimensions={}
s = f32[8192] reduce(p0, zero), dimensions={1}, to_apply=add_f32
mean = f32[8192] divide(s, counts)
meanb = f32[8192,1024] broadcast(mean), dimensions={0}
d = f32[8192,1024] subtract(p0, meanb)
d2 = f32[8192,1024] multiply(d, d)
squares = f32[8192] reduce(d2, zero), dimensions={1}, to_apply=add_f32
var = f32[8192] divide(squares, counts)
vare = f32[8192] add(var, smalls)
rs = f32[8192] rsqrt(vare)
rsb = f32[8192,1024] broadcast(rs), dimensions={0}
n = f32[8192,1024] multiply(d, rsb)
g = f32[8192,1024] broadcast(p1), dimensions={1}
b = f32[8192,1024] broadcast(p2), dimensions={1}
ng = f32[8192,1024] multiply(n, g)
ROOT r = f32[8192,1024] add(ng, b)"""


def reductions() -> Iterator[KernelProgram]:
    for what, computation, initial in (("add", ADD, "0"), ("max", MAXIMUM, "-inf")):
        for name, dimension in (("rows", 1), ("columns", 0)):
            body = f"""start = f32[] constant({initial})
            ROOT r = f32[4096] reduce(p0, start), dimensions={{{dimension}}}, to_apply={what}_f32"""
            text = program(["f32[4096,4096]"], body, computation.format(t="f32"))
            yield KernelProgram("reduce", f"{what} {name} of 4096x4096", text)
    for name, dimension in (("rows", 1), ("columns", 0)):
        body = f"""low = f32[] constant(-inf)
        first = s32[] constant(0)
        i = s32[4096,4096] iota(), iota_dimension={dimension}
        ROOT r = (f32[4096], s32[4096]) reduce(p0, i, low, first), dimensions={{{dimension}}}, to_apply=argmax"""
        yield KernelProgram("reduce", f"argmax of {name} of 4096x4096", program(["f32[4096,4096]"], body, ARGMAX))
    both = MAXIMUM.format(t="f32") + ADD.format(t="f32")
    yield KernelProgram("reduce", "softmax of 4096x4096", program(["f32[4096,4096]"], SOFTMAX, both))
    text = program(["f32[8192,1024]", "f32[1024]", "f32[1024]"], LAYER_NORM, ADD.format(t="f32"))
    yield KernelProgram("reduce", "layer norm of 8192x1024", text)


# --- matrix products -------------------------------------------------------------------------------------------------


def products() -> Iterator[KernelProgram]:
    plain = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    sizes = [(F32, n) for n in (1024, 512, 256, 128, 64, 32)]
    for t, n in (*sizes, ("f64", 1024), (BF16, 1024), ("f16", 512), (S32, 1024), (S32, 256)):
        text = program([f"{t}[{n},{n}]"] * 2, f"ROOT r = {t}[{n},{n}] dot(p0, p1), {plain}")
        yield KernelProgram("dot", f"{t} {n}x{n}x{n}", text, 1.1)
    text = program(["s8[512,512]"] * 2, f"ROOT r = s32[512,512] dot(p0, p1), {plain}")
    yield KernelProgram("dot", "s8 to s32 512x512x512", text, 1.1)
    text = program(
        ["f32[512,512]"] * 2, "ROOT r = f32[512,512] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    )
    yield KernelProgram("dot", "f32 512x512x512, right transposed", text, 1.1)
    batched = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
    for lhs, rhs, result in (("64,128,64", "64,64,128", "64,128,128"), ("512,16,16", "512,16,16", "512,16,16")):
        text = program([f"f32[{lhs}]", f"f32[{rhs}]"], f"ROOT r = f32[{result}] dot(p0, p1), {batched}")
        yield KernelProgram("dot", f"f32 batched {lhs} by {rhs}".replace(",", "x"), text, 1.1)
    heads = "lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}"
    text = program(["f32[4,256,16,64]"] * 2, f"ROOT r = f32[4,16,256,256] dot(p0, p1), {heads}")
    yield KernelProgram("dot", "f32 heads 4x256x16x64, scores", text, 1.1)
    text = program(
        ["f32[4,16,256,256]", "f32[4,256,16,64]"],
        "ROOT r = f32[4,16,256,64] dot(p0, p1), "
        "lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={1}",
    )
    yield KernelProgram("dot", "f32 heads 4x256x16x64, values", text, 1.1)
    for name, lhs, rhs, result, contracting in (
        ("matrix 4096x4096 by vector", "4096,4096", "4096", "4096", (1, 0)),
        ("vector by matrix 4096x4096", "4096", "4096,4096", "4096", (0, 0)),
        ("4x1024 by 1024x4096", "4,1024", "1024,4096", "4,4096", (1, 0)),
        ("32x1024 by 1024x1024", "32,1024", "1024,1024", "32,1024", (1, 0)),
        ("25088x576 by 576x64", "25088,576", "576,64", "25088,64", (1, 0)),
    ):
        dims = f"lhs_contracting_dims={{{contracting[0]}}}, rhs_contracting_dims={{{contracting[1]}}}"
        text = program([f"f32[{lhs}]", f"f32[{rhs}]"], f"ROOT r = f32[{result}] dot(p0, p1), {dims}")
        yield KernelProgram("dot", f"f32 {name}", text, 1.1)


# --- conversions, elementwise ----------------------------------------------------------------------------------------


def converts() -> Iterator[KernelProgram]:
    pairs = "f32 s32,f32 s64,f32 u32,f32 u8,f64 s32,f64 s64,bf16 s32,f32 bf16,bf16 f32,f32 f16,s32 f32,s64 f32"
    for source, target in (pair.split() for pair in pairs.split(",")):
        text = program([f"{source}[{4 * M}]"], f"ROOT r = {target}[{4 * M}] convert(p0)")
        yield KernelProgram("convert", f"{source} to {target} 4M", text, 1.1, floats=(-1000.0, 1000.0))


GELU = """half = f32[] constant(0.5)
one = f32[] constant(1)
c = f32[] constant(0.044715)
s = f32[] constant(0.7978846)
hb = f32[{n}] broadcast(half), dimensions={{}}
ob = f32[{n}] broadcast(one), dimensions={{}}
cb = f32[{n}] broadcast(c), dimensions={{}}
sb = f32[{n}] broadcast(s), dimensions={{}}
x2 = f32[{n}] multiply(p0, p0)
x3 = f32[{n}] multiply(x2, p0)
cx = f32[{n}] multiply(cb, x3)
a = f32[{n}] add(p0, cx)
sa = f32[{n}] multiply(sb, a)
t = f32[{n}] tanh(sa)
u = f32[{n}] add(ob, t)
hx = f32[{n}] multiply(hb, p0)
ROOT r = f32[{n}] multiply(hx, u)"""


def elementwise() -> Iterator[KernelProgram]:
    n = 16 * M
    yield KernelProgram("elementwise", "gelu 16M", program([f"f32[{n}]"], GELU.format(n=n)), floats=(-4.0, 4.0))
    yield KernelProgram("elementwise", "add 16M", program([f"f32[{n}]"] * 2, f"ROOT r = f32[{n}] add(p0, p1)"))
    for opcode in ("exponential", "log", "sine", "erf", "tanh", "logistic", "rsqrt"):
        text = program([f"f32[{n}]"], f"ROOT r = f32[{n}] {opcode}(p0)")
        yield KernelProgram("elementwise", f"{opcode} 16M", text, floats=(0.1, 4.0))
    text = program([f"f32[{n}]"] * 2, f"ROOT r = f32[{n}] power(p0, p1)")
    yield KernelProgram("elementwise", "power 16M", text, floats=(0.1, 4.0))


# --- loops -----------------------------------------------------------------------------------------------------------

UPDATES = """body {
  state = (s32[], f32[4096,1024], f32[1,1024]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[4096,1024] get-tuple-element(state), index=1
  row = f32[1,1024] get-tuple-element(state), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  old = f32[1,1024] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,1024}
  sum = f32[1,1024] add(old, row)
  new = f32[4096,1024] dynamic-update-slice(x, sum, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[4096,1024], f32[1,1024]) tuple(next, new, sum)
}

condition {
  state = (s32[], f32[4096,1024], f32[1,1024]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  end = s32[] constant(4096)
  ROOT r = pred[] compare(i, end), direction=LT
}
"""


def loops() -> Iterator[KernelProgram]:
    body = """zero = s32[] constant(0)
    state = (s32[], f32[4096,1024], f32[1,1024]) tuple(zero, p0, p1)
    loop = (s32[], f32[4096,1024], f32[1,1024]) while(state), condition=condition, body=body
    ROOT r = f32[4096,1024] get-tuple-element(loop), index=1"""
    text = program(["f32[4096,1024]", "f32[1,1024]"], body, UPDATES)
    yield KernelProgram("loop", "4096 updates of rows of 4096x1024", text, floats=(-1e-3, 1e-3))
