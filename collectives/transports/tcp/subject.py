"""The subject of a frame between proxies, for reports."""

from __future__ import annotations

from typing import NamedTuple

from distxla.wording import named


class Subject(NamedTuple):
    """kind: of the frame, by name.  instruction: its name, "" if no device here has reached it.  devices: of the
    group in its order, or source and target.  round: from 1: of the group, or the pair's message."""

    kind: str
    instruction: str
    devices: tuple[int, ...]
    round: int

    def __str__(self) -> str:
        """`READY of round 3 in r of devices 0-3`; without a kind `round 3 in r of devices 0-3`."""
        what = f"{self.kind} of " if self.kind else ""
        where = f" in {self.instruction}" if self.instruction else ""
        who = f" of {named(self.devices)}" if self.devices else ""
        return f"{what}round {self.round}{where}{who}"
