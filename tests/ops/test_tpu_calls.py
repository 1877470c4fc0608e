"""Custom-calls of schedules of XLA's TPU compiler, one by one; whole schedules: tests/test_tpu_schedules.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.errors import UnsupportedOpError
from tests.ops.program_case import compiled, evaluated, parsed

Array = np.ndarray[Any, Any]

WIDE = {
    "s64": np.array([0, -1, 1, 2**62 + 3, -(2**63), 2**31, -(2**31) - 1], np.int64),
    "u64": np.array([0, 2**64 - 1, 1, 2**63 + 7, 2**32, 2**32 - 1, 5], np.uint64),
    "c64": np.array([0, 1 - 2j, 3j, -1e30 + 1e-30j, np.inf, 2, -5j], np.complex64),
    "f64": np.array([0, 0.1, -1e300, np.inf, -np.inf, np.nan, 2.0**30 + 2.0**-10], np.float64),
}
HALVES = {"s64": "u32", "u64": "u32", "c64": "f32", "f64": "f32"}


def split(element: str) -> str:
    half = HALVES[element]
    return f"""HloModule m
ENTRY e {{
  x = {element}[7]{{0:T(128)}} parameter(0)
  low = {half}[7]{{0:T(128)}} custom-call(x), custom_call_target="X64SplitLow"
  high = {half}[7]{{0:T(128)}} custom-call(x), custom_call_target="X64SplitHigh"
  whole = {element}[7]{{0:T(128)}} custom-call(low, high), custom_call_target="X64Combine"
  ROOT t = ({half}[7]{{0:T(128)}}, {half}[7]{{0:T(128)}}, {element}[7]{{0:T(128)}}) tuple(low, high, whole)
}}
"""


def halves(element: str, x: Array) -> tuple[Array, Array, Array]:
    if element == "c64":
        return x.real, x.imag, x
    if element == "f64":
        with np.errstate(all="ignore"):
            low = x.astype(np.float32)
            high = np.where(np.isfinite(low), (x - low).astype(np.float32), np.float32(0))
            return low, high, low.astype(np.float64) + high
    bits = x.view(np.uint64)
    return (bits & 0xFFFFFFFF).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32), x


@pytest.mark.parametrize("run", [evaluated, compiled])
@pytest.mark.parametrize("element", WIDE)
def test_wide_elements_are_taken_apart_and_put_together(element: str, run: Any) -> None:
    x = WIDE[element]
    for got, wanted in zip(run(split(element), x), halves(element, x), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


REFUSED = {
    "a narrow element": ('f32[2] custom-call(x), custom_call_target="X64SplitLow"', "f32[2]", "64-bit elements"),
    "halves of another type": ('f64[2] custom-call(x, x), custom_call_target="X64Combine"', "u32[2]", "two halves"),
    "one half": ('u64[2] custom-call(x), custom_call_target="X64Combine"', "u32[2]", "two halves"),
    "a result of another type": ('u64[2] custom-call(x), custom_call_target="X64SplitLow"', "u64[2]", "the result is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_operands_are_refused(name: str) -> None:
    call, shape, why = REFUSED[name]
    with pytest.raises(UnsupportedOpError, match=why) as caught:
        parsed(f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT r = {call}\n}}\n")
    assert caught.value.location is not None
