"""The oracle itself against XLA CPU: all cases of an opcode in one module, run by both.

Element-wise ops over all element types: test_matrix.py.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest

from distxla.ir.element_type import PRED
from distxla.text.printer import print_module
from tests.ops import cases_data_movement, cases_elementwise
from tests.ops.case import Array, Case, joined
from tests.tolerances import ulps_between

pytest.importorskip("jax")

from tests.ops.xla_cpu import run_by_xla

# XLA CPU, or the conversion on the way to it, has no form of these.
NOT_IN_XLA_CPU = {"copy-start", "copy-done", "get-tuple-element", "tuple", "bitcast"}
XLA_ULPS = 16  # what XLA's own exponential is off by


def _is_comparable(case: Case) -> bool:
    if case.opcode in NOT_IN_XLA_CPU:
        return False
    shapes = (*case.operands, case.shape)
    if any(leaf.dtype.bits < 4 for shape in shapes for leaf in shape.leaves()):
        return False
    # StableHLO's pred has one bit; its dynamic-slice takes scalars only; padding of rank 0 has no text in HLO.
    if case.opcode == "bitcast-convert" and any(shape.dtype is PRED for shape in shapes):
        return False
    if case.opcode == "dynamic-slice" and any(shape.rank for shape in case.operands[1:]):
        return False
    return not (case.opcode == "pad" and not case.shape.rank)


def _by_opcode() -> dict[str, list[Case]]:
    cases = sorted(
        filter(_is_comparable, [*cases_elementwise.SHAPED, *cases_data_movement.CASES]), key=lambda c: c.opcode
    )
    return {opcode: list(found) for opcode, found in groupby(cases, key=lambda c: c.opcode)}


@pytest.mark.sampled(one_in=9)
@pytest.mark.slow
@pytest.mark.parametrize("opcode", _by_opcode())
@pytest.mark.filterwarnings("ignore")
def test_evaluate_agrees_with_xla(opcode: str) -> None:
    cases = _by_opcode()[opcode]
    arguments = [value for case in cases for value in case.values()]
    wanted = run_by_xla(print_module(joined(cases)), arguments)
    off = [text for case, xla in zip(cases, wanted, strict=True) for text in _differences(case, xla)]
    assert not off, "\n".join(off)


def _differences(case: Case, xla: Array) -> list[str]:
    (got,) = case.evaluated()
    assert got is not None
    element = case.shape.dtype
    assert xla.dtype == got.dtype
    if element.is_float:
        wrong = ulps_between(got, xla) > (XLA_ULPS if case.op.elements.is_expensive else 1)
    else:
        wrong = np.asarray(got != xla) & ~(np.isnan(got) & np.isnan(xla) if element.is_complex else False)
    if element.is_float:
        # XLA CPU flushes what its exponential makes of subnormals, and NumPy does not.
        wrong &= np.abs(got.astype(np.float64)) > np.finfo(np.float32).tiny
    if not wrong.any():
        return []
    return [f"{case}: {_listed(case, wrong)}: {got[wrong][:4]}, XLA {xla[wrong][:4]}"]


def _listed(case: Case, wrong: Any) -> str:
    return ", ".join(str(v[wrong][:4]) for v in case.values() if v.shape == wrong.shape)
