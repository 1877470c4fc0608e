"""Errors as JSON, between a JAX process and the owner."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from distxla.diagnosis.facts.findings import Findings
from distxla.diagnosis.facts.processes import Difference, ProcessState
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import ClusterError, DistxlaError, ReplicationError, raised
from distxla.jax.processes.facts import Facts
from distxla.jax.processes.fields import from_json
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class _Array(Facts):
    """See ReplicationError."""

    name: str
    devices: tuple[int, ...]
    differing: tuple[int, ...]
    index: tuple[int, ...]


def pack_error(error: BaseException, processes: tuple[int, ...] = ()) -> dict[str, Any]:
    """JSON of an error. processes: that it is about, where it is about some."""
    diagnosis = getattr(error, "diagnosis", None)
    if isinstance(error, DistxlaError):
        code, message = error.code, error.message
        if error.location is not None:
            message = "\n".join([f"{error.location}: {message}", *error.location.shown()])
    else:
        code, message = ClusterError.code, raised(error)
    return {
        "code": code,
        "message": message,
        "notes": [str(note) for note in getattr(error, "__notes__", ())],
        "text": "" if diagnosis is None else diagnosis.text(),
        "processes": list(processes),
        "report": None if diagnosis is None else _report_json(diagnosis),
        "array": _Array(error.array, error.devices, error.differing, error.index).to_json()
        if isinstance(error, ReplicationError)
        else None,
    }


def unpack_error(found: Any) -> DistxlaError:
    """The error of this JSON, of the class with its code. It has a diagnosis where that is about processes; of others
    the text is its last note."""
    if not isinstance(found, dict):
        return ClusterError(f"an error of another process: {str(found)[:200]}")
    code, text = str(found.get("code", "")), str(found.get("text") or "")
    error = _class_of(code)(str(found.get("message", "")))
    error.diagnosis = _report(error, found.get("report"))
    if isinstance(error, ReplicationError):
        with suppress(ClusterError):
            array = _Array.of_json(found.get("array"))
            error.array, error.devices, error.differing = array.name, array.devices, array.differing
            error.index = array.index
    if error.diagnosis is not None:
        text = ""
    notes = found.get("notes")
    for note in [*(notes if isinstance(notes, list) else ()), *([text] if text else ())]:
        error.add_note(str(note))
    return error


def _report_json(diagnosis: Findings) -> dict[str, Any] | None:
    """What a diagnosis says of JAX processes; None where it is about devices."""
    if not diagnosis.processes:
        return None
    return {
        "states": [dataclasses.asdict(state) for state in diagnosis.processes],
        "differences": [dataclasses.asdict(difference) for difference in diagnosis.process_differences],
    }


def _report(error: DistxlaError, found: Any) -> Diagnosis | None:
    if not isinstance(found, dict):
        return None
    states, differences = found.get("states"), found.get("differences")
    if not isinstance(states, list) or not isinstance(differences, list):
        return None
    try:
        return Diagnosis(
            error.code,
            error.message,
            processes=tuple(from_json(ProcessState, state) for state in states),
            process_differences=tuple(from_json(Difference, difference) for difference in differences),
        )
    except ClusterError:
        return None


def _class_of(code: str) -> type[DistxlaError]:
    return next((one for one in _classes(DistxlaError) if one.code == code), ClusterError)


def _classes(base: type[DistxlaError]) -> Iterator[type[DistxlaError]]:
    for one in base.__subclasses__():
        yield one
        yield from _classes(one)


__all__ = ["pack_error", "unpack_error"]
