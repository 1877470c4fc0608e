"""The total order of floats of 8 bits: the same in `compare`, in `sort` by keys and by merging, and in `topk`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import element_type
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single
from tests.ops.structured_case import StructuredCase

Array = np.ndarray[Any, Any]
TYPES = (
    "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e3m4", "f8e5m2fnuz", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e8m0fnu", "f4e2m1fn"
)  # fmt: skip
COMPARISONS = {
    "keys": "ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER",
    # no comparison of two keys, so lines are merged
    "merging": "c = pred[] compare(a, b), direction=GE, type=TOTALORDER\n ROOT r = pred[] not(c)",
    # as JAX sorts: every NaN is a constant one
    "constant": """an = pred[] compare(a, a), direction=NE
 bn = pred[] compare(b, b), direction=NE
 nan = T[] constant(nan)
 x = T[] select(an, nan, a)
 y = T[] select(bn, nan, b)
 ROOT r = pred[] compare(x, y), direction=LT, type=TOTALORDER""",
}


def _codes(name: str) -> Array:
    codes = np.arange(16 if name == "f4e2m1fn" else 256, dtype=np.uint8)
    return np.random.default_rng(0).permutation(codes)


def _ordered(name: str) -> Array:
    """All codes by sign and magnitude, as totalOrder of IEEE 754 has them. The fnuz types' only NaN, 0x80, is the
    magnitude beyond all others with the sign bit; f8e8m0fnu has no sign."""
    codes = np.sort(_codes(name)).astype(int)
    if name == "f8e8m0fnu":
        return codes
    sign = 8 if name == "f4e2m1fn" else 128

    def place(code: int) -> int:
        if name.endswith("fnuz") and code == sign:
            return -1000
        return -1 - (code - sign) if code >= sign else code

    return np.array(sorted(codes, key=place))


def _module(name: str, comparison: str, size: int) -> str:
    body = COMPARISONS[comparison].replace("T[", f"{name}[")
    return f"""HloModule m
before {{
 a = {name}[] parameter(0)
 b = {name}[] parameter(1)
 {body}
}}
ENTRY e {{
 p = {name}[{size}] parameter(0)
 ROOT s = {name}[{size}] sort(p), dimensions={{0}}, is_stable=true, to_apply=before
}}"""


@pytest.mark.parametrize("comparison", ["keys", "merging"])
@pytest.mark.parametrize("name", TYPES)
def test_all_values_have_their_places(name: str, comparison: str) -> None:
    codes = _codes(name)
    program = compile_module(parse_module(_module(name, comparison, codes.size)), Counts(1, 1))
    (got,) = run_single(program, [codes.view(element_type(name).dtype)])
    assert got.view(np.uint8).tolist() == _ordered(name).tolist()


@pytest.mark.parametrize("name", [t for t in TYPES if t != "f4e2m1fn"])
def test_a_constant_nan_has_the_place_of_a_loaded_one(name: str) -> None:
    """First in the fnuz types, last in the others: in f8e5m2fnuz it was last as a constant, first as a parameter."""
    codes = _codes(name)
    program = compile_module(parse_module(_module(name, "constant", codes.size)), Counts(1, 1))
    (got,) = run_single(program, [codes.view(element_type(name).dtype)])
    nans = np.flatnonzero(np.isnan(got.astype(np.float32)))
    first = 0 if name.endswith("fnuz") else codes.size - nans.size
    assert nans.tolist() == list(range(first, first + nans.size))


@pytest.mark.parametrize("name", [t for t in TYPES if t != "f4e2m1fn"])
def test_top_k_takes_the_total_order(name: str) -> None:
    values = _codes(name).view(element_type(name).dtype)
    text = f"({name}[256], s32[256]) topk(@), k=256, largest=true"
    case = StructuredCase(text, (f"{name}[256]",), name, {0: values})
    for best, _ in (case.evaluated(), case.compiled()):
        assert best.view(np.uint8).tolist() == _ordered(name)[::-1].tolist()


@pytest.mark.parametrize(("name", "bits"), [("f32", "u32"), ("f64", "u64"), ("f16", "u16"), ("bf16", "u16")])
@pytest.mark.parametrize("nan", ["nan", "-nan"])
def test_a_scalar_constant_keeps_the_sign_of_nan(name: str, bits: str, nan: str) -> None:
    text = f"HloModule m\nENTRY e {{\n c = {name}[] constant({nan})\n b = {name}[3] broadcast(c), dimensions={{}}\n"
    text += f" p = {name}[3] parameter(0)\n q = pred[3] compare(p, p), direction=EQ\n"
    text += f" s = {name}[3] select(q, b, p)\n ROOT r = {bits}[3] bitcast-convert(s)\n}}"
    program = compile_module(parse_module(text), Counts(1, 1))
    (got,) = run_single(program, [np.ones(3, element_type(name).dtype)])
    width = 8 * got.itemsize
    assert [int(v) >> (width - 1) for v in got] == [int(nan == "-nan")] * 3
