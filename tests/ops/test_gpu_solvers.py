"""What JAX and XLA call for linear algebra and random numbers on a GPU, by both executors against JAX on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.obstacles import obstacles
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices
from tests.ops.case import Array
from tests.ops.gpu_solvers_cases import CALLS, FFI, OPTIONS
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, compare

jax = pytest.importorskip("jax")


@cache
def functions() -> dict[str, tuple[Callable[[Any], Any], tuple[int, ...], str]]:
    """Of an array of these dimension sizes, and the target that JAX calls for it."""
    import jax.numpy as jnp

    def positive(a: Any) -> Any:
        return a @ a.swapaxes(-1, -2).conj() + 5 * jnp.eye(a.shape[-1], dtype=a.dtype)

    def rebuilt(a: Any) -> Any:
        values, vectors = jnp.linalg.eigh(a + a.swapaxes(-1, -2).conj())
        return values, (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2).conj()

    def product(a: Any) -> Any:
        q, r = jnp.linalg.qr(a)
        return q @ r, jnp.abs(r)

    def decomposed(a: Any) -> Any:
        u, values, v = jnp.linalg.svd(a, full_matrices=False)
        return values, (u * values) @ v

    def tridiagonal(a: Any) -> Any:
        return [jnp.abs(x) for x in jax.lax.linalg.tridiagonal(a + a.T.conj(), lower=True)[1:3]]

    return {
        "svd, tall": (decomposed, (6, 3), "cusolver_gesvdj_ffi"),
        "svd, wide": (decomposed, (3, 5), "cusolver_gesvdj_ffi"),
        "tridiagonal form": (tridiagonal, (5, 5), "cusolver_sytrd_ffi"),
        "qr_multiply": (lambda a: jax.scipy.linalg.qr_multiply(a, a)[0] ** 2, (4, 4), "cusolver_ormqr_ffi"),
        "tridiagonal system": (
            lambda a: jax.lax.linalg.tridiagonal_solve(a[0], a[1] + 5, a[2], a[3][:, None]),
            (4, 6),
            "cusparse_gtsv2_ffi",
        ),
        "cholesky": (lambda a: jnp.linalg.cholesky(positive(a)), (2, 4, 4), "cusolver_potrf_ffi"),
        "solve": (lambda a: jnp.linalg.solve(a, a[..., :2]), (2, 4, 4), "cu_lu_pivots_to_permutation"),
        "qr": (product, (6, 3), "cusolver_orgqr_ffi"),
        "eigh": (rebuilt, (5, 5), "cusolver_syevd_ffi"),
    }


def lowered(function: Callable[[Any], Any], argument: Array) -> Module:
    text = jax.jit(function).trace(argument).lower(lowering_platforms=("cuda",)).as_text(dialect="hlo")
    module = parse_module(text, "<jax>")
    verify_module(module)
    return module


# complex numbers where their routines have other names
@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in functions()), *((name, "complex64") for name in ("qr", "eigh", "svd, tall"))],
)
def test_what_jax_calls_on_a_gpu(name: str, dtype: str) -> None:
    function, dims, target = functions()[name]
    random = np.random.default_rng(3)
    argument = random.standard_normal(dims).astype(dtype)
    if dtype == "complex64":
        argument = argument + 1j * random.standard_normal(dims).astype(np.float32)
    module = lowered(function, argument)
    called = {getattr(i.op, "custom_call_target", "") for c in module.computations for i in c}
    assert target in called
    assert not obstacles(module)
    wanted = jax.tree.leaves(jax.jit(function)(argument))
    reference = run_reference(module, [[argument]], Counts(1, 1))[0]
    compiled = run_devices(compile_module(module, Counts(1, 1)), [[argument]])[0]
    for results in (reference, compiled):
        for got, right in zip(results, wanted, strict=True):
            assert got is not None
            np.testing.assert_allclose(got, np.asarray(right), rtol=1e-3, atol=1e-4)


def test_threefry_is_jaxs() -> None:
    """JAX calls the kernel only where it is configured to."""
    shapes = ["u32[2,3]"] * 4
    call = LibraryCall("cu_threefry2x32_ffi", shapes[:2], shapes, "{}", FFI)
    random = np.random.default_rng(2)
    keys, counters = random.integers(0, 1 << 32, (2, 2), np.uint32), random.integers(0, 1 << 32, (2, 2, 3), np.uint32)
    spread = [np.full((2, 3), key, np.uint32) for key in keys[0]]
    from jax.extend.random import threefry2x32_p

    wanted = [np.asarray(x) for x in threefry2x32_p.bind(*spread, *counters)]
    for results in call.run(*spread, *counters):
        for got, right in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call, arguments, wanted = CALLS[name]
    compare(call, arguments, wanted)


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "a type that nobody solves in": (
        LibraryCall("cusolver_potrf_ffi", ["f16[3,3]", "s32[]"], ["f16[3,3]"], "{lower = true}", FFI),
        "solves in f32, f64, c64 and c128, not in f16",
    ),
    "a matrix that is not square": (
        LibraryCall("cusolver_potrf_ffi", ["f32[3,2]", "s32[]"], ["f32[3,2]"], "{lower = true}", FFI),
        "f32[3,2] is not square",
    ),
    "an unknown option": (
        LibraryCall("__cublas$triangularSolve", ["f32[3,2]"], ["f32[3,3]", "f32[3,2]"], OPTIONS | {"fast": True}),
        "does not know the field fast",
    ),
    "more pivots than rows": (
        LibraryCall("cu_lu_pivots_to_permutation", ["s32[2]"], ["s32[3]"], "{}", FFI),
        "makes s32[.., n] of pivots s32[.., k], not s32[2] of s32[3]",
    ),
    "words of other types": (
        LibraryCall("cu_threefry2x32_ffi", ["s32[3]", "s32[3]"], ["s32[3]"] * 4, "{}", FFI),
        "takes four arrays u32 of equal dimension sizes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", CALLS)
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(CALLS[name][0])
