"""Functions of native libraries that compiled code calls through its import slots: names, signatures, where they
live."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from llvmlite import ir

from distxla.codegen.lane import F32T, F64T, I32, intrinsic
from distxla.ir.element_type import ElementType

POINTER = ir.PointerType()
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112

# one replica is one thread: its neighbours use the other cores
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Gemm:
    """cblas_?gemm for an element type. by_pointer: alpha and beta are passed by address (complex types)."""

    symbol: str
    scalar: ir.Type
    by_pointer: bool


GEMMS: dict[str, Gemm] = {
    "f32": Gemm("scipy_cblas_sgemm", F32T, False),
    "f64": Gemm("scipy_cblas_dgemm", F64T, False),
    "c64": Gemm("scipy_cblas_cgemm", F32T, True),
    "c128": Gemm("scipy_cblas_zgemm", F64T, True),
}

# functions of libm that emitted arithmetic may call
MATH_IMPORTS = tuple(
    name + suffix
    for name in ("fmod", "sin", "cos", "tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2", "pow",
                 "cbrt", "erf")
    for suffix in ("", "f")
)  # fmt: skip


def gemm_function(module: ir.Module, element_type: ElementType) -> ir.Function:
    """void gemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)."""
    gemm = GEMMS[element_type.name]
    factor = POINTER if gemm.by_pointer else gemm.scalar
    return intrinsic(
        module,
        gemm.symbol,
        ir.VoidType(),
        [I32] * 6 + [factor, POINTER, I32, POINTER, I32, factor, POINTER, I32],
    )


@functools.cache
def openblas_path() -> Path:
    """The shared library of OpenBLAS that the package scipy-openblas32 brings."""
    import scipy_openblas32

    folder = Path(scipy_openblas32.get_lib_dir())
    found = sorted(folder.glob("libscipy_openblas*.so"))
    return found[0]
