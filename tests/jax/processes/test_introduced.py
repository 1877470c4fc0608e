"""Processes that can't run together are told so at the start: all of them, with the process and the value."""

from __future__ import annotations

import pytest

from tests.jax.processes.group import Group

SCRIPT = """
    import jax
    if {process} == 1:
        {change}
    jax.distributed.initialize(f"localhost:{{PORT}}", 2, {process})
    try:
        jax.devices()
        jax.numpy.ones(3).block_until_ready()
    except Exception as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("os.environ['DISTXLA_DEVICES'] = '3'", "process 1 has 3 devices, and the owner was started for 2 of each"),
        ("jax.config.update('jax_enable_x64', True)", "jax_enable_x64: process 0 has False, process 1 has True"),
        ("os.environ['DISTXLA_DEVICE_MEMORY'] = '1GiB'", "device_memory: process 0 has None, process 1 has '1GiB'"),
    ],
    ids=["devices", "option", "memory"],
)
@pytest.mark.exhaustive
def test_a_difference_is_told_to_both(change: str, said: str) -> None:
    with Group(2, late=True) as group:
        for told in group.printed(*(SCRIPT.format(process=process, change=change) for process in range(2))):
            assert said in told
