"""Every element-wise opcode on types of every kind, compiled by itself, against the op's `evaluate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES, ElementType
from distxla.ops.elementwise_binary import ROWS as BINARY
from distxla.ops.elementwise_unary import ROWS as UNARY
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.lower.harness import Kernel, elementwise
from tests.samples import TYPES
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]


def samples(kind: ElementType, count: int, seed: int = 0) -> Array:
    """Numbers that matter for the type: all codes of narrow ones, else limits, zeros, infinities, NaN and random
    ones."""
    rng = np.random.default_rng(seed)
    if kind.bits <= 8:
        codes = np.arange(2 if kind.kind == "pred" else 2**kind.bits, dtype=np.uint8)
        return rng.permutation(np.resize(codes, max(count, len(codes))))[:count].view(kind.dtype)
    if kind.is_integer:
        low, high = (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1) if kind.is_signed else (0, 2**kind.bits - 1)
        special = [low, low + 1, high, high - 1, 0, 1, 2, 3, 7, kind.bits - 1, kind.bits]
        special += [-1, -2, -7] if kind.is_signed else []
        numbers = np.array(special, kind.dtype)
        wide = rng.integers(low, high, count, dtype=kind.dtype, endpoint=True)
        small = rng.integers(-9 if kind.is_signed else 0, 9, count).astype(kind.dtype)
        return rng.permutation(np.concatenate([np.tile(numbers, 9), wide, small]))[:count]
    if kind.is_complex:
        part = kind.real_part
        values = np.empty(count, kind.dtype)
        values.real = rng.normal(size=count).astype(part.dtype)
        values.imag = rng.normal(size=count).astype(part.dtype)
        return values
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        1e-7,
        1e-40,
        -1e-40,
        88.7,
        1e4,
    ]
    numbers = np.concatenate([np.tile(special, 9), rng.normal(size=count), rng.normal(size=count) * 30])
    with np.errstate(all="ignore"):
        return rng.permutation(numbers)[:count].astype(kind.dtype)


def check(expression: str, operands: list[Array], result: ElementType, ulps: int | None = None) -> None:
    kinds = [str(k) for k in map(_name, operands)]
    count = len(operands[0])
    text = elementwise(expression, [f"{k}[{count}]" for k in kinds], f"{result}[{count}]")
    got = Kernel(text)(*operands)
    ((wanted,),) = run_reference(parse_module(text, "<test>"), [operands], Counts(1, 1))
    if result.is_complex:
        # parts lose digits where they cancel; the number does not
        assert got.dtype == wanted.dtype
        finite = np.isfinite(wanted)
        assert np.array_equal(finite, np.isfinite(got))
        got, wanted = got[finite], wanted[finite]
        relative = np.abs(got - wanted) / np.maximum(np.abs(wanted), np.finfo(got.dtype).tiny)
        assert relative.max(initial=0) <= (1e-5 if result.name == "c64" else 1e-13)
    else:
        assert_close(got, wanted, result, ulps=ulps)


def _name(array: Array) -> str:
    from distxla.ir.element_type import element_type_of

    return element_type_of(array.dtype).name


# the reference warns of the infinities and NaNs that it is asked for
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KINDS = [kind for kind in DATA_TYPES if kind.name in TYPES]  # tests/ops/test_matrix.py has all
UNARY_CASES = [(row.opcode, kind) for row in UNARY for kind in KINDS if kind in row.domain]
BINARY_CASES = [(row.opcode, kind) for row in BINARY for kind in KINDS if kind in row.domain]
# ULPs of the type beyond a rounding; complex ones lose some where parts cancel
EXACT = {"abs", "ceil", "floor", "round-nearest-afz", "round-nearest-even", "is-finite", "negate", "not", "popcnt"}


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize(("opcode", "kind"), UNARY_CASES, ids=str)
def test_unary(opcode: str, kind: ElementType) -> None:
    row = next(r for r in UNARY if r.opcode == opcode)
    ulps = 0 if opcode in EXACT and not kind.is_complex else None if kind.is_complex else 4
    check(f"{opcode}(p0)", [samples(kind, 512)], row.result_type(kind), ulps)


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize(("opcode", "kind"), BINARY_CASES, ids=str)
def test_binary(opcode: str, kind: ElementType) -> None:
    row = next(r for r in BINARY if r.opcode == opcode)
    operands = [samples(kind, 700, seed) for seed in (1, 2)]
    if opcode == "power" and kind.is_signed and kind.bits == 64:
        operands[1] //= 2**60
    check(f"{opcode}(p0, p1)", operands, row.result_type(kind), None if kind.is_complex else 4)


COMPARE_CASES = [
    (direction, kind)
    for direction in ("EQ", "NE", "LT", "LE", "GT", "GE")
    for kind in KINDS
    if direction in ("EQ", "NE") or not kind.is_complex  # complex numbers have no order
]


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(("direction", "kind"), COMPARE_CASES, ids=str)
def test_compare(direction: str, kind: ElementType) -> None:
    from distxla.ir.element_type import PRED

    operands = [samples(kind, 600, seed) for seed in (1, 2)]
    check(f"compare(p0, p1), direction={direction}", operands, PRED)
    if kind.is_float:
        check(f"compare(p0, p1), direction={direction}, type=TOTALORDER", operands, PRED)


@pytest.mark.sampled(one_in=12, first=("u8", "u64"))
@pytest.mark.parametrize("source", KINDS, ids=str)
def test_convert(source: ElementType) -> None:
    """To every type; exact."""
    values = samples(source, 300)
    for target in DATA_TYPES:
        if not source.is_complex or target.is_complex:
            check("convert(p0)", [values], target, 0)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (2, 1), (11, 52)])
def test_reduce_precision(name: str, exponent: int, mantissa: int) -> None:
    from distxla.ir.element_type import element_type

    kind = element_type(name)
    expression = f"reduce-precision(p0), exponent_bits={exponent}, mantissa_bits={mantissa}"
    check(expression, [samples(kind, 600)], kind, 0)
