"""Functions of native libraries that compiled code calls through its import slots: names and signatures."""

from __future__ import annotations

from llvmlite import ir

from distxla.compiler.lower.scalar_expression import F32T, F64T
from distxla.emit.native_function import I32, POINTER, VOID, declared
from distxla.ir.element_type import ElementType
from distxla.lazy_dataclass import dataclass
from distxla.targets.code import target_of

ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
LARGEST = 2**31 - 1  # size or stride


@dataclass(frozen=True)
class Gemm:
    """BLAS's ?gemm for an element type. by_pointer: alpha and beta are passed by address (complex types)."""

    routine: str
    scalar: ir.Type
    by_pointer: bool


GEMMS: dict[str, Gemm] = {
    "f32": Gemm("blas.sgemm", F32T, False),
    "f64": Gemm("blas.dgemm", F64T, False),
    "c64": Gemm("blas.cgemm", F32T, True),
    "c128": Gemm("blas.zgemm", F64T, True),
}


def gemm_function(builder: ir.IRBuilder, element_type: ElementType) -> ir.Function:
    """void gemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)."""
    gemm = GEMMS[element_type.name]
    factor = POINTER if gemm.by_pointer else gemm.scalar
    return declared(
        builder.module,
        target_of(builder).import_name(gemm.routine),
        VOID,
        [I32] * 6 + [factor, POINTER, I32, POINTER, I32, factor, POINTER, I32],
    )
