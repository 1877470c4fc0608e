"""How a function of the emulated library fails."""

from __future__ import annotations


class Failure(Exception):
    """number: the CUresult.  detail: what cuGetErrorString says of it."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(number, detail)
        self.number, self.detail = number, detail
