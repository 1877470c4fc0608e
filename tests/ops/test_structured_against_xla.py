"""The oracle of the structured ops against XLA CPU, one module a case."""

from __future__ import annotations

import pytest

from distxla.text.printer import print_module
from tests.ops import test_convolution, test_dot, test_reduce, test_scatter, test_sort, test_windows
from tests.ops.structured_case import StructuredCase, assert_close

pytest.importorskip("jax")

CASES = [
    *test_reduce.CASES,
    *test_windows.REDUCED,
    *test_windows.SCATTERED,
    *test_scatter.CASES,
    *test_dot.CASES,
    *test_convolution.CASES,
    *test_sort.CASES,
]


@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_evaluate_agrees_with_xla(case: StructuredCase) -> None:
    from tests.ops.xla_cpu import run_by_xla

    wanted = run_by_xla(print_module(case.module()), case.values())
    for got, want in zip(case.evaluated(), wanted, strict=True):
        assert_close(got, want, factor=4)
