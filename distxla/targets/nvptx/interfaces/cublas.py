"""The functions of cuBLAS that are used, with their types, and the numbers that they take and give.

Each returns a cublasStatus_t. Names and types are those of cublas_v2.h; the suffix is part of a symbol's name.
"""

from __future__ import annotations

from ctypes import c_int, c_int64, c_uint64, c_void_p
from typing import Any, Protocol

Handle = c_void_p  # of the library, or a stream
Pointer = c_void_p  # to memory of this process
Address = c_uint64  # in the GPU's memory

GEMM = "cublasGemmStridedBatchedEx"
# by the names of its parameters behind the handle: C = alpha op(A) op(B) + beta C, for each of batchCount matrices, all
# of them column-major
GEMM_PARAMETERS: dict[str, type[Any]] = {
    "transa": c_int,
    "transb": c_int,
    "m": c_int,
    "n": c_int,
    "k": c_int,
    "alpha": Pointer,
    "A": Address,
    "Atype": c_int,
    "lda": c_int,
    "strideA": c_int64,
    "B": Address,
    "Btype": c_int,
    "ldb": c_int,
    "strideB": c_int64,
    "beta": Pointer,
    "C": Address,
    "Ctype": c_int,
    "ldc": c_int,
    "strideC": c_int64,
    "batchCount": c_int,
    "computeType": c_int,
    "algo": c_int,
}
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (Pointer,),
    "cublasDestroy_v2": (Handle,),
    "cublasSetMathMode": (Handle, c_int),
    "cublasSetStream_v2": (Handle, Handle),
    GEMM: (Handle, *GEMM_PARAMETERS.values()),
}

# cublasStatus_t
STATUSES = {
    0: "SUCCESS",
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    15: "NOT_SUPPORTED",
    16: "LICENSE_ERROR",
}
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, EXECUTION_FAILED, INTERNAL_ERROR, NOT_SUPPORTED = 0, 1, 7, 13, 14, 15

AS_IT_IS, TRANSPOSED = 0, 1  # cublasOperation_t
DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}  # cudaDataType_t
SUMS_IN = {"f32": 68, "f64": 70}  # cublasComputeType_t: at least this precision
DEFAULT_ALGORITHM = -1  # cublasGemmAlgo_t
SUMS_IN_FULL = 16  # cublasMath_t: no sum of f32 is rounded to 16 bits in between


class Library(Protocol):
    """A library that has FUNCTIONS as attributes, C functions of ctypes with their argument types set."""

    def __getattr__(self, name: str) -> Any: ...


__all__ = ["FUNCTIONS", "GEMM", "GEMM_PARAMETERS", "Library"]
