"""Instructions whose floats have several types: both executors against the same program with its conversions written.

Which of them XLA takes: its verifier leaves the precision of floats out of most comparisons of element types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError, VerificationError
from distxla.ir.element_type import FLOATS, ElementType
from distxla.ir.mixed_precision import narrowest
from distxla.ir.shape import Shape
from distxla.rewrites.explicit_precision import ExplicitPrecision
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from distxla.text.shapes import parse_shape
from tests.collectives.executors import EXECUTORS, run_module

Array = np.ndarray[Any, Any]


def scalar(name: str, a: str, b: str, result: str, opcode: str = "add") -> str:
    """A computation of two scalars of those types; floats are converted to the result's inside."""
    text = f"{name} {{\n  a = {a}[] parameter(0)\n  b = {b}[] parameter(1)\n"
    text += f"  x = {result}[] convert(a)\n  y = {result}[] convert(b)\n"
    return text + f"  ROOT r = {result}[] {opcode}(x, y)\n}}\n"


COMPUTATIONS = (
    scalar("add32", "f32", "f32", "f32")
    + scalar("add16", "bf16", "bf16", "bf16")
    + scalar("add_wide", "f32", "bf16", "f32")
    + scalar("max32", "f32", "f32", "f32", "maximum")
    + """ge32 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
before32 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
before16 {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
argmax32 {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = f32[] select(g, a, b)
  k = s32[] select(g, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}
"""
)


def program(shapes: Sequence[str], body: str, head: str = "") -> str:
    """A module whose entry has parameters p0, p1 .. of these shapes."""
    parameters = [f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(shapes)]
    lines = [f"  {line.strip()}" for line in body.strip().splitlines()]
    return "\n".join([f"HloModule m{head}", COMPUTATIONS, "ENTRY e {", *parameters, *lines, "}", ""])


def drawn(shape: Shape, seed: int) -> Array:
    random = np.random.default_rng(seed)
    if shape.dtype.kind == "pred":
        return np.asarray(random.random(shape.dims) < 0.5)
    if shape.dtype.is_integer:
        return np.asarray(random.integers(0, 3, shape.dims)).astype(shape.dtype.dtype)
    return np.asarray(random.standard_normal(shape.dims) * 3).astype(shape.dtype.dtype)


# name: (shapes of the parameters, with floats of several types, with all conversions written)
CASES: dict[str, tuple[Sequence[str], str, str]] = {
    "select": (
        ("pred[7]", "bf16[7]", "f32[7]"),
        "ROOT r = f32[7] select(p0, p1, p2)",
        "a = f32[7] convert(p1)\nROOT r = f32[7] select(p0, a, p2)",
    ),
    "select to the narrow one": (
        ("pred[7]", "bf16[7]", "f32[7]"),
        "ROOT r = bf16[7] select(p0, p1, p2)",
        "a = f32[7] convert(p1)\nb = f32[7] select(p0, a, p2)\nROOT r = bf16[7] convert(b)",
    ),
    "copy": (("f32[5,3]",), "ROOT r = bf16[5,3] copy(p0)", "ROOT r = bf16[5,3] convert(p0)"),
    "copy with another layout": (
        ("f32[5,3]{1,0:T(8,128)}",),
        "ROOT r = bf16[5,3]{0,1:T(8,128)(2,1)} copy(p0)",
        "ROOT r = bf16[5,3] convert(p0)",
    ),
    "broadcast": (
        ("f32[]",),
        "ROOT r = bf16[4] broadcast(p0), dimensions={}",
        "a = f32[4] broadcast(p0), dimensions={}\nROOT r = bf16[4] convert(a)",
    ),
    "addition is done in the wider type": (
        ("bf16[9]", "f32[9]"),
        "ROOT r = bf16[9] add(p0, p1)",
        "a = f32[9] convert(p0)\nb = f32[9] add(a, p1)\nROOT r = bf16[9] convert(b)",
    ),
    "the result's type counts": (
        ("bf16[9]", "bf16[9]"),
        "ROOT r = f32[9] multiply(p0, p1)",
        "a = f32[9] convert(p0)\nb = f32[9] convert(p1)\nROOT r = f32[9] multiply(a, b)",
    ),
    "two types of 16 bits": (
        ("bf16[9]", "f16[9]"),
        "ROOT r = f16[9] add(p0, p1)",
        "a = f32[9] convert(p0)\nb = f32[9] convert(p1)\nc = f32[9] add(a, b)\nROOT r = f16[9] convert(c)",
    ),
    "eight bits": (
        ("f8e4m3fn[9]", "f8e5m2[9]"),
        "ROOT r = f16[9] add(p0, p1)",
        "a = f16[9] convert(p0)\nb = f16[9] convert(p1)\nROOT r = f16[9] add(a, b)",
    ),
    "double and single": (
        ("f64[9]", "f32[9]"),
        "ROOT r = f32[9] subtract(p0, p1)",
        "a = f64[9] convert(p1)\nb = f64[9] subtract(p0, a)\nROOT r = f32[9] convert(b)",
    ),
    "unary": (
        ("bf16[9]",),
        "ROOT r = f32[9] negate(p0)",
        "a = f32[9] convert(p0)\nROOT r = f32[9] negate(a)",
    ),
    "compare": (
        ("bf16[9]", "f32[9]"),
        "ROOT r = pred[9] compare(p0, p1), direction=LT",
        "a = f32[9] convert(p0)\nROOT r = pred[9] compare(a, p1), direction=LT",
    ),
    "clamp": (
        ("bf16[]", "f32[9]", "f32[]"),
        "ROOT r = f32[9] clamp(p0, p1, p2)",
        "a = f32[] convert(p0)\nROOT r = f32[9] clamp(a, p1, p2)",
    ),
    "pad": (
        ("bf16[3]", "f32[]"),
        "ROOT r = f32[6] pad(p0, p1), padding=1_2",
        "a = f32[3] convert(p0)\nROOT r = f32[6] pad(a, p1), padding=1_2",
    ),
    "concatenate": (
        ("bf16[3]", "f32[2]", "bf16[1]"),
        "ROOT r = bf16[6] concatenate(p0, p1, p2), dimensions={0}",
        "a = f32[3] convert(p0)\nb = f32[1] convert(p2)\nc = f32[6] concatenate(a, p1, b), dimensions={0}\n"
        "ROOT r = bf16[6] convert(c)",
    ),
    "dynamic-update-slice": (
        ("f32[6]", "bf16[2]", "s32[]"),
        "ROOT r = f32[6] dynamic-update-slice(p0, p1, p2)",
        "a = f32[2] convert(p1)\nROOT r = f32[6] dynamic-update-slice(p0, a, p2)",
    ),
    "slice, transpose, reshape": (
        ("f32[4,3]",),
        "a = bf16[2,3] slice(p0), slice={[1:3], [0:3]}\nb = f32[3,2] transpose(a), dimensions={1,0}\n"
        "ROOT r = bf16[6] reshape(b)",
        "a = f32[2,3] slice(p0), slice={[1:3], [0:3]}\nb = bf16[2,3] convert(a)\nc = f32[2,3] convert(b)\n"
        "d = f32[3,2] transpose(c), dimensions={1,0}\ne = f32[6] reshape(d)\nROOT r = bf16[6] convert(e)",
    ),
    "reduce of the narrow type by a wider computation": (
        ("bf16[3,40]", "bf16[]"),
        "ROOT r = bf16[3] reduce(p0, p1), dimensions={1}, to_apply=add32",
        "a = f32[3,40] convert(p0)\nb = f32[] convert(p1)\n"
        "c = f32[3] reduce(a, b), dimensions={1}, to_apply=add32\nROOT r = bf16[3] convert(c)",
    ),
    "reduce with an initial value of another type": (
        ("bf16[3,40]", "f32[]"),
        "ROOT r = f32[3] reduce(p0, p1), dimensions={1}, to_apply=add32",
        "a = f32[3,40] convert(p0)\nROOT r = f32[3] reduce(a, p1), dimensions={1}, to_apply=add32",
    ),
    "reduce to a narrower result": (
        ("f32[3,40]", "f32[]"),
        "ROOT r = bf16[3] reduce(p0, p1), dimensions={1}, to_apply=max32",
        "a = f32[3] reduce(p0, p1), dimensions={1}, to_apply=max32\nROOT r = bf16[3] convert(a)",
    ),
    "reduce by a narrower computation": (
        ("f32[4,5]", "f32[]"),
        "ROOT r = f32[4] reduce(p0, p1), dimensions={1}, to_apply=add16",
        "a = bf16[4,5] convert(p0)\nb = bf16[] convert(p1)\n"
        "c = bf16[4] reduce(a, b), dimensions={1}, to_apply=add16\nROOT r = f32[4] convert(c)",
    ),
    "one result of several": (
        ("bf16[3,8]", "s32[3,8]", "f32[]", "s32[]"),
        "ROOT r = (bf16[3], s32[3]) reduce(p0, p1, p2, p3), dimensions={1}, to_apply=argmax32",
        "a = f32[3,8] convert(p0)\nb = (f32[3], s32[3]) reduce(a, p1, p2, p3), dimensions={1}, to_apply=argmax32\n"
        "c = f32[3] get-tuple-element(b), index=0\nd = bf16[3] convert(c)\n"
        "f = s32[3] get-tuple-element(b), index=1\nROOT r = (bf16[3], s32[3]) tuple(d, f)",
    ),
    "reduce-window": (
        ("bf16[20]", "bf16[]"),
        "ROOT r = bf16[6] reduce-window(p0, p1), window={size=5 stride=3}, to_apply=add32",
        "a = f32[20] convert(p0)\nb = f32[] convert(p1)\n"
        "c = f32[6] reduce-window(a, b), window={size=5 stride=3}, to_apply=add32\nROOT r = bf16[6] convert(c)",
    ),
    "select-and-scatter": (
        ("bf16[6]", "f32[3]", "f32[]"),
        "ROOT r = bf16[6] select-and-scatter(p0, p1, p2), window={size=2 stride=2}, select=ge32, scatter=add32",
        "a = f32[6] convert(p0)\n"
        "b = f32[6] select-and-scatter(a, p1, p2), window={size=2 stride=2}, select=ge32, scatter=add32\n"
        "ROOT r = bf16[6] convert(b)",
    ),
    "scatter": (
        ("f32[5]", "s32[4,1]", "bf16[4]"),
        "ROOT r = f32[5] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add32",
        "a = f32[4] convert(p2)\nROOT r = f32[5] scatter(p0, p1, a), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add32",
    ),
    "map": (
        ("bf16[9]", "f32[9]"),
        "ROOT r = bf16[9] map(p0, p1), dimensions={0}, to_apply=add32",
        "a = f32[9] convert(p0)\nb = f32[9] map(a, p1), dimensions={0}, to_apply=add32\nROOT r = bf16[9] convert(b)",
    ),
    "map by a computation of two types": (
        ("f32[9]", "f32[9]"),
        "ROOT r = f32[9] map(p0, p1), dimensions={0}, to_apply=add_wide",
        "a = bf16[9] convert(p1)\nROOT r = f32[9] map(p0, a), dimensions={0}, to_apply=add_wide",
    ),
    "sort": (
        ("bf16[5,7]", "s32[5,7]"),
        "ROOT r = (bf16[5,7], s32[5,7]) sort(p0, p1), dimensions={1}, is_stable=true, to_apply=before32",
        "a = f32[5,7] convert(p0)\ns = (f32[5,7], s32[5,7]) sort(a, p1), dimensions={1}, is_stable=true, "
        "to_apply=before32\nk = f32[5,7] get-tuple-element(s), index=0\nv = s32[5,7] get-tuple-element(s), index=1\n"
        "n = bf16[5,7] convert(k)\nROOT r = (bf16[5,7], s32[5,7]) tuple(n, v)",
    ),
    "convolution": (
        ("bf16[4,6]", "f32[6,3]"),
        "ROOT r = f32[4,3] convolution(p0, p1), dim_labels=bf_io->bf",
        "a = f32[4,6] convert(p0)\nROOT r = f32[4,3] convolution(a, p1), dim_labels=bf_io->bf",
    ),
}


@pytest.mark.sampled(one_in=6, first=("reduce to a narrower result-compiled",))
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", CASES)
def test_floats_are_converted_before_and_behind(name: str, executor: str) -> None:
    shapes, mixed, explicit = CASES[name]
    arguments = [drawn(parse_shape(shape), seed) for seed, shape in enumerate(shapes)]
    (wanted,) = run_module(executor, program(shapes, explicit), [arguments], 1)
    (got,) = run_module(executor, program(shapes, mixed), [arguments], 1)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_inside_of_fusions_and_of_computations_of_scalars(executor: str) -> None:
    head = """mixing {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  n = bf16[] copy(b)
  ROOT r = f32[] add(a, n)
}
fused {
  x = bf16[6,4] parameter(0)
  z = f32[] parameter(1)
  w = bf16[6,4] broadcast(z), dimensions={}
  s = f32[6,4] add(x, w)
  ROOT r = bf16[6] reduce(s, z), dimensions={1}, to_apply=mixing
}
"""
    text = f"HloModule m\n{head}ENTRY e {{\n  x = bf16[6,4] parameter(0)\n  z = f32[] parameter(1)\n"
    text += "  ROOT r = bf16[6] fusion(x, z), kind=kLoop, calls=fused\n}\n"
    # integers that both types hold, and a quarter that gets lost where an element is added in bf16
    x = np.arange(24).reshape(6, 4).astype(parse_shape("bf16[]").dtype.dtype)
    ((got,),) = run_module(executor, text, [(x, np.float32(0))], 1)
    np.testing.assert_array_equal(got.astype(np.float32), x.astype(np.float32).sum(1))


# --- collectives ---------------------------------------------------------------------------------------------------

DEVICES = 4
ALL = f"replica_groups={{{{{','.join(map(str, range(DEVICES)))}}}}}"
# name: (body over p0: bf16[12], which reduction, whether each device gets its part)
COLLECTIVES: dict[str, tuple[str, bool]] = {
    "all-reduce": (f"ROOT r = bf16[12] all-reduce(p0), {ALL}, to_apply=add32", False),
    "in a tree": (f"ROOT r = bf16[12] all-reduce(p0), {ALL}, to_apply=add32, reduction_order=tree", False),
    "in a ring": (f"ROOT r = bf16[12] all-reduce(p0), {ALL}, to_apply=add32, reduction_order=ring", False),
    "asynchronously": (
        f"a = bf16[12] all-reduce-start(p0), {ALL}, to_apply=add32\nn = bf16[12] negate(p0)\n"
        "b = bf16[12] all-reduce-done(a)\nc = bf16[12] add(b, n)\nROOT r = bf16[12] add(c, p0)",
        False,
    ),
    "reduce-scatter": (f"ROOT r = bf16[3] reduce-scatter(p0), {ALL}, dimensions={{0}}, to_apply=add32", True),
    "reduce-scatter, asynchronously": (
        f"a = ((bf16[12]), bf16[3]) reduce-scatter-start(p0), {ALL}, dimensions={{0}}, to_apply=add32\n"
        "b = ((bf16[12]), bf16[3]) reduce-scatter-update(a)\nROOT r = bf16[3] reduce-scatter-done(b)",
        True,
    ),
}


def rounded(total: Array) -> Array:
    return total.astype(parse_shape("bf16[]").dtype.dtype)


@pytest.mark.sampled(one_in=3, first=("reduce-scatter, asynchronously-reference",))
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_reduction_is_rounded_once_behind_its_last_step(name: str, executor: str) -> None:
    body, scattered = COLLECTIVES[name]
    text = program(["bf16[12]"], body, f", replica_count={DEVICES}")
    # 256 + 0.5 three times: in bf16 each 0.5 is lost, and their sum is not
    one = np.repeat(np.array([256, 1, -3, 0.125], np.float32), 3)
    values = [one, *([np.repeat(np.array([0.5, 2**-8, 2**-7, 3], np.float32), 3)] * 3)]
    wanted = rounded(np.sum(values, 0, dtype=np.float32))
    if name == "asynchronously":
        wanted = rounded(rounded(wanted.astype(np.float32) - rounded(one).astype(np.float32)).astype(np.float32) + one)
    outs = run_module(executor, text, [(rounded(v),) for v in values], DEVICES)
    if name == "asynchronously":
        outs = outs[:1]
    for device, (got,) in enumerate(outs):
        mine = wanted[3 * device : 3 * device + 3] if scattered else wanted
        assert got.dtype == mine.dtype
        np.testing.assert_array_equal(got.astype(np.float32), mine.astype(np.float32))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_each_operand_of_several_is_given_back_in_its_type(executor: str) -> None:
    body = f"ROOT r = (bf16[2], f32[3]) all-reduce(p0, p1), {ALL}, to_apply=add32"
    text = program(["bf16[2]", "f32[3]"], body, f", replica_count={DEVICES}")
    arguments = [(rounded(np.full(2, 2.0**-9 * d + (d == 0))), np.full(3, 0.1 * d, np.float32)) for d in range(DEVICES)]
    for narrow, wide in run_module(executor, text, arguments, DEVICES):
        assert narrow.astype(np.float32).tolist() == [1 + 2**-6] * 2  # in steps of bf16 less
        np.testing.assert_allclose(wide, np.full(3, 0.6), rtol=1e-6)


def test_a_start_stays_a_start() -> None:
    """The conversion of the operand stands before it, that of the result behind its done."""
    name = "reduce-scatter, asynchronously"
    module = parse_module(program(["bf16[12]"], COLLECTIVES[name][0], f", replica_count={DEVICES}"))
    verify_module(module)
    explicit = ExplicitPrecision().run(module)
    verify_module(explicit)
    found = [i.opcode for i in explicit.entry_computation]
    assert found == ["parameter", "convert", "async-start", "async-update", "async-done", "convert"]
    assert [i.opcode for i in explicit[explicit.entry_computation.instructions[2].op.called_computations[0]]] == [
        "parameter",
        "reduce-scatter",
    ]


# --- what XLA refuses, too -------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Sequence[str], str, str]] = {
    "an integer and a float": (("pred[2]", "s32[2]", "f32[2]"), "ROOT r = f32[2] select(p0, p1, p2)", "select.C2"),
    "a complex number and a float": (("c64[2]", "f32[2]"), "ROOT r = c64[2] add(p0, p1)", "add.C1"),
    "an integer result": (("f32[2]", "f32[2]"), "ROOT r = s32[2] add(p0, p1)", "add.shape"),
    "bitcast": (("f32[2]",), "ROOT r = bf16[2] bitcast(p0)", "bitcast.C1"),
    "bitcast-convert": (("f32[2]",), "ROOT r = bf16[2] bitcast-convert(p0)", "bitcast-convert"),
    "a tuple": (("f32[2]",), "ROOT r = (bf16[2]) tuple(p0)", "tuple.shape"),
    "a call": (("f32[]", "bf16[]"), "ROOT r = f32[] call(p0, p1), to_apply=add32", "call"),
    "integers reduced by a computation of floats": (
        ("s32[4]", "s32[]"),
        "ROOT r = s32[] reduce(p0, p1), dimensions={0}, to_apply=add32",
        "reduce.C6",
    ),
    "a reducer with accumulators of another type": (
        ("bf16[4]", "f32[]"),
        "ROOT r = f32[] reduce(p0, p1), dimensions={0}, to_apply=add_wide",
        "reduce.C2",
    ),
    "a comparator that would round": (
        ("f32[4]",),
        "ROOT r = f32[4] sort(p0), dimensions={0}, to_apply=before16",
        "sort.C5",
    ),
    "other dimension sizes": (("bf16[4]", "f32[3]"), "ROOT r = f32[4] add(p0, p1)", "add.C1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_only_floats_are_converted(name: str) -> None:
    shapes, body, rule = REFUSED[name]
    with pytest.raises(VerificationError, match=rule) as caught:
        verify_module(parse_module(program(shapes, body), "m.hlo"))
    assert caught.value.location is not None


@pytest.mark.parametrize("name", CASES)
def test_the_pass_writes_what_needs_no_conversion(name: str) -> None:
    shapes, mixed, explicit = CASES[name]
    module = parse_module(program(shapes, mixed))
    made = ExplicitPrecision().run(module)
    again = parse_module(print_module(made))
    verify_module(again)
    assert ExplicitPrecision().run(again) is again
    written = parse_module(program(shapes, explicit))
    assert ExplicitPrecision().run(written) is written


def test_xla_parses_what_mixes() -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    for shapes, mixed, _ in CASES.values():
        hlo.hlo_module_from_text(print_module(parse_module(program(shapes, mixed))))


# --- reducers of another kind than the operands ----------------------------------------------------------------------

INTEGERS = [np.array([2**24 + 1, -5, 7], np.int32), np.array([1, 2**30, -7], np.int32)] * 2


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("body", "function"),
    [
        (f"ROOT r = s32[3] all-reduce(p0), {ALL}, to_apply=add32", np.add),
        (f"ROOT r = s32[3] all-reduce(p0), {ALL}, to_apply=max32plain", np.maximum),
        (f"a = s32[3] all-reduce-start(p0), {ALL}, to_apply=add32plain\nROOT r = s32[3] all-reduce-done(a)", np.add),
    ],
)
def test_integers_are_reduced_as_integers(body: str, function: Any, executor: str) -> None:
    plain = "".join(
        f"{name} {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] {opcode}(a, b)\n}}\n"
        for name, opcode in (("add32plain", "add"), ("max32plain", "maximum"))
    )
    text = program(["s32[3]"], body.replace("to_apply=add32,", "to_apply=add32plain,"), f", replica_count={DEVICES}")
    text = text.replace("ENTRY", plain + "ENTRY").replace("to_apply=add32\n", "to_apply=add32plain\n")
    with np.errstate(over="ignore"):
        wanted = function.reduce(np.stack(INTEGERS))
    for (got,) in run_module(executor, text, [(x,) for x in INTEGERS], DEVICES):
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("shapes", "reducer", "why"),
    [
        (["s32[3]"], "add32", "by more than one operation"),
        (["s32[3]", "u8[3]"], "ge_or", "operands of several types"),
    ],
)
def test_other_computations_of_another_kind_are_refused(shapes: Sequence[str], reducer: str, why: str) -> None:
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    names = ", ".join(f"p{k}" for k in range(len(shapes)))
    plain = "ge_or {\n  a = pred[] parameter(0)\n  b = pred[] parameter(1)\n  ROOT r = pred[] or(a, b)\n}\nENTRY"
    text = program(shapes, f"ROOT r = {result} all-reduce({names}), {ALL}, to_apply={reducer}", ", replica_count=4")
    module = parse_module(text.replace("ENTRY", plain), "m.hlo")
    verify_module(module)
    with pytest.raises(UnsupportedOpError, match=why) as caught:
        ExplicitPrecision().run(module)
    assert caught.value.location is not None


def values_of(element: ElementType) -> Array:
    """All numbers for 16 bits and less, those of f32 and f64 that differ most otherwise; in f64."""
    if element.bits > 16:
        limits = np.finfo(element.dtype)
        few = [0.0, -0.0, np.inf, -np.inf, limits.max, limits.min, limits.smallest_subnormal, 1 + limits.eps]
        return np.array(few, element.dtype).astype(np.float64)
    bits = np.arange(1 << element.bits).astype(np.uint8 if element.bits <= 8 else np.uint16)
    with np.errstate(invalid="ignore"):
        values = bits.view(element.dtype).astype(np.float64)
    return values[~np.isnan(values)]


@pytest.mark.parametrize("one", FLOATS, ids=str)
def test_the_type_of_two_holds_all_values_of_both(one: ElementType) -> None:
    for other in FLOATS:
        found = narrowest((one, other))
        assert found is narrowest((other, one))
        for values in (values_of(one), values_of(other)):
            back = values.astype(found.dtype).astype(np.float64)
            np.testing.assert_array_equal(back, values)
            np.testing.assert_array_equal(np.signbit(back), np.signbit(values))
