"""The conformance matrix on the transports that need no cluster."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.ir.element_type import DATA_TYPES, ElementType
from tests.collectives.drawn import Counts, collectives
from tests.collectives.matrix import WHERE, Case, build, cases, check
from tests.collectives.matrix_executors import by_late_threads, by_reference, by_threads
from tests.samples import examples, sampled_types

COUNTS = st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2), (3, 2), (2, 4), (8, 1), (1, 8)])
quick = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def any_cases(draw: st.DrawFn) -> Case:
    return draw(cases(draw(COUNTS)))


@quick
@given(any_cases())
def test_reference(case: Case) -> None:
    check(case, by_reference)


@quick
@given(any_cases(), st.integers(0, 1000))
def test_shared_memory_with_and_without_random_delays(case: Case, seed: int) -> None:
    check(case, by_threads)
    check(case, by_late_threads(seed))


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("kind", sampled_types(DATA_TYPES), ids=str)
@settings(quick, max_examples=3)
@given(data=st.data())
def test_every_element_type(kind: ElementType, data: st.DataObject) -> None:
    case = data.draw(cases((2, 2), [kind]))
    check(case, by_threads)
    check(case, by_reference)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("where", WHERE)
@settings(quick, max_examples=5)
@given(data=st.data())
def test_every_place(where: str, data: st.DataObject) -> None:
    counts: Counts = (2, 2)
    case = build(data.draw(collectives(counts)), counts, where, data.draw(st.integers(0, 1000)))
    check(case, by_threads)
    check(case, by_reference)


@pytest.mark.exhaustive
@settings(quick, max_examples=55)
@given(any_cases(), st.integers(0, 1000))
def test_many(case: Case, seed: int) -> None:
    check(case, by_reference)
    check(case, by_threads)
    check(case, by_late_threads(seed, 0.001))
