"""Compiled programs against the reference on modules made by chance: buffers, control flow, collectives."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices
from tests.runtime.random_modules import RandomModule
from tests.samples import in_turn


def _check(seed: int, devices: int, *, pairs: bool = False) -> None:
    made = RandomModule(seed, devices, pairs=pairs)
    module = parse_module(made.text, f"random{seed}.hlo")
    verify_module(module)
    random = np.random.default_rng(seed)
    sizes = {"s32[4]": (4,), "s32[8]": (8,), "s32[]": ()}
    args = [[random.integers(-9, 9, sizes[kind]).astype(np.int32) for kind in made.parameters] for _ in range(devices)]
    wanted = run_reference(module, args, Counts(devices, 1))
    got = run_devices(compile_module(module, Counts(devices, 1)), args)
    for device in range(devices):
        for k, (a, b) in enumerate(zip(got[device], wanted[device], strict=True)):
            np.testing.assert_array_equal(a, b, f"leaf {k} on device {device}, seed {seed}\n{made.text}")


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(("seed", "devices"), in_turn(range(24), [4, 1]))
def test_equal(seed: int, devices: int) -> None:
    _check(seed, devices)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("seed", range(200, 224))
def test_equal_with_pairs(seed: int) -> None:
    """Collectives that are begun and ended, with anything between."""
    _check(seed, 4, pairs=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "devices"), in_turn(range(2000, 2030), [2, 4]))
def test_many_equal_with_pairs(seed: int, devices: int) -> None:
    _check(seed, devices, pairs=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "devices"), in_turn(range(1000, 1021), [1, 2, 4]))
def test_many_equal(seed: int, devices: int) -> None:
    _check(seed, devices)
