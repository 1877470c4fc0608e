"""Messages about devices name their processes."""

from __future__ import annotations

import logging

import pytest

from distxla.jax.processes.device_names import NamedDevices, with_processes
from distxla.jax.processes.world import World

TEXTS = [
    ("add.3 on device 5: host call 0", "add.3 on device 5 (process 1): host call 0"),
    (
        "it is 2 on device 0, 3 on device 7",
        "it is 2 on device 0 (process 0), 3 on device 7 (process 1)",
    ),
    ("devices 0 to 3", "devices 0 to 3"),
    ("device 12: there is none", "device 12: there is none"),
    ("a device 3x", "a device 3x"),
]


@pytest.mark.parametrize(("text", "named"), TEXTS, ids=[text for text, _ in TEXTS])
def test_devices_are_named_with_their_processes(text: str, named: str) -> None:
    world = World(0, 2, 4)
    assert with_processes(text, world) == named
    assert with_processes(named, world) == named


def test_notices_name_the_process_that_has_the_function() -> None:
    told = "device %d waits in f for the function of the driver that it has called"
    record = logging.LogRecord("distxla", logging.WARNING, "", 0, told, (2,), None)
    assert NamedDevices(World(0, 2, 2)).filter(record)
    assert record.getMessage() == ("device 2 (process 1) waits in f for the function of its process that it has called")
