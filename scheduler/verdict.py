"""The verdict on a run before it begins."""

from __future__ import annotations

from enum import Enum
from typing import Any

from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.lazy_dataclass import dataclass
from distxla.location import Location


class Outcome(str, Enum):  # noqa: UP042 (a StrEnum would print as "safe")
    """SAFE: every run ends, if the host feeds it.  DEADLOCK: none does.  UNKNOWN: depends on values that only the run
    has. Each equals its word in JSON, and prints as `Outcome.SAFE`."""

    SAFE = "safe"
    DEADLOCK = "deadlock"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """devices: how many there are.  diagnosis: why they may not go on; None where every run ends."""

    outcome: Outcome
    devices: int
    diagnosis: Diagnosis | None = None

    @property
    def summary(self) -> str:
        return f"none can happen on the {self.devices} devices" if self.diagnosis is None else self.diagnosis.summary

    @property
    def text(self) -> str:
        """The verdict in lines."""
        return f"deadlock: {self.summary}" if self.diagnosis is None else str(self.diagnosis)

    @property
    def location(self) -> Location | None:
        return None if self.diagnosis is None else self.diagnosis.location

    def fails(self, *, strict: bool) -> bool:
        """Whether a check ends with the status of a deadlock; strict: also where only the run can tell."""
        return self.outcome is Outcome.DEADLOCK or (strict and self.outcome is Outcome.UNKNOWN)

    def as_json(self) -> dict[str, Any]:
        """Objects of JSON."""
        return {
            "outcome": self.outcome.value,
            "summary": self.summary,
            "devices": self.devices,
            "text": self.text,
            "diagnosis": None if self.diagnosis is None else self.diagnosis.as_json(),
        }
