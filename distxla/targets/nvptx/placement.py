"""Where the data of collectives is: the environment may ask for the host's memory."""

from __future__ import annotations

import os

from distxla.errors import ArgumentError

VARIABLE = "DISTXLA_GPU_COMMUNICATION"


def communicates_on_gpu() -> bool:
    """Whether the devices of a host exchange data between GPUs' memories; ArgumentError for an unknown value."""
    asked = os.environ.get(VARIABLE) or "device"
    if asked not in ("device", "host"):
        raise ArgumentError(f"{VARIABLE}={asked!r}: expected device or host")
    return asked == "device"


__all__ = ["VARIABLE", "communicates_on_gpu"]
