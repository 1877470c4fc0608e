"""Floats to integers: all values of the 16-bit types, and corners of the wide ones, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType, element_type
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single

INTEGERS = ("s2", "s4", "s8", "s16", "s32", "s64", "u2", "u4", "u8", "u16", "u32", "u64", "pred")
Array = np.ndarray[Any, Any]


def _values(source: ElementType) -> Array:
    """Every value of a narrow type; of others powers of two, integers around them, halves, and what isn't finite."""
    if source.bits <= 16:
        return np.arange(1 << source.bits, dtype=source.file_dtype).view(source.dtype)
    powers = np.array([2.0**k for k in range(-2, 66)])
    near = np.concatenate([powers, powers - 1, powers + 1, powers - 0.5, powers + 0.5])
    steps = near.astype(source.dtype)
    around = np.concatenate([steps, np.nextafter(steps, -np.inf), np.nextafter(steps, np.inf)])
    odd = np.array([0.0, np.inf, np.nan, 1e-40, 1e30, np.finfo(source.dtype).max], source.dtype)
    found = np.concatenate([around, odd])
    return np.concatenate([found, -found])


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64", "f8e4m3fn"])
def test_floats_to_integers(source: str) -> None:
    values = _values(element_type(source))
    shape = f"[{values.size}]"
    lines = [f"  to_{t} = {t}{shape} convert(x)" for t in INTEGERS]
    results, names = (
        ", ".join(f"{before}{t}{after}" for t in INTEGERS) for before, after in (("", shape), ("to_", ""))
    )
    lines.append(f"  ROOT r = ({results}) tuple({names})")
    text = f"HloModule conversions\nENTRY main {{\n  x = {source}{shape} parameter(0)\n" + "\n".join(lines) + "\n}\n"
    module = parse_module(text)
    got = run_single(compile_module(module, Counts(1, 1)), [values])
    wanted = run_reference(module, [[values]], Counts(1, 1))[0]
    for name, a, b in zip(INTEGERS, got, wanted, strict=True):
        wrong = np.flatnonzero(a != np.asarray(b))
        assert wrong.size == 0, f"{values[wrong[:4]]} as {name}: {a[wrong[:4]]} instead of {np.asarray(b)[wrong[:4]]}"
