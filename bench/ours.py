"""distxla on some partitions, asked in the same way as XLA is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import distxla as dx
from bench.side import Arguments


class Ours:
    """A context manager around a cluster. start_s: seconds until its replicas were ready."""

    def __init__(self, devices: int, backend: str = "cpu") -> None:
        self.devices, self.backend = devices, backend

    def __enter__(self) -> Ours:
        begin = time.perf_counter()
        self._cluster = dx.Cluster(partitions=self.devices, backend=self.backend)
        self._cluster.start()
        self._cluster.wait_started()
        self.start_s = time.perf_counter() - begin
        self._step: Any = None
        self._arguments: Any = None
        return self

    def __exit__(self, *error: Any) -> None:
        self._step = self._arguments = None
        self._cluster.close()

    def compile(self, text: str, arguments: Arguments) -> float:
        """See Side."""
        self._step = self._arguments = None
        begin = time.perf_counter()
        self._step = self._cluster.compile(dx.parse(text))
        seconds = time.perf_counter() - begin
        self._arguments = [[self._cluster.put(array, d) for array in row] for d, row in enumerate(arguments)]
        return seconds

    def steps(self, count: int) -> list[float]:
        """See Side."""
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            outs = self._step(self._arguments)
            times.append(time.perf_counter() - begin)
            del outs
        return times

    def results(self, target: Path) -> None:
        """See Side."""
        outs = self._step(self._arguments)
        np.savez(
            target, **{f"out{k}@{d}": np.asarray(a) for d, leaves in enumerate(outs) for k, a in enumerate(leaves)}
        )
