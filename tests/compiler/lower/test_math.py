"""The bounds that docs/accuracy.md states, special values, and that loops around the functions vectorise."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.lower.math import BINARY_FUNCTIONS, FUNCTIONS
from tests.compiler.lower import accuracy
from tests.compiler.lower.accuracy import BINARY, COMPLEX_TYPES, EXACT, REAL_ONLY, REAL_TYPES, UNARY, distances, stated

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
BOUNDS = stated()
MISROUNDED = 2e-3  # of all f16 and bf16


def test_every_function_has_a_bound() -> None:
    assert {*UNARY, *EXACT} == set(FUNCTIONS)
    assert set(BINARY) == set(BINARY_FUNCTIONS)
    real = {(opcode, kind) for opcode in (*UNARY, *BINARY) for kind in REAL_TYPES}
    both = {(opcode, kind) for opcode in UNARY if opcode not in REAL_ONLY for kind in COMPLEX_TYPES}
    assert set(BOUNDS) == real | both


@pytest.mark.sampled(one_in=27)
@pytest.mark.parametrize(("opcode", "kind"), BOUNDS)
def test_accuracy(opcode: str, kind: str) -> None:
    distance, arguments, got, kernel = distances(opcode, kind)
    worst = int(np.argmax(distance))
    at = ", ".join(repr(a[worst]) for a in arguments)
    assert distance[worst] <= BOUNDS[opcode, kind], f"{opcode}({at}) = {got[worst]!r}, {distance[worst]} off"
    if kind in ("f16", "bf16"):
        assert (distance > 0.5).mean() <= MISROUNDED
    if opcode != "remainder":
        assert " x float>" in kernel.optimised or " x double>" in kernel.optimised


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("kind", REAL_TYPES)
@pytest.mark.parametrize("opcode", EXACT)
def test_rounding_is_exact(opcode: str, kind: str) -> None:
    assert distances(opcode, kind)[0].max() == 0


def test_sine_of_the_f64_that_is_nearest_to_a_multiple_of_half_pi() -> None:
    """6381956970095103 * 2^797 is 4.7e-19 away from one: reduction needs 170 bits of the quotient."""
    x = np.array([6381956970095103 * 2.0**797] * 8)
    cosine, _ = accuracy.run("cosine", "f64", x)
    np.testing.assert_array_equal(cosine, np.full(8, -4.6871659242546277e-19))
