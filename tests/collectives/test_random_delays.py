"""Modules made by chance, whose devices come late to their rounds by chance, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.collectives.matrix_executors import DelayedDevices
from tests.runtime.random_modules import RandomModule
from tests.samples import in_turn


def check(seed: int, devices: int, runs: int, delay: float) -> None:
    made = RandomModule(seed, devices, pairs=True)
    module = parse_module(made.text, f"random{seed}.hlo")
    verify_module(module)
    random = np.random.default_rng(seed)
    sizes = {"s32[4]": (4,), "s32[8]": (8,), "s32[]": ()}
    args = [[random.integers(-9, 9, sizes[kind]).astype(np.int32) for kind in made.parameters] for _ in range(devices)]
    wanted = run_reference(module, args, Counts(devices, 1))
    program = compile_module(module, Counts(devices, 1))
    for run in range(runs):
        late = DelayedDevices(program, seed + run, delay)
        for row, expected in zip(late(args), wanted, strict=True):
            for a, b in zip(row, expected, strict=True):
                np.testing.assert_array_equal(a, b, f"seed {seed}, run {run}\n{made.text}")
        late.close()


@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("seed", range(300, 312))
def test_equal(seed: int) -> None:
    check(seed, 4, runs=2, delay=0.002)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "devices"), in_turn(range(3000, 3030), [2, 3, 5]))
def test_many_equal(seed: int, devices: int) -> None:
    check(seed, devices, runs=3, delay=0.002)
