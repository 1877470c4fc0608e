"""Diagnoses of devices that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping

from distxla.diagnosis.diagnose import diagnose
from distxla.diagnosis.facts.blocked import DeviceState
from distxla.diagnosis.graph import Deadlock
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import CollectiveMismatchError, DeadlockError, TimeLimitError

ERRORS = {error.code: error for error in (CollectiveMismatchError, DeadlockError, TimeLimitError)}


def made_of(
    kind: str,
    summary: str,
    devices: Mapping[int, DeviceState],
    deadlock: Deadlock | None = None,
    pair: tuple[int, int] | None = None,
) -> Diagnosis:
    """kind: an error's code.  pair: of a mismatch."""
    error = ERRORS[kind](summary)
    if isinstance(error, CollectiveMismatchError):
        error.pair = pair
    return diagnose(error, devices, deadlock)
