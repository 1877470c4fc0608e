"""Which process a device belongs to, in messages about devices."""

from __future__ import annotations

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


__all__ = ["with_processes"]
