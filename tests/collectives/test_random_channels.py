"""Random transfers, compiled beside the reference, bit for bit."""

from __future__ import annotations

import re

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.collectives.matrix_executors import DelayedDevices
from tests.collectives.random_channels import RandomChannels
from tests.compiler.runner import Devices, run_devices


def run_case(seed: int) -> None:
    case = RandomChannels(seed)
    counts = (case.replicas, case.partitions)
    module = parse_module(case.text, f"random_{seed}.hlo")
    verify_module(module, *counts)
    wanted = run_reference(module, case.arguments, Counts(*counts), time_limit=60)
    program = compile_module(module, Counts(counts[0], counts[1]))
    for devices in (Devices(program), DelayedDevices(program, seed, 0.0005)):
        for _ in range(2):
            outs = devices(case.arguments)
            for device, (found, want) in enumerate(zip(outs, wanted, strict=True)):
                for k, (a, b) in enumerate(zip(found, want, strict=True)):
                    assert b is not None
                    assert np.asarray(a).tobytes() == b.tobytes(), f"seed {seed}, device {device}, leaf {k}"
        devices.close()


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", range(3))
def test_recvs_of_other_channels_than_their_sends(seed: int) -> None:
    """Channels are joined again by their pairs and shapes, so nothing changes."""
    case = RandomChannels(seed, distinct=True)
    counts = (case.replicas, case.partitions)
    apart = re.sub(r"( recv(?:-done)?\(.*channel_id=)([1-9])", r"\g<1>1\2", case.text)
    assert apart != case.text
    wanted, found = (
        run_reference(parse_module(text), case.arguments, Counts(*counts), time_limit=60) for text in (case.text, apart)
    )
    compiled = run_devices(compile_module(parse_module(apart), Counts(counts[0], counts[1])), case.arguments)
    for outs in (found, compiled):
        assert [[np.asarray(leaf).tobytes() for leaf in row] for row in outs] == [
            [np.asarray(leaf).tobytes() for leaf in row] for row in wanted
        ]


@pytest.mark.sampled(one_in=14)
@pytest.mark.parametrize("seed", range(14))
def test_random_transfers(seed: int) -> None:
    run_case(seed)
