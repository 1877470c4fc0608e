"""A training step gives the same bits in one, two and four processes on the same devices."""

from __future__ import annotations

from tests.jax.processes.group import Group
from tests.jax.processes.training_script import TRAINING


def test_the_bits_are_the_same_however_many_processes_share_the_devices(pair: Group) -> None:
    found = set(pair.printed(TRAINING))
    for count in (1, 4):
        with Group(count, devices=4 // count) as group:
            found |= set(group.printed(TRAINING))
        assert group.errors == ""
    assert len(found) == 1
    assert found.pop().endswith(" True")
