"""Random programs: what the verdict says, and what the reference finds when it runs them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distxla as dx
from distxla.compiler.verify.world import verify_world
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import DeadlockError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.scheduler.random_programs import RandomProgram
from tests.stopwatch import Stopwatch

Programs = list[tuple[range, Module]]


def drawn(data: st.DataObject, devices: int) -> Programs:
    """A program for all devices; sometimes two of them share the devices, alike but for a constant."""
    text = RandomProgram(lambda strategy: data.draw(strategy), devices).text()
    module = parse_module(text, "random.hlo")
    cut = data.draw(st.integers(1, 2 * devices), label="cut")
    if cut >= devices:
        return [(range(devices), module)]
    before, after = data.draw(st.sampled_from([("0", "1"), ("1", "2"), ("2", "0"), ("x", "x")]), label="constant")
    other = parse_module(re.sub(rf"(v\d+ = s32\[\] constant)\({before}\)", rf"\1({after})", text), "other.hlo")
    return [(range(cut), module), (range(cut, devices), other)]


def arguments_of(data: st.DataObject, devices: int) -> dict[int, list[Any]]:
    numbers = data.draw(st.lists(st.integers(0, 2), min_size=devices, max_size=devices), label="arguments")
    return {d: [np.zeros(2, np.float32), np.int32(n)] for d, n in enumerate(numbers)}


def equal_arguments(devices: int) -> list[dict[int, list[Any]]]:
    """The same for all devices: none, one and two iterations of each loop that they decide, and either branch."""
    return [{d: [np.zeros(2, np.float32), np.int32(n)] for d in range(devices)} for n in range(3)]


def diagnosis_of(programs: Programs, devices: int, arguments: dict[int, list[Any]]) -> Diagnosis | None:
    """What the reference finds; None where everybody ends."""
    modules = {device: module for part, module in programs for device in part}
    try:
        run_programs(modules, arguments, Counts(devices, 1))
    except DeadlockError as stuck:
        return stuck.diagnosis
    return None


def require_same(before: Diagnosis | None, runs: Sequence[Diagnosis | None], texts: str) -> None:
    """If all runs say the same, a diagnosis before the run says so, too, in the same words.

    Hints about what devices skipped need histories: a run may have them where `check` has none, or says only that a
    device ran something less often (docs/deadlock.md).
    """
    assert before is not None
    said = {(run.kind, run.summary, run.cycle, run.hints) for run in runs if run is not None}
    if len(said) > 1:
        return  # arguments decide who waits for whom
    [(*sentence, hints)] = said
    assert [before.kind, before.summary, before.cycle] == sentence, texts
    added = [hint for hint in hints if hint not in before.hints]
    lacking = [hint for hint in before.hints if hint not in hints]
    assert [hint for hint in before.hints if hint in hints] == [hint for hint in hints if hint not in added], texts
    assert not lacking or added, texts
    assert all(re.search(" less often than | has no instruction left that matches ", hint) for hint in lacking), texts
    assert all(re.search(" skipped | runs? fewer iterations of ", hint) for hint in added), texts
    assert not added or re.search(r" (conditional|while)\(", texts), texts


def check(data: st.DataObject) -> None:
    """Safe: no run deadlocks, whatever the arguments. Deadlock: every run does, and says the same."""
    devices = data.draw(st.integers(2, 4), label="devices")
    programs = drawn(data, devices)
    verify_world(programs, Counts(devices, 1))
    verdict = examine(programs, Counts(devices, 1))
    texts = "\n".join(print_module(module) for _, module in programs)
    found = [diagnosis_of(programs, devices, args) for args in (arguments_of(data, devices), *equal_arguments(devices))]
    for run in found:
        assert verdict.outcome is not (Outcome.DEADLOCK if run is None else Outcome.SAFE), (
            f"{texts}\n{run!s}\n{verdict.text}"
        )
    # the reference waits in a permute for all that its pairs join, compiled code for its own source only
    if verdict.outcome is Outcome.DEADLOCK and "collective-permute" not in texts:
        require_same(verdict.diagnosis, found, "\n".join((texts, *map(str, found), verdict.text)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_verdicts_of_random_programs(data: st.DataObject) -> None:
    check(data)


@pytest.mark.exhaustive
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_verdicts_of_many_random_programs(data: st.DataObject) -> None:
    check(data)


SECONDS = 1.0 + 0.5  # from the last event to the error; half of it for a machine that has other things to do


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.cluster
def test_random_programs_on_processes() -> None:
    """What is safe ends; what isn't is found within a second, and said in the words of the check."""
    devices = 3
    with dx.Cluster(replicas=devices) as cluster:
        cluster.wait_started()

        @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.data())
        def one(data: st.DataObject) -> None:
            programs = drawn(data, devices)
            verify_world(programs, Counts(devices, 1))
            verdict = examine(programs, Counts(devices, 1))
            arguments = arguments_of(data, devices)
            loaded = {part: cluster.compile(module, part) for part, module in programs}
            watch, found = Stopwatch(), None
            try:
                cluster.run(loaded, arguments, time_limit=20)
            except DeadlockError as stuck:
                found = stuck.diagnosis
            texts = "\n".join(print_module(module) for _, module in programs)
            assert verdict.outcome is not (Outcome.DEADLOCK if found is None else Outcome.SAFE), (
                f"{texts}\n{found!s}\n{verdict.text}"
            )
            assert found is None or watch.seconds < SECONDS
            if verdict.outcome is Outcome.DEADLOCK:
                runs = [diagnosis_of(programs, devices, args) for args in equal_arguments(devices)]
                require_same(verdict.diagnosis, [found, *runs], f"{texts}\n{found!s}\n{verdict.text}")

        one()
