"""Systems with small triangles of real numbers, solved by the triangle's inverse.

XLA inverts triangles of up to 128 rows and multiplies. For ill-conditioned systems only the same steps, each rounded to
the instruction's type, give its numbers, so small triangles are done its way; straight code also costs less there than
a call of BLAS. For larger ones substitution has the smaller residual.

With D the diagonal of A and N = A / D (each column by its element), A^-1 = N^-1 / D (each row by its element). N^-1 is
found row by row: -N[i, known] N^-1[known]. A triangle without batch is multiplied by the reciprocals of D instead, but
not one of bf16. Sums are fused multiply-adds, for narrow types in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import BF16, F16, F32, F64, ElementType
from distxla.ir.unwritten import empty
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import Buffer, KernelEmitter, Value
from distxla.ops.support.lapack import part

LARGEST_TRIANGLE = 8
_TYPES = (F16, BF16, F32, F64)
_LEAST_TILE = 128  # products from which on XLA CPU computes f32 in tiles


@dataclass(frozen=True)
class System:
    """op(A) X = B (left) or X op(A) = B; alone: there is no batch, or one of a single triangle."""

    left: bool
    lower: bool
    unit: bool
    transposed: bool
    alone: bool

    def known(self, row: int, n: int) -> range:
        """The other columns of the triangle's row `row`."""
        return range(row) if self.lower else range(row + 1, n)

    @property
    def by_rows(self) -> bool:
        """Whether element i of a solution takes row i of the inverse, else column i."""
        return self.left != self.transposed

    def summands(self, i: int, n: int) -> range:
        """The positions in which that row or column is not zero."""
        return range(i + 1) if self.lower == self.by_rows else range(i, n)

    def has_reciprocals(self, kind: ElementType) -> bool:
        return self.alone and kind is not BF16

    def parts(self, kind: ElementType, n: int, solutions: int) -> int:
        """How many interleaved partial sums XLA CPU's product has there, added in pairs."""
        if kind is F32 and n % 4 == 0 and n * n * solutions >= _LEAST_TILE:
            return 1 if self.left and self.transposed else 4
        if kind is F32 and n == 8 and solutions == 1 and self.by_rows:
            return 8
        return 4 if kind is F64 and n == 4 and solutions == 1 and self.by_rows else 1


def applies(kind: ElementType, n: int) -> bool:
    return kind in _TYPES and n <= LARGEST_TRIANGLE


def evaluate(system: System, kind: ElementType, triangles: Any, right: Any) -> Any:
    """X for triangles A[.., n, n] and B, arrays of `kind`."""
    n = triangles.shape[-1]
    with np.errstate(all="ignore"):
        inverse = _inverse(system, kind, triangles)
        lines = inverse if system.by_rows else inverse.swapaxes(-1, -2)
        known = right if system.left else right.swapaxes(-1, -2)
        parts = system.parts(kind, n, known.shape[-1])
        x = empty(known.shape, known.dtype)
        for i in range(n):
            sums = [
                _sum_of_products(
                    kind,
                    [(lines[..., i, k, None], known[..., k, :]) for k in system.summands(i, n) if k % parts == part],
                    like=known[..., i, :],
                )
                for part in range(parts)
            ]
            while len(sums) > 1:
                sums = [p + q for p, q in zip(sums[::2], sums[1::2])]
            x[..., i, :] = sums[0]
    return x if system.left else x.swapaxes(-1, -2)


def _inverse(system: System, kind: ElementType, triangles: Any) -> Any:
    n = triangles.shape[-1]
    diagonal = np.diagonal(triangles, axis1=-2, axis2=-1)
    if system.unit:
        diagonal = np.ones_like(diagonal)
        triangles = np.where(np.eye(n, dtype=bool), diagonal[..., None, :], triangles)
    reciprocal = (np.ones_like(diagonal) / diagonal) if system.has_reciprocals(kind) else None
    scaled = triangles / diagonal[..., None, :] if reciprocal is None else triangles * reciprocal[..., None, :]
    inverse = np.zeros_like(triangles)
    for i in range(n) if system.lower else reversed(range(n)):
        known = system.known(i, n)
        products = [(scaled[..., i, k, None], inverse[..., k, :]) for k in known]
        inverse[..., i, :] = -_sum_of_products(kind, products, like=inverse[..., i, :])
        inverse[..., i, i] = scaled[..., i, i] if known else 1
    return inverse / diagonal[..., None] if reciprocal is None else inverse * reciprocal[..., None]


def _sum_of_products(kind: ElementType, factors: Sequence[tuple[Any, Any]], *, like: Any) -> Any:
    """With one rounding a step, nearly: products keep all their bits, or eleven more than f64 has."""
    sums, products = (np.float64, np.longdouble) if kind is F64 else (np.float32, np.float64)
    total = np.zeros(like.shape, sums)
    for x, y in factors:
        total = (x.astype(products) * y.astype(products) + total).astype(sums)
    return total


def emit_kernel(system: System, emit: KernelEmitter, triangles: Buffer, right: Buffer, result: Buffer) -> None:
    """X = result, which may be the memory of B = right."""
    kind, n = triangles.shape.dtype, triangles.shape.dims[-1]
    solutions = right.shape.dims[-1 if system.left else -2]
    parts = system.parts(kind, n, solutions)
    with emit.loops(triangles.shape.dims[:-2]) as batch:
        inverse = _emit_inverse(system, emit, part(emit, triangles, batch))
        b, x = part(emit, right, batch), part(emit, result, batch)
        with emit.loops((solutions,)) as (j,):
            at = [(i, j) if system.left else (j, i) for i in range(n)]
            known = [b.load(index) for index in at]
            for i in range(n):
                lines = [
                    [
                        (inverse[(i, k) if system.by_rows else (k, i)], known[k])
                        for k in system.summands(i, n)
                        if k % parts == part_
                    ]
                    for part_ in range(parts)
                ]
                sums = [_emit_sum_of_products(emit, kind, line) for line in lines]
                while len(sums) > 1:
                    sums = [emit.binary("add", p, q) for p, q in zip(sums[::2], sums[1::2])]
                x.store(at[i], emit.convert(sums[0], kind))


def _emit_inverse(system: System, emit: KernelEmitter, triangle: Buffer) -> dict[tuple[int, int], Value]:
    kind, n = triangle.shape.dtype, triangle.shape.dims[0]
    one = emit.constant(1, kind)
    diagonal = [one if system.unit else triangle.load((i, i)) for i in range(n)]
    reciprocal = [emit.binary("divide", one, d) for d in diagonal]

    def over(value: Value, i: int) -> Value:
        if system.unit:
            return value
        if system.has_reciprocals(kind):
            return emit.binary("multiply", value, reciprocal[i])
        return emit.binary("divide", value, diagonal[i])

    inverse: dict[tuple[int, int], Value] = {}
    for i in range(n) if system.lower else reversed(range(n)):
        known = system.known(i, n)
        scaled = {k: over(triangle.load((i, k)), k) for k in known}
        for column in known:
            # row k of the inverse has an element there
            products = [(scaled[k], inverse[k, column]) for k in known if (k, column) in inverse]
            inverse[i, column] = emit.unary("negate", emit.convert(_emit_sum_of_products(emit, kind, products), kind))
        inverse[i, i] = over(diagonal[i], i) if known else one
    return {(i, k): over(value, i) for (i, k), value in inverse.items()}


def _emit_sum_of_products(emit: KernelEmitter, kind: ElementType, factors: Sequence[tuple[Value, Value]]) -> Value:
    """In f64 for f64, else in f32."""
    wide = F64 if kind is F64 else F32
    total = emit.constant(0, wide)
    for x, y in factors:
        total = emit.multiply_add(emit.convert(x, wide), emit.convert(y, wide), total)
    return total
