"""Seeing groups of array dimensions as one dimension with a stride: what a matrix product by strides needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from distxla.ir.element_type import F32, PRED, S32, U32, ElementType
from distxla.ir.shape import Shape

if TYPE_CHECKING:
    from distxla.ops.emit import Buffer, IndexLike, KernelEmitter, Value


def row_major_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index of each dimension to the next."""
    return tuple(prod(dims[d + 1 :]) for d in range(len(dims)))


def collapsed_stride(dims: Sequence[int], strides: Sequence[int], group: Sequence[int]) -> int | None:
    """The stride of the dimensions `group`, in that order, seen as one dimension; None if they don't make one.

    1 where the group has one element only: it is never stepped over.
    """
    stepping = [d for d in group if dims[d] != 1]
    if not stepping:
        return 1
    for outer, inner in pairwise(stepping):
        if strides[outer] != strides[inner] * dims[inner]:
            return None
    return strides[stepping[-1]]


@dataclass(frozen=True, slots=True)
class Matrices:
    """A buffer seen as a batch of matrices: strides in elements, as `KernelEmitter.gemm` takes them."""

    buffer: Buffer
    batch: int
    row: int
    column: int

    def arguments(self) -> tuple[Buffer, int, int, int]:
        return (self.buffer, self.batch, self.row, self.column)


def as_matrices(
    emit: KernelEmitter,
    source: Buffer,
    groups: tuple[Sequence[int], Sequence[int], Sequence[int]],
    element_type: ElementType,
) -> Matrices:
    """An array as [batch, rows, columns], each of them a group of its dimensions, with elements of `element_type`.

    In place where strides and type allow, otherwise as a copy in scratch.
    """
    dims = source.shape.dims
    strides = row_major_strides(dims)
    found = [collapsed_stride(dims, strides, group) for group in groups]
    batch, row, column = found
    one_step = row == 1 or column == 1 or prod(dims[d] for d in groups[1]) == 1 or prod(dims[d] for d in groups[2]) == 1
    if source.shape.dtype is element_type and batch is not None and row is not None and column is not None and one_step:
        return Matrices(source, batch, row, column)
    order = [d for group in groups for d in group]
    copy = emit.scratch(Shape(element_type, tuple(dims[d] for d in order)))
    with emit.loops(copy.shape.dims) as index:
        at: list[IndexLike] = [0] * len(dims)
        for d, i in zip(order, index):
            at[d] = i
        copy.store(index, convert_to(emit, source.load(at), element_type))
    rows, columns = (prod(dims[d] for d in group) for group in groups[1:])
    return Matrices(copy, rows * columns, columns, 1)


def accumulation_type(element_type: ElementType) -> ElementType:
    """The type in which a sum of products with results of `element_type` is computed.

    Floats narrower than f32 are summed in f32; integers below 32 bits in 32 bits, which wraps to the same numbers.
    """
    if element_type.is_float:
        return F32 if element_type.bits < 32 else element_type
    if element_type.is_integer and element_type.bits < 32:
        return S32 if element_type.is_signed else U32
    return S32 if element_type is PRED else element_type


def convert_to(emit: KernelEmitter, value: Value, element_type: ElementType) -> Value:
    return value if value.element_type is element_type else emit.convert(value, element_type)


def result_in(emit: KernelEmitter, result: Buffer, element_type: ElementType, dims: Sequence[int]) -> Buffer:
    """Where to compute a result with elements of `element_type` and extents `dims`: scratch or the result itself."""
    if result.shape.dtype is element_type and tuple(dims) == result.shape.dims:
        return result
    return emit.scratch(Shape(element_type, tuple(dims)))


def store_result(emit: KernelEmitter, result: Buffer, computed: Buffer, order: Sequence[int]) -> None:
    """Copy and convert what `result_in` returned; order: the result's dimension for each of its dimensions."""
    if computed is result:
        return
    with emit.loops(computed.shape.dims) as index:
        at: list[IndexLike] = [0] * len(order)
        for d, i in zip(order, index):
            at[d] = i
        result.store(at, convert_to(emit, computed.load(index), result.shape.dtype))
