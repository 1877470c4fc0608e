"""Fusions of data movement, reductions and products, compiled against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.lower.harness import Kernel
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]
REDUCERS = """
add { a = T[] parameter(0)  b = T[] parameter(1)  ROOT r = T[] add(a, b) }
mul { a = T[] parameter(0)  b = T[] parameter(1)  ROOT r = T[] multiply(a, b) }
max { a = T[] parameter(0)  b = T[] parameter(1)  ROOT r = T[] maximum(a, b) }
odd { a = T[] parameter(0)  b = T[] parameter(1)  s = T[] subtract(a, b)  m = T[] multiply(s, s)  ROOT r = T[]
maximum(a, m) }
argmax {
  a = T[] parameter(0)  i = s32[] parameter(1)  b = T[] parameter(2)  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = T[] select(g, a, b)  k = s32[] select(g, i, j)
  ROOT r = (T[], s32[]) tuple(v, k)
}
"""


def module(body: str, result: str, shapes: list[str], kind: str = "f32") -> Module:
    parameters = "\n".join(f"  p{i} = {s} parameter({i})" for i, s in enumerate(shapes))
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    text = (
        f"HloModule test\n{REDUCERS.replace('T[', kind + '[')}\nfused {{\n{parameters}\n{body}\n}}\n"
        f"ENTRY main {{\n{parameters}\n  ROOT f = {result} fusion({names}), kind=kLoop, calls=fused\n}}"
    )
    return parse_module(text, "<test>")


def check(made: Module, seed: int = 0, ulps: int | None = None) -> Kernel:
    rng = np.random.default_rng(seed)
    arrays = []
    for parameter in made.entry_computation.parameters:
        shape = parameter.shape
        if shape.dtype.is_float:
            arrays.append(rng.normal(size=shape.dims).astype(shape.dtype.dtype))
        else:
            arrays.append(rng.integers(0, 5, shape.dims).astype(shape.dtype.dtype))
    kernel = Kernel(made)
    got = kernel(*arrays)
    (wanted,) = run_reference(made, [arrays], Counts(1, 1))
    results = got if isinstance(got, tuple) else (got,)
    for leaf, value, want in zip(made.entry_computation.root_instruction.shape.leaves(), results, wanted, strict=True):
        assert want is not None
        assert_close(value, want, leaf.dtype, ulps)
    return kernel


MOVEMENT = [
    ("ROOT r = f32[] add(p0, p0)", "f32[]", ["f32[]"]),
    ("ROOT r = f32[0,3] add(p0, p0)", "f32[0,3]", ["f32[0,3]"]),
    ("ROOT r = f32[7,13] transpose(p0), dimensions={1,0}", "f32[7,13]", ["f32[13,7]"]),
    ("ROOT r = f32[100,70] transpose(p0), dimensions={1,0}", "f32[100,70]", ["f32[70,100]"]),
    ("ROOT r = f32[64,96] transpose(p0), dimensions={1,0}", "f32[64,96]", ["f32[96,64]"]),
    ("ROOT r = f32[5,64,3,33] transpose(p0), dimensions={2,3,0,1}", "f32[5,64,3,33]", ["f32[3,33,5,64]"]),
    ("t = f32[8,6] transpose(p0), dimensions={1,0}\n  ROOT r = f32[8,6] add(t, p1)", "f32[8,6]", ["f32[6,8]",
    "f32[8,6]"]),
    ("b = f32[3,5] broadcast(p1), dimensions={1}\n  ROOT r = f32[3,5] add(p0, b)", "f32[3,5]", ["f32[3,5]", "f32[5]"]),
    ("b = f32[3,5] broadcast(p1), dimensions={0}\n  ROOT r = f32[3,5] add(p0, b)", "f32[3,5]", ["f32[3,5]", "f32[3]"]),
    ("ROOT r = f32[6,4] reshape(p0)", "f32[6,4]", ["f32[2,3,4]"]),
    ("ROOT r = f32[3,8] reshape(p0)", "f32[3,8]", ["f32[4,6]"]),
    ("a = f32[3,8] add(p0, p0)\n  b = f32[4,6] reshape(a)\n  ROOT r = f32[4,6] multiply(b, p1)", "f32[4,6]",
     ["f32[3,8]", "f32[4,6]"]),
    ("t = f32[6,4] transpose(p0), dimensions={1,0}\n  ROOT r = f32[3,8] reshape(t)", "f32[3,8]", ["f32[4,6]"]),
    ("ROOT r = f32[2,3] slice(p0), slice={[1:5:2],[0:3:1]}", "f32[2,3]", ["f32[6,4]"]),
    ("ROOT r = f32[4,5] reverse(p0), dimensions={0,1}", "f32[4,5]", ["f32[4,5]"]),
    ("ROOT r = f32[9,3] concatenate(p0, p1, p0), dimensions={0}", "f32[9,3]", ["f32[2,3]", "f32[5,3]"]),
    ("c = f32[3,7] concatenate(p0, p1), dimensions={1}\n  ROOT r = f32[3,7] negate(c)", "f32[3,7]", ["f32[3,2]",
    "f32[3,5]"]),
    ("ROOT r = f32[7,9] pad(p0, p1), padding=1_2x3_2", "f32[7,9]", ["f32[4,4]", "f32[]"]),
    ("ROOT r = f32[10,3] pad(p0, p1), padding=1_2_1x-1_0", "f32[10,3]", ["f32[4,4]", "f32[]"]),
    ("ROOT r = f32[4,5,6] pad(p0, p1), padding=1_1x1_1x1_1", "f32[4,5,6]", ["f32[2,3,4]", "f32[]"]),
    ("ROOT r = s32[3,5] iota(), iota_dimension=1", "s32[3,5]", []),
    ("ROOT r = f32[3,5] iota(), iota_dimension=0", "f32[3,5]", []),
    ("ROOT r = f32[2,3] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,3}", "f32[2,3]", ["f32[6,7]", "s32[]",
    "s32[]"]),
    ("ROOT r = f32[4,2,3] gather(p0, p1), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, "
     "index_vector_dim=1, slice_sizes={2,3}", "f32[4,2,3]", ["f32[6,7]", "s32[4,2]"]),
    ("c = f32[4] constant({1, 2, 3, -0.0})\n  ROOT r = f32[4] multiply(p0, c)", "f32[4]", ["f32[4]"]),
    ("ROOT r = u8[3,4] bitcast-convert(p0)", "u8[3,4]", ["f32[3]"]),
    ("ROOT r = f32[3] bitcast-convert(p0)", "f32[3]", ["u8[3,4]"]),
    ("z = f32[] constant(0)\n  b = f32[5] broadcast(z), dimensions={}\n  g = pred[5] compare(p0, b), direction=GT\n"
     "  ROOT r = f32[5] select(g, p0, b)", "f32[5]", ["f32[5]"]),
    ("a = f32[5,3] add(p0, p0)\n  n = f32[5,3] negate(p0)\n  ROOT r = (f32[5,3], f32[5,3]) tuple(a, n)",
     "(f32[5,3], f32[5,3])", ["f32[5,3]"]),
    ("c = bf16[40] convert(p0)\n  m = bf16[40] multiply(c, c)\n  ROOT r = f32[40] convert(m)", "f32[40]", ["f32[40]"]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "result", "shapes"), MOVEMENT, ids=[b.split("ROOT")[-1][:50] for b, _, _ in MOVEMENT])
def test_movement(body: str, result: str, shapes: list[str]) -> None:
    check(module(body, result, shapes), ulps=0)


# dims, reduced dimensions
REDUCTIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((7,), (0,)),
    ((1000,), (0,)),
    ((37, 129), (1,)),
    ((37, 129), (0,)),
    ((5, 129), (0,)),
    ((37, 129), (0, 1)),
    ((3, 11, 5, 13), (1, 3)),
    ((3, 11, 5, 13), (0, 2)),
    ((3, 11, 5, 13), (0, 1, 2)),
    ((3, 20, 5000), (1,)),
    ((2, 20, 3, 1500), (1,)),
    ((20, 1), (0,)),
    ((1, 20), (0,)),
    ((0, 4), (0,)),
    ((4, 0), (0,)),
]


@pytest.mark.sampled(one_in=8, first=("max-s32-(3, 20, 5000)-(1,)",))
@pytest.mark.parametrize(("dims", "reduced"), REDUCTIONS, ids=str)
@pytest.mark.parametrize(
    ("computation", "kind"),
    [("argmax", "f32"), *((c, k) for c in ("add", "max") for k in ("f32", "bf16", "s32"))],
)
def test_reductions(dims: tuple[int, ...], reduced: tuple[int, ...], computation: str, kind: str) -> None:
    shape = ",".join(map(str, dims))
    kept = ",".join(str(d) for i, d in enumerate(dims) if i not in reduced)
    over = ",".join(map(str, reduced))
    if computation == "argmax":
        body = (
            f"  z = s32[] constant(-1)\n  ROOT r = ({kind}[{kept}], s32[{kept}]) reduce(p0, p1, p2, z), "
            f"dimensions={{{over}}}, to_apply=argmax"
        )
        made = module(body, f"({kind}[{kept}], s32[{kept}])", [f"{kind}[{shape}]", f"s32[{shape}]", f"{kind}[]"], kind)
        check(made)
        return
    body = (
        f"  s = {kind}[{shape}] add(p0, p0)\n  ROOT r = {kind}[{kept}] reduce(s, p1), dimensions={{{over}}}, "
        f"to_apply={computation}"
    )
    made = module(body, f"{kind}[{kept}]", [f"{kind}[{shape}]", f"{kind}[]"], kind)
    _check_sums(made, kind)


def _check_sums(made: Module, kind: str) -> None:
    """Against sums in f64, since the order of a sum is free."""
    rng = np.random.default_rng(3)
    arrays = []
    for parameter in made.entry_computation.parameters:
        shape = parameter.shape
        arrays.append((rng.normal(size=shape.dims) * 8).astype(shape.dtype.dtype))
    got = Kernel(made)(*arrays)
    ((wanted,),) = run_reference(made, [arrays], Counts(1, 1))
    assert wanted is not None
    if kind == "s32":
        np.testing.assert_array_equal(got, wanted)
        return
    scale = np.abs(arrays[0].astype(np.float64)).sum() / max(1, got.size) + 1
    tolerance = {"f32": 1e-6, "bf16": 2e-2}[kind] * scale
    np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), atol=tolerance, rtol=0.01)


def test_reduction_is_repeatable() -> None:
    made = module(
        "  ROOT r = f32[33] reduce(p0, p1), dimensions={1}, to_apply=add", "f32[33]", ["f32[33,4097]", "f32[]"]
    )
    kernel = Kernel(made)
    array = np.random.default_rng(0).normal(size=(33, 4097)).astype(np.float32)
    first = kernel(array, np.float32(0))
    for _ in range(3):
        assert kernel(array, np.float32(0)).tobytes() == first.tobytes()


@pytest.mark.parametrize("dims", [(257,), (40, 40)])
def test_maximum_sees_nan(dims: tuple[int, ...]) -> None:
    shape = ",".join(map(str, dims))
    body = "  ROOT r = f32[] reduce(p0, p1), dimensions={" + ",".join(map(str, range(len(dims)))) + "}, to_apply=max"
    kernel = Kernel(module(body, "f32[]", [f"f32[{shape}]", "f32[]"]))
    array = np.ones(dims, np.float32)
    assert kernel(array, np.float32(-np.inf)) == 1
    array.reshape(-1)[131] = np.nan
    assert np.isnan(kernel(array, np.float32(-np.inf)))


def test_two_reductions_in_one_pass() -> None:
    body = (
        "  q = f32[19,31] multiply(p0, p0)\n  a = f32[31] reduce(p0, p1), dimensions={0}, to_apply=add\n"
        "  b = f32[31] reduce(q, p1), dimensions={0}, to_apply=add\n  ROOT t = (f32[31], f32[31]) tuple(a, b)"
    )
    check(module(body, "(f32[31], f32[31])", ["f32[19,31]", "f32[]"]), ulps=1 << 14)


def test_sums_use_vectors() -> None:
    body = "  ROOT r = f32[64] reduce(p0, p1), dimensions={1}, to_apply=add"
    kernel = Kernel(module(body, "f32[64]", ["f32[64,4096]", "f32[]"]))
    assert "x float>" in kernel.optimised


def test_elementwise_chain_is_one_flat_loop() -> None:
    body = "  a = f32[6,7,8] add(p0, p0)\n  r1 = f32[42,8] reshape(a)\n  ROOT r = f32[42,8] tanh(r1)"
    kernel = Kernel(module(body, "f32[42,8]", ["f32[6,7,8]"]))
    assert kernel.text.count("phi  i64") == 1


def test_concatenation_has_no_branch_in_its_loops() -> None:
    body = "  ROOT r = f32[64,300] concatenate(p0, p1), dimensions={1}"
    kernel = Kernel(module(body, "f32[64,300]", ["f32[64,100]", "f32[64,200]"]))
    assert 'label %"then"' not in kernel.text


DOTS = [
    ("f32", "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "[3,5]", "[3,4]", "[4,5]"),
    ("f32", "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "[33,65]", "[33,70]", "[70,65]"),
    ("f32", "dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={1}", "[33,65]", "[70,33]", "[65,70]"),
    ("f64", "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}", "[33,65]", "[33,70]", "[65,70]"),
    ("c64", "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "[33,65]", "[33,70]", "[70,65]"),
    ("s32", "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "[33,65]", "[33,70]", "[70,65]"),
    ("bf16", "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "[33,65]", "[33,70]", "[70,65]"),
    ("f32", "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "[300]", "[300,200]", "[200]"),
    ("f32", "dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "[]", "[300]", "[300]"),
    ("f32", "dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
     "[3,33,40]", "[3,33,20]", "[3,20,40]"),
    ("f32", "dot(p0, p1), lhs_batch_dims={1}, rhs_batch_dims={2}, "
     "lhs_contracting_dims={2,0}, rhs_contracting_dims={0,1}",
     "[3,33,40]", "[5,3,20,33]", "[20,5,3,40]"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "expression", "result", "left", "right"), DOTS, ids=str)
def test_dot(kind: str, expression: str, result: str, left: str, right: str) -> None:
    text = (
        f"HloModule m\nENTRY main {{\n  p0 = {kind}{left} parameter(0)\n  p1 = {kind}{right} parameter(1)\n"
        f"  ROOT d = {kind}{result} {expression}\n}}"
    )
    made = parse_module(text, "<test>")
    rng = np.random.default_rng(1)
    arrays = [
        (rng.normal(size=p.shape.dims) * 4).astype(p.shape.dtype.dtype) for p in made.entry_computation.parameters
    ]
    got = Kernel(made)(*arrays)
    ((wanted,),) = run_reference(made, [arrays], Counts(1, 1))
    assert wanted is not None
    wide = np.complex128 if kind == "c64" else np.float64
    tolerance = {"bf16": 1e-2, "s32": 0, "f64": 1e-12}.get(kind, 1e-5)
    scale = np.abs(wanted.astype(wide)).max()
    assert np.abs(got.astype(wide) - wanted.astype(wide)).max() <= tolerance * scale
