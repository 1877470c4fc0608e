"""What a diagnosis says of JAX processes, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.diagnosis.facts.findings import Findings
from distxla.diagnosis.facts.processes import ProcessState
from distxla.wording import processes_named

MOST_STATES = 16  # processes, or groups of them, that get a line
MOST_FRAMES = 8  # of a stack, the innermost ones


def process_lines(diagnosis: Findings) -> Iterator[str]:
    """What differs, then the processes of which the summary doesn't say enough, each with two spaces before it."""
    yield from (f"  {difference}" for difference in diagnosis.process_differences)
    told = [state for state in diagnosis.processes if state.detail or state.stack]
    grouped: dict[tuple[object, ...], list[ProcessState]] = {}
    for state in told:
        grouped.setdefault((state.detail, state.stack), []).append(state)
    for states in [*grouped.values()][:MOST_STATES]:
        yield f"  {_line(states)}"
        yield from (f"    {frame}" for frame in states[0].stack[-MOST_FRAMES:])
    left = [state.process for states in [*grouped.values()][MOST_STATES:] for state in states]
    if left:
        yield f"  and {processes_named(left)}"


def _line(states: list[ProcessState]) -> str:
    """`processes 2-63: has not made call 4 yet` would be bad English: of several, `each`."""
    if len(states) == 1:
        return str(states[0])
    return f"{processes_named(state.process for state in states)}: each {states[0].detail or states[0].doing}"


__all__ = ["process_lines"]
