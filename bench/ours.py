"""distxla on eight partitions, asked in the same way as XLA is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import distxla as dx

DEVICES = 8


class Ours:
    """A context manager around a cluster. start_s: seconds until its replicas were ready."""

    def __enter__(self) -> Ours:
        begin = time.perf_counter()
        self._cluster = dx.Cluster(partitions=DEVICES)
        self._cluster.start()
        self._cluster.wait_started()
        self.start_s = time.perf_counter() - begin
        self._step: Any = None
        self._arguments: Any = None
        return self

    def __exit__(self, *error: Any) -> None:
        self._step = self._arguments = None
        self._cluster.close()

    def compile(self, text: str, arguments: Path) -> float:
        """Make `text` the current program, with arguments that stay on their devices. Seconds from text to loaded."""
        self._step = self._arguments = None
        begin = time.perf_counter()
        self._step = self._cluster.compile(dx.parse(text))
        seconds = time.perf_counter() - begin
        with np.load(arguments) as file:
            count = len({key.partition("@")[0] for key in file.files})
            self._arguments = [
                [self._cluster.put(file[f"arg{k}@{d}"], d) for k in range(count)] for d in range(DEVICES)
            ]
        return seconds

    def steps(self, count: int) -> list[float]:
        """Seconds of each of `count` runs of the current program; results stay on their devices."""
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            outs = self._step(self._arguments)
            times.append(time.perf_counter() - begin)
            del outs
        return times

    def results(self, target: Path) -> None:
        """Write the results of one run to an .npz file, keys as `distxla run --out`."""
        outs = self._step(self._arguments)
        np.savez(
            target, **{f"out{k}@{d}": np.asarray(a) for d, leaves in enumerate(outs) for k, a in enumerate(leaves)}
        )
