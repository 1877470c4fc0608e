"""The structured ops over every element type: compiled code against `evaluate`, `evaluate` against XLA CPU.

All values are small whole numbers, whose sums and products are exact in every type and every order: results are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES, PRED, ElementType, element_type
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single
from tests.ops.case import Array
from tests.samples import sampled_types

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _any(element: ElementType) -> bool:
    return True


def _ordered(element: ElementType) -> bool:
    return not element.is_complex


def _bits(element: ElementType) -> bool:
    return element.is_integer or element is PRED


def _has_zero(element: ElementType) -> bool:
    return element.name != "f8e8m0fnu"


def _number(element: ElementType) -> bool:
    return element is not PRED and _has_zero(element)


@dataclass(frozen=True)
class Structured:
    """`expression` over x = T[4,6], y = T[6,4], z = T[2,4], s = T[] (0 or the least power of two), i = s32[3,1].

    T: the element type.  result: its shape.  has: the element types that have the op.
    """

    expression: str
    result: str
    has: Callable[[ElementType], bool] = _any


CASES = (
    *(Structured(f"reduce(x, s), dimensions={{1}}, to_apply={r}", "T[4]", _has_zero) for r in ("add", "multiply")),
    *(Structured(f"reduce(x, s), dimensions={{0}}, to_apply={r}", "T[6]", _ordered) for r in ("maximum", "minimum")),
    *(Structured(f"reduce(x, s), dimensions={{0,1}}, to_apply={r}", "T[]", _bits) for r in ("and", "or", "xor")),
    Structured("reduce(x, s), dimensions={0,1}, to_apply=add", "T[]", _has_zero),
    Structured("reduce-window(x, s), window={size=1x3 pad=0_0x1_1}, to_apply=add", "T[4,6]", _has_zero),
    Structured("reduce-window(x, s), window={size=2x2 stride=2x2}, to_apply=maximum", "T[2,3]", _ordered),
    Structured("select-and-scatter(x, w, s), window={size=2x2 stride=2x2}, select=ge, scatter=add", "T[4,6]", _ordered),
    Structured(
        "scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=add",
        "T[4,6]",
        _has_zero,
    ),
    Structured(
        "gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,"
        " slice_sizes={1,6}",
        "T[3,6]",
    ),
    Structured("sort(x), dimensions={1}, is_stable=true, to_apply=lt", "T[4,6]", _ordered),
    Structured("pad(x, s), padding=1_2_1x-1_2", "T[10,7]"),
    Structured("concatenate(x, w2), dimensions={0}", "T[6,6]"),
    Structured("transpose(x), dimensions={1,0}", "T[6,4]"),
    Structured("reverse(x), dimensions={0,1}", "T[4,6]"),
    Structured("slice(x), slice={[1:4:2], [0:5]}", "T[2,5]"),
    Structured("dynamic-slice(x, k, k), dynamic_slice_sizes={2,3}", "T[2,3]"),
    Structured("dynamic-update-slice(x, w, k, k)", "T[4,6]"),
    Structured("broadcast(x), dimensions={2,0}", "T[6,2,4]"),
    Structured("reshape(x)", "T[3,8]"),
    Structured("copy(x)", "T[4,6]"),
    Structured("dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "T[4,4]", _number),
    Structured(
        "dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "T[4]",
        _number,
    ),
    Structured("convolution(x3, y3), window={size=2 pad=1_0}, dim_labels=b0f_0io->b0f", "T[2,4,2]", _number),
)
COMPUTATIONS = {
    **{name: f"T[] {name}(a, b)" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")},
    "ge": "pred[] compare(a, b), direction=GE",
    "lt": "pred[] compare(a, b), direction=LT",
}
OPERANDS = (
    ("x", "T[4,6]"), ("y", "T[6,4]"), ("w", "T[2,3]"), ("w2", "T[2,6]"), ("u", "T[3,6]"), ("x3", "T[2,4,3]"),
    ("y3", "T[2,3,2]"), ("s", "T[]"), ("i", "s32[3,1]"), ("k", "s32[]"),
)  # fmt: skip


def _text(name: str, cases: list[Structured]) -> str:
    element = element_type(name)
    computations = [
        f"{label} {{\n a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = {body}\n}}"
        for label, body in COMPUTATIONS.items()
        if (label not in ("and", "or", "xor") or _bits(element)) and (label in ("add", "multiply") or _ordered(element))
    ]
    lines = ["HloModule structured", *computations, "ENTRY main {"]
    lines += [f" {operand} = {shape} parameter({k})" for k, (operand, shape) in enumerate(OPERANDS)]
    lines += [f" r{k} = {case.result} {case.expression}" for k, case in enumerate(cases)]
    shapes, results = (", ".join(part) for part in ([c.result for c in cases], [f"r{k}" for k in range(len(cases))]))
    return "\n".join([*lines, f" ROOT out = ({shapes}) tuple({results})", "}"]).replace("T[", f"{name}[") + "\n"


def _arguments(name: str) -> list[Array]:
    element = element_type(name)
    rng = np.random.default_rng(7)
    # few of them are not zero, so that no sum of a line leaves what f4e2m1fn and s2 hold
    choice = [0, 0, 0, 1] if element.kind in ("pred", "unsigned") else [0, 0, 1, -1]
    if element.bits < 8:
        choice = [0] * 9 + [1]
    if not _has_zero(element):
        choice = [1, 2, 4]
    values = []
    for _, shape in OPERANDS[:-2]:
        dims = [int(d) for d in shape[2:-1].split(",") if d]
        array = rng.choice(choice, dims) if dims else np.array(0 if _has_zero(element) else 1)
        values.append(array.astype(element.dtype))
    return [*values, np.array([[2], [0], [2]], np.int32), np.array(1, np.int32)]


def _cases(name: str) -> list[Structured]:
    return [case for case in CASES if case.has(element_type(name))]


@cache
def _evaluated(name: str) -> list[Array]:
    module = parse_module(_text(name, _cases(name)))
    verify_module(module)
    return [np.asarray(a) for a in run_reference(module, [_arguments(name)], Counts(1, 1))[0]]


def _assert_equal(name: str, cases: list[Structured], got: list[Array], wanted: list[Array]) -> None:
    wrong = []
    for case, a, b in zip(cases, got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), case
        if not np.array_equal(a.astype(np.complex128), b.astype(np.complex128), equal_nan=True):
            wrong.append(f"{case.result} {case.expression}:\n{a}\ninstead of\n{b}")
    assert not wrong, f"{name}\n" + "\n".join(wrong)


@pytest.mark.sampled(one_in=9, first=("c64", "f16"))
@pytest.mark.parametrize("name", sampled_types([t.name for t in DATA_TYPES]))
def test_compiled_code_agrees_with_evaluate(name: str) -> None:
    cases = _cases(name)
    program = compile_module(parse_module(_text(name, cases)), Counts(1, 1))
    _assert_equal(name, cases, run_single(program, _arguments(name)), _evaluated(name))


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("name", sampled_types([t.name for t in DATA_TYPES if t.bits > 2]))
def test_evaluate_agrees_with_xla(name: str) -> None:
    """But for s2 and u2, on which XLA CPU ends the process."""
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    cases = _cases(name)
    _assert_equal(name, cases, _evaluated(name), run_by_xla(_text(name, cases), _arguments(name)))
