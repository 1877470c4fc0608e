"""Compiled code against `evaluate`: the cases of an opcode together in one program, a few dozen at a time.

Element-wise ops over all element types: test_matrix.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.program.options import VERIFY
from tests.compiler.runner import run_single
from tests.ops import cases_data_movement, cases_elementwise
from tests.ops.case import Array, Case, joined
from tests.tolerances import TRANSCENDENTAL_ULPS, ULPS, assert_close

CASES_IN_ONE_PROGRAM = 40
# Complex functions are compositions of real ones, whose parts cancel: the error is relative to the modulus,
# or absolute near zero.
COMPLEX_TOLERANCE = {"c64": 1e-6, "c128": 1e-14}


def _batches() -> list[tuple[str, list[Case]]]:
    by_opcode: dict[str, list[Case]] = {}
    for case in [*cases_elementwise.SHAPED, *cases_data_movement.CASES]:
        by_opcode.setdefault(case.opcode, []).append(case)
    return [
        (f"{opcode}-{start}", cases[start : start + CASES_IN_ONE_PROGRAM])
        for opcode, cases in by_opcode.items()
        for start in range(0, len(cases), CASES_IN_ONE_PROGRAM)
    ]


@pytest.mark.sampled(one_in=3, first=("reverse-0",))
@pytest.mark.parametrize("cases", [pytest.param(cases, id=name) for name, cases in _batches()])
def test_compiled_code_agrees_with_evaluate(cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERIFY, raising=False)  # halves of a pair stand alone in some cases
    program = compile_module(joined(cases), Counts(1, 1))
    got = iter(run_single(program, [value for case in cases for value in case.values()]))
    wrong = []
    for case in cases:
        for wanted in case.evaluated():
            try:
                _compare(case, next(got), wanted)
            except AssertionError as error:
                wrong.append(f"{error}")
    assert not wrong, "\n".join(wrong)


def _compare(case: Case, got: Array, wanted: Array | None) -> None:
    assert wanted is not None
    element = case.shape.dtype if not case.shape.is_tuple else None
    if element is None:
        assert got.tobytes() == wanted.tobytes(), f"{case}: {got} instead of {wanted}"
        return
    if element.is_complex and case.op.elements.is_elementwise:
        _compare_complex(case, got, wanted)
        return
    ulps = case.ulps
    if ulps is None and case.op.elements.is_expensive:
        ulps = TRANSCENDENTAL_ULPS.get(element.name, ULPS.get(element.name))
    assert_close(got, wanted, element, ulps, str(case))


def _compare_complex(case: Case, got: Array, wanted: Array) -> None:
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(got), finite, err_msg=str(case))
    got, wanted = got[finite], wanted[finite]
    off = np.abs(got - wanted) > COMPLEX_TOLERANCE[case.shape.dtype.name] * np.maximum(np.abs(wanted), 0.1)
    assert not np.any(off), f"{case}: {got[off][:4]} instead of {wanted[off][:4]}"
