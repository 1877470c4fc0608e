"""HLO fft: the reference against NumPy's transforms, compiled code against the reference and against XLA CPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.ir.shape import Shape
from distxla.text.printer import print_module
from tests.compiler.runner import run_single
from tests.ops.case import Array, Case, array, joined

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 30, 64, 97, 211, 256, 1009)
KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
NUMPY: dict[str, Any] = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}


def transform(kind: str, dims: tuple[int, ...], axes: int, *, double: bool = False) -> Case:
    """A transform of the last `axes` dimensions; dims: of the side that isn't halved."""
    real, complex_ = ("f64", "c128") if double else ("f32", "c64")
    half = (*dims[:-1], dims[-1] // 2 + 1 if dims[-1] else 0)
    operand = array(real if kind == "RFFT" else complex_, *(half if kind == "IRFFT" else dims))
    generator = np.random.default_rng([*dims, axes])
    value = generator.normal(size=operand.dims)
    if operand.dtype.is_complex:
        value = value + 1j * generator.normal(size=operand.dims)
    attributes = {"fft_type": kind, "fft_length": dims[len(dims) - axes :]}
    return Case("fft", (operand,), attributes, arguments=(value.astype(operand.dtype.dtype),))


def resized(kind: str, dims: tuple[int, ...], lengths: tuple[int, ...]) -> Case:
    """A complex transform of other lengths than the operand's dimension sizes."""
    case = transform(kind, dims, len(lengths))
    return Case("fft", case.operands, {"fft_type": kind, "fft_length": lengths}, arguments=case.arguments)


# XLA CPU fills no more of the result than a shorter transform has, and its library refuses a longer one.
RESIZED = [
    resized(kind, dims, lengths)
    for kind in ("FFT", "IFFT")
    for dims, lengths in (
        ((5,), (3,)), ((3,), (5,)), ((2, 4), (6,)), ((2, 4), (0,)), ((2, 0), (3,)), ((2, 3, 4), (5, 2)),
        ((2, 3, 4), (3, 6, 4)), ((3, 2, 5), (1, 2, 7)),
    )
]  # fmt: skip
CASES = [
    *(transform(kind, (2, n), 1, double=n % 2 == 0) for kind in KINDS for n in LENGTHS),
    *(transform(kind, (3, 4, 5), axes, double=kind == "FFT") for kind in KINDS for axes in (2, 3)),
    *(transform(kind, (2, 3, 7, 6, 8), axes) for kind in KINDS for axes in (1, 2, 3)),
    *(transform(kind, (6,), 1) for kind in KINDS),
    *(transform(kind, dims, 1) for kind in KINDS for dims in ((0, 4), (3, 0), (0,))),
    *(transform(kind, (1, 1, 1), 3) for kind in KINDS),
    *RESIZED,
]  # fmt: skip


def numpys(case: Case) -> Array:
    """What numpy.fft makes of the case's operand, in double precision."""
    (value,) = case.values()
    lengths = case.attributes["fft_length"]
    wide = value.astype(np.complex128 if case.operands[0].dtype.is_complex else np.float64)
    if 0 in lengths or not value.size:
        return np.zeros(case.shape.dims, case.shape.dtype.dtype)
    found = NUMPY[case.attributes["fft_type"]](wide, s=lengths, axes=range(value.ndim - len(lengths), value.ndim))
    result = np.zeros(case.shape.dims, case.shape.dtype.dtype)
    common = tuple(map(slice, map(min, found.shape, result.shape)))
    result[common] = found[common]
    return result


def assert_agrees(got: Array | None, wanted: Array, shape: Shape) -> None:
    """The error of a transform is relative to its largest coefficient."""
    assert got is not None
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape) == (shape.dtype.dtype, shape.dims)
    tolerance = 1e-6 if shape.dtype.name in ("f32", "c64") else 1e-14
    scale = np.abs(wanted).max(initial=1e-30)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("case", [c for c in CASES if c.shape.size], ids=str)
def test_reference_agrees_with_numpy(case: Case) -> None:
    (got,) = case.evaluated()
    assert_agrees(got, numpys(case), case.shape)


def test_compiled_code_agrees_with_reference() -> None:
    program = compile_module(joined(CASES), Counts(1, 1))
    results = run_single(program, [value for case in CASES for value in case.values()])
    for case, got in zip(CASES, results, strict=True):
        (wanted,) = case.evaluated()
        assert wanted is not None
        assert_agrees(got, wanted, case.shape)


@pytest.mark.filterwarnings("ignore")
def test_compiled_code_agrees_with_xla() -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    cases = [case for case in CASES if case.shape.size and case not in RESIZED]
    module = joined(cases)
    arguments = [value for case in cases for value in case.values()]
    results = run_single(compile_module(module, Counts(1, 1)), arguments)
    for case, got, wanted in zip(cases, results, run_by_xla(print_module(module), arguments), strict=True):
        assert_agrees(got, wanted, case.shape)


def test_transforms_run_in_threads_without_the_interpreter() -> None:
    """Two threads transform at once; the library's plans are shared between them."""
    cases = [transform("FFT", (8, n), 1, double=True) for n in (48, 101, 128)]
    program = compile_module(joined(cases), Counts(1, 1))
    arguments = [value for case in cases for value in case.values()]
    wanted = [numpys(case) for case in cases]
    found: list[list[Array]] = []
    threads = [
        threading.Thread(target=lambda: found.extend(run_single(program, arguments) for _ in range(20)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 40
    for results in found:
        for case, got, want in zip(cases, results, wanted, strict=True):
            assert_agrees(got, want, case.shape)


def test_nan_stays_in_its_line() -> None:
    value = np.ones((2, 6), np.complex64)
    value[0, 3] = np.nan
    case = Case("fft", (array("c64", 2, 6),), {"fft_type": "FFT", "fft_length": (6,)}, arguments=(value,))
    program = compile_module(case.module(), Counts(1, 1))
    (got,) = run_single(program, [value])
    np.testing.assert_array_equal(np.isnan(got), [[True] * 6, [False] * 6])


def test_missing_transforms_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from distxla.errors import CompileError
    from distxla.targets.native.load import resolve_import

    monkeypatch.delattr("numpy.fft._pocketfft_umath.irfft")
    with pytest.raises(CompileError, match="NumPy has no transform irfft of one axis"):
        resolve_import("numpy.fft.irfft.c64.loop")
