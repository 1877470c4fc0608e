"""The accuracy that codegen/math.py states, over samples of all bit patterns and dense ones where digits cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distxla.codegen.math import FUNCTIONS
from tests.codegen.harness import Kernel, elementwise

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 88.72,
    88.73,
    -87.3, -103.9, -104.1, 0.5, -0.5, 1.5, 2.5, 0.49999997, 8388609.0,
]  # fmt: skip


def _round_away(x: Array) -> Array:
    towards = np.trunc(x)
    return np.copysign(np.where(np.abs(x - towards) >= 0.5, towards + np.sign(x), towards), x)


def _erf(x: Array) -> Array:
    special = pytest.importorskip("scipy.special")
    return np.asarray(special.erf(x))


# opcode: reference in a wider type, ULPs for f32, ULPs for f64 (None: the library's)
REFERENCES: dict[str, tuple[Callable[[Array], Array], float, float | None]] = {
    "exponential": (np.exp, 1.1, 1.1),
    "exponential-minus-one": (np.expm1, 1.6, 1.9),
    "log": (np.log, 0.8, 0.8),
    "log-plus-one": (np.log1p, 0.9, 0.9),
    "tanh": (np.tanh, 5.0, 2.6),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), 2.4, 2.4),
    "erf": (_erf, 2.5, None),
    "sine": (np.sin, 1.6, None),
    "cosine": (np.cos, 1.6, None),
    "tan": (np.tan, 0.6, None),
    "asin": (np.arcsin, 0.6, None),
    "acos": (np.arccos, 0.6, None),
    "sinh": (np.sinh, 0.6, None),
    "cosh": (np.cosh, 0.6, None),
    "asinh": (np.arcsinh, 0.6, None),
    "acosh": (np.arccosh, 0.6, None),
    "atanh": (np.arctanh, 0.6, None),
    "cbrt": (np.cbrt, 0.6, None),
    "sqrt": (np.sqrt, 0.5, 0.6),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6, 1.6),
    "floor": (np.floor, 0, 0),
    "ceil": (np.ceil, 0, 0),
    "round-nearest-even": (np.rint, 0, 0),
    "round-nearest-afz": (_round_away, 0, 0),
}


def samples(kind: str) -> Array:
    rng = np.random.default_rng(0)
    if kind == "f32":
        patterns = (np.arange(1 << 18, dtype=np.uint64) * 16381 % (1 << 32)).astype(np.uint32).view(np.float32)
        dense = [rng.uniform(-20, 20, 1 << 17), rng.uniform(-1, 1, 1 << 17), rng.uniform(-104, 89, 1 << 16)]
        return np.concatenate([patterns, *dense, SPECIAL]).astype(np.float32)
    patterns = rng.integers(0, 1 << 64, 1 << 18, dtype=np.uint64).view(np.float64)
    dense = [rng.uniform(-40, 40, 1 << 17), rng.uniform(-1, 1, 1 << 17), rng.uniform(-750, 750, 1 << 16)]
    return np.concatenate([patterns, *dense, SPECIAL])


def ulps(got: Array, wanted: Array) -> Array:
    """Distance from a wider reference in units of the last place; infinite for another NaN, infinity or sign of
    zero."""
    info = np.finfo(got.dtype)
    rounded = wanted.astype(got.dtype)
    exponent = np.frexp(np.abs(wanted).astype(np.float64))[1]
    unit = np.ldexp(1.0, np.maximum(exponent - info.nmant - 1, info.minexp - info.nmant))
    distance = np.abs(got.astype(wanted.dtype) - wanted) / unit
    same = (got == rounded) & (np.signbit(got) == np.signbit(rounded)) | (np.isnan(got) & np.isnan(rounded))
    distance = np.where(same, np.minimum(np.nan_to_num(distance, nan=0, posinf=0), 0.5), distance)
    wrong = (np.isinf(got) ^ np.isinf(rounded)) | (np.isnan(got) ^ np.isnan(rounded))
    return np.where(wrong | (~same & (got == 0) & (rounded == 0)), np.inf, distance)


def test_every_function_has_a_reference() -> None:
    assert set(REFERENCES) == set(FUNCTIONS)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("opcode", REFERENCES)
def test_accuracy(opcode: str, kind: str) -> None:
    reference, single, double = REFERENCES[opcode]
    limit = single if kind == "f32" else double
    x = samples(kind)
    kernel = Kernel(elementwise(f"{opcode}(p0)", [f"{kind}[{len(x)}]"], f"{kind}[{len(x)}]"))
    got = kernel(x)
    wide = reference(x.astype(np.float64 if kind == "f32" or double is None else np.longdouble))
    if limit is None:
        # the C library's function: only that it is the right one
        np.testing.assert_allclose(got, reference(x), rtol=1e-12, atol=1e-300)
        return
    distance = ulps(got, wide)
    worst = int(np.argmax(distance))
    limit = max(limit, 0.5) if wide.dtype != got.dtype else limit
    assert distance[worst] <= limit, f"{opcode}({x[worst]!r}) = {got[worst]!r} instead of {wide[worst]!r}"
    vectors = "<16 x float>" if kind == "f32" else "<8 x double>"
    assert vectors in kernel.optimised or "<8 x double>" in kernel.optimised or "<8 x float>" in kernel.optimised


def test_power_special_cases() -> None:
    numbers = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-40, 1e38], np.float32)
    x, y = (a.reshape(-1) for a in np.meshgrid(numbers, numbers))
    kernel = Kernel(elementwise("power(p0, p1)", [f"f32[{x.size}]"] * 2, f"f32[{x.size}]"))
    wide = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps(kernel(x, y), wide).max() <= 0.6


def test_atan2_special_cases() -> None:
    numbers = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e38], np.float32)
    x, y = (a.reshape(-1) for a in np.meshgrid(numbers, numbers))
    kernel = Kernel(elementwise("atan2(p0, p1)", [f"f32[{x.size}]"] * 2, f"f32[{x.size}]"))
    wide = np.arctan2(x.astype(np.float64), y.astype(np.float64))
    assert ulps(kernel(x, y), wide).max() <= 0.6
