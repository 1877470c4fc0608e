"""What distxla and XLA are asked for, each in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Arguments = Sequence[Sequence[np.ndarray[Any, Any]]]  # [device][argument]


class Side(Protocol):
    """Runs one program at a time, on arguments that stay on their devices."""

    def compile(self, text: str, arguments: Arguments) -> float:
        """Make `text` the current program. Seconds from text to loaded; RuntimeError where it can't be had."""

    def steps(self, count: int) -> list[float]:
        """Seconds of each of `count` runs of the current program; results stay on their devices."""

    def results(self, target: Path) -> None:
        """Write the results of one run to an .npz file, keys as `distxla run --out`."""


def read_arguments(path: Path, devices: int) -> Arguments:
    """Arguments out of a file as `distxla run --args` takes it."""
    with np.load(path) as file:
        count = len({key.partition("@")[0] for key in file.files})
        return [[file[f"arg{k}@{d}"] for k in range(count)] for d in range(devices)]
