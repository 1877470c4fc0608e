"""What the driver refuses, and what it reports."""

from __future__ import annotations

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


__all__ = ["DriverCallError", "DriverError"]
