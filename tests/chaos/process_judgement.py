"""Whether a case of several JAX processes has ended right: who is told what, and when."""

from __future__ import annotations

import re
from typing import Any

from distxla.cli.launch_outcome import GRACE_S
from tests.chaos.story import Story

STATUS = {  # of `distxla launch`, by victim
    "process": 128 + 9,
    "owner": 4,
    "replica": 4,
    "raylet": 4,
    "launcher": -9,
}
TERMINATED = 128 + 15


def named(story: Story, lost: float) -> tuple[str, float | None, str]:
    """Each process that is not the victim raises an error that names the victim in time, or has been ended after a line
    that does. lost: seconds from the death on; those of a launcher's line come after its grace.

    A process that was killed before it had told anybody of itself can be named by the launcher alone: by hand others
    are told that they wait for it, and the outcome is "not told".
    """
    case = story.case
    told: list[float] = []
    if story.struck is None:
        return "no strike", None, "the victim was not there"
    if any(event["event"] == "wrong" for event in story.events):
        return "wrong", None, f"wrong numbers: {[e['text'] for e in story.events if e['event'] == 'wrong']}"
    all_ran = story.running == case.processes
    for process in range(case.processes):
        if case.victim == "process" and process == case.which:
            continue
        found = _told(story, process)
        if found is None and not all_ran and not case.launched:
            return "not told", None, ""
        if found is None:
            return "not named", None, f"process {process} is not told who has ended: {_said(story, process)}"
        told.append(found["at"] - story.struck - (GRACE_S if found["event"] == "line" and case.launched else 0.0))
    seconds = max(0.0, *told)
    wrong = f"told after {seconds:.2f} s, load {story.scale:.1f}" if seconds > lost * story.scale else ""
    status = STATUS[case.victim]
    if case.launched and all_ran and story.status != status:
        wrong = wrong or f"the launcher's status is {story.status}, expected {status}"
    if case.launched and not story.status:
        wrong = wrong or f"the launcher's status is {story.status}"
    return "named", seconds, wrong


def ended(story: Story) -> tuple[str, float | None, str]:
    """The launcher has ended all: with SIGTERM's status, where it was told to."""
    if story.status is None:
        return "no end", None, "the launcher goes on"
    want = TERMINATED if story.case.signal == "SIGTERM" else -9
    wrong = "" if story.status == want else f"the launcher's status is {story.status}, expected {want}"
    return "ended", None, wrong


def _told(story: Story, process: int) -> dict[str, Any] | None:
    """The error of a process that names the victim, else the first line that does; None: neither."""
    assert story.struck is not None
    pattern = _pattern(story)
    for event in story.events:
        if event["event"] == "ended" and event["process"] == process:
            return event if pattern.search(event["text"]) else None
    lines = (event for event in story.events if event["event"] == "line" and event["at"] >= story.struck)
    return next((line for line in lines if pattern.search(line["text"])), None)


def _said(story: Story, process: int) -> str:
    for event in story.events:
        if event["event"] == "ended" and event["process"] == process:
            return f"{event['error']}: {event['text']}"
    return "it has said nothing"


def _pattern(story: Story) -> re.Pattern[str]:
    """How messages name the victim."""
    case = story.case
    by = "" if story.running < case.processes else ".*SIGKILL"
    if case.victim == "process":
        return re.compile(rf"\bprocess {case.which}\b{by}", re.DOTALL)
    if case.victim == "raylet":
        return re.compile(r"\b(devices?|replicas?|cluster|Ray)\b", re.IGNORECASE)
    if case.victim == "replica":
        name = r"\bdevices? \d+" if by else r"\b(devices?|replicas?|cluster|Ray)\b"
        return re.compile(name + by, re.DOTALL | re.IGNORECASE)
    return re.compile(rf"\bthe (process that owns|owner of) the devices\b{by}", re.DOTALL)


__all__ = ["STATUS", "TERMINATED", "ended", "named"]
