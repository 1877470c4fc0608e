"""Whatever the order and the places: compiled devices give what the reference gives in the order of the text."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices
from tests.samples import examples
from tests.scheduler.random_computations import KINDS, computations

DEVICES = 2


@given(computations(most=20, kinds=(*KINDS, "pair", "update")))
@settings(max_examples=examples(8), deadline=None)
def test_any_computation_gives_the_same_bits(text: str) -> None:
    """Numbers stay small integers, so sums are exact."""
    module = parse_module(text)
    random = np.random.default_rng(0)
    args = [
        [random.integers(-3, 4, p.shape.dims).astype(np.float32) for p in module.entry_computation.parameters]
        for _ in range(DEVICES)
    ]
    programs, given_args = dict.fromkeys(range(DEVICES), module), dict(enumerate(args))
    expected = run_programs(programs, given_args, Counts(DEVICES, 1))
    found = run_devices(compile_module(module, Counts(DEVICES, 1)), args)
    for device in range(DEVICES):
        for mine, theirs in zip(found[device], expected[device], strict=True):
            np.testing.assert_array_equal(mine, theirs)
