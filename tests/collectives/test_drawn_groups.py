"""An asynchronous group gives what its instructions give one by one, whatever is in it."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from tests.collectives.drawn_groups import DEVICES, DrawnGroups
from tests.collectives.matrix_executors import DelayedDevices
from tests.compiler.runner import Devices

ARGUMENTS = [[np.arange(6, dtype=np.int32) ** 2 + 100 * d] for d in range(DEVICES)]


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("seed", [*range(9), 109, 117, 119])
def test_groups_give_what_their_instructions_give(seed: int) -> None:
    """In the order of the text, and in the scheduler's."""
    drawn = DrawnGroups(seed)
    plain = parse_module(drawn.plain)
    wanted = run_reference(plain, ARGUMENTS, Counts(DEVICES, 1))
    module = parse_module(drawn.grouped).replace(is_scheduled=seed % 2 == 0)
    verify_module(module, DEVICES, 1)
    assert examine([(range(DEVICES), module)], Counts(DEVICES, 1)).outcome is Outcome.SAFE
    found = [run_reference(module, ARGUMENTS, Counts(DEVICES, 1))]
    program = compile_module(module, Counts(DEVICES, 1))
    for devices in (Devices(program), DelayedDevices(program, seed, 0.002)):
        found.append(devices(ARGUMENTS))
        devices.close()
    for outs in found:
        for mine, theirs in zip(outs, wanted, strict=True):
            for got, want in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
