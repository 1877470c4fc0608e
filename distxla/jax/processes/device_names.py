"""Which process a device belongs to, in messages about devices."""

from __future__ import annotations

import logging
import re
from typing import Final

from distxla.jax.processes.world import World

_DEVICE: Final = re.compile(r"\bdevice (\d+)\b(?! \(process)")


def with_processes(text: str, world: World) -> str:
    """add.3 on device 5 -> add.3 on device 5 (process 1)."""

    def named(found: re.Match[str]) -> str:
        device = int(found[1])
        return f"device {device} (process {world.process_of(device)})" if device < world.devices else found[0]

    return _DEVICE.sub(named, text)


class NamedDevices(logging.Filter):
    """Notices about devices name their processes, which have the functions that devices call."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def filter(self, record: logging.LogRecord) -> bool:
        """Changes the record, and lets it pass."""
        told = with_processes(record.getMessage(), self._world)
        record.msg, record.args = told.replace("the function of the driver", "the function of its process"), ()
        return True


__all__ = ["NamedDevices", "with_processes"]
