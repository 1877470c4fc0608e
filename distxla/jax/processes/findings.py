"""Why a call of several processes will never run, as an error with a diagnosis: who, which function and line, what
differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from distxla.diagnosis.facts.blocked import Doing
from distxla.diagnosis.facts.processes import Difference, ProcessState
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import (
    CollectiveMismatchError,
    DeadlockError,
    DistxlaError,
    ReplicaLostError,
    TimeLimitError,
)
from distxla.jax.processes.differences import differences
from distxla.jax.processes.ledger_facts import (
    DEADLOCK,
    LATE,
    LOST,
    MISMATCH,
    Called,
    Ending,
    Finding,
    Turn,
    apart_text,
    doing_in,
    place_of,
)
from distxla.jax.processes.program_text import ProgramText
from distxla.lazy_dataclass import replace
from distxla.wording import chain, processes_named

_NOTHING: Final[Mapping[int, tuple[str, ...]]] = {}
_MOST_STATES: Final = 64  # that a report has


def error_of(
    finding: Finding, text: Callable[[int], ProgramText], stacks: Mapping[int, tuple[str, ...]] = _NOTHING
) -> DistxlaError:
    """The error that JAX raises at the call, with its diagnosis.

    text: of a program's number; KeyError where it is forgotten.  stacks: of late processes' main threads, outermost
    first.
    """
    error = _error_class(finding)(_SUMMARIES.get(finding.kind, _skipped)(finding))
    found = [*_differences(finding, text)]
    states = tuple(_state(finding, p, stacks.get(p, ())) for p in _concerned(finding)[:_MOST_STATES])
    error.diagnosis = Diagnosis(error.code, error.message, processes=states, process_differences=tuple(found))
    return error


def _error_class(finding: Finding) -> type[DistxlaError]:
    if finding.why is not None:
        return type(finding.why)
    return {MISMATCH: CollectiveMismatchError, DEADLOCK: DeadlockError, LOST: ReplicaLostError, LATE: TimeLimitError}[
        finding.kind
    ]


# --- the summary: a line


def _mismatch(finding: Finding) -> str:
    assert finding.pair is not None
    sides = ", ".join(_calls(finding, [each]) for each in finding.pair)
    return f"processes disagree in {_call(finding)}: {sides}"


def _deadlock(finding: Finding) -> str:
    return f"each waits for the next, a deadlock of processes {chain([call.process for call in finding.cycle])}"


def _lost(finding: Finding) -> str:
    process = finding.missing[0]
    text = f"process {process} {_ended(finding, process)}"
    waiting = [call for call in finding.calls if call.process not in finding.endings]
    return f"{text}; {_calls(finding, waiting[:1])}, which needs it" if waiting else text


def _late(finding: Finding) -> str:
    late = processes_named(finding.missing)
    waiting = [call for call in finding.calls if call.process not in finding.missing]
    return (
        f"{_calls(finding, waiting[:1], of=waiting)} and has waited for {late} for {finding.seconds:.1f} s, "
        "longer than the limit for late processes"
    )


def _skipped(finding: Finding) -> str:
    why = finding.why
    assert why is not None
    reason = why.message.partition("\n")[0]
    if finding.by_argument:
        reason = f"its argument comes from a call that failed: {reason}"
    process = finding.missing[0]
    made = next((call for call in finding.calls if call.process == process), None)
    function = "" if made is None else f" ({made.function}, {place_of(made.site)})"
    return f"process {process} can't take part in {_call(finding)}{function}: {reason}"


_SUMMARIES: Final[Mapping[str, Callable[[Finding], str]]] = {
    MISMATCH: _mismatch,
    DEADLOCK: _deadlock,
    LOST: _lost,
    LATE: _late,
}


def _call(finding: Finding) -> str:
    """`call 4 of processes 0 and 1`."""
    members, ordinal = finding.key
    return f"call {ordinal + 1} of {processes_named(members)}"


def _calls(finding: Finding, calls: Sequence[Called], of: Sequence[Called] | None = None) -> str:
    """`process 0 calls step (train.py:44)`, with all that call the same from the same line. of: those that may; None:
    all."""
    (call,) = calls
    among = finding.calls if of is None else of
    same = [c.process for c in among if (c.program, c.name, c.site) == (call.program, call.name, call.site)]
    who = same if call.process in same else [call.process]
    return f"{processes_named(who)} call{'s' if len(who) == 1 else ''} {call}"


def _ended(finding: Finding, process: int) -> str:
    """`was ended by SIGKILL after its call 3 (step, train.py:44)`."""
    ending = finding.endings.get(process, Ending("lost"))
    made = next((call for call in finding.calls if call.process == process), None)
    if made is not None:
        return f"{ending} in its call {made.number} ({made.function}, {place_of(made.site)}), before all had made it"
    last = finding.last_before(process)
    if last is None:
        return f"{ending} before its first call of {processes_named(finding.key[0])}"
    where = "" if ending.how == "raised" else f" ({last.function}, {place_of(last.site)})"
    return f"{ending} after its call {last.number}{where}"


# --- the lines below it


def _differences(finding: Finding, text: Callable[[int], ProgramText]) -> Iterator[Difference]:
    if finding.pair is not None:
        one, other = finding.pair
        try:
            texts = [replace(text(call.program), name=call.name) for call in (one, other)]
        except KeyError:  # an old one
            if one.function != other.function:
                yield Difference("function", one.function, other.function, one.process, other.process)
        else:
            yield from differences(texts[0], texts[1], (one.process, other.process))
    for turn in finding.turns:
        yield _order(turn, finding)
    if finding.apart is not None:
        yield _apart(*finding.apart)


def _order(turn: Turn, finding: Finding) -> Difference:
    """Where the lines have been apart before, a call that one has left out is as likely."""
    call, when = turn.call, "next" if turn.is_next else "before"
    at = f"at {place_of(call.site)}" + ("" if turn.is_next else f", in call {call.number}")
    verb = "calls" if turn.is_next else "called"
    or_left_out = ", or one of them has left out a call" if finding.apart is not None else ""
    return Difference(
        "order",
        f"{call.function} {when}",
        "",
        call.process,
        frame_one=place_of(call.site),
        sentence=(f"process {call.process} {verb} {call.function} {when}, {at}: the order differs{or_left_out}"),
    )


def _apart(one: Called, other: Called) -> Difference:
    places = place_of(one.site), place_of(other.site)
    return Difference(
        "lines",
        places[0],
        places[1],
        one.process,
        other.process,
        where=f"since call {one.number}",
        frame_one=places[0],
        frame_other=places[1],
        sentence=apart_text(one, other),
    )


# --- the state of each process


def _concerned(finding: Finding) -> list[int]:
    return sorted({*finding.key[0], *(call.process for call in finding.cycle)})


def _state(finding: Finding, process: int, stack: tuple[str, ...]) -> ProcessState:
    heads = {call.process: call for call in (*finding.calls, *finding.cycle)}
    call = heads.get(process)
    last = finding.histories.get(process, ())
    shown = call or (last[-1] if last else None)
    doing, detail = _doing(finding, process, call)
    return ProcessState(
        process,
        doing,
        "" if shown is None else shown.function,
        "" if shown is None else str(shown.site),
        0 if shown is None else shown.number,
        detail,
        tuple(f"{each.function} ({place_of(each.site)})" for each in last),
        stack,
    )


def _doing(finding: Finding, process: int, call: Called | None) -> tuple[Doing, str]:
    """What it does, and the line of the text about it; "" where the summary says it."""
    if process in finding.endings:
        how = finding.endings[process].how
        doing = {"end": Doing.ENDED, "raised": Doing.FAILED}.get(how, Doing.LOST)
        return doing, "" if process in finding.missing[:1] else _ended(finding, process).rstrip(",")
    if finding.cycle and call is not None and call in finding.cycle:
        following = finding.cycle[(finding.cycle.index(call) + 1) % len(finding.cycle)].process
        return (
            Doing.WAITS,
            f"makes call {call.number} of {processes_named(call.members)}, {call}: waits for process {following}",
        )
    if process in finding.behind and process in finding.missing:
        return Doing.COMPUTES, doing_in(*finding.behind[process]).removeprefix("it ")
    if call is None:
        last = finding.last_before(process)
        if process in finding.missing or finding.kind == MISMATCH:
            after = (
                "" if last is None else f"; its last was call {last.number} ({last.function}, {place_of(last.site)})"
            )
            return Doing.COMPUTES, f"has not made call {finding.key[1] + 1} yet{after}"
        return Doing.COMPUTES, ""
    return (Doing.ARRIVED if finding.kind == MISMATCH else Doing.WAITS), ""


__all__ = ["error_of"]
