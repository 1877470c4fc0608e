"""Runs the programs of a world on a backend and measures it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distxla.cli.arguments import Arguments
from distxla.cli.programs import World
from distxla.errors import TimeLimitError

Array = np.ndarray[Any, Any]
Leaves = list[Array | None]


@dataclass
class Execution:
    """Results and times of a run.

    outs[d][k]: leaf k on device d, of the last step.  compile_s: the sum over the programs.  start_s: from the wish to
    run until all replicas were ready.  steps_s: one wall-clock time a step, as the caller sees it, results left where
    they are.  cached: no program had to be compiled.  places: (device, host, process id).
    """

    outs: dict[int, Leaves]
    compile_s: float = 0.0
    start_s: float = 0.0
    steps_s: list[float] = field(default_factory=list)
    cached: bool = False
    places: list[tuple[int, str, int]] = field(default_factory=list)


def run_on_reference(world: World, arguments: Arguments, repeat: int, time_limit: float | None) -> Execution:
    """Every device in this process, in NumPy."""
    import os
    import socket

    from distxla.reference.lockstep import run_programs

    programs = {device: program.module for device, program in world.program_of.items()}
    limit = Deadline(time_limit)
    execution = Execution({}, places=[(device, socket.gethostname(), os.getpid()) for device in programs])
    for _ in range(repeat):
        begin = time.perf_counter()
        execution.outs = run_programs(
            programs,
            arguments.by_device,
            replicas=world.replicas,
            partitions=world.partitions,
            time_limit=limit.left(),
        )
        execution.steps_s.append(time.perf_counter() - begin)
    return execution


class Deadline:
    """A time limit that several stages share; None for none."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds that remain; TimeLimitError if there are none."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeLimitError(f"the time limit of {self.seconds:g} s ran out")
        return left
