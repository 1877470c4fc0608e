"""The ledger of launches: events of processes in, decisions out."""

from __future__ import annotations

import pytest

from distxla.errors import ClusterError, CollectiveMismatchError
from distxla.jax.processes.findings import error_of
from distxla.jax.processes.late import lines_of
from distxla.jax.processes.ledger import Ledger
from distxla.jax.processes.ledger_facts import (
    DEADLOCK,
    LATE,
    LOST,
    MISMATCH,
    PREPARES,
    SKIPPED,
    WAITS,
    Called,
    Ending,
    Seen,
)
from distxla.jax.processes.program_text import ProgramText
from distxla.lazy_dataclass import replace
from tests.jax.processes.ledger_cases import KILLED, Told, made

BOTH = (0, 1)


def no_text(program: int) -> ProgramText:
    raise KeyError(program)


def test_a_call_starts_when_all_are_ready_for_it() -> None:
    told = Told(2)
    key = told.call(0, BOTH, "step")
    told.ready(0, key)
    assert not told.decisions
    assert told.call(1, BOTH, "step") == key
    assert not told.started
    told.ready(1, key)
    assert told.started == [(BOTH, 0)]


def test_calls_are_compared_when_they_are_made_not_when_they_run() -> None:
    told = Told(2)
    told.call(0, BOTH, "step")
    told.call(1, BOTH, "step")
    told.call(0, BOTH, "step")
    told.call(1, BOTH, "total")
    assert told.finding.kind == MISMATCH
    assert told.finding.key == (BOTH, 1)


def test_a_local_call_waits_for_nobody() -> None:
    told = Told(2)
    told.call(0, BOTH, "step")
    key = told.call(1, [1], "save")
    told.ready(1, key)
    assert told.started == [((1,), 0)]
    assert not told.ledger.over(key)


def test_a_mismatch_names_two_and_is_found_by_the_second() -> None:
    told = Told(3)
    told.run((0, 1, 2), "step", 44)
    told.call(2, (0, 1, 2), "step", 44)
    told.call(1, (0, 1, 2), "total", 50)
    finding = told.finding
    assert finding.kind == MISMATCH
    assert finding.key == ((0, 1, 2), 1)
    assert finding.pair is not None
    assert [(call.process, call.function, call.site.line) for call in finding.pair] == [
        (1, "total", 50),
        (2, "step", 44),
    ]
    assert told.call(0, (0, 1, 2), "step") == finding.key
    assert len(told.findings) == 1  # a process that comes later has been told, too


def test_after_a_mismatch_the_next_call_is_right() -> None:
    told = Told(2)
    told.call(0, BOTH, "scaled")
    told.call(1, BOTH, "scaled_by_3")
    assert told.finding.kind == MISMATCH
    told.decisions.clear()
    told.run(BOTH, "step")
    assert not told.decisions


def test_a_call_that_was_refused_does_not_start() -> None:
    told = Told(2)
    key = told.call(0, BOTH, "f")
    told.call(1, BOTH, "g")
    for process in BOTH:
        told.ready(process, key)
    assert not told.started
    assert len(told.findings) == 1


def test_another_order_is_seen_where_one_is_ahead() -> None:
    told = Told(2)
    told.call(0, BOTH, "f", 31)
    told.call(0, BOTH, "g", 32)
    told.call(1, BOTH, "g", 34)
    (turn,) = told.finding.turns
    assert turn.is_next
    assert (turn.call.process, turn.call.function, turn.call.site.line) == (0, "g", 32)


def test_whether_the_next_calls_may_tell_more() -> None:
    told = Told(2)
    told.call(0, BOTH, "f")
    told.call(1, BOTH, "g")
    pair = told.finding.pair
    assert pair is not None
    assert told.ledger.turns_of(*pair) is None
    told.call(0, BOTH, "step")
    assert told.ledger.turns_of(*pair) is None
    told.call(1, BOTH, "f")
    turns = told.ledger.turns_of(*pair)
    assert turns is not None
    assert [(turn.call.process, turn.call.function, turn.is_next) for turn in turns] == [(1, "f", True)]


def test_when_nothing_more_can_come() -> None:
    told = Told(2)
    told.call(0, BOTH, "f")
    told.call(1, BOTH, "g")
    assert told.finding.pair is not None
    told.end(1)
    assert told.ledger.turns_of(*told.finding.pair) == ()


def test_another_order_is_seen_by_the_call_before() -> None:
    told = Told(2)
    for process, functions in ((0, "fg"), (1, "gf")):
        for each in functions:
            told.call(process, BOTH, each, 30 + ord(each))
    first, second = told.findings
    assert [turn.is_next for turn in first.turns] == [True]
    assert {(turn.call.process, turn.call.function) for turn in second.turns} == {(0, "f"), (1, "g")}
    assert not any(turn.is_next for turn in second.turns)


def test_a_loop_over_two_functions_is_no_other_order() -> None:
    told = Told(2)
    for _ in range(3):
        told.run(BOTH, "f")
        told.run(BOTH, "g")
    told.call(0, BOTH, "f")
    told.call(1, BOTH, "g")
    assert not told.finding.turns


def test_lines_that_differ_are_told_with_a_later_error() -> None:
    """A process that skips a call and goes on with the same function matches, one call late."""
    told = Told(2)
    told.run(BOTH, "step", 20)
    key = told.call(0, BOTH, "step", 41)
    told.call(1, BOTH, "step", 54)
    assert not told.decisions
    told.ledger.over(key)
    told.call(0, BOTH, "step", 54)
    told.end(1, Ending("end"))
    apart = told.finding.apart
    assert told.finding.kind == LOST
    assert apart is not None
    assert [(call.number, call.site.line) for call in apart] == [(2, 41), (2, 54)]


def test_lines_that_differ_are_forgotten_when_they_were_told_and_agree_again() -> None:
    told = Told(2)
    for lines in ((41, 54), (60, 60)):
        for process, line in enumerate(lines):
            key = told.call(process, BOTH, "step", line)
        told.ledger.over(key)
    assert told.ledger.apart  # nobody has heard of it yet
    for process, function in enumerate("fg"):
        told.call(process, BOTH, function, 61)
    assert told.finding.apart is not None
    assert told.ledger.apart
    told.decisions.clear()
    told.run(BOTH, "step", 70)
    assert not told.ledger.apart


def test_unknown_lines_are_not_apart() -> None:
    told = Told(2)
    told.call(0, BOTH, "step", 0)
    told.call(1, BOTH, "step", 54)
    assert not told.ledger.apart


@pytest.mark.parametrize("waits", [True, False])
def test_a_process_that_has_ended_is_lost_at_once(waits: bool) -> None:
    told = Told(2)
    told.run(BOTH, "step")
    if waits:
        told.call(0, BOTH, "total")
    told.end(1)
    if not waits:
        assert not told.decisions
        told.call(0, BOTH, "total")
    finding = told.finding
    assert finding.kind == LOST
    assert finding.missing == (1,)
    assert finding.endings == {1: KILLED}
    last = finding.last_before(1)
    assert last is not None
    assert (last.function, last.number) == ("step", 1)


def test_a_call_of_a_process_that_was_killed_before_it_began_is_lost() -> None:
    told = Told(2)
    key = told.call(1, BOTH, "step")
    told.ready(1, key)
    told.end(1)
    assert told.finding.calls == (made(1, BOTH, 0, "step"),)
    told.call(0, BOTH, "step")
    assert not told.started
    assert len(told.findings) == 1


def test_a_call_that_runs_goes_on_when_a_process_ends() -> None:
    told = Told(2)
    for process in BOTH:
        key = told.call(process, BOTH, "step")
        told.ready(process, key)
    told.end(1)
    assert not told.findings
    assert not told.ledger.over(key)


def test_a_process_ends_once() -> None:
    told = Told(2)
    told.call(0, BOTH, "step")
    told.end(1, Ending("raised", "ValueError: data loader"))
    told.end(1, KILLED)
    assert told.finding.endings[1].how == "raised"


def test_a_call_of_others_does_not_need_the_one_that_ended() -> None:
    told = Told(3)
    told.end(2)
    told.run(BOTH, "step")
    assert not told.decisions


def test_pairs_in_a_circle_are_a_deadlock() -> None:
    told = Told(3)
    told.call(0, (0, 1), "f", 10)
    told.call(0, (0, 2), "g", 11)
    told.call(1, (1, 2), "h", 20)
    told.call(1, (0, 1), "f", 21)
    assert not told.decisions
    told.call(2, (0, 2), "g", 30)
    assert len(told.findings) == 3
    assert {finding.kind for finding in told.findings} == {DEADLOCK}
    assert {finding.key[0] for finding in told.findings} == {(0, 1), (0, 2), (1, 2)}
    assert [(call.process, call.function) for call in told.findings[0].cycle] == [(0, "f"), (1, "h"), (2, "g")]
    told.call(2, (1, 2), "h")
    told.decisions.clear()
    told.run((0, 1, 2), "step")
    assert not told.decisions


def test_two_behind_each_other_s_call_of_three() -> None:
    told = Told(3)
    told.call(0, (0, 1, 2), "f")
    told.call(1, (0, 1), "g")
    assert told.findings
    assert told.findings[0].kind == DEADLOCK
    assert [call.process for call in told.findings[0].cycle] == [0, 1]


def test_a_circle_behind_a_running_call_is_none_until_it_is_over() -> None:
    told = Told(2)
    local = told.call(0, [0], "save")
    told.ready(0, local)
    told.call(0, BOTH, "f")
    told.call(1, (0, 1), "f")
    assert told.started == [((0,), 0)]
    assert not told.findings
    assert not told.ledger.over(local)


def test_a_call_that_can_not_run_in_one_is_refused_for_all() -> None:
    told = Told(2)
    key = told.call(0, BOTH, "step")
    told.call(1, BOTH, "step")
    why = CollectiveMismatchError("processes disagree")
    told.decisions += told.ledger.skipped(1, key, why)
    told.decisions += told.ledger.skipped(0, key, why)
    assert told.finding.kind == SKIPPED
    assert told.finding.missing == (1,)
    assert told.finding.why is why


def test_late_ones_are_told_after_a_second_and_then_less_and_less() -> None:
    told = Told(2)
    told.call(0, BOTH, "step")
    times = [k / 20 for k in range(200)]
    found = [(now, notice) for now in times for notice in told.look(100 + now)]
    assert [round(now) for now, _ in found] == [1, 2, 4, 8]
    notice = found[0][1]
    assert (notice.waiting, notice.late, notice.call.function) == (0, 1, "step")
    told.call(1, BOTH, "step")
    assert not told.look(200)
    assert not told.findings


def test_a_notice_has_the_lines_that_differ() -> None:
    told = Told(2)
    key = told.call(0, BOTH, "step", 41)
    told.call(1, BOTH, "step", 54)
    told.ledger.over(key)
    told.call(0, BOTH, "step", 54)
    told.look(0)
    (notice,) = told.look(1)
    assert notice.apart is not None
    assert lines_of([notice], {1: "it is at train.py:60: input()"}) == [
        (
            (0,),
            1,
            "process 0 waits for process 1: it is at train.py:60: input() [1.0 s so far, in call 2: step "
            "(train.py:54)]; apart since call 1: process 0 at train.py:41, process 1 at train.py:54",
        )
    ]


def test_each_call_is_waited_for_anew() -> None:
    told = Told(2)
    told.call(0, BOTH, "step")
    assert not told.look(0)
    assert told.look(1)
    key = told.call(1, BOTH, "step")
    told.ready(0, key)
    told.ready(1, key)
    told.ledger.over(key)
    told.call(0, BOTH, "step")
    assert not told.look(5)
    assert told.look(6)


def test_only_the_first_call_of_a_queue_waits() -> None:
    told = Told(3)
    told.call(0, BOTH, "step")
    told.call(0, (0, 2), "total")
    told.look(0)
    assert [notice.late for notice in told.look(1)] == [1]


def test_the_call_in_which_a_late_one_waits_itself() -> None:
    told = Told(3)
    told.call(0, BOTH, "step")
    told.call(1, (1, 2), "total")
    told.look(0)
    behind = {notice.waiting: notice.behind for notice in told.look(1)}
    assert behind[0] == made(1, (1, 2), 0, "total")
    assert behind[1] is None


def test_the_limit_for_late_ones() -> None:
    told = Told(3, stall_limit=5)
    told.call(0, BOTH, "step")
    told.call(1, (1, 2), "total")
    told.look(0)
    told.look(4.9)
    assert not told.findings
    told.look(5)
    assert told.finding.kind == LATE
    assert told.finding.missing == (2,)


def test_one_that_has_called_and_still_runs_another_call_is_late() -> None:
    told = Told(2, stall_limit=5)
    local = told.call(1, [1], "save", 70)
    told.ready(1, local)
    for process in BOTH:
        key = told.call(process, BOTH, "step", 44)
    told.ready(0, key)
    told.look(0)
    assert [line for _, _, line in lines_of(told.look(1), {1: "it is at a.py:8: input()"})] == [
        "process 0 waits for process 1: it still runs its call 1: save (train.py:70), and it is at a.py:8: input() "
        "[1.0 s so far, in call 1: step (train.py:44)]"
    ]
    told.look(5)
    assert (told.finding.kind, told.finding.key, told.finding.missing) == (LATE, key, (1,))
    assert error_of(told.finding, no_text).message == (
        "process 0 calls step (train.py:44) and has waited for process 1 for 5.0 s, longer than the limit for late "
        "processes"
    )
    assert told.ledger.over(local) == []


def test_one_that_has_called_and_is_not_ready_is_late() -> None:
    told = Told(2, stall_limit=5)
    for process in (1, 0):
        key = told.call(process, BOTH, "step", 44)
    assert not [*told.look(0), *told.look(1)]  # neither is ready
    told.ready(1, key)
    told.look(2)
    (notice,) = told.look(3)
    assert (notice.waiting, notice.late, notice.doing) == (1, 0, PREPARES)
    assert "process 0: it is not ready yet for its call 1: step (train.py:44) [" in lines_of([notice], {})[0][2]
    told.look(7)
    error = error_of(told.finding, no_text)
    assert error.message.startswith("process 1 calls step (train.py:44) and has waited for process 0 for 5.0 s")
    assert error.diagnosis is not None
    assert [state.detail for state in error.diagnosis.processes] == [
        "is not ready yet for its call 1: step (train.py:44)",
        "",
    ]


def test_one_that_waits_where_it_has_called_is_not_late() -> None:
    told = Told(3, stall_limit=5)
    for process in BOTH:
        told.call(process, (0, 1, 2), "step")
    told.look(0)
    assert [(notice.waiting, notice.late) for notice in told.look(1)] == [(0, 2), (1, 2)]
    told.look(5)
    assert told.finding.missing == (2,)


def test_one_behind_a_call_in_which_it_waits_itself_is_not_at_fault() -> None:
    told = Told(3, stall_limit=5)
    told.call(1, (1, 2), "total")
    for process in BOTH:
        key = told.call(process, BOTH, "step")
    told.ready(0, key)
    told.look(0)
    assert {(notice.waiting, notice.late, notice.doing) for notice in told.look(1)} == {(0, 1, WAITS), (1, 2, WAITS)}
    told.look(5)
    assert told.finding.missing == (2,)


@pytest.mark.parametrize("wrong", [made(0, BOTH, 1, "step"), made(2, BOTH, 0, "step"), made(0, (0, 7), 0, "step")])
def test_calls_that_can_not_be(wrong: object) -> None:
    told = Told(3)
    with pytest.raises(ClusterError, match=r"process \d"):
        told.ledger.called(wrong)  # type: ignore[arg-type]


def test_nothing_is_kept_of_calls_that_are_over() -> None:
    told = Told(2)
    for _ in range(200):
        told.run(BOTH, "step")
    assert len(told.ledger.history(0, 1000)) <= 64
    assert [call.ordinal for call in told.ledger.history(0, 2)] == [198, 199]


def native(process: int, ordinal: int, turn: int, members: tuple[int, ...] = BOTH) -> Called:
    return replace(made(process, members, ordinal, "step", turn=turn), is_native=True)


def test_a_native_call_that_was_not_seen_counts_for_what_comes_next() -> None:
    told = Told(2)
    seen = Seen((native(0, 99, 120),), turn=120, issued=(BOTH, 99), is_done=True, missed=True)
    assert not told.ledger.seen({0: seen})
    assert not told.ledger.called(made(0, BOTH, 105, "step", turn=130))
    with pytest.raises(ClusterError, match="makes call 102 of processes 0 and 1, expected call 107"):
        told.ledger.called(made(0, BOTH, 101, "step", turn=131))


def test_a_native_call_that_was_started_before_it_was_refused_runs() -> None:
    ledger = Ledger(2, refuse=lambda key, is_reached: False)
    ledger.seen({0: Seen((native(0, 0, 0),), 0, (BOTH, 0))})
    assert not ledger.ended(1, KILLED)
    assert not ledger.look(0)
    assert not ledger.seen({0: Seen((), 0, (BOTH, 0), is_done=True)})
    assert ledger.made(0, (BOTH, 0)) is None


def test_the_first_line_that_differs_is_known_from_a_board() -> None:
    told = Told(2)
    for ordinal in (7, 3, 9):
        told.ledger.seen_apart(native(1, ordinal, 0), native(0, ordinal, 0))
    assert [(call.process, call.ordinal) for call in told.ledger.apart[BOTH]] == [(0, 3), (1, 3)]


def test_who_is_yet_to_call() -> None:
    told = Told(2)
    for process in BOTH:
        told.call(process, BOTH, "f")
    told.call(1, BOTH, "f")
    assert told.ledger.yet_to_call(made(0, BOTH, 0, "f"), made(1, BOTH, 0, "f")) == [0]
