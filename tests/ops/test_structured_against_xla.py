"""The oracle of the structured ops against XLA CPU, one module a case."""

from __future__ import annotations

import pytest

from distxla.text.printer import print_module
from tests.ops import convolution_cases, dot_cases, reduce_cases, scatter_cases, sort_cases, windows_cases
from tests.ops.structured_case import StructuredCase, assert_close

pytest.importorskip("jax")

CASES = [
    *reduce_cases.CASES,
    *windows_cases.REDUCED,
    *windows_cases.SCATTERED,
    *scatter_cases.CASES,
    *dot_cases.CASES,
    *convolution_cases.CASES,
    *sort_cases.CASES,
]


@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_evaluate_agrees_with_xla(case: StructuredCase) -> None:
    from tests.ops.xla_cpu import run_by_xla

    wanted = run_by_xla(print_module(case.module()), case.values())
    for got, want in zip(case.evaluated(), wanted, strict=True):
        assert_close(got, want, factor=4)
