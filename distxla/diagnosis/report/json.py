"""A diagnosis as objects of JSON: the same of `check --json`, of a failing `run --json`, and of the reference.

Every diagnosis has `format`, `kind`, `summary`, `location`, `channel`, `blocked`, `cycle`, `cycles`, `without_end`,
`behind`, `divergence` and `hints`. One of a run adds `devices` with their events and times, `divergences`, `network`
and `injected`; one before a run adds `undecided` and `notes`.
"""

from __future__ import annotations

from typing import Any

from distxla.diagnosis.facts.blocked import DeviceState, Event, Injected, Place
from distxla.diagnosis.facts.findings import Blocked, Divergence, Findings, Undecided
from distxla.location import Location

FORMAT = 1  # raised where a field goes away or means something else


def as_json(diagnosis: Findings) -> dict[str, Any]:
    return {**_common(diagnosis), **(_of_run(diagnosis) if diagnosis.is_live else _before_run(diagnosis))}


def _common(diagnosis: Findings) -> dict[str, Any]:
    """The fields that a diagnosis has before a run and in it."""
    return {
        "format": FORMAT,
        "kind": diagnosis.kind,
        "summary": diagnosis.summary,
        "location": location_json(diagnosis.location),
        "channel": diagnosis.channel,
        "blocked": [_blocked(blocked) for blocked in diagnosis.blocked],
        "cycle": list(diagnosis.cycle),
        "cycles": [list(cycle) for cycle in diagnosis.cycles],
        "without_end": [list(pair) for pair in diagnosis.without_end],
        "behind": list(diagnosis.behind),
        "divergence": None if diagnosis.diverge_at is None else _place(diagnosis.diverge_at),
        "hints": list(diagnosis.hints),
    }


def _of_run(diagnosis: Findings) -> dict[str, Any]:
    return {
        "devices": [_device(device) for device in diagnosis.devices],
        "divergences": [_divergence(divergence) for divergence in diagnosis.divergences],
        "network": list(diagnosis.network),
        "injected": [injected_json(fault) for fault in diagnosis.injected],
    }


def _before_run(diagnosis: Findings) -> dict[str, Any]:
    return {
        "undecided": [_undecided(undecided) for undecided in diagnosis.undecided],
        "notes": list(diagnosis.notes),
    }


def _place(place: Place) -> dict[str, Any]:
    return {
        "instruction": place.instruction,
        "opcode": place.opcode,
        "location": location_json(place.location),
        "frame": place.frame,
        "op_name": place.op_name,
    }


def _blocked(blocked: Blocked) -> dict[str, Any]:
    return {
        "device": blocked.device,
        **_place(blocked.place),
        "program": blocked.program,
        "computation": blocked.computation,
        "round": blocked.round,
        "channel": blocked.channel,
        "group": list(blocked.group),
        "needs": [{"device": need.device, "what": need.what} for need in blocked.needs],
    }


def _undecided(undecided: Undecided) -> dict[str, Any]:
    return {
        "devices": list(undecided.devices),
        "by": _place(undecided.by),
        "cause": _place(undecided.cause),
        "why": undecided.why,
    }


def _divergence(divergence: Divergence) -> dict[str, Any]:
    return {
        "devices": [divergence.device, divergence.other_device],
        "common": divergence.common,
        "next": [divergence.one, divergence.other],
        "events": [divergence.one_event, divergence.other_event],
        "also": list(divergence.also),
        "other_also": list(divergence.other_also),
    }


def injected_json(fault: Injected) -> dict[str, Any]:
    """A fault that was injected on purpose, and whether it happened."""
    return {
        "fault": fault.spec,
        "happened": fault.happened,
        "drawn_by": fault.drawn_by,
        "device": fault.device,
        "instruction": fault.instruction,
        "location": location_json(fault.location),
    }


def _device(device: DeviceState) -> dict[str, Any]:
    return {
        "device": device.device,
        "doing": device.doing.value,
        "program": device.program,
        **_place(device.place),
        "computation": device.computation,
        "round": device.round,
        "channel": device.channel,
        "group": list(device.group),
        "waits_for": list(device.waits_for),
        "host": device.host,
        "missing": list(device.missing),
        "loops": [
            {"instruction": loop.instruction, "location": location_json(loop.location), "iteration": loop.iteration}
            for loop in device.loops
        ],
        "events": [_event(event) for event in device.events],
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "instruction": event.instruction,
        "opcode": event.opcode,
        "round": event.round,
        "run": event.run,
        "begun_s": event.begun,
        "ended_s": event.ended,
        "waited_s": event.waited,
        "iteration": event.iteration,
    }


def location_json(location: Location | None) -> dict[str, Any] | None:
    """The place of an instruction: file, line and column from 1, the line's text, the line of the user's program."""
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "column": location.column,
        "text": location.text,
        "frame": location.frame,
    }


__all__ = ["FORMAT", "as_json", "injected_json", "location_json"]
