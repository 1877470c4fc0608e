"""Asynchronous computations of several transfers and collectives: begun together, ended together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.stages import emit
from distxla.compiler.verify.verifier import verify_module
from distxla.compiler.verify.world import verify_world
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.collectives.async_group_flows import FLOWS
from tests.collectives.async_groups import DEVICES, GROUPS, Group
from tests.collectives.matrix_executors import DelayedDevices
from tests.compiler.runner import Devices
from tests.samples import in_turn

EVERYBODY = range(DEVICES)
ALL = [*GROUPS, *FLOWS]


def check(group: Group, outs: list[list[Any]]) -> None:
    xs = group.arguments()
    for device, leaves in enumerate(outs):
        wanted = group.expected(xs, device)
        assert len(leaves) == len(wanted)
        for k, (got, want) in enumerate(zip(leaves, wanted, strict=True)):
            np.testing.assert_array_equal(np.asarray(got), want, f"leaf {k} on device {device}")


@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize(("group", "scheduled"), in_turn(ALL, [False, True]), ids=lambda p: getattr(p, "name", None))
def test_results(group: Group, scheduled: bool) -> None:
    """By the reference and by compiled code, also with devices that come late; and no run of it can deadlock."""
    module = parse_module(group.module_text(scheduled=scheduled))
    verify_world([(EVERYBODY, module)], Counts(DEVICES, 1))
    assert examine([(EVERYBODY, module)], Counts(DEVICES, 1)).outcome is Outcome.SAFE
    arguments = [[x] for x in group.arguments()]
    check(group, run_reference(module, arguments, Counts(DEVICES, 1)))
    program = compile_module(module, Counts(DEVICES, 1))
    devices = Devices(program)
    for _ in range(2):
        check(group, devices(arguments))
    devices.close()
    late = DelayedDevices(program, 1, 0.002)
    check(group, late(arguments))
    late.close()


@pytest.mark.parametrize("group", ALL, ids=lambda group: group.name)
def test_text_survives(group: Group) -> None:
    module = parse_module(group.module_text())
    verify_module(module)
    assert parse_module(print_module(module)) == module


@pytest.mark.parametrize("group", ALL, ids=lambda group: group.name)
def test_xla_reads_what_a_stage_prints(group: Group) -> None:
    """The module, and what the compiler makes of it."""
    hlo = pytest.importorskip("jaxlib._hlo")
    module = parse_module(group.module_text())
    for text in (print_module(module), emit(module, "hlo", Counts(DEVICES, 1))):
        assert isinstance(text, str)
        hlo.hlo_module_from_text(text)
