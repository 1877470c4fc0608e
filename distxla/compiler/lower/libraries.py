"""Functions of native libraries that compiled code calls through its import slots: names and signatures."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from distxla.compiler.lower.scalar_expression import F32T, F64T, I32, intrinsic
from distxla.ir.element_type import ElementType

POINTER = ir.PointerType()
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
LARGEST = 2**31 - 1  # extent or stride


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
