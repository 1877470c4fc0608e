"""Programs of two devices whose NaN and Inf come from one known instruction, or from none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\n"
MAX = "max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] maximum(a, b) }\n"
BOTH = "replica_groups={{0,1}}"
N = 2048  # elements: loops exchange the places of states as large as that


@dataclass(frozen=True)
class CheckedProgram:
    """rows: of arguments, by device.  expected: kind, instruction, device and iterations; None where nothing is wrong.
    note: part of a note of the error."""

    name: str
    text: str
    rows: tuple[tuple[Any, ...], tuple[Any, ...]]
    expected: tuple[str, str, int, tuple[tuple[str, int], ...]] | None
    note: str = ""

    def __str__(self) -> str:
        return self.name


def _module(entry: str, computations: str = "") -> str:
    lines = "\n".join(f"  {line.strip()}" for line in entry.strip().splitlines())
    return f"HloModule checked, replica_count=2\n\n{computations}\nENTRY main {{\n{lines}\n}}\n"


def full(value: float, *others: float, dtype: Any = np.float32, size: int = N) -> Any:
    """An array that begins with other values."""
    made = np.full(size, value, dtype)
    made[: len(others)] = others
    return made


def _simple(
    name: str, body: str, one: Any, other: Any, expected: Any = None, note: str = "", computations: str = ADD
) -> CheckedProgram:
    shape = f"{'f32'}[{','.join(map(str, np.shape(one)))}]"
    entry = f"p = {shape} parameter(0)\n{body}"
    return CheckedProgram(name, _module(entry, computations), ((one,), (other,)), expected, note)


LOOP = """
more {
  s = (s32[], f32[2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
step {
  s = (s32[], f32[2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2048] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  half = f32[] constant(0.5)
  halves = f32[2048] broadcast(half), dimensions={}
  less = f32[2048] subtract(x, halves)
  root = f32[2048] sqrt(less)
  square = f32[2048] multiply(root, root)
  ROOT t = (s32[], f32[2048]) tuple(next, square)
}
"""
RUN_LOOP = """
zero = s32[] constant(0)
first = (s32[], f32[2048]) tuple(zero, p)
last = (s32[], f32[2048]) while(first), condition=more, body=step
ROOT y = f32[2048] get-tuple-element(last), index=1
"""
SOFTMAX = """
low = f32[] constant(-inf)
zero = f32[] constant(0)
zeros = f32[2048] broadcast(zero), dimensions={}
lows = f32[2048] broadcast(low), dimensions={}
is_kept = pred[2048] compare(p, zeros), direction=GT
kept = f32[2048] select(is_kept, p, lows)
top = f32[] reduce(kept, low), dimensions={0}, to_apply=max
tops = f32[2048] broadcast(top), dimensions={}
apart = f32[2048] subtract(kept, tops)
weights = f32[2048] exponential(apart)
sum = f32[] reduce(weights, zero), dimensions={0}, to_apply=add
sums = f32[2048] broadcast(sum), dimensions={}
ROOT y = f32[2048] divide(weights, sums)
"""


def programs() -> list[CheckedProgram]:
    """All of them."""
    ones, minus = full(1.0), full(1.0, -1.0)
    inf, nan = float("inf"), float("nan")
    return [
        _simple("no fault", "ROOT y = f32[2048] log(p)", ones, ones),
        _simple("one device", "ROOT y = f32[2048] log(p)", ones, minus, ("NaN", "y", 1, ())),
        _simple(
            "masked by select",
            """zero = f32[] constant(0)
            zeros = f32[2048] broadcast(zero), dimensions={}
            is_positive = pred[2048] compare(p, zeros), direction=GT
            l = f32[2048] log(p)
            ROOT y = f32[2048] select(is_positive, l, zeros)""",
            ones,
            minus,
        ),
        _simple(
            "within a fusion",
            """a = f32[2048] add(p, p)
            b = f32[2048] sqrt(a)
            c = f32[2048] negate(b)
            d = f32[2048] multiply(c, a)
            ROOT y = f32[2048] cosine(d)""",
            ones,
            minus,
            ("NaN", "b", 1, ()),
        ),
        _simple("argument", "ROOT y = f32[2048] log(p)", full(1.0, nan), ones, ("NaN", "arg0", 0, ())),
        _simple("argument as it is", "ROOT y = f32[2048] copy(p)", ones, full(1.0, nan), ("NaN", "arg0", 1, ())),
        _simple("infinite argument", "ROOT y = f32[2048] negate(p)", full(1.0, inf), ones),
        _simple(
            "NaN of an infinite argument",
            "ROOT y = f32[2048] subtract(p, p)",
            full(1.0, inf),
            ones,
            ("NaN", "y", 0, ()),
            "Inf, as arg0 has",
        ),
        _simple("overflow", "ROOT y = f32[2048] exponential(p)", ones, full(1.0, 100.0), ("Inf", "y", 1, ())),
        _simple(
            "division by zero",
            "z = f32[2048] subtract(p, p)\nROOT y = f32[2048] divide(p, z)",
            ones,
            ones,
            ("Inf", "y", 0, ()),
        ),
        _simple(
            "passing overflow",
            """one = f32[] constant(1)
            o = f32[2048] broadcast(one), dimensions={}
            e = f32[2048] exponential(p)
            d = f32[2048] add(o, e)
            ROOT y = f32[2048] divide(o, d)""",
            full(1000.0),
            ones,
        ),
        _simple(
            "constant",
            "c = f32[] constant(nan)\nn = f32[2048] broadcast(c), dimensions={}\nROOT y = f32[2048] add(p, n)",
            ones,
            ones,
            ("NaN", "c", 0, ()),
        ),
        _simple("mask", SOFTMAX, ones, minus, computations=ADD + MAX),
        _simple(
            "mask of all",
            SOFTMAX,
            ones,
            full(-1.0),
            ("NaN", "apart", 1, ()),
            "as the constant low",
            computations=ADD + MAX,
        ),
        _simple("loop", RUN_LOOP, full(2.75), full(4.0), computations=LOOP),
        _simple(
            "iteration", RUN_LOOP, full(9.0), full(9.0, 1.25), ("NaN", "root", 1, (("last", 3),)), computations=LOOP
        ),
        _simple(
            "received in a sum",
            f"l = f32[2048] log(p)\nROOT y = f32[2048] all-reduce(l), {BOTH}, to_apply=add",
            ones,
            minus,
            ("NaN", "l", 1, ()),
        ),
        _simple(
            "a sum that overflows",
            f"ROOT y = f32[2048] all-reduce(p), {BOTH}, to_apply=add",
            full(3e38),
            full(3e38),
            ("Inf", "y", 0, ()),
        ),
        _simple(
            "received over two collectives",
            f"""l = f32[2048] sqrt(p)
            there = f32[2048] collective-permute(l), source_target_pairs={{{{0,1}},{{1,0}}}}
            twice = f32[2048] add(there, there)
            ROOT y = f32[4096] all-gather(twice), {BOTH}, dimensions={{0}}""",
            ones,
            minus,
            ("NaN", "l", 1, ()),
        ),
        _simple(
            "argument of another device",
            f"ROOT y = f32[4096] all-gather(p), {BOTH}, dimensions={{0}}",
            ones,
            full(1.0, nan),
            ("NaN", "arg0", 1, ()),
        ),
        _simple(
            "asynchronous sum",
            f"""l = f32[2048] log(p)
            s = f32[2048] all-reduce-start(l), {BOTH}, to_apply=add
            e = f32[2048] exponential(p)
            d = f32[2048] all-reduce-done(s)
            ROOT y = f32[2048] add(d, e)""",
            ones,
            minus,
            ("NaN", "l", 1, ()),
        ),
        _simple(
            "overwritten part",
            """l = f32[2048] log(p)
            one = f32[] constant(1)
            o = f32[1] broadcast(one), dimensions={}
            zero = s32[] constant(0)
            ROOT y = f32[2048] dynamic-update-slice(l, o, zero)""",
            ones,
            minus,
        ),
        _simple(
            "part",
            """e = f32[2048] exponential(p)
            part = f32[2] slice(p), slice={[0:2]}
            l = f32[2] log(part)
            zero = s32[] constant(0)
            ROOT y = f32[2048] dynamic-update-slice(e, l, zero)""",
            ones,
            minus,
            ("NaN", "l", 1, ()),
        ),
        _simple(
            "scatter",
            """zero = s32[1] constant({1})
            part = f32[1] slice(p), slice={[0:1]}
            ROOT y = f32[2048] scatter(p, zero, part), update_window_dims={}, inserted_window_dims={0},
              scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""".replace(",\n              ", ", "),
            full(1.0, 3e38, 3e38),
            ones,
            ("Inf", "y", 0, ()),
        ),
        *_moved_and_scattered(),
        _simple(
            "product",
            """m = f32[32,64] reshape(p)
            ROOT y = f32[32,32] dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={1}""",
            full(1.0, 1e20),
            ones,
            ("Inf", "y", 0, ()),
        ),
        _simple(
            "reduction",
            "zero = f32[] constant(0)\nROOT y = f32[] reduce(p, zero), dimensions={0}, to_apply=add",
            full(1e38),
            ones,
            ("Inf", "y", 0, ()),
        ),
        _simple(
            "moved",
            """l = f32[2048] log(p)
            m = f32[32,64] reshape(l)
            t = f32[64,32] transpose(m), dimensions={1,0}
            ROOT y = f32[64,64] concatenate(t, t), dimensions={1}""",
            ones,
            minus,
            ("NaN", "l", 1, ()),
        ),
        _simple(
            "branch",
            """zero = f32[] constant(0)
            first = f32[1] slice(p), slice={[0:1]}
            f = f32[] reshape(first)
            is_negative = pred[] compare(f, zero), direction=LT
            ROOT y = f32[2048] conditional(is_negative, p, p), true_computation=yes, false_computation=no""",
            ones,
            minus,
            ("NaN", "l", 1, ()),
            computations="""yes { p = f32[2048] parameter(0)  ROOT l = f32[2048] log(p) }
            no { p = f32[2048] parameter(0)  ROOT e = f32[2048] exponential(p) }
            """,
        ),
        *(_typed(name, dtype) for name, dtype in TYPES.items()),
    ]


def _scatter(dtype: str, size: int, window: int, combiner: str = "add") -> str:
    """Windows of the argument q are added to p at r."""
    result = f"{dtype}[{size}]" if window == 1 else f"{dtype}[{size // window},{window}]"
    dims = "update_window_dims={}" if window == 1 else "update_window_dims={1}"
    rest = "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    part = f"{dtype}[2]" if window == 1 else f"{dtype}[2,{window}]"
    return f"""p = {result} parameter(0)
    q = {part} parameter(1)
    r = s32[2,1] parameter(2)
    ROOT y = {result} scatter(p, r, q), {dims}, {rest}, to_apply={combiner}"""


def _moved_and_scattered() -> list[CheckedProgram]:
    """Whose kernels look at what they copy, or that only move an argument to a result."""
    import ml_dtypes

    made = []
    nan, size = float("nan"), 5003  # of 16 KiB pieces neither the first nor the last is alone, vectors have a rest
    places = np.array([[0], [size - 1]], np.int32)
    types = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f8e5m2": ml_dtypes.float8_e5m2}
    for name, dtype in {**types, "c64": np.complex64}.items():
        combine = f"add {{ a = {name}[] parameter(0)  b = {name}[] parameter(1)  ROOT s = {name}[] add(a, b) }}\n"
        text = _module(_scatter(name, size, 1), combine)
        ones, two = np.ones(size, dtype), np.ones(2, dtype)
        good = (ones, two, places)
        last, lost = ones.copy(), ones.copy()
        last[-2] = nan  # of the copy's rest
        lost[0] = nan
        made += [
            CheckedProgram(f"{name}: scatter keeps what is finite", text, (good, good), None),
            CheckedProgram(f"{name}: scatter keeps a NaN", text, (good, (last, two, places)), ("NaN", "arg0", 1, ())),
            CheckedProgram(
                f"{name}: scatter adds a NaN",
                text,
                (good, (ones, np.array([1, nan], dtype), places)),
                ("NaN", "arg1", 1, ()),
            ),
        ]
        over = combine.replace("add { a", "set { a").replace("add(a, b)", "copy(b)")
        text = _module(_scatter(name, size, 1, "set"), over)
        made.append(CheckedProgram(f"{name}: scatter loses a NaN", text, (good, (lost, two, places)), None))
        kind = f"{name}[{size}]"
        moved = _module(f"p = {kind} parameter(0)\nROOT y = {kind} reverse(p), dimensions={{0}}")
        made.append(CheckedProgram(f"{name}: moved argument", moved, ((ones,), (last,)), ("NaN", "arg0", 1, ())))
        made.append(CheckedProgram(f"{name}: moved finite argument", moved, ((ones,), (ones,)), None))
    huge = np.full((1250, 4), 3e38, np.float32)
    ends = np.array([[0], [1249]], np.int32)
    rows = _module(_scatter("f32", 5000, 4), ADD)
    few = np.ones((2, 4), np.float32)
    made.append(
        CheckedProgram(
            "scatter of rows makes Inf", rows, ((huge, few, ends), (huge, huge[:2], ends)), ("Inf", "y", 1, ())
        )
    )
    one = "p = f32[4] parameter(0)\nq = f32[2] parameter(1)\nr = s32[2,1] parameter(2)\n"
    many = one + _scatter("f32", 4, 1).split("\n", 3)[3]
    most = np.full(4, 3e38, np.float32)
    twice = np.array([[3], [3]], np.int32)
    text = _module(many, ADD)
    rows4 = ((most, few[0, :2], twice), (most, most[:2], twice))
    made.append(CheckedProgram("scatter to most of an array", text, rows4, ("Inf", "y", 1, ())))
    for axis in (0, 1):
        sizes, pads = ("5x1", "4_0x0_0") if axis == 0 else ("1x7", "0_0x6_0")
        entry = f"""p = f32[5,7] parameter(0)
        zero = f32[] constant(0)
        ROOT y = f32[5,7] reduce-window(p, zero), window={{size={sizes} pad={pads}}}, to_apply=add"""
        good = np.ones((5, 7), np.float32)
        bad = good.copy()
        bad[-2:, -2:] = 3e38
        text = _module(entry, ADD)
        made.append(CheckedProgram(f"running sum along {axis}", text, ((good,), (bad,)), ("Inf", "y", 1, ())))
    return made


def _types() -> dict[str, Any]:
    import ml_dtypes

    return {
        "f64": np.float64,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "c64": np.complex64,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "f8e4m3fn": ml_dtypes.float8_e4m3fn,
        "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    }


TYPES = _types()


def _typed(name: str, dtype: Any) -> CheckedProgram:
    """0 / 0 in another type."""
    entry = f"p = {name}[64] parameter(0)\nq = {name}[64] parameter(1)\nROOT y = {name}[64] divide(p, q)"
    ones, zeros = np.ones(64, dtype), np.ones(64, dtype)
    zeros[7] = 0
    return CheckedProgram(name, _module(entry), ((ones, ones), (zeros, zeros)), ("NaN", "y", 1, ()))
