"""`ragged-dot` and `scaled-dot`: by reference and compiled, against JAX and against NumPy on scaled operands."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.errors import VerificationError
from distxla.ir.element_type import element_type
from tests.ops.program_case import Array, compiled, evaluated, one_instruction, parsed
from tests.ops.ragged_and_scaled_dot_cases import CONTRACTING, FREE, ROWS, Ragged, _shape

TOLERANCES = {"f64": 1e-12, "f32": 1e-5, "bf16": 2e-2, "s32": 0, "s8": 0}


BATCH = [Ragged((4, 11, 5), (4, 5, 7), [1, 3], (((2,), (1,)), ((0,), (0,))), 0)]


# JAX compiles every one of them anew, so the other types have some of the cases only.
TYPED = [
    *(("f32", case) for case in (*FREE, *CONTRACTING, *BATCH)),
    *((element, case) for element in ("bf16", "s32") for case in (FREE[1], FREE[6], CONTRACTING[1], BATCH[0])),
]


@pytest.mark.sampled(one_in=12, first=("f32-(3, 11, 30)x(3, 30, 7)", "f32-(5, 300)x(7, 6, 5)", "f32-(0, 5)x(3, 5, 7)"))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("element", "case"), TYPED, ids=lambda v: f"{v.lhs}x{v.rhs}" if isinstance(v, Ragged) else v)
def test_ragged_dot_agrees_with_jax(element: str, case: Ragged) -> None:
    jax = pytest.importorskip("jax")
    arguments = case.arguments(element)
    numbers = jax.lax.RaggedDotDimensionNumbers(case.dims, [case.ragged], list(case.group))
    wanted = np.asarray(jax.lax.ragged_dot_general(*arguments, numbers))
    text = case.text(element, wanted.shape)
    for got in (*evaluated(text, *arguments), *compiled(text, *arguments)):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        tolerance = TOLERANCES[element] * max(1.0, np.abs(wanted.astype(np.float64)).max(initial=0.0))
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance)


def test_other_groups_rows_do_not_count() -> None:
    """Not even infinite ones, which times zero would be NaN."""
    case = Ragged((4, 2), (2, 2, 3), [1, 2], ROWS, 0, (0,))
    lhs, rhs, sizes = case.arguments("f32")
    rhs[1] = np.inf
    for (got,) in (
        evaluated(case.text("f32", (4, 3)), lhs, rhs, sizes),
        compiled(case.text("f32", (4, 3)), lhs, rhs, sizes),
    ):
        assert np.isfinite(got[0]).all()
        assert not np.isfinite(got[1:3]).any()
        assert got[3].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("lhs", "rhs", "scales", "result", "dim_sizes"),
    [
        ("f8e4m3fn", "f8e4m3fn", "f8e8m0fnu", "bf16", ((4, 64), (8, 64), (4, 2), (8, 2))),
        ("f8e4m3fn", "f8e5m2", "f8e8m0fnu", "f32", ((4, 64), (8, 64), (4, 2), (8, 64))),
        ("f4e2m1fn", "f4e2m1fn", "f8e4m3fn", "f32", ((4, 64), (8, 64), (4, 4), (1, 4))),
        ("bf16", "bf16", "bf16", "f32", ((4, 64), (8, 64), (4, 2), ())),
        ("f64", "f64", "f64", "f64", ((4, 6), (8, 6), (2, 3), (8, 1))),
        ("f32", "f32", "f32", "f32", ((0, 6), (8, 6), (0, 3), (8, 1))),
    ],
)
def test_scaled_dot(lhs: str, rhs: str, scales: str, result: str, dim_sizes: tuple[tuple[int, ...], ...]) -> None:
    generator = np.random.default_rng(3)
    types = (lhs, rhs, scales, scales)
    values = [
        (2.0 ** generator.integers(-3, 3, dims) if t == "f8e8m0fnu" else generator.standard_normal(dims))
        for t, dims in zip(types, dim_sizes)
    ]
    arguments = [np.asarray(v).astype(element_type(t).dtype) for v, t in zip(values, types)]
    a, b, s, t = (np.asarray(x, np.float64) for x in arguments)
    wanted = (a * _spread(s, a.shape)) @ (b * _spread(t, b.shape)).T
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    text = one_instruction(
        f"{_shape(result, wanted.shape)} scaled-dot(@), {attributes}", [_shape(t, d) for t, d in zip(types, dim_sizes)]
    )
    tolerance = TOLERANCES[result] * max(1.0, np.abs(wanted).max(initial=0.0))
    for got in (*evaluated(text, *arguments), *compiled(text, *arguments)):
        assert got.dtype == element_type(result).dtype
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=tolerance)


def _spread(scale: Array, dims: tuple[int, ...]) -> Array:
    for d in range(scale.ndim):
        scale = np.repeat(scale, dims[d] // max(1, scale.shape[d]), d)
    return scale


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("lhs_ragged_dims={0}", "lhs_ragged_dims={0,1}", "ragged-dot.C14"),
        ("rhs_group_dims={0}", "rhs_group_dims={1}", "ragged-dot.C15"),
        ("s32[3] parameter", "s32[4] parameter", "ragged-dot.C16"),
        ("s32[3] parameter", "s32[2,3] parameter", "ragged-dot.C16"),
        ("s32[3] parameter", "f32[3] parameter", "ragged-dot.C16"),
        ("f32[11,7] ragged", "f32[11,8] ragged", "ragged-dot.C12"),
    ],
)
def test_rules(old: str, new: str, rule: str) -> None:
    with pytest.raises(VerificationError, match=rule):
        parsed(FREE[0].text("f32", (11, 7)).replace(old, new))
