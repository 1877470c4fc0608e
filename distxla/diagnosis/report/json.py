"""A diagnosis as objects of JSON: the same of `check --json`, of a failing `run --json`, and of the reference.

Every diagnosis has `format`, `kind`, `summary`, `location`, `channel`, `blocked`, `cycle`, `cycles`, `without_end`,
`behind`, `divergence` and `hints`. One of a run adds `devices` with their events and times, `divergences`, `network`
and `injected`, one of several JAX processes `processes` and `process_differences`; one before a run adds `undecided`
and `notes`.
"""

from __future__ import annotations

from typing import Any

from distxla.diagnosis.facts.blocked import DeviceState, Event, Injected, Place
from distxla.diagnosis.facts.findings import Blocked, Divergence, Findings, Undecided
from distxla.diagnosis.facts.processes import Difference, ProcessState
from distxla.location import Location

FORMAT = 1  # raised where a field goes away or means something else


def as_json(diagnosis: Findings) -> dict[str, Any]:
    return {**_common(diagnosis), **(_of_run(diagnosis) if diagnosis.is_live else _before_run(diagnosis))}


def _fields(of: object, *names: str) -> dict[str, Any]:
    """Fields, or properties, under their own names: tuples as lists, locations as objects."""
    return {name: _plain(getattr(of, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return location_json(value) if isinstance(value, Location) else value


def _common(diagnosis: Findings) -> dict[str, Any]:
    """The fields that a diagnosis has before a run and in it."""
    return {
        "format": FORMAT,
        **_fields(diagnosis, "kind", "summary", "location", "channel"),
        "blocked": [_blocked(blocked) for blocked in diagnosis.blocked],
        **_fields(diagnosis, "cycle", "cycles", "without_end", "behind"),
        "divergence": None if diagnosis.diverge_at is None else _place(diagnosis.diverge_at),
        **_fields(diagnosis, "hints"),
    }


def _of_run(diagnosis: Findings) -> dict[str, Any]:
    return {
        "devices": [_device(device) for device in diagnosis.devices],
        "divergences": [_divergence(divergence) for divergence in diagnosis.divergences],
        **_fields(diagnosis, "network"),
        "injected": [injected_json(fault) for fault in diagnosis.injected],
        **(_of_processes(diagnosis) if diagnosis.processes else {}),
    }


def _before_run(diagnosis: Findings) -> dict[str, Any]:
    return {
        "undecided": [_undecided(undecided) for undecided in diagnosis.undecided],
        **_fields(diagnosis, "notes"),
    }


def _place(place: Place) -> dict[str, Any]:
    return _fields(place, "instruction", "opcode", "location", "frame", "op_name")


def _blocked(blocked: Blocked) -> dict[str, Any]:
    return {
        **_fields(blocked, "device"),
        **_place(blocked.place),
        **_fields(blocked, "program", "computation", "round", "channel", "group"),
        "needs": [_fields(need, "device", "what") for need in blocked.needs],
    }


def _undecided(undecided: Undecided) -> dict[str, Any]:
    return {
        **_fields(undecided, "devices"),
        "by": _place(undecided.by),
        "cause": _place(undecided.cause),
        **_fields(undecided, "why"),
    }


def _divergence(divergence: Divergence) -> dict[str, Any]:
    return {
        "devices": [divergence.device, divergence.other_device],
        "common": divergence.common,
        "next": [divergence.one, divergence.other],
        "events": [divergence.one_event, divergence.other_event],
        **_fields(divergence, "also", "other_also"),
    }


def injected_json(fault: Injected) -> dict[str, Any]:
    """A fault that was injected on purpose, and whether it happened."""
    return {"fault": fault.spec, **_fields(fault, "happened", "drawn_by", "device", "instruction", "location")}


def _device(device: DeviceState) -> dict[str, Any]:
    return {
        "device": device.device,
        "doing": device.doing.value,
        "program": device.program,
        **_place(device.place),
        **_fields(device, "computation", "round", "channel", "group", "waits_for", "host", "missing"),
        "loops": [_fields(loop, "instruction", "location", "iteration") for loop in device.loops],
        "events": [_event(event) for event in device.events],
    }


def _of_processes(diagnosis: Findings) -> dict[str, Any]:
    return {
        "processes": [_process(process) for process in diagnosis.processes],
        "process_differences": [_process_difference(difference) for difference in diagnosis.process_differences],
    }


def _process(process: ProcessState) -> dict[str, Any]:
    return {
        "process": process.process,
        "doing": process.doing.value,
        "function": process.function,
        "frame": process.frame,
        "call": process.number,
        "detail": process.detail,
        "calls": list(process.calls),
        "stack": list(process.stack),
        "pid": process.pid,
        "host": process.host,
    }


def _process_difference(difference: Difference) -> dict[str, Any]:
    return {
        "what": difference.what,
        "where": difference.where,
        "processes": [difference.process, difference.other_process],
        "values": [difference.one, difference.other],
        "frames": [difference.frame_one, difference.frame_other],
        "text": str(difference),
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        **_fields(event, "instruction", "opcode", "round", "run"),
        "begun_s": event.begun,
        "ended_s": event.ended,
        "waited_s": event.waited,
        "iteration": event.iteration,
    }


def location_json(location: Location | None) -> dict[str, Any] | None:
    """The place of an instruction: file, line and column from 1, the line's text, the line of the user's program."""
    return None if location is None else _fields(location, "file", "line", "column", "text", "frame")


__all__ = ["FORMAT", "as_json", "injected_json", "location_json"]
