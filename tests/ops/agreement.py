"""Where two results of an element-wise op disagree."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.ir.element_type import ElementType
from tests.ops.case import Array, Case
from tests.tolerances import ulps_between

# Of transcendental functions: emitted code (docs/accuracy.md) and NumPy together; narrow floats are computed in f32.
EXPENSIVE_ULPS = {"f32": 4, "f64": 4, "c64": 4, "c128": 8}
# 1 / sqrt(x) in f32 rounds twice; NumPy's hypot is off by as much as ours.
CHEAP_ULPS = {("rsqrt", "f32"): 2, ("rsqrt", "f64"): 2, ("abs", "c64"): 1, ("abs", "c128"): 1}


def disagreements(case: Case, got: Array, wanted: Array, slack: int = 0) -> Array:
    """A mask: NaN beside a number, other signs of zero, other integers, floats further apart than the op's bound plus
    `slack` ULP. Parts of a complex number are measured by its modulus; beside a NaN only the size of the other part
    counts, and zeros' signs don't, which C leaves open."""
    assert got.shape == wanted.shape == case.shape.dims, str(case)
    assert got.dtype == wanted.dtype == case.shape.dtype.dtype, str(case)
    element = case.shape.dtype
    if element.is_complex:
        return _complex_disagreements(case, got, wanted, slack)
    if not element.is_float:
        return np.asarray(got != wanted)
    operand = case.operands[0].dtype if case.operands else element
    is_expensive = case.op.elements.is_expensive
    bound = EXPENSIVE_ULPS.get(element.name, 1) if is_expensive else CHEAP_ULPS.get((case.opcode, operand.name), 0)
    with np.errstate(all="ignore"):
        far = ulps_between(got, wanted) > bound + slack
        a, b = got.astype(np.float64), wanted.astype(np.float64)
    return np.asarray(far | ((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))))


def _complex_disagreements(case: Case, got: Array, wanted: Array, slack: int) -> Array:
    with np.errstate(all="ignore"):
        size = np.abs(wanted.astype(np.complex128))
        if case.opcode == "multiply":
            # the parts are sums that cancel
            size = np.prod([np.abs(v.astype(np.complex128)) for v in case.values()], axis=0)
        if case.opcode == "power":
            # the exponential multiplies the error of its argument
            base, exponent = (v.astype(np.complex128) for v in case.values())
            size = size * (1 + np.abs(exponent * np.log(base)))
        if case.opcode == "atan2":
            # a logarithm of numbers near 1
            size = np.maximum(size, 1)
        exact = not case.op.elements.is_expensive and case.opcode not in ("multiply", "divide", "sqrt", "rsqrt", "sign")
        bound = 0.0 if exact else (EXPENSIVE_ULPS[case.shape.dtype.name] + slack) * np.finfo(got.dtype).eps
        far = np.abs(got.astype(np.complex128) - wanted) > bound * size
        parts = [(got.real, wanted.real), (got.imag, wanted.imag)]
        same = np.all([(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in parts], axis=0)
        open_signs = np.all([(np.abs(a) == np.abs(b)) | (np.isnan(a) & np.isnan(b)) for a, b in parts], axis=0)
        same |= open_signs & np.isnan(got) & np.isnan(wanted)
        finite = np.isfinite(got) & np.isfinite(wanted)
    return np.asarray(np.where(finite, far, ~same))


def tiny(values: Array, element: ElementType) -> Array:
    """Whether a float, or a part of a complex number, is in the type in which XLA CPU computes a subnormal number, or
    what one may have been before it was rounded."""
    if element.is_complex:
        return tiny(values.real, element.real_part) | tiny(values.imag, element.real_part)
    if not element.is_float:
        return np.zeros(values.shape, bool)
    smallest: Any = np.finfo(np.float64 if element.name == "f64" else np.float32).tiny
    magnitude = np.abs(values.astype(np.float64))
    return np.asarray((magnitude > 0) & (magnitude <= smallest))


def listed(case: Case, wrong: Array, got: Array, wanted: Array, by: str) -> str:
    """One line that shows three of the places."""
    places = np.flatnonzero(wrong)
    picked = places[[0, len(places) // 2, -1]]
    shown = []
    for k in picked:
        arguments = ", ".join(str(v.ravel()[k]) for v in case.values() if v.shape == wrong.shape)
        shown.append(f"({arguments}) {got.ravel()[k]} {by} {wanted.ravel()[k]}")
    return f"{case}: {len(places)} of {wrong.size}: {'; '.join(shown)}"
