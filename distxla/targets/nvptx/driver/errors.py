"""The driver's errors: calls that it refuses, and failures that it reports."""

from __future__ import annotations

import os

from distxla.errors import DistxlaError


class DriverError(DistxlaError):
    """The driver or a GPU can't be used, or a call of the driver failed. The message says which, and what to change."""

    code = "gpu"


class DriverCallError(DriverError):
    """A function of the driver has failed. function: its name.  number, name: the CUresult.  detail: its text."""

    def __init__(self, function: str, number: int, name: str, detail: str) -> None:
        super().__init__(f"{function} failed: {name} ({number}): {detail}")
        self.args = (function, number, name, detail)
        self.function, self.number, self.name, self.detail = function, number, name, detail


def chosen_by_environment() -> str:
    """For a message about the GPUs that a driver lists: the variable that chooses among them, where it is set."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if chosen is None else f" (CUDA_VISIBLE_DEVICES={chosen!r})"
