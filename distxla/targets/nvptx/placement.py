"""Through which memory collectives exchange arrays: the GPUs' or the host's."""

from __future__ import annotations

import os
from itertools import permutations

from distxla.errors import ArgumentError
from distxla.targets.nvptx.driver.choice import open_driver

VARIABLE = "DISTXLA_GPU_COMMUNICATION"


def communicates_on_gpu() -> bool:
    """Whether it is the GPUs'. By default where each of them can access the memory of all others.

    ArgumentError for an unknown value of the variable, DriverError where the driver can't be used.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "device", "host"):
        raise ArgumentError(f"{VARIABLE}={asked!r}: expected device or host")
    if asked:
        return asked == "device"
    driver = open_driver()
    return all(driver.can_access(*pair) for pair in permutations(range(len(driver.gpus())), 2))
