"""What test_deadlocks.py shares with other tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import distxla as dx
from tests.deadlock_programs import (
    Case,
)
from tests.stopwatch import Stopwatch

X = np.arange(4, dtype=np.float32)

SECONDS = 1.0 + 0.5  # from the last event to the error; half of it for a machine that has other things to do


def run(case: Case, cluster: dx.Cluster) -> tuple[Any, Stopwatch]:
    """What came of it, results or an error, and the time that it took."""
    for device, items in case.items.items():
        cluster.infeed(device).put_all(items)
    programs = {devices: cluster.compile(module, devices) for devices, module in case.modules()}
    arguments = {device: [X] for device in range(case.replicas)}
    watch = Stopwatch()
    try:
        done: Any = cluster.run(programs, arguments, time_limit=20)
    except dx.DistxlaError as error:
        done = error
    return done, watch.stop()
