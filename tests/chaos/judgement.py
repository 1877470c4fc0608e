"""Whether a case has ended right."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distxla.runtime.hosts.slice import GRACE_S
from tests.chaos import process_judgement
from tests.chaos.program import INSTRUCTIONS
from tests.chaos.story import Story


@dataclass(frozen=True)
class Bounds:
    """Seconds. lost: from a process's death, or from the end of the time limit, to the error.  stopped: from a stop to
    a notice of it.  over: from a signal to the good end of a run whose devices were done when it came."""

    lost: float = 2.0
    stopped: float = 5.0
    over: float = 0.01


@dataclass(frozen=True)
class Verdict:
    """outcome: in a word or two.  seconds: until it was noticed, if that is known.  wrong: a description, or ""."""

    outcome: str
    seconds: float | None
    wrong: str


def judge(story: Story, bits: str, bounds: Bounds) -> Verdict:
    """bits: of the results of a run without faults, "" where none is known yet."""
    if story.hang:
        return Verdict("hangs", None, story.hang)
    outcome, seconds, wrong = _JUDGES[story.case.expected](story, bounds)
    ended = None if story.case.processes else story.event("ended")
    if story.case.victim and story.case.phase == "running" and ended is not None:
        if ended["error"] and (story.struck is None or ended["at"] < story.struck):
            outcome, seconds, wrong = ended["error"], None, f"an error before the signal: {ended['text']}"
        elif not ended["error"] and (story.struck is None or ended["at"] < story.struck + bounds.over):
            outcome, seconds, wrong = "too late", None, ""  # the run was over when, or just as, the signal came
    for event in story.events:  # the runs before and after, and those that should end well
        if bits and event.get("bits", bits) != bits:
            wrong = wrong or f"other bits ({event['event']})"
    if story.left:
        wrong = wrong or f"left behind: {'; '.join(story.left)}"
    if story.case.expected != "gone" and story.status is not None and not story.case.processes:
        wrong = wrong or f"the driver has ended with {story.status}"
    closed = story.event("closed")
    if closed is not None and (closed["threads"] or closed["descriptors"].get("memory file")):
        wrong = wrong or f"left in the driver: {closed['threads']} {closed['descriptors']}"
    if story.grown:
        wrong = wrong or f"descriptors left in the driver: {story.grown}"
    return Verdict(outcome, seconds, wrong)


def _lost(story: Story, bounds: Bounds) -> tuple[str, float | None, str]:
    """The run raises ReplicaLostError, which names a device and an instruction, in time."""
    ended = story.event("ended")
    if ended is None:
        return "no end", None, _before(story)
    seconds = None if story.struck is None else max(0.0, ended["at"] - story.struck)
    if not ended["error"]:
        if story.case.inject and not ended["injected"]:
            return "not reached", None, ""
        if story.case.victim in ("raylet", "agent") and seconds is not None and seconds <= bounds.lost:
            return "right", None, ""  # replicas live on for a moment
        return "right", None, "the run ended well"
    if "ReplicaLostError" not in ended["classes"]:
        return ended["error"], seconds, f"{ended['error']}: {ended['text']}"
    text = "\n".join([ended["text"], *ended["notes"]])
    if not re.search(r"\bdevices? \d", text):
        return "lost", seconds, f"no device is named: {text}"
    if not any(re.search(rf"\b{name}\b", text) for name in INSTRUCTIONS):
        return "lost", seconds, f"no instruction is named: {text}"
    if story.case.inject and not all(f"injected: {spec}" in text for spec in ended["injected"]):
        return "lost", seconds, f"the fault is not named: {text}"
    if seconds is not None and seconds > bounds.lost:
        return "lost", seconds, f"noticed after {seconds:.2f} s"
    return "lost", seconds, ""


def _before(story: Story) -> str:
    failed = story.event("failed", "interrupted")
    return f"no run: {failed['error']}: {failed['text']}" if failed else "the driver said nothing of the run's end"


def _right(story: Story, bounds: Bounds) -> tuple[str, float | None, str]:
    """The run ends well, and the next one on the same cluster, too."""
    for name in ("ended", "again"):
        event = story.event(name, "failed")
        if event is None or event["error"]:
            return "error", None, f"{name}: {event and event['text']}"
    return "right", None, ""


def _either(story: Story, bounds: Bounds) -> tuple[str, float | None, str]:
    """Right results, or an error that says why."""
    ended = story.event("ended")
    if ended is None:
        return "no end", None, _before(story)
    if not ended["error"]:
        return "right", None, ""
    if ended["error"] == "TimeLimitError" and story.case.inject:
        return "limit", None, "" if "injected: " in ended["text"] else f"the fault is not named: {ended['text']}"
    return _lost(story, bounds)


def _noticed(story: Story, bounds: Bounds) -> tuple[str, float | None, str]:
    """A notice of the stopped process in time, and after SIGCONT the right results."""
    named = "the agent of " if story.case.victim == "agent" else f"device {story.case.which} is stopped"
    notices = [event for event in story.events if event["event"] == "notice"]
    notice = next((event for event in notices if named in event["text"]), None)
    if notice is None:
        return "no notice", None, f"nothing says that a process has stopped: {[event['text'] for event in notices]}"
    seconds = notice["at"] - (story.struck or 0.0)
    outcome, _, wrong = _right(story, bounds)
    if seconds > bounds.stopped:
        wrong = wrong or f"noticed after {seconds:.2f} s"
    return f"noticed, {outcome}", seconds, wrong


def _limit(story: Story, bounds: Bounds) -> tuple[str, float | None, str]:
    """TimeLimitError, which names the device that was stopped, soon after that has been given its time to come back."""
    ended, running = story.event("ended"), story.event("running")
    if ended is None or running is None or ended["error"] != "TimeLimitError":
        return "error", None, f"expected TimeLimitError, found {ended}"
    if f"device {story.case.which} " not in ended["text"]:
        return "limit", None, f"device {story.case.which} is not named: {ended['text']}"
    seconds = max(0.0, ended["at"] - running["at"] - (story.case.time_limit or 0.0))
    return "limit", seconds, f"{seconds:.2f} s after the limit" if seconds > GRACE_S + bounds.lost else ""


def _interrupted(story: Story, bounds: Bounds) -> tuple[str, float | None, str]:
    """KeyboardInterrupt, or it was over before."""
    said = story.event("interrupted")
    if said is None:
        failed = next((event for event in story.events if event.get("error")), None)
        return "too late", None, f"{failed['error']}: {failed['text']}" if failed else ""
    again = story.event("again")
    if again is not None and again["error"]:
        return "interrupted", None, f"the cluster can't be used again: {again['text']}"
    return "interrupted", max(0.0, said["at"] - (story.struck or said["at"])), ""


def _gone(story: Story, bounds: Bounds) -> tuple[str, float | None, str]:
    """The driver has ended; leftovers are checked for all cases."""
    if story.struck is None:
        return "too late", None, ""
    return "gone", None, "" if story.status is not None else "the driver lives on"


_JUDGES = {
    "named": lambda story, bounds: process_judgement.named(story, bounds.lost),
    "terminated": lambda story, bounds: process_judgement.ended(story),
    "lost": _lost,
    "right": _right,
    "either": _either,
    "noticed": _noticed,
    "limit": _limit,
    "interrupted": _interrupted,
    "gone": _gone,
}

__all__ = ["Bounds", "Verdict", "judge"]
