"""Which products cuBLAS takes, and the numbers with which it is called."""

from __future__ import annotations

from distxla.ir.element_type import BF16, F16, F32, F64
from distxla.program.artifact import Factor, MatrixProduct
from distxla.targets.nvptx.interfaces.cublas import (
    AS_IT_IS,
    DATA_TYPES,
    DEFAULT_ALGORITHM,
    GEMM_PARAMETERS,
    SUMS_IN,
    TRANSPOSED,
)

TYPES = ((F32, F32), (F64, F64), (BF16, F32), (F16, F32))  # of both factors, and of the sums
LARGEST = (1 << 31) - 1
NUMBERS = tuple(name for name in GEMM_PARAMETERS if name not in ("alpha", "A", "B", "beta", "C"))


def gemm_numbers(product: MatrixProduct) -> dict[str, int] | None:
    """The arguments that aren't addresses, by the names of cuBLAS's parameters; None where it can't compute this.

    Its matrices are column-major, so what is row-major here is transposed there: C' = B' A'. Its A is the product's b.
    """
    batch, rows, columns, terms = product.shape
    a, b, c = product.a, product.b, product.c
    if a.element_type is not b.element_type or (a.element_type, c.element_type) not in TYPES:
        return None
    left, right, result = _matrix(b, terms, columns), _matrix(a, rows, terms), _matrix(c, rows, columns)
    if left is None or right is None or result is None or result[0] is TRANSPOSED:
        return None
    numbers = {
        "transa": left[0],
        "transb": right[0],
        "m": columns,
        "n": rows,
        "k": terms,
        "Atype": DATA_TYPES[b.element_type.name],
        "lda": left[1],
        "strideA": b.batch,
        "Btype": DATA_TYPES[a.element_type.name],
        "ldb": right[1],
        "strideB": a.batch,
        "Ctype": DATA_TYPES[c.element_type.name],
        "ldc": result[1],
        "strideC": c.batch,
        "batchCount": batch,
        "computeType": SUMS_IN[c.element_type.name],
        "algo": DEFAULT_ALGORITHM,
    }
    fits = all(number <= LARGEST for name, number in numbers.items() if not name.startswith("stride"))
    return numbers if fits else None


def _matrix(factor: Factor, rows: int, columns: int) -> tuple[int, int] | None:
    """The operation and the leading dimension of a row-major matrix; None where neither rows nor columns lie side
    by side, or where they overlap."""
    if factor.column == 1 and factor.row >= columns:
        return AS_IT_IS, factor.row
    if factor.row == 1 and factor.column >= rows:
        return TRANSPOSED, factor.column
    return None


__all__ = ["NUMBERS", "gemm_numbers"]
