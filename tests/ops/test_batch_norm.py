"""`batch-norm-training`, `-inference` and `-grad`: compiled against `evaluate`, both against XLA CPU and the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import optimised
from distxla.errors import VerificationError
from distxla.ir.element_type import element_type
from tests.ops.batch_norm_cases import OPCODES, program
from tests.ops.program_case import Array, compiled, evaluated, parsed

# relative to the largest element: several roundings of the type it is computed in, or one of the result's
TOLERANCES = {"f64": 1e-13, "f32": 5e-6, "f16": 1e-3, "bf16": 8e-3, "f8e5m2": 0.25}
SIZES = [((4, 5, 3), 2), ((4, 5, 3), 0), ((7,), 0), ((2, 3, 4, 5), 1), ((3, 0), 1), ((1, 3), 1)]


def _arguments(opcode: str, element: str, dims: tuple[int, ...], feature: int) -> list[Array]:
    generator, dtype = np.random.default_rng(len(dims) + feature), element_type(element).dtype
    x, gradient = (generator.standard_normal(dims) * 2 + shift for shift in (1.5, 0))
    a, b, c = (generator.standard_normal(dims[feature]) for _ in range(3))
    variance = generator.random(dims[feature]) + 0.1
    values: dict[str, list[Any]] = {
        "batch-norm-training": [x, a, b],
        "batch-norm-inference": [x, a, b, c, variance],
        "batch-norm-grad": [x, a, b, variance, gradient],
    }
    return [np.asarray(value).astype(dtype) for value in values[opcode]]


def _assert_close(got: list[Array], wanted: list[Any], tolerance: float) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        assert a.shape == b.shape
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        scale = max(np.abs(b[~np.isnan(b)]).max(initial=0.0), 1e-3)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


@pytest.mark.sampled(one_in=12, first=("f64-batch-norm-grad", "f64-batch-norm-inference"))
@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("element", TOLERANCES)
def test_compiled_agrees_with_evaluate(opcode: str, element: str) -> None:
    for dims, feature in SIZES:
        text, arguments = program(opcode, element, dims, feature), _arguments(opcode, element, dims, feature)
        wanted, got = evaluated(text, *arguments), compiled(text, *arguments)
        assert [a.dtype for a in got] == [a.dtype for a in wanted]
        _assert_close(got, wanted, TOLERANCES[element])


@pytest.mark.sampled(one_in=12)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("element", ["f64", "f32", "f16", "bf16"])
def test_evaluate_agrees_with_xla(opcode: str, element: str) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    for dims, feature in SIZES:
        text, arguments = program(opcode, element, dims, feature), _arguments(opcode, element, dims, feature)
        # XLA computes in f16 itself, ours in f32
        tolerance = 0.03 if element == "f16" else 4 * TOLERANCES[element]
        _assert_close(evaluated(text, *arguments), run_by_xla(text, arguments), tolerance)


def test_a_large_mean_does_not_cancel() -> None:
    """E[x^2] - E[x]^2 has no correct digit left here."""
    dims = (1000, 4)
    x = (np.random.default_rng(0).standard_normal(dims) * 0.1 + 5000).astype(np.float32)
    ones = np.ones(4, np.float32)
    _, mean, variance = compiled(program("batch-norm-training", "f32", dims, 1), x, ones, ones)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, wide.var(0), rtol=1e-4)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 3])
def test_what_is_not_finite_stays_in_its_feature(special: float, place: int) -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    x[place, 1] = special
    ones = np.ones(2, np.float32)
    text = program("batch-norm-training", "f32", x.shape, 1)
    wanted, got = evaluated(text, x, ones, ones), compiled(text, x, ones, ones)
    assert np.isfinite(got[0][:, 0]).all()
    assert np.isnan(got[2][1])
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_f16_does_not_overflow() -> None:
    x = np.array([[100.0], [300.0], [500.0]], np.float16)
    one = np.ones(1, np.float16)
    _, mean, variance = compiled(program("batch-norm-training", "f16", x.shape, 0 + 1), x, one, one)
    assert mean == np.float16(300)
    assert variance == np.float16(26666.666)


@pytest.mark.parametrize("opcode", ["batch-norm-training", "batch-norm-grad"])
def test_both_sums_are_one_loop(opcode: str) -> None:
    """The operand is read twice in all: for the sums, and for the result."""
    module = optimised(parsed(program(opcode, "f32", (64, 32, 16), 2)))
    dims = module.entry_computation.parameters[0].shape.dims
    loops = [i for i in module.entry_computation if i.opcode == "fusion"]
    assert sum(any(inner.shape.dims == dims and inner.operands for inner in module[i.op.calls]) for i in loops) == 2


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (program("batch-norm-training", "s32", (4, 3), 1), "batch-norm-training.C2"),
        (program("batch-norm-training", "f32", (4, 3), 1).replace("feature_index=1", "feature_index=2"), "C1"),
    ],
)
def test_rules(text: str, rule: str) -> None:
    with pytest.raises(VerificationError, match=rule):
        parsed(text)
