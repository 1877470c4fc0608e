"""`rng` and `rng-get-and-update-state`: compiled against `evaluate` from run to run, and against what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.errors import UnsupportedOpError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES, FLOATS, INTEGERS, ElementType
from distxla.ops.rng import INITIAL_STATE
from distxla.oracle.lockstep import run_programs
from distxla.program.options import CompileOptions
from tests.compiler.runner import Devices
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture
from tests.ops.program_case import Array, compiled, evaluated, parsed
from tests.ops.rng_cases import program
from tests.tolerances import ulps_between

SIGNIFICANCE = 1e-3  # the streams are fixed: a test that passes once always does


@pytest.fixture
def special() -> Any:
    """Imported by the tests that need it: each of xdist's workers imports this module. scipy.stats takes four times
    as long."""
    return import_module("scipy.special")


def _runs(
    text: str, arguments: Sequence[Any], count: int = 2, target: str | None = None
) -> tuple[list[list[Array]], list[list[Array]]]:
    """The results of consecutive runs, by reference and compiled."""
    module = parsed(text)
    states: dict[int, int] = {}
    wanted = [
        [np.asarray(leaf) for leaf in outs[0]]
        for outs in (
            run_programs({0: module}, {0: arguments}, Counts(1, 1), random_states=states) for _ in range(count)
        )
    ]
    program = compile_module(module, Counts(1, 1), CompileOptions(target=target))
    assert bool(program.grid.launched) == (target is not None)
    devices = Devices(program)
    try:
        return wanted, [devices([arguments])[0] for _ in range(count)]
    finally:
        devices.close()


@pytest.mark.sampled(one_in=6, first=("u32",))
@pytest.mark.parametrize("element", [e for e in DATA_TYPES if not e.is_complex], ids=str)
def test_uniform_numbers_are_the_same_by_reference(element: ElementType) -> None:
    bounds = (-1, 3) if element.is_float else (-2, 1) if element.is_signed else (0, 3)
    a, b = (np.array(bound).astype(element.dtype) for bound in bounds)
    wanted, got = _runs(program(element, "uniform"), (a, b))
    for (ours,), (theirs,) in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype == element.dtype
        assert ours.tobytes() == theirs.tobytes()
    if element.kind != "pred" and element.name != "f8e8m0fnu":
        assert got[0][0].tobytes() != got[1][0].tobytes()
        assert np.all((got[0][0] >= a) & (got[0][0] < b))


@pytest.mark.sampled(one_in=6, first=("f32",))
@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_normal_numbers_are_nearly_the_same_by_reference(element: ElementType) -> None:
    a, b = (np.array(bound).astype(element.dtype) for bound in (-1, 2))
    wanted, got = _runs(program(element, "normal"), (a, b))
    for (ours,), (theirs,) in zip(got, wanted, strict=True):
        # Near zero a and b * z cancel.
        near = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)) < 4e-6
        assert np.all(near | (ulps_between(ours, theirs) <= 8))


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
@pytest.mark.parametrize(
    ("distribution", "wanted"),
    [("uniform", (-2, 5)), ("normal", (-2, 3))],
    ids=["uniform", "normal"],
)
def test_distribution_of_floats(element: str, distribution: str, wanted: tuple[float, float], special: Any) -> None:
    """By Kolmogorov and Smirnov. wanted: where the standard form of the distribution is moved and stretched to."""
    dtype = np.dtype({"f16": "f2", "f32": "f4", "f64": "f8"}[element])
    (values,) = compiled(program(element, distribution, "50000"), dtype.type(-2), dtype.type(3))
    spread = np.random.default_rng(0).uniform(-1e-3, 1e-3, values.shape)  # f16 has ties, which the test can't take
    values = values.astype(np.float64) + spread * (element == "f16")
    location, scale = wanted
    standard = (np.sort(values) - location) / scale
    below = special.ndtr(standard) if distribution == "normal" else np.clip(standard, 0, 1)
    steps = np.arange(len(below) + 1) / len(below)
    distance = max((steps[1:] - below).max(), (below - steps[:-1]).max())
    assert special.kolmogorov(np.sqrt(len(below)) * distance) > SIGNIFICANCE


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("element", [e for e in INTEGERS if e.bits >= 8], ids=str)
def test_distribution_of_integers(element: ElementType, special: Any) -> None:
    low, high = (-7, 11) if element.is_signed else (3, 21)
    (values,) = compiled(program(element, "uniform", "40000"), element.dtype.type(low), element.dtype.type(high))
    counts = np.bincount(values.astype(np.int64) - low, minlength=high - low)
    assert len(counts) == high - low
    expected = len(values) / len(counts)
    assert special.chdtrc(len(counts) - 1, ((counts - expected) ** 2 / expected).sum()) > SIGNIFICANCE


def test_consecutive_numbers_are_independent() -> None:
    (values,) = compiled(program("f32", "normal", "100000"), np.float32(0), np.float32(1))
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("element", ["f32", "bf16", "s32"])
def test_an_empty_interval_gives_its_beginning(element: str) -> None:
    text = program(element, "uniform", "5")
    dtype = parsed(text).entry_computation.parameters[0].shape.dtype.dtype
    (values,) = compiled(text, dtype.type(2), dtype.type(2))
    assert values.astype(np.float64).tolist() == [2.0] * 5


def test_half_open_where_the_type_is_coarse() -> None:
    """bf16 has two numbers in [100, 101)."""
    import ml_dtypes

    (values,) = compiled(program("bf16", "uniform"), ml_dtypes.bfloat16(100), ml_dtypes.bfloat16(101))
    assert sorted(set(values.astype(float).ravel().tolist())) == [100.0, 100.5]


STATES = """HloModule states
ENTRY main {
  first = u64[2] rng-get-and-update-state(), delta=7
  second = u64[2] rng-get-and-update-state(), delta=18446744073709551615
  ROOT r = (u64[2], u64[2]) tuple(first, second)
}
""".replace("18446744073709551615", "9223372036854775807")


@pytest.mark.parametrize("target", [None, "nvptx"])
def test_the_state_goes_on_from_run_to_run(target: str | None) -> None:
    wanted, got = _runs(STATES, (), count=4, target=target)
    state = INITIAL_STATE
    for ours, theirs in zip(got, wanted, strict=True):
        for leaf, delta in enumerate((7, 2**63 - 1)):
            assert ours[leaf].tolist() == theirs[leaf].tolist() == [state % 2**64, state // 2**64]
            state += delta
    assert state > 2**64


def test_every_instruction_and_iteration_has_numbers_of_its_own() -> None:
    text = """HloModule loop
more {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  zero = f32[] constant(0)
  one = f32[] constant(1)
  u = f32[4] rng(zero, one), distribution=rng_uniform
  v = f32[4] rng(zero, one), distribution=rng_uniform
  ten = f32[] constant(10)
  tens = f32[4] broadcast(ten), dimensions={}
  y = f32[4] multiply(x, tens)
  z = f32[4] add(y, u)
  w = f32[4] subtract(z, v)
  step = s32[] constant(1)
  j = s32[] add(i, step)
  ROOT r = (s32[], f32[4]) tuple(j, w)
}
ENTRY main {
  zero = s32[] constant(0)
  x = f32[] constant(0)
  xs = f32[4] broadcast(x), dimensions={}
  s = (s32[], f32[4]) tuple(zero, xs)
  w = (s32[], f32[4]) while(s), condition=more, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""
    wanted, got = _runs(text, ())
    for (ours,), (theirs,) in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert len({float(x) for run in got for x in run[0]}) == 8


def test_an_unused_number_is_taken_all_the_same() -> None:
    """By reference it is evaluated, so compiled code must not skip it."""
    text = """HloModule unused
ENTRY main {
  zero = f32[] constant(0)
  one = f32[] constant(1)
  u = f32[4] rng(zero, one), distribution=rng_uniform
  ROOT v = f32[4] rng(zero, one), distribution=rng_uniform
}
"""
    assert evaluated(text)[0].tobytes() == compiled(text)[0].tobytes()


def test_replicas_begin_alike() -> None:
    module = parsed(program("f32", "uniform", "4"))
    arguments = [np.float32(0), np.float32(1)]
    outs = run_programs(dict.fromkeys(range(2), module), dict.fromkeys(range(2), arguments), Counts(2, 1))
    assert np.array_equal(outs[0][0], outs[1][0])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")
def test_the_initial_state_is_that_of_xla() -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    text = "HloModule state\nENTRY main {\n  ROOT s = u64[2] rng-get-and-update-state(), delta=7\n}\n"
    (theirs,), (ours,) = run_by_xla(text, []), evaluated(text)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (program("c64", "uniform"), VerificationError, "rng.C1"),
        (program("s32", "normal"), VerificationError, "rng.C2"),
        (STATES.replace("delta=7", "delta=-7"), VerificationError, "rng-get-and-update-state.C2"),
        (STATES.replace("u64[2]", "u64[3]"), UnsupportedOpError, r"u64\[2\], not as u64\[3\]"),
    ],
)
def test_rules(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parsed(text)
