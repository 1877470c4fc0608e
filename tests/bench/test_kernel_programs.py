"""The kernels that the bench times are valid programs, and cumulating by halves is a cumulative sum."""

from __future__ import annotations

import numpy as np
import pytest

from bench.kernel_programs import KernelProgram, halving, kernel_programs
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module


@pytest.mark.parametrize("kernel", kernel_programs(), ids=lambda kernel: f"{kernel.group}: {kernel.name}")
def test_a_kernel_is_a_valid_program(kernel: KernelProgram) -> None:
    verify_module(parse_module(kernel.text))


def test_names_are_unique() -> None:
    names = [(kernel.group, kernel.name) for kernel in kernel_programs()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("count", [2, 3, 7, 16, 100])
def test_halving_is_a_cumulative_sum(count: int) -> None:
    x = np.arange(1, count + 1, dtype=np.float32)
    (out,) = run_reference(parse_module(halving(count)), [[x]], Counts(1, 1))[0]
    np.testing.assert_array_equal(out, np.cumsum(x))
