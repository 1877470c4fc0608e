"""Values written down by hand where XLA's semantics are easy to get wrong, for the oracle and for compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.ir.counts import Counts
from distxla.ir.element_type import element_type
from distxla.ir.shape import Shape
from tests.ops.case import Case, array

INF, NAN = float("inf"), float("nan")
# opcode, element type, operands, result
TABLE: list[tuple[str, str, tuple[list[Any], ...], list[Any]]] = [
    ("divide", "s32", ([7, -7, 7, -7, 5, -(2**31)], [2, 2, -2, -2, 0, -1]), [3, -3, -3, 3, -1, -(2**31)]),
    ("divide", "u8", ([7, 200, 5], [2, 7, 0]), [3, 28, 255]),
    ("divide", "s4", ([-8, 7, 7], [-1, 0, -2]), [-8, -1, -3]),
    ("remainder", "s32", ([7, -7, 7, -7, 5, -(2**31)], [2, 2, -2, -2, 0, -1]), [1, -1, 1, -1, 5, 0]),
    ("remainder", "f32", ([7.5, -7.5, 1.0, INF, 3.0], [2.0, 2.0, 0.0, 2.0, INF]), [1.5, -1.5, NAN, NAN, 3.0]),
    ("power", "s32", ([2, 0, 1, -1, -1, 3, 0], [-1, -1, -5, -3, -4, 2, 0]), [0, 0, 1, -1, 1, 9, 1]),
    ("power", "u8", ([3, 2], [5, 9]), [243, 0]),
    ("add", "s8", ([127, -128], [1, -1]), [-128, 127]),
    ("multiply", "s4", ([7, -8], [3, -1]), [5, -8]),
    ("maximum", "f32", ([NAN, 1.0, -INF], [1.0, NAN, 3.0]), [NAN, NAN, 3.0]),
    ("minimum", "bf16", ([NAN, 1.0, INF], [1.0, NAN, 3.0]), [NAN, NAN, 3.0]),
    ("shift-left", "s32", ([1, 1, 1, 1], [31, 32, 100, -1]), [-(2**31), 0, 0, 0]),
    ("shift-right-arithmetic", "s32", ([-8, -8, 8, -8], [1, 32, 40, -1]), [-4, -1, 0, -1]),
    ("shift-right-arithmetic", "u8", ([200, 200, 100], [1, 8, 9]), [228, 255, 0]),
    ("shift-right-logical", "s8", ([-56, -56, 100], [1, 8, -1]), [100, 0, 0]),
    ("shift-right-logical", "s4", ([-1, -1], [1, 4]), [7, 0]),
    ("mulhi", "s8", ([-128, 127, 100], [-128, 127, 3]), [64, 63, 1]),
    ("mulhi", "u64", ([2**64 - 1], [2**64 - 1]), [2**64 - 2]),
    ("abs", "s8", ([-128, -3, 3],), [-128, 3, 3]),
    ("negate", "s32", ([-(2**31), 5],), [-(2**31), -5]),
    ("sign", "f32", ([NAN, -3.0, INF],), [NAN, -1.0, 1.0]),
    ("not", "u4", ([0, 5, 15],), [15, 10, 0]),
    ("popcnt", "s8", ([-1, 5, 0],), [8, 2, 0]),
    ("count-leading-zeros", "s16", ([0, 1, -1, 255],), [16, 15, 0, 8]),
    ("round-nearest-afz", "f32", ([0.5, 1.5, -2.5, 0.49999997],), [1.0, 2.0, -3.0, 0.0]),
    ("round-nearest-even", "f32", ([0.5, 1.5, -2.5, 2.5000002],), [0.0, 2.0, -2.0, 3.0]),
    ("log", "f32", ([0.0, -1.0, 1.0, INF],), [-INF, NAN, 0.0, INF]),
    ("logistic", "f32", ([-INF, 0.0, INF],), [0.0, 0.5, 1.0]),
    ("exponential", "f32", ([-INF, 0.0, 1000.0, NAN],), [0.0, 1.0, INF, NAN]),
    ("sqrt", "f16", ([4.0, -1.0, INF],), [2.0, NAN, INF]),
    ("rsqrt", "f32", ([0.0, 4.0, INF, -1.0],), [INF, 0.5, 0.0, NAN]),
]
CONVERSIONS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("f32", "s32", [NAN, INF, -INF, 3e9, -3e9, -1.9, 1.9], [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), -1, 1]),
    ("f32", "u8", [NAN, -5.0, 255.9, 256.0, -0.5], [0, 0, 255, 255, 0]),
    ("f64", "s64", [1e30, -1e30, NAN], [2**63 - 1, -(2**63), 0]),
    ("bf16", "s4", [100.0, -100.0, 3.5], [7, -8, 3]),
    ("s32", "s8", [300, -129], [44, 127]),
    ("s32", "u4", [-1, 17], [15, 1]),
    ("f32", "pred", [0.0, NAN, 0.5], [False, True, True]),
    ("c64", "f32", [1 + 2j, -3j], [1.0, 0.0]),
    ("f32", "f8e4m3fn", [1000.0, 448.0, 0.3], [NAN, 448.0, 0.3125]),
    ("f32", "f8e5m2", [1e6, 57344.0], [INF, 57344.0]),
    ("s32", "bf16", [257, 259], [256.0, 260.0]),
]


def _values(name: str, values: list[Any]) -> np.ndarray[Any, Any]:
    dtype = element_type(name).dtype
    return np.array(values, np.uint64).astype(dtype) if name == "u64" else np.array(values).astype(dtype)


def _assert_equal(case: Case, wanted: np.ndarray[Any, Any]) -> None:
    from distxla.compiler.compile import compile_module
    from tests.compiler.runner import run_single

    (by_numpy,) = case.evaluated()
    (by_compiled,) = run_single(compile_module(case.module(), Counts(1, 1)), case.values())
    for got in (by_numpy, by_compiled):
        assert got is not None
        assert got.dtype == wanted.dtype
        if got.dtype.kind in "biu":
            np.testing.assert_array_equal(got, wanted)
        else:
            np.testing.assert_array_equal(got.astype(np.complex128), wanted.astype(np.complex128))


@pytest.mark.parametrize(("opcode", "name", "operands", "wanted"), TABLE, ids=lambda v: v if isinstance(v, str) else "")
def test_value(opcode: str, name: str, operands: tuple[list[Any], ...], wanted: list[Any]) -> None:
    shape = Shape(element_type(name), (len(wanted),))
    arguments = tuple(_values(name, values) for values in operands)
    _assert_equal(Case(opcode, (shape,) * len(operands), arguments=arguments), _values(name, wanted))


@pytest.mark.parametrize(("old", "new", "values", "wanted"), CONVERSIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_conversion(old: str, new: str, values: list[Any], wanted: list[Any]) -> None:
    n = len(values)
    case = Case("convert", (array(old, n),), result=array(new, n), arguments=(_values(old, values),))
    _assert_equal(case, _values(new, wanted))


def test_zeros_of_either_sign() -> None:
    """-0.0 is below 0.0 for maximum and minimum; sqrt, ceil and sign keep it."""
    zeros = np.array([0.0, -0.0, -0.0], np.float32), np.array([-0.0, 0.0, -0.0], np.float32)
    shape = array("f32", 3)
    signs = {
        opcode: np.signbit(np.asarray(Case(opcode, (shape, shape), arguments=zeros).evaluated()[0])).tolist()
        for opcode in ("maximum", "minimum")
    }
    assert signs == {"maximum": [False, False, True], "minimum": [True, True, True]}
    for opcode in ("sqrt", "ceil", "sign", "tanh"):
        (got,) = Case(opcode, (shape,), arguments=zeros[:1]).evaluated()
        assert np.signbit(np.asarray(got)).tolist() == [False, True, True], opcode


def test_total_order() -> None:
    order = np.array([-NAN, -INF, -1.0, -0.0, 0.0, 1.0, INF, NAN], np.float32)
    order[:1].view(np.uint32)[0] |= 0x80000000
    n = len(order)
    left, right = np.repeat(order, n), np.tile(order, n)
    shape = array("f32", n * n)
    case = Case("compare", (shape, shape), {"direction": "LT", "comparison": "TOTALORDER"}, arguments=(left, right))
    (got,) = case.evaluated()
    np.testing.assert_array_equal(np.asarray(got).reshape(n, n), np.triu(np.ones((n, n), bool), 1))
