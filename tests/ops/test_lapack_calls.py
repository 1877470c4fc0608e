"""The LAPACK routines that JAX on CPU calls: whole JAX functions, as it lowers them, by both executors against JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.obstacles import obstacles
from distxla.errors import DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single
from tests.ops.case import Array
from tests.ops.lapack_calls_cases import Leaves, by_both, operand

jax = pytest.importorskip("jax")

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Example:
    """A JAX function of one array.

    check: asserts what holds for the results (operand, results, tolerance); None where they must be JAX's, because
    they are unique.  dims: the operand's dimension sizes.
    """

    function: Function
    check: Callable[[Array, Leaves, float], None] | None = None
    dims: tuple[int, ...] = (5, 5)


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def hermitian(a: Any) -> Any:
    return a + adjoint(a)


def positive(a: Any) -> Any:
    return a @ adjoint(a) + a.shape[-1] * np.eye(a.shape[-1], dtype=a.dtype)


def near(got: Array, wanted: Array, tolerance: float) -> None:
    scale = max(1, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * scale)


def is_unitary(q: Array, tolerance: float) -> None:
    near(adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2)), tolerance)


def eigh_of(matrix: Function) -> Callable[[Array, Leaves, float], None]:
    def check(a: Array, results: Leaves, tolerance: float) -> None:
        values, vectors = results
        is_unitary(vectors, tolerance)
        near((vectors * values[..., None, :]) @ adjoint(vectors), matrix(a), tolerance)
        assert (np.diff(values) >= 0).all()

    return check


def check_svd(a: Array, results: Leaves, tolerance: float) -> None:
    left, values, right = results
    count = values.shape[-1]
    is_unitary(left, tolerance)
    is_unitary(adjoint(right), tolerance)
    near((left[..., :count] * values[..., None, :]) @ right[..., :count, :], a, tolerance)
    assert (np.diff(values) <= 0).all()


def check_eig(a: Array, results: Leaves, tolerance: float) -> None:
    values, vectors = results[0], results[-1]
    near(a @ vectors, vectors * values[..., None, :], tolerance)
    near(np.linalg.norm(vectors, axis=-2), np.ones(values.shape), tolerance)


def check_both_eigenvectors(a: Array, results: Leaves, tolerance: float) -> None:
    check_eig(a, results, tolerance)
    check_eig(adjoint(a), (results[0].conj(), results[1]), tolerance)


def check_schur(a: Array, results: Leaves, tolerance: float) -> None:
    form, vectors = results
    is_unitary(vectors, tolerance)
    near(vectors @ form @ adjoint(vectors), a, tolerance)
    near(np.tril(form, -1 if np.iscomplexobj(form) else -2), np.zeros(form.shape), tolerance)
    if not np.iscomplexobj(form):
        # no two blocks overlap, and those of conjugate pairs have equal elements on the diagonal
        below = np.abs(np.diagonal(form, -1, -2, -1)) > tolerance * np.abs(form).max(initial=0)
        assert not (below[..., :-1] & below[..., 1:]).any()
        main = np.diagonal(form, 0, -2, -1)
        near(np.where(below, main[..., 1:] - main[..., :-1], 0), np.zeros(below.shape), tolerance)


@cache
def examples() -> dict[str, Example]:
    import jax.numpy as jnp
    import jax.scipy.linalg as jsl

    lal, qr_way = jax.lax.linalg, jax.lax.linalg.SvdAlgorithm.QR
    batched = (2, 4, 4)
    return {
        "cholesky": Example(lambda a: jnp.linalg.cholesky(positive(a)), dims=batched),
        "cholesky, upper": Example(lambda a: jsl.cholesky(positive(a))),
        "cholesky, not positive": Example(lambda a: jnp.linalg.cholesky(hermitian(a))),
        "qr": Example(jnp.linalg.qr, dims=(2, 6, 3)),
        "qr, complete": Example(lambda a: jnp.linalg.qr(a, mode="complete"), dims=(6, 3)),
        "qr, wide": Example(jnp.linalg.qr, dims=(3, 6)),
        "qr, pivoting": Example(lambda a: jsl.qr(a, pivoting=True)),
        "qr_multiply": Example(lambda a: jsl.qr_multiply(a, a)),
        "ormqr, left": Example(lambda a: lal.ormqr(a, a[0, :3], a[:, :2], left=True, transpose=True), dims=(5, 3)),
        "ormqr, right": Example(lambda a: lal.ormqr(a, a[0], adjoint(a), left=False, transpose=False), dims=(5, 3)),
        "eigh": Example(lambda a: jnp.linalg.eigh(hermitian(a)), eigh_of(hermitian), batched),
        "eigh, upper": Example(
            lambda a: lal.eigh(hermitian(a), lower=False, symmetrize_input=False)[::-1], eigh_of(hermitian)
        ),
        "eigh, divided": Example(lambda a: jnp.linalg.eigh(hermitian(a)), eigh_of(hermitian), (40, 40)),
        "eigvalsh": Example(lambda a: jnp.linalg.eigvalsh(hermitian(a))),
        "svd": Example(jnp.linalg.svd, check_svd, (2, 3, 5)),
        "svd, tall": Example(jnp.linalg.svd, check_svd, (9, 4)),
        "svd, reduced": Example(lambda a: jnp.linalg.svd(a, full_matrices=False), check_svd, (40, 3)),
        "svd, divided": Example(jnp.linalg.svd, check_svd, (40, 40)),
        "svd, values": Example(lambda a: jnp.linalg.svd(a, compute_uv=False), dims=(3, 5)),
        "svd, by qr": Example(lambda a: lal.svd(a, algorithm=qr_way), check_svd, (2, 5, 3)),
        "lu": Example(lal.lu, dims=(2, 5, 3)),
        "lu, permuted": Example(jsl.lu),
        "solve": Example(lambda a: jnp.linalg.solve(a, a @ a), dims=batched),
        "inv": Example(jnp.linalg.inv),
        "slogdet": Example(jnp.linalg.slogdet),
        "eigvals": Example(jnp.linalg.eigvals, dims=batched),
        "eig": Example(jnp.linalg.eig, check_eig, batched),
        "eig, both sides": Example(lambda a: lal.eig(a), check_both_eigenvectors, (6, 6)),
        "schur": Example(lambda a: lal.schur(a), check_schur, (2, 6, 6)),
        "hessenberg": Example(lal.hessenberg, dims=batched),
        "tridiagonal": Example(lambda a: lal.tridiagonal(hermitian(a)), dims=batched),
        "tridiagonal, upper": Example(lambda a: lal.tridiagonal(hermitian(a), lower=False)),
        "triangular_solve": Example(lambda a: lal.triangular_solve(positive(a), a, left_side=True, lower=True)),
        "triangular_solve, adjoint": Example(
            lambda a: lal.triangular_solve(positive(a), a, transpose_a=True, conjugate_a=True), dims=batched
        ),
        "tridiagonal_solve": Example(
            lambda a: lal.tridiagonal_solve(a[..., 0, :], a[..., 1, :] / 9, a[..., 2, :], a), dims=(2, 6, 6)
        ),
        "tridiagonal_solve, perturbed": Example(
            lambda a: lal.tridiagonal_solve(a[..., 0, :], a[..., 1, :] / 9, a[..., 2, :], a, perturb_singular=True),
            dims=(2, 6, 6),
        ),
        "expm": Example(jsl.expm),
        "lstsq": Example(lambda a: jnp.linalg.lstsq(a, a)[0], dims=(5, 3)),
        "pinv": Example(jnp.linalg.pinv, dims=(5, 3)),
    }


NAMES = tuple(examples())
KINDS = ("float32", "complex128", "float64", "complex64")
# the same HLO and the same libraries, in a third less time; what LLVM makes of the rest is none of our business
QUICKLY = {"xla_backend_optimization_level": 0}
TOLERANCES = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-11, "complex128": 1e-11}


def optimized_text(compiled: Any) -> str:
    """What XLA CPU runs, with all its constants."""
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    (module,) = compiled.runtime_executable().hlo_modules()
    return str(module.to_string(options))


def agrees_with_jax(name: str, kind: str, value: Array, *, optimized: bool = False) -> None:
    example = examples()[name]
    with jax.enable_x64(True):
        lowered = jax.jit(example.function).lower(value)
        compiled = lowered.compile(QUICKLY)
        text = optimized_text(compiled) if optimized else lowered.as_text(dialect="hlo")
        wanted = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(compiled(value))]
    for executor, results in by_both(parse_module(text), [value]):
        assert [(r.dtype, r.shape) for r in results] == [(w.dtype, w.shape) for w in wanted], executor
        if example.check is not None and np.isfinite(value).all():
            example.check(value, results, TOLERANCES[kind])
            continue
        for got, want in zip(results, wanted, strict=True):
            near(got, want, TOLERANCES[kind])


@pytest.mark.sampled(one_in=24, first=("tridiagonal, upper", "pinv", "tridiagonal"))
@pytest.mark.parametrize("name", NAMES)
def test_functions_agree_with_jax(name: str) -> None:
    kind = KINDS[NAMES.index(name) % 4]
    agrees_with_jax(name, kind, operand(kind, *examples()[name].dims))


@pytest.mark.sampled(one_in=36)
@pytest.mark.parametrize(("name", "kind"), [(n, KINDS[(i + 1 + i // 4) % 4]) for i, n in enumerate(NAMES)])
def test_optimized_functions_agree_with_jax(name: str, kind: str) -> None:
    agrees_with_jax(name, kind, operand(kind, *examples()[name].dims), optimized=True)


@pytest.mark.parametrize("name", ["cholesky", "qr", "eigh", "svd", "lu", "solve", "inv", "eigvals", "schur", "pinv"])
def test_empty_matrices(name: str) -> None:
    agrees_with_jax(name, "float32", np.zeros((2, 0, 0) if name != "pinv" else (0, 0), np.float32))


@pytest.mark.sampled(one_in=6, first=("eigh, divided-inf", "svd-inf", "schur-inf"))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["cholesky", "eigh", "eigh, divided", "svd", "svd, by qr", "eig", "eigvals", "schur"])
def test_nan_and_infinities_give_nan_in_silence(name: str, bad: float, capfd: pytest.CaptureFixture[str]) -> None:
    value = operand("float64", *examples()[name].dims)
    value[..., 1, 0] = bad
    with jax.enable_x64(True):
        text = jax.jit(examples()[name].function).lower(value).as_text(dialect="hlo")
    capfd.readouterr()
    for executor, results in by_both(parse_module(text), [value]):
        for result in results:
            assert np.isnan(result).any(), executor
    assert capfd.readouterr() == ("", "")


def test_singular_matrices() -> None:
    value = operand("float64", 5, 5)
    value[:, 2] = 0
    agrees_with_jax("lu", "float64", value)
    agrees_with_jax("slogdet", "float64", value)
    agrees_with_jax("svd", "float64", value)


@pytest.mark.parametrize("kind", ["float32", "complex128"])
def test_singular_tridiagonal_systems_have_finite_solutions(kind: str) -> None:
    """The first matrix has a null vector, to which the solution is parallel; the second is zero."""
    null_vector = np.sin(np.arange(1, 7) * np.pi / 7)
    value = operand(kind, 2, 6, 6)
    value[0, :3] = np.array([-1, 9 * 2 * np.cos(np.pi / 7), -1])[:, None]  # the main diagonal is a ninth of this
    value[1, :3] = 0
    with jax.enable_x64(True):
        lowered = jax.jit(examples()["tridiagonal_solve, perturbed"].function).lower(value)
        wanted = np.asarray(lowered.compile()(value))
    for executor, (found,) in by_both(parse_module(lowered.as_text(dialect="hlo")), [value]):
        assert np.isfinite(found).all(), executor
        sizes = np.linalg.norm(found[0], axis=0) * np.linalg.norm(null_vector)
        np.testing.assert_allclose(np.abs(null_vector @ found[0]) / sizes, 1, atol=1e-4)
        np.testing.assert_allclose(found[1], wanted[1], rtol=0.01)


# --- calls as a text states them -------------------------------------------------------------------------------------


def call(target: str, result: str, operands: Sequence[str], config: str) -> Module:
    lines = [f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(operands)]
    names = ", ".join(f"p{k}" for k in range(len(operands)))
    lines.append(
        f'  ROOT r = {result} custom-call({names}), custom_call_target="lapack_{target}_ffi", '
        f"api_version=API_VERSION_TYPED_FFI, backend_config={config}"
    )
    return parse_module("HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n")


def agreeing(module: Module, *arguments: Array) -> list[Array]:
    """Compiled code's results, which are those of the reference."""
    (_, reference), (_, compiled) = by_both(module, arguments)
    for got, want in zip(compiled, reference, strict=True):
        near(got, want, 1e-11)
    return compiled


def test_geqp3_keeps_chosen_columns_in_front() -> None:
    module = call("dgeqp3", "(f64[4,3], s32[3], f64[3])", ["f64[4,3]", "s32[3]"], "{}")
    _, columns, _ = agreeing(module, operand("float64", 4, 3), np.array([0, 0, 1], np.int32))
    assert columns[0] == 3
    assert sorted(columns) == [1, 2, 3]


def test_gehrd_of_a_range() -> None:
    value = np.triu(operand("float64", 6, 6))
    value[1:4, 1:4] = operand("float64", 3, 3)
    module = call("dgehrd", "(f64[6,6], f64[5], s32[])", ["f64[6,6]"], "{high = 4 : i32, low = 2 : i32}")
    _, tau, info = agreeing(module, value)
    assert not tau[[0, 3, 4]].any()
    assert info == 0


def test_what_is_not_asked_for_is_zero() -> None:
    value = operand("float64", 4, 4)
    config = "{compute_left = 78 : ui8, compute_right = 78 : ui8}"
    results = agreeing(call("dgeev", "(f64[4], f64[4], c128[4,4], c128[4,4], s32[])", ["f64[4,4]"], config), value)
    assert not results[2].any()
    assert not results[3].any()
    results = agreeing(
        call("dgesvd", "(f64[4,4], f64[4], f64[4,4], f64[4,4], s32[])", ["f64[4,4]"], "{mode = 78 : ui8}"), value
    )
    assert not results[2].any()
    module = call("zgees", "(c128[3,3], c128[3,3], c128[3], s32[], s32[])", ["c128[3,3]"],
                  "{mode = 78 : ui8, sort = 78 : ui8}")  # fmt: skip
    results = run_single(compile_module(module, Counts(1, 1)), [operand("complex128", 3, 3)])
    assert not results[1].any()
    module = call("dsyevd", "(f64[4,4], f64[4], s32[])", ["f64[4,4]"], "{mode = 78 : ui8, uplo = 85 : ui8}")
    np.testing.assert_array_equal(agreeing(module, value)[0], value)


def test_potrf_and_getrf_say_where_they_failed() -> None:
    value = np.diag([1.0, 2.0, -1.0, 3.0])
    module = call("dpotrf", "(f64[4,4], s32[])", ["f64[4,4]"], "{uplo = 85 : ui8}")
    for executor, results in by_both(module, [value]):
        assert results[1] == 3, executor
    value[2, 2] = 0
    module = call("dgetrf", "(f64[4,4], s32[4], s32[])", ["f64[4,4]"], "{}")
    assert agreeing(module, value)[2] == 3


def test_trsm_solves_triangular_systems() -> None:
    config = "{diag = 78 : ui8, side = 82 : ui8, trans_x = 67 : ui8, uplo = 85 : ui8}"
    module = call("ztrsm", "c128[2,4,3]", ["c128[2,3,3]", "c128[2,4,3]"], config)
    a, b = operand("complex128", 2, 3, 3) + 2 * np.eye(3), operand("complex128", 2, 4, 3)
    (x,) = agreeing(module, a, b)
    near(x @ adjoint(np.triu(a)), b, 1e-12)


UNFIT = [
    ("spotrf", "(f32[3,3], s32[])", ["f32[3,4]"], "{uplo = 76 : ui8}", "is not square"),
    ("spotrf", "(f32[3,3], s32[])", ["f32[3,3]"], "{}", "no character 'uplo'"),
    ("spotrf", "(f32[3,3], s32[])", ["f32[3,3]"], "{uplo = 65 : ui8}", "uplo is 'A', none of L, U"),
    ("spotrf", "(f32[3,3], s32[])", ["f64[3,3]"], "{uplo = 76 : ui8}", "is no array of f32"),
    ("spotrf", "f32[3,3]", ["f32[3,3]"], "{uplo = 76 : ui8}", "the text says f32"),
    ("sgetrf", "(f32[3,3], s32[4], s32[])", ["f32[3,3]"], "{}", "gives (f32[3,3], s32[3], s32[])"),
    ("sgetrf", "(f32[3,3], s32[3], s32[])", ["f32[3,3]", "f32[3,3]"], "{}", "takes 1 operands, not 2"),
    ("sorgqr", "f32[3,4]", ["f32[3,4]", "f32[3]"], "{}", "do not give 4 columns"),
    ("sgtsv", "(f32[3], f32[3], f32[3], f32[3,1], s32[])", ["f32[2]", "f32[3]", "f32[3]", "f32[3,1]"], "{}",
     "does not fit"),
    ("sgees", "(f32[2,2], f32[2,2], f32[2], f32[2], s32[], s32[])", ["f32[2,2]"],
     "{mode = 86 : ui8, sort = 83 : ui8}", "sort is 'S'"),
    ("sgehrd", "(f32[3,3], f32[2], s32[])", ["f32[3,3]"], "{high = 5 : i32, low = 1 : i32}", "high = 5 of 3 rows"),
    ("strsm", "f32[3,2]", ["f32[3,3]", "f32[2,2]"],
     "{diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}", "does not fit"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "result", "operands", "config", "message"), UNFIT)
def test_calls_that_do_not_fit_are_refused(
    target: str, result: str, operands: list[str], config: str, message: str
) -> None:
    module = call(target, result, operands, config)
    ((instruction, why),) = obstacles(module)
    assert instruction.opcode == "custom-call"
    assert message in why
    with pytest.raises(DistxlaError):
        compile_module(module, Counts(1, 1))
