"""The course of a case, as the runners note it and judgement.py judges it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.plan import Case

ROOT = Path(__file__).parents[2]
START_S = 120.0  # after which a driver counts as hanging
LEFT_S = 8.0  # for the driver's processes and files to go


@dataclass
class Story:
    """The course of a case. events: of the driver, in order.  struck: when the fault happened.  status: of a driver
    that has ended.  left: leftovers.  hang: the event that did not come.  messages: its stderr.  grown: descriptors
    that it should have closed, by kind.  Of several JAX processes: events: of all of them, and their lines on stderr;
    status: the launcher's; running: how many had stepped when one was struck; scale: by how much bounds on time are
    larger, for the load of the machine then."""

    case: Case
    events: list[dict[str, Any]] = field(default_factory=list)
    struck: float | None = None
    status: int | None = None
    left: list[str] = field(default_factory=list)
    hang: str = ""
    messages: str = ""
    grown: dict[str, int] = field(default_factory=dict)
    running: int = 0
    scale: float = 1.0

    def event(self, *names: str) -> dict[str, Any] | None:
        return next((event for event in self.events if event["event"] in names), None)


__all__ = ["LEFT_S", "ROOT", "START_S", "Story"]
