"""`reduce` and `map`: computations applied to elements."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.text.parser import parse_module
from tests.compiler.lower.harness import Kernel
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees
from tests.samples import in_turn

CASES = [
    StructuredCase("f32[4] reduce(@), dimensions={1,0}, to_apply=add", ("f32[3,5,4]", "f32[]")),
    StructuredCase("f32[3,5] reduce(@), dimensions={2}, to_apply=add", ("f32[3,5,4]", "f32[]")),
    StructuredCase("f32[3,4] reduce(@), dimensions={1}, to_apply=max", ("f32[3,5,4]", "f32[]")),
    StructuredCase("f32[] reduce(@), dimensions={0,1,2}, to_apply=add", ("f32[3,5,4]", "f32[]")),
    # several lines, or steps, side by side, and those left over
    StructuredCase("f32[3,13] reduce(@), dimensions={2}, to_apply=add", ("f32[3,13,600]", "f32[]")),
    StructuredCase("s8[8] reduce(@), dimensions={0,2}, to_apply=add", ("s8[60,8,50]", "s8[]"), "s8"),
    StructuredCase("f32[3,70] reduce(@), dimensions={1}, to_apply=max", ("f32[3,21,70]", "f32[]")),
    StructuredCase("f32[70] reduce(@), dimensions={0,1}, to_apply=add", ("f32[5,11,70]", "f32[]")),
    # XLA leaves the initial value out where nothing is reduced
    StructuredCase("f32[3,5] reduce(@), dimensions={}, to_apply=add", ("f32[3,5]", "f32[]"), arguments={1: 0}),
    StructuredCase("f32[3] reduce(@), dimensions={1}, to_apply=add", ("f32[3,0]", "f32[]")),
    StructuredCase("f32[0] reduce(@), dimensions={1}, to_apply=add", ("f32[0,3]", "f32[]")),
    StructuredCase("s8[3] reduce(@), dimensions={1}, to_apply=add", ("s8[3,50]", "s8[]"), "s8"),
    StructuredCase("u64[3] reduce(@), dimensions={1}, to_apply=max", ("u64[3,50]", "u64[]"), "u64"),
    StructuredCase(
        "(f32[4], s32[4]) reduce(@), dimensions={1,0}, to_apply=argmax",
        ("f32[3,5,4]", "s32[3,5,4]", "f32[]", "s32[]"),
        arguments={2: -1e9},
    ),
    StructuredCase("f32[4,3] map(@), dimensions={0,1}, to_apply=max", ("f32[4,3]", "f32[4,3]")),
    StructuredCase("pred[7] map(@), dimensions={0}, to_apply=ge", ("f32[7]", "f32[7]")),
    StructuredCase("u32[] replica-id(@)"),
    StructuredCase("u32[] partition-id(@)"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    assert_compiled_agrees(case)


KINDS = ["f64", "f32", "f16", "bf16", "f8e5m2", "f8e4m3fn", "f4e2m1fn"]
ROWS = [(7, 40), (11, 2100), (11, 2112)]


@pytest.mark.sampled(one_in=12, first=("f64-size1-minimum", "f8e5m2-size14-maximum"))
@pytest.mark.parametrize(("element", "size", "opcode"), in_turn(KINDS, ROWS, ["maximum", "minimum"]))
def test_extremes_of_rows_are_exact_and_keep_nans(element: str, size: tuple[int, int], opcode: str) -> None:
    rows, columns = size
    text = (
        f"HloModule m\nr {{\n a = {element}[] parameter(0)\n b = {element}[] parameter(1)\n"
        f" ROOT c = {element}[] {opcode}(a, b)\n}}\nENTRY e {{\n x = {element}[{rows},{columns}] parameter(0)\n"
        f" i = {element}[] parameter(1)\n ROOT y = {element}[{rows}] reduce(x, i), dimensions={{1}}, to_apply=r\n}}\n"
    )
    module = parse_module(text)
    dtype = module.entry_computation.parameters[0].shape.dtype.dtype
    values = np.random.default_rng(0).uniform(-3, 3, (rows, columns)).astype(dtype)
    values[1, 5], values[2, 38], values[3] = -0.0, 0.0, -0.0
    values[3, 7] = 0.0
    if element != "f4e2m1fn":
        values[4, 39], values[5, 3] = np.nan, -np.array(np.nan, dtype)
    if element in ("f64", "f32", "f16", "bf16", "f8e5m2"):
        values[6, 0], values[6, 1] = np.inf, -np.inf
    for start in (values[0, 0], np.array(0, dtype), np.array(np.nan).astype(dtype)):
        got = Kernel(module)(values, start).astype(np.float64)
        reduced = {"maximum": np.maximum, "minimum": np.minimum}[opcode]
        wanted = reduced(reduced.reduce(values.astype(np.float64), axis=1), np.float64(start))
        np.testing.assert_array_equal(got, wanted)
    # row 3 has nothing but zeros of both signs
    got = Kernel(module)(values[3:4].repeat(rows, axis=0), values[3, 0]).astype(np.float64)
    assert (np.signbit(got) == (opcode == "minimum")).all()
