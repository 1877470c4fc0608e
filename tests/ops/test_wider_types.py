"""Results that differ from XLA CPU's, beside those of a wider type: docs/accuracy.md, "Beside XLA CPU"."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from distxla.ir.element_type import element_type
from tests.ops.structured_case import StructuredCase

Array = np.ndarray[Any, Any]
# y, x and atan2(y, x) = -i log((x + i y) / sqrt(x^2 + y^2)), computed with 3,000 bits by mpmath
ATAN2 = {
    "c64": [
        (9.999999682655225e-20j, 1, 9.999999682655225e-20j),
        (9.999999682655225e-20 - 1.0000000031710769e-30j, -1e10 - 1j, 3.141592653589793 + 1.0999999685826303e-39j),
        (
            3.0000000054977558e38 + 1j,
            1.9999999360571385e38 - 1.9999999360571385e38j,
            0.826968803121046 + 0.4394644779893061j,
        ),
        (
            1.401298464324817e-45 + 9.99994610111476e-41j,
            9.999999350456404e-39,
            1.4014386977225205e-07 + 0.010000280098664023j,
        ),
        (9.999999680285692e37j, 3.0000000054977558e38, 0.34657357760346674j),
        (
            3.0000000054977558e38j,
            9.999999680285692e37 + 1.0000000150474662e30j,
            1.5707963230448967 + 0.34657357760346674j,
        ),
        (
            -1 - 9.999999682655225e-21j,
            -1.9999999360571385e38 + 1e10j,
            -3.141592653589793 + 5.000000026184768e-59j,
        ),
        (1e10 + 1e10j, 1e10 - 9999998976j, 1.1780972322961722 + 8.567049934790461j),
        (2.5 - 1j, -3.000000085396614e-38 + 9.999999350456404e-39j, 1.5707963267948966 + 6.8965551418277666e-40j),
        (0.5 + 0.25j, -0.75 + 2j, -3.1122147422319317 - 0.26617768424810706j),
    ],
    "c128": [
        (1e-170j, 1, 1e-170j),
        (1e-300 - 1e-280j, -1e10 - 1j, -3.141592653589793 + 1e-290j),
        (1.7e308 + 1j, 1e308 - 1e308j, 0.9134083195865824 + 0.429068462297459j),
        (5e-324, 3e-310 + 1e-310j, 1.482196937523744e-14 - 4.9406564584124805e-15j),
        (1e308j, 1.6e308, 0.7331685343967136j),
        (1.6e308j, 1e308 + 1e300j, 1.5707963165384864 + 0.7331685343967135j),
        (-1 - 1e-200j, -1.7e308 + 1e300j, -3.141592653589793 + 3.4602075e-317j),
        (0.5 + 0.25j, -0.75 + 2j, -3.1122147422319317 - 0.26617768424810706j),
    ],
}
# XLA CPU gives 0 for the first, -1 + inf i for the second, 0 in c128 for the third
QUOTIENTS = {
    "c64": [
        (-1.0842021724855044e-19j, 1.8446742974197924e19 - 1e10j, 3.1861842020876484e-48 - 5.877471754111438e-39j),
        (-1e10, 1e-30j, 1e40j),
        (3e38 + 3e38j, 3e38 - 3e38j, 1j),
    ],
    "c128": [
        (-1.4916681462400413e-154j, 1.3407807929942596e154 - 1e10j, -1.1125369292536007e-308j),
        (1e-310 + 1e-310j, 1e-310, 1 + 1j),
        (1.7e308 + 1.7e308j, 1.7e308 - 1.7e308j, 1j),
    ],
}


def _both(opcode: str, kind: str, rows: list[tuple[complex, complex, complex]]) -> tuple[list[Array], Array]:
    """(the results of the reference and of compiled code, those of `rows` in the type)"""
    columns = [np.array(column).astype(element_type(kind).dtype) for column in zip(*rows, strict=True)]
    shape = f"{kind}[{len(rows)}]"
    case = StructuredCase(f"{shape} {opcode}(@)", (shape, shape), kind, {0: columns[0], 1: columns[1]})
    return [case.evaluated()[0], case.compiled()[0]], columns[2]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["c64", "c128"])
@pytest.mark.parametrize("opcode", ["atan2", "divide"])
def test_complex_numbers_with_extreme_parts(opcode: str, kind: str) -> None:
    found, wanted = _both(opcode, kind, (ATAN2 if opcode == "atan2" else QUOTIENTS)[kind])
    least = np.finfo(wanted.dtype).smallest_subnormal
    for got in found:
        same = (got.real == wanted.real) & (got.imag == wanted.imag)
        with np.errstate(all="ignore"):
            near = np.abs(got - wanted) <= 4 * np.finfo(wanted.dtype).eps * np.abs(wanted) + 2 * least
        assert (same | near).all(), f"{got} instead of {wanted}"


def _largest(dtype: Any) -> float:
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(limits.max)


def _sum(kind: str, values: Array) -> StructuredCase:
    text = f"{kind}[] reduce(@), dimensions={{0}}, to_apply=add"
    return StructuredCase(text, (f"{kind}[{len(values)}]", f"{kind}[]"), kind, {0: values, 1: np.zeros(())})


@pytest.mark.parametrize("kind", ["f16", "f8e4m3fn", "f8e5m2", "f8e4m3", "f8e3m4"])
@pytest.mark.parametrize("counts", [(2, 2), (4, 4), (16, 16), (33, 32)])
def test_narrow_sums_overflow_only_where_the_sum_does(kind: str, counts: tuple[int, int]) -> None:
    """Partial sums are in f32 and rounded once. XLA CPU rounds each, and gives an infinity or NaN."""
    dtype = element_type(kind).dtype
    largest = _largest(dtype)
    values = np.array([largest] * counts[0] + [-largest] * counts[1]).astype(dtype)
    wanted = values.astype(np.float64).sum()
    case = _sum(kind, values)
    assert float(case.compiled()[0]) == wanted


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("values", [(1, 1, -1, -1), (1, -1) * 32, (1,) * 16 + (-1,) * 16, (0.5, 0.5, -0.5)])
def test_wide_partial_sums_overflow_by_the_order(kind: str, values: tuple[float, ...]) -> None:
    """The order is arbitrary ("Reduce" of the Operation Semantics): a sum is right, or a partial one overflowed."""
    dtype = element_type(kind).dtype
    largest = _largest(dtype)
    numbers = (np.array(values) * largest).astype(dtype)
    (got,) = _sum(kind, numbers).compiled()
    exact = float(np.sum(numbers.astype(np.longdouble)))
    assert float(got) == exact or (len(values) > 3 and not np.isfinite(float(got)))


CONTRACTIONS = (
    "T[1,1] dot(T[1,1], T[1,1]), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "T[4,4] dot(T[4,1], T[1,4]), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "T[2,2] dot(T[2,3], T[3,2]), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "T[33,9] dot(T[33,17], T[17,9]), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "T[3,4,5] dot(T[3,4,1], T[3,1,5]), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={1}",
    "T[3,4,5] dot(T[4,3,6], T[3,6,5]), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={1}",
    "T[] dot(T[7], T[7]), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
)


@pytest.mark.parametrize("text", CONTRACTIONS)
@pytest.mark.parametrize("kind", ["c64", "c128", "f32", "f64", "bf16", "f16"])
def test_a_product_of_zeros_is_positive(kind: str, text: str) -> None:
    """A contraction adds to +0, so its zeros are positive. XLA CPU multiplies where one number is contracted: -0."""
    result, rest = text.replace("T[", f"{kind}[").split(" dot(")
    operands, attributes = rest.split("), ")
    shapes = tuple(operands.split(", "))
    zero = complex(-0.0, -0.0) if kind[0] == "c" else -0.0
    arguments = {k: np.full(_dims(shape), zero if k == 0 else 1) for k, shape in enumerate(shapes)}
    case = StructuredCase(f"{result} dot(@), {attributes}", shapes, kind, arguments)
    for got in (case.evaluated()[0], case.compiled()[0]):
        for part in (got.real, got.imag) if kind[0] == "c" else (got.astype(np.float64),):
            assert not part.any()
            assert not np.signbit(part).any()


def _dims(shape: str) -> tuple[int, ...]:
    return tuple(int(d) for d in shape.split("[")[1].rstrip("]").split(",") if d)


@pytest.mark.parametrize("kind", ["c64", "c128"])
@pytest.mark.parametrize("length", [97, 101, 103, 139, 211])
def test_transforms_of_prime_lengths(length: int, kind: str) -> None:
    """Within 4 epsilons of the largest coefficient, whichever algorithm a library takes for the length."""
    generator = np.random.default_rng(length)
    dtype = element_type(kind).dtype
    values = (generator.normal(size=length) + 1j * generator.normal(size=length)).astype(dtype)
    turns = np.outer(np.arange(length), np.arange(length)) % length / np.longdouble(length)
    angles = 2 * np.arccos(np.longdouble(-1)) * turns
    wanted = (np.cos(angles) - 1j * np.sin(angles)) @ values.astype(np.clongdouble)
    text = f"{kind}[{length}] fft(@), fft_type=FFT, fft_length={{{length}}}"
    (got,) = StructuredCase(text, (f"{kind}[{length}]",), kind, {0: values}).compiled()
    assert np.abs(got - wanted).max() <= 4 * np.finfo(dtype).eps * np.abs(wanted).max()
