"""How the outcomes of JAX's tests of several processes are read."""

from __future__ import annotations

from collections import Counter

from tests.jax.pjrt.expected_failures import reasons
from tests.jax.processes.jax_suite import LIST, outcomes, surprises

LOG = """
------------------------------- Process 0 stdout -------------------------------
[ RUN      ] ArrayTest.test_a (<class 'int'>)
[       OK ] ArrayTest.test_a (<class 'int'>)
[  SKIPPED ] ArrayTest.test_b - Skipped on devices with tags: cpu
[  FAILED  ] ArrayTest.test_c
[ RUN      ] ArrayTest.test_d
------------------------------- Process 1 stdout -------------------------------
[       OK ] ArrayTest.test_a (<class 'int'>)
[  SKIPPED ] ArrayTest.test_b - Skipped on devices with tags: cpu
[       OK ] ArrayTest.test_c
[       OK ] ArrayTest.test_d
"""
A, B, C, D = (f"a_test.py::ArrayTest::test_{name}" for name in ("a (<class 'int'>)", "b", "c", "d"))


def test_outcomes_count_processes() -> None:
    assert outcomes("a_test.py", LOG) == {
        A: Counter(OK=2),
        B: Counter(SKIPPED=2),
        C: Counter(FAILED=1, OK=1),
        D: Counter(OK=1),
    }


def test_a_test_that_fails_or_never_ends_in_a_process_is_a_surprise() -> None:
    found = outcomes("a_test.py", LOG)
    assert surprises(found, {}, 2) == [
        f"{C}: failed in 1 of 2 processes, ended in 2",
        f"{D}: failed in 0 of 2 processes, ended in 1",
    ]
    assert surprises(found, {A: "known", C: "known", D: "known"}, 2) == [
        f"{A}: passes, and is expected to fail: known",
        f"{D}: passes, and is expected to fail: known",
    ]


def test_each_expected_failure_has_a_reason() -> None:
    assert all(len(reason) > 20 for reason in reasons(LIST.read_text()).values())
