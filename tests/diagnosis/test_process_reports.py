"""What diagnoses show of JAX processes."""

from __future__ import annotations

from distxla.diagnosis.facts.blocked import Doing
from distxla.diagnosis.facts.processes import Difference, ProcessState
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.diagnosis.report.process_html import process_headline, process_sections
from distxla.diagnosis.report.process_text import process_lines


def of(
    *states: ProcessState, differences: tuple[Difference, ...] = (), summary: str = "processes disagree: a"
) -> Diagnosis:
    return Diagnosis("mismatch", summary, processes=states, process_differences=differences)


def test_a_sentence_of_a_state() -> None:
    assert (
        str(ProcessState(0, Doing.WAITS, "step", "train.py:47 in main")) == "process 0 calls step (train.py:47 in main)"
    )
    assert str(ProcessState(1, Doing.LOST)) == "process 1 was lost"
    assert str(ProcessState(1, Doing.LOST, detail="was ended by SIGKILL")) == "process 1 was ended by SIGKILL"


def test_only_states_that_say_more_are_lines() -> None:
    states = [ProcessState(p, Doing.COMPUTES, "f", detail="has not called it") for p in (1, 2, 5)]
    found = of(ProcessState(0, Doing.ARRIVED, "f"), *states, ProcessState(7, Doing.LOST, detail="is gone"))
    assert list(process_lines(found)) == ["  processes 1, 2, 5: each has not called it", "  process 7 is gone"]


def test_many_states_are_cut() -> None:
    found = of(*(ProcessState(p, Doing.COMPUTES, detail=f"is in {p}") for p in range(20)))
    lines = list(process_lines(found))
    assert len(lines) == 17
    assert lines[-1] == "  and processes 16-19"


def test_a_stack_is_cut_to_the_innermost_frames() -> None:
    found = of(ProcessState(1, Doing.COMPUTES, detail="is late", stack=tuple(f"train.py:{k}" for k in range(10))))
    assert list(process_lines(found)) == ["  process 1 is late", *(f"    train.py:{k}" for k in range(2, 10))]


def test_other_diagnoses_have_none() -> None:
    found = Diagnosis("deadlock", "device 0 waits")
    assert not list(process_sections(found))
    assert not list(process_lines(found))
    assert "processes" not in found.as_json()


def test_the_page() -> None:
    calls = ("f (train.py:1)", "g (train.py:2)")
    found = of(
        *(ProcessState(p, Doing.ARRIVED, "g", "train.py:2", 2, calls=calls) for p in range(3)),
        ProcessState(3, Doing.ARRIVED, "f", "train.py:1", 2, calls=(calls[0], calls[0])),
        differences=(Difference("function", "g", "f", 0, 3), Difference("order", "", "", sentence="f is next")),
    )
    page = found.page()
    assert process_headline(found) == "processes disagree"
    assert "<h1>Mismatch: processes disagree</h1>" in page
    assert '<tr><th rowspan="2">function</th><td>0</td><td class="first">g</td><td></td></tr>' in page
    assert '<tr><th>order</th><td colspan="3">f is next</td></tr>' in page
    assert '<li class="who">processes 0-2</li><li>f (train.py:1)</li><li class="first">g (train.py:2)</li>' in page
    assert "<th>host</th>" not in page


def test_a_page_of_many_is_cut() -> None:
    found = of(*(ProcessState(p, Doing.ARRIVED, "g", calls=("g (a.py:1)",)) for p in range(80)))
    page = found.page()
    assert "<p>and 16 more</p>" in page
    assert 'class="first"' not in page.split("</style>")[1]
