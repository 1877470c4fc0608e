"""Random scripts in random interleavings: those that agree run to their end, others get an answer, and none hangs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from distxla.jax.processes.ledger_facts import MISMATCH, Ending, Finding, Key, Start, Verdict
from tests.jax.processes.ledger_cases import Told

Script = list[tuple[tuple[int, ...], str]]  # members, function
FUNCTIONS = ["step", "total", "f", "g"]


class Process:
    """Runs its script: makes calls, up to `ahead` before the first of them is over, and ends when all are."""

    def __init__(self, number: int, script: Script, ahead: int) -> None:
        self.number, self.ahead = number, ahead
        self.left = [(members, function) for members, function in script if number in members]
        self.queue: list[Key] = []
        self.is_ready = self.has_ended = False

    @property
    def steps(self) -> list[str]:
        """What it can do now."""
        found = []
        if self.left and len(self.queue) < self.ahead:
            found.append("call")
        if self.queue and not self.is_ready:
            found.append("ready")
        if not self.left and not self.queue and not self.has_ended:
            found.append("end")
        return found


class Run:
    """All processes, the ledger, and a clock that stands still; calls that have started end at random."""

    def __init__(self, processes: int, scripts: Sequence[Script], ahead: int, seed: int) -> None:
        self.told = Told(processes)
        self.processes = [Process(p, script, ahead) for p, script in enumerate(scripts)]
        self.random = random.Random(seed)
        self.started: list[Key] = []
        self.ran: list[Key] = []
        self.findings: dict[Key, Finding] = {}

    def go(self) -> None:
        while not all(process.has_ended for process in self.processes):
            choices = [(process, step) for process in self.processes for step in process.steps]
            choices += [(None, "over")] if self.started else []
            assert choices, "nothing can go on"
            process, step = self.random.choice(choices)
            self.told.decisions.clear()
            self._do(process, step)
            for decision in self.told.decisions:
                if isinstance(decision, Start):
                    self.started.append(decision.key)
                elif isinstance(decision, Verdict):
                    assert decision.key not in self.findings
                    self.findings[decision.key] = decision.finding
                    self._leave(decision.key)

    def _do(self, process: Process | None, step: str) -> None:
        if process is None:
            key = self.started.pop(self.random.randrange(len(self.started)))
            self.told.decisions += self.told.ledger.over(key)
            self.ran.append(key)
            self._leave(key)
        elif step == "call":
            key = self.told.call(process.number, *process.left.pop(0))
            if key not in self.findings:
                process.queue.append(key)
        elif step == "ready":
            process.is_ready = True
            self.told.ready(process.number, process.queue[0])
        else:
            process.has_ended = True
            self.told.end(process.number, Ending("end"))

    def _leave(self, key: Key) -> None:
        for process in self.processes:
            if key in process.queue:
                process.is_ready = process.is_ready and process.queue[0] != key
                process.queue.remove(key)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[int, Script]:
    processes = draw(st.integers(2, 4))
    members = st.sets(st.integers(0, processes - 1), min_size=1).map(lambda found: tuple(sorted(found)))
    return processes, draw(st.lists(st.tuples(members, st.sampled_from(FUNCTIONS)), min_size=1, max_size=12))


@settings(max_examples=150, deadline=None)
@given(scripts(), st.integers(1, 4), st.integers(0, 2**32))
def test_scripts_that_agree_run(script: tuple[int, Script], ahead: int, seed: int) -> None:
    processes, calls = script
    run = Run(processes, [calls] * processes, ahead, seed)
    run.go()
    assert not run.findings
    assert len(run.ran) == len(calls)


@settings(max_examples=150, deadline=None)
@given(scripts(), st.data(), st.integers(1, 4), st.integers(0, 2**32))
def test_one_other_program_is_one_answer(
    script: tuple[int, Script], data: st.DataObject, ahead: int, seed: int
) -> None:
    processes, calls = script
    several = [k for k, (members, _) in enumerate(calls) if len(members) > 1]
    if not several:
        return
    place = data.draw(st.sampled_from(several))
    members, function = calls[place]
    wrong = data.draw(st.sampled_from(members))
    other = [*calls]
    other[place] = members, "scaled"
    run = Run(processes, [other if p == wrong else calls for p in range(processes)], ahead, seed)
    run.go()
    ((key, finding),) = run.findings.items()
    assert key == (members, sum(each == members for each, _ in calls[:place]))
    assert finding.kind == MISMATCH
    assert finding.pair is not None
    assert {call.function for call in finding.pair} == {function, "scaled"}
    assert wrong in {call.process for call in finding.pair}
    assert len(run.ran) == len(calls) - 1


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(2, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_none_hangs_whatever_they_call(data: st.DataObject, processes: int, ahead: int, seed: int) -> None:
    """Each has a script of its own: each call runs in all its members, or is answered once."""
    members = st.sets(st.integers(0, processes - 1), min_size=1).map(lambda found: tuple(sorted(found)))
    one = st.lists(st.tuples(members, st.sampled_from(FUNCTIONS)), max_size=8)
    run = Run(processes, [data.draw(one) for _ in range(processes)], ahead, seed)
    run.go()
    assert not set(run.ran) & set(run.findings)


@settings(max_examples=100, deadline=None)
@given(scripts(), st.integers(0, 3), st.integers(0, 12), st.integers(1, 4), st.integers(0, 2**32))
def test_one_that_dies_hangs_nobody(script: tuple[int, Script], victim: int, when: int, ahead: int, seed: int) -> None:
    processes, calls = script
    run = Run(processes, [calls[:when] if p == victim else calls for p in range(processes)], ahead, seed)
    run.go()
    assert {finding.kind for finding in run.findings.values()} <= {"lost"}
    assert all(victim in finding.missing for finding in run.findings.values())
