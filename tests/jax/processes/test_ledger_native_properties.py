"""Random scripts whose calls are native but for a few: those that agree run to their end, others get an answer, none
hangs, and no call both runs and is refused; whenever the owner looks at logs and boards, and whichever process dies."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from distxla.jax.processes.ledger_facts import LOST, MISMATCH, SKIPPED
from tests.jax.processes.ledger_native_cases import BY_OWNER, NativeRun, Script

FUNCTIONS = ["step", "total", "f", "g", *BY_OWNER]
AHEAD, SEEDS = st.integers(1, 4), st.integers(0, 2**32)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[int, Script]:
    processes = draw(st.integers(2, 4))
    members = st.sets(st.integers(0, processes - 1), min_size=1).map(lambda found: tuple(sorted(found)))
    return processes, draw(st.lists(st.tuples(members, st.sampled_from(FUNCTIONS)), min_size=1, max_size=16))


@settings(max_examples=200, deadline=None)
@given(scripts(), AHEAD, SEEDS)
def test_scripts_that_agree_run(script: tuple[int, Script], ahead: int, seed: int) -> None:
    processes, calls = script
    run = NativeRun([calls] * processes, ahead, seed)
    run.go()
    assert not run.findings
    natives = [members for members, function in calls if function not in BY_OWNER]
    assert len(run.ran) == len(natives)
    run.pull()
    assert not [*run.ledger.look(0), *run.ledger.look(100)]  # nobody waits


@settings(max_examples=200, deadline=None)
@given(scripts(), st.data(), AHEAD, SEEDS)
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
    other[place] = members, data.draw(st.sampled_from(["scaled", "gather"]))
    run = NativeRun([other if p == wrong else calls for p in range(processes)], ahead, seed)
    run.go()
    ((key, finding),) = run.findings.items()
    assert key == (members, sum(each == members for each, _ in calls[:place]))
    assert (finding.kind, key in run.ran) == (MISMATCH, False)
    assert finding.pair is not None
    assert {call.function for call in finding.pair} == {function, other[place][1]}
    assert wrong in {call.process for call in finding.pair}


@settings(max_examples=400, deadline=None)
@given(st.data(), st.integers(2, 4), AHEAD, SEEDS)
def test_none_hangs_whatever_they_call(data: st.DataObject, processes: int, ahead: int, seed: int) -> None:
    members = st.sets(st.integers(0, processes - 1), min_size=1).map(lambda found: tuple(sorted(found)))
    one = st.lists(st.tuples(members, st.sampled_from(FUNCTIONS)), max_size=8)
    run = NativeRun([data.draw(one) for _ in range(processes)], ahead, seed)
    run.go()
    assert not set(run.ran) & set(run.findings)


@settings(max_examples=300, deadline=None)
@given(scripts(), st.integers(0, 3), st.integers(1, 80), AHEAD, SEEDS)
def test_one_that_dies_hangs_nobody(script: tuple[int, Script], victim: int, when: int, ahead: int, seed: int) -> None:
    """Also amid a call, or after it has reached one: that runs where all had."""
    processes, calls = script
    run = NativeRun([calls] * processes, ahead, seed, (victim % processes, when))
    run.go()
    assert {finding.kind for finding in run.findings.values()} <= {LOST}
    assert all(victim % processes in finding.missing for finding in run.findings.values())
    assert not set(run.ran) & set(run.findings)


@settings(max_examples=200, deadline=None)
@given(scripts(), AHEAD, SEEDS)
def test_calls_that_can_not_run_in_one_hang_nobody(script: tuple[int, Script], ahead: int, seed: int) -> None:
    processes, calls = script
    run = NativeRun([calls] * processes, ahead, seed, skips=0.3)
    run.go()
    assert {finding.kind for finding in run.findings.values()} <= {SKIPPED}
    assert not set(run.ran) & set(run.findings)
    run.pull()
    assert not [*run.ledger.look(0), *run.ledger.look(100)]  # nobody waits
