"""The programs that the bench lets `check` look at are what their names say, small and large."""

from __future__ import annotations

import pytest

from bench.check_programs import SHAPES, Checked, make
from distxla.compiler.verify.world import verify_world
from distxla.ir.counts import Counts
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Verdict
from distxla.text.parser import parse_module


def verdict(checked: Checked) -> Verdict:
    programs = [(range(a, b + 1), parse_module(text, f"{a}.hlo")) for a, b, text in checked.programs]
    verify_world(programs, Counts(checked.devices, 1))
    return examine(programs, Counts(checked.devices, 1))


@pytest.mark.parametrize("name", SHAPES)
def test_small_ones(name: str) -> None:
    checked = make(name, 16, 24)
    assert verdict(checked).outcome.value == checked.outcome


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups of a mesh", "down a pipeline and up", "8 stages as programs"])
def test_a_thousand_devices_with_a_thousand_instructions(name: str) -> None:
    """How long it takes the bench says: `python -m bench --only checks`."""
    checked = make(name, 1008, 1008)
    found = verdict(checked)
    assert (found.outcome.value, found.devices) == (checked.outcome, 1008)
