"""Faults that somebody might make in the runtime's protocols: seeds find each of them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.simulation.planted import PLANTED, Planted, planted
from tests.simulation.scenarios import simulate_seed

NOT_THE_FAULT = re.compile("NameError|AttributeError|TypeError|UnboundLocalError")


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_fault_has_its_place(fault: Planted) -> None:
    with planted(fault, compiles=False):
        pass


@pytest.mark.slow
@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Planted, record_property: Callable[[str, object], None]) -> None:
    """By a seed whose run is right without the fault; `-s` shows which seed, and how."""
    with planted(fault):
        runs = ((seed, simulate_seed(seed, plan=fault.plan(seed)).complaint) for seed in range(fault.seeds))
        found = next(((seed, complaint) for seed, complaint in runs if complaint), None)
    assert found is not None, f"no seed of {fault.seeds} finds it"
    assert not NOT_THE_FAULT.search(found[1]), f"the changed function does not run: {found[1]}"
    record_property("seed", found[0])
    print(f"found by seed {found[0]}: {found[1].splitlines()[0]}")
    assert simulate_seed(found[0], plan=fault.plan(found[0])).complaint == ""
