"""Every element-wise op over every element type.

Compiled code against `evaluate`, kernels on a grid against the processor's, `evaluate` against XLA CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES, element_type
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.lower.grid.agreement import differing
from tests.compiler.runner import run_single
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture
from tests.ops.agreement import disagreements, listed, tiny
from tests.ops.case import Array, Case, joined
from tests.ops.matrix import cases_of, is_of_its_own, joined_values
from tests.samples import TYPES as SAMPLES
from tests.samples import sampled_types

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TYPES = [t.name for t in DATA_TYPES]


@cache
def _cases(name: str) -> list[Case]:
    return list(cases_of(element_type(name)))


@cache
def _evaluated(name: str) -> list[Array]:
    results = [case.evaluated()[0] for case in _cases(name)]
    return [r for r in results if r is not None]


@cache
def _by_the_processor(name: str) -> list[Array]:
    cases = _cases(name)
    return run_single(compile_module(joined(cases), Counts(1, 1)), joined_values(cases))


@pytest.mark.sampled(one_in=8, first=("f32", "s32"))
@pytest.mark.parametrize("name", sampled_types(TYPES))
def test_compiled_code_agrees_with_evaluate(name: str) -> None:
    wrong = []
    for case, got, wanted in zip(_cases(name), _by_the_processor(name), _evaluated(name), strict=True):
        mask = disagreements(case, got, wanted) & ~_ill_conditioned(case, wanted)
        if mask.any():
            wrong.append(listed(case, mask, got, wanted, "instead of"))
    assert not wrong, "\n".join(wrong)


@pytest.mark.sampled(one_in=14, first=("f32",))
@pytest.mark.parametrize("name", sampled_types(TYPES))
def test_a_grid_gives_the_processors_bits(name: str) -> None:
    every, numbers = _cases(name), range(len(_cases(name)))
    if name not in SAMPLES:
        numbers = [number for number in numbers if is_of_its_own(every[number], element_type(name))]
    cases = [every[number] for number in numbers]
    program = compile_module(joined(cases), Counts(1, 1), CompileOptions(target="nvptx"))
    assert program.grid.launched
    wrong = []
    for number, got in zip(numbers, run_single(program, joined_values(cases)), strict=True):
        wanted = _by_the_processor(name)[number]
        places = np.flatnonzero(differing(wanted, got))
        if len(places):
            wrong.append(f"{every[number]}: {got.ravel()[places[:3]]} instead of {wanted.ravel()[places[:3]]}")
    assert not wrong, "\n".join(wrong)


def _ill_conditioned(case: Case, wanted: Array) -> Array:
    """Arguments at which rounding an intermediate value changes all digits, or overflows where another order of the
    same operations does not."""
    nowhere = np.zeros(wanted.shape, bool)
    if case.opcode == "power" and case.shape.dtype.name == "f8e8m0fnu":
        # 2^-150, half-way between 0, which has no code, and the smallest f32
        return np.asarray(np.isnan(wanted.astype(np.float32)))
    if not (case.operands and case.operands[0].dtype.is_complex):
        return nowhere
    with np.errstate(all="ignore"):
        if case.opcode == "power":
            base, exponent = (v.astype(np.complex128) for v in case.values())
            return np.asarray(np.abs(exponent * np.log(base)) > 1e3) & np.isfinite(exponent) & np.isfinite(base)
        if case.opcode == "atan2":
            y, x = case.values()
            # infinities, the branch cut, where x^2 + y^2 is negative, and where it vanishes
            wide = [v.astype(np.clongdouble) for v in (x, y)]
            square = wide[0] * wide[0] + wide[1] * wide[1]
            on_cut = (np.abs(square.imag) <= 1e-30 * np.abs(square.real)) & (square.real < 0)
            on_cut |= np.abs(np.abs(wanted.real) - np.pi) < 1e-6
            lost = np.abs(square) <= 1e-12 * np.maximum(np.abs(wide[0]), np.abs(wide[1])) ** 2
            return np.asarray(~(np.isfinite(x) & np.isfinite(y)) | on_cut | lost)
        if case.opcode == "multiply":
            # products of single parts that overflow
            return np.asarray(np.prod([np.abs(v) for v in case.values()], axis=0) > 1e38)
        if case.opcode in ("maximum", "minimum"):
            # numbers that differ in zeros' signs are equal
            return np.asarray(case.values()[0] == case.values()[1])
    return nowhere


@pytest.mark.parametrize(("old", "new"), [("c64[3,2]", "c128[3]"), ("c128[3]", "c64[3,2]")])
def test_bitcasts_of_complex_numbers_fuse(old: str, new: str) -> None:
    text = f"HloModule m\nf {{\n p = {old} parameter(0)\n q = {old} negate(p)\n b = {new} bitcast-convert(q)\n"
    text += f" ROOT r = {new} negate(b)\n}}\nENTRY e {{\n p = {old} parameter(0)\n"
    text += f" ROOT r = {new} fusion(p), kind=kLoop, calls=f\n}}\n"
    dtype = element_type(old.split("[")[0]).dtype
    x = (np.arange(6) + 1j * np.arange(6, 12)).astype(dtype)[: 6 if "," in old else 3]
    program = compile_module(parse_module(text), Counts(1, 1))
    (got,) = run_single(program, [x.reshape(-1, 2) if "," in old else x])
    wanted = -(-x).view(got.dtype)
    np.testing.assert_array_equal(got.ravel(), wanted)


# --- XLA CPU -------------------------------------------------------------------------------------------------------

INVERSE_AND_HYPERBOLIC = ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh")


def _is_in_xla(case: Case) -> bool:
    """Whether XLA CPU, and the conversion on the way to it, can run the case at all."""
    operand = case.operands[0].dtype if case.operands else case.shape.dtype
    result = case.shape.dtype
    if case.opcode in INVERSE_AND_HYPERBOLIC:
        return operand.bits < 16
    if case.opcode == "bitcast-convert":
        return not operand.is_complex and "pred" not in (operand.name, result.name)
    if case.opcode == "stochastic-convert":
        return result.is_signed
    return case.opcode != "mulhi" and not (case.opcode == "convert" and operand.is_complex and result.name == "pred")


@dataclass(frozen=True)
class Deviation:
    """Where ours is not XLA CPU's answer, and why.

    types: of the first operand.  where: of (case, our result, XLA's) the mask in which they may differ.
    """

    opcodes: tuple[str, ...]
    types: tuple[str, ...]
    why: str
    where: Callable[[Case, Array, Array], Array]


def _everywhere(case: Case, ours: Array, xla: Array) -> Array:
    return np.ones(ours.shape, bool)


def _subnormal(case: Case, ours: Array, xla: Array) -> Array:
    mask = tiny(ours, case.shape.dtype)
    for value, shape in zip(case.values(), case.operands):
        if value.shape == ours.shape:
            mask |= tiny(value, shape.dtype)
    return mask


def _not_finite(case: Case, ours: Array, xla: Array) -> Array:
    return np.asarray(~np.isfinite(ours) | ~np.isfinite(xla) | np.any([~np.isfinite(v) for v in case.values()], axis=0))


COMPLEX = ("c64", "c128")
EIGHT = ("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4")
ALL: tuple[str, ...] = ()

DEVIATIONS = (
    Deviation(
        ALL, ("f32", "f64", "bf16", "f8e8m0fnu", *COMPLEX),
        "XLA CPU runs with subnormals taken and given as zero; IEEE 754 and StableHLO have them",
        _subnormal,
    ),
    Deviation(
        ("power",), ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"),
        "XLA looks at the exponent's lowest six bits; StableHLO means the power itself",
        lambda case, ours, xla: ~((case.values()[1] >= 0) & (case.values()[1] < 64)),
    ),
    Deviation(
        ("popcnt",), ("s4",),
        "XLA counts the sign bits up to the byte; an s4 has four bits",
        lambda case, ours, xla: case.values()[0] < 0,
    ),
    Deviation(
        ("convert",), ("f64",),
        "XLA rounds to f32 on the way to f16 and bf16; StableHLO rounds once",
        lambda case, ours, xla: np.full(ours.shape, case.shape.dtype.name in ("f16", "bf16")),
    ),
    Deviation(
        ("convert",), ("s32", "s64", "u32", "u64"),
        "XLA rounds to f32 on the way to narrower floats; StableHLO rounds once",
        lambda case, ours, xla: np.full(ours.shape, case.shape.dtype.is_float and case.shape.dtype.bits <= 16),
    ),
    Deviation(
        ("convert",), ("f4e2m1fn",),
        "XLA saturates 6 and -6, which lie in every integer type but s2 and u2; we convert them",
        lambda case, ours, xla: np.abs(case.values()[0].astype(np.float32)) == 6,
    ),
    Deviation(
        ("stochastic-convert",), ("f8e4m3", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e3m4", "f8e8m0fnu", "f4e2m1fn"),
        "XLA scales the fraction in the type itself, where 2^bits overflows; ours is the rule in f32",
        _everywhere,
    ),
    Deviation(
        ("logistic", "exponential-minus-one"), ("f16",),
        "XLA rounds every step of the formula to f16; we round once",
        _everywhere,
    ),
    Deviation(
        ("maximum", "minimum", "clamp"), COMPLEX,
        "XLA compares real parts alone; StableHLO and NumPy both parts in order",
        _everywhere,
    ),
    Deviation(
        ("atan2", "power"), COMPLEX,
        "XLA's compositions lose the branch for signed zeros, and everything where a square overflows",
        _everywhere,
    ),
    Deviation(
        ALL, COMPLEX,
        "we follow C's Annex G beside infinities and NaN; XLA gives NaN for some of them",
        _not_finite,
    ),
    Deviation(
        ("sqrt", "rsqrt"), COMPLEX,
        "XLA loses the sign of a zero imaginary part, and with it the side of the cut; C has it",
        lambda case, ours, xla: case.values()[0].imag == 0,
    ),
    Deviation(
        ("sine",), COMPLEX,
        "XLA cancels near zero, where its imaginary part is 100 ULP off",
        lambda case, ours, xla: np.abs(case.values()[0]) < 0.1,
    ),
)  # fmt: skip


@pytest.mark.sampled(one_in=16, first=("f32",))
@pytest.mark.parametrize("name", sampled_types(TYPES))
def test_evaluate_agrees_with_xla(name: str) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    chosen = [(case, ours) for case, ours in zip(_cases(name), _evaluated(name)) if _is_in_xla(case)]
    cases = [case for case, _ in chosen]
    wanted = run_by_xla(print_module(joined(cases)), joined_values(cases))
    wrong = []
    for (case, ours), xla in zip(chosen, wanted, strict=True):
        mask = disagreements(case, ours, xla, slack=_xla_slack(case))
        for deviation in DEVIATIONS:
            operand = case.operands[0].dtype if case.operands else case.shape.dtype
            if operand.name in deviation.types and case.opcode in (deviation.opcodes or (case.opcode,)):
                mask &= ~deviation.where(case, ours, xla)
        if mask.any():
            wrong.append(listed(case, mask, ours, xla, "XLA"))
    assert not wrong, "\n".join(wrong)


def _xla_slack(case: Case) -> int:
    """What XLA's own polynomials are off by, and one ULP for 8-bit floats, which it rounds to f16 first."""
    if case.op.elements.is_expensive:
        return {"f32": 8, "f64": 8, "c64": 64, "c128": 64}.get(case.shape.dtype.name, 0)
    if case.opcode in ("rsqrt", "sqrt", "abs", "divide"):
        return 8 if case.operands[0].dtype.is_complex else 1
    return 0
