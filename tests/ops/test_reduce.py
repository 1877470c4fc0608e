"""`reduce` and `map`: computations applied to elements."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.text.parser import parse_module
from tests.compiler.lower.harness import Kernel
from tests.ops.reduce_cases import CASES
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees
from tests.samples import in_turn


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
