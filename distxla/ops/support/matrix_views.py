"""Views of groups of array dimensions as one dimension with a stride, for a matrix product by strides."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from math import prod

from distxla.ir.element_type import F32, PRED, S32, U32, ElementType
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import Buffer, IndexLike, KernelEmitter, Value


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
    """A buffer seen as matrices: elements from one row and column to the next, and along each batch dimension."""

    buffer: Buffer
    batch: tuple[int, ...]
    row: int
    column: int


def as_matrices(
    emit: KernelEmitter,
    source: Buffer,
    groups: tuple[Sequence[int], Sequence[int], Sequence[int]],
    element_type: ElementType,
) -> Matrices:
    """An array as [batch dimensions, rows, columns] with elements of `element_type`; groups: dimensions of each.

    In place where strides and type allow, otherwise as a copy in scratch.
    """
    dims = source.shape.dims
    strides = row_major_strides(dims)
    row, column = (collapsed_stride(dims, strides, group) for group in groups[1:])
    rows, columns = (prod(dims[d] for d in group) for group in groups[1:])
    one_step = row == 1 or column == 1 or rows == 1 or columns == 1
    if source.shape.dtype is element_type and row is not None and column is not None and one_step:
        return Matrices(source, tuple(strides[d] for d in groups[0]), row, column)
    order = [d for group in groups for d in group]
    copy = emit.scratch(Shape(element_type, tuple(dims[d] for d in order)))
    with emit.loops(copy.shape.dims, parallel=True) as index:
        at: list[IndexLike] = [0] * len(dims)
        for d, i in zip(order, index):
            at[d] = i
        copy.store(index, convert_to(emit, source.load(at), element_type))
    return Matrices(copy, row_major_strides(copy.shape.dims)[: len(groups[0])], columns, 1)


def emit_products(
    emit: KernelEmitter,
    batch: Sequence[int],
    shape: tuple[int, int, int],
    operands: tuple[Matrices, Matrices, Matrices],
    terms: int | None = None,
) -> None:
    """c = a b for every index over `batch`; shape: rows and columns of c, columns of a; operands: a, b, c.

    terms: see `Factors`.

    Batch dimensions that are nested in the same way in all three become one; all but the last one left are loops. On a
    grid a product in a loop would be one thread's, so factors are copied there where that leaves no loop.
    """
    m, n, k = shape
    a, b, c = operands
    if emit.tuning.on_grid and collapsed_stride(batch, c.batch, range(len(batch))) is not None:
        a, b = _with_collapsible_batch(emit, batch, a, (m, k)), _with_collapsible_batch(emit, batch, b, (k, n))
    operands = a, b, c
    dimension_sizes: list[int] = []
    strides: list[tuple[int, ...]] = []
    for size, *own_steps in zip(batch, *(x.batch for x in operands), strict=True):
        if size == 1:
            continue
        if dimension_sizes and all(outer == step * size for outer, step in zip(strides[-1], own_steps)):
            dimension_sizes[-1] *= size
            strides[-1] = tuple(own_steps)
        else:
            dimension_sizes.append(size)
            strides.append(tuple(own_steps))
    count, own = (dimension_sizes.pop(), strides.pop()) if dimension_sizes else (1, (0, 0, 0))
    with emit.loops(dimension_sizes, independent=True) if dimension_sizes else nullcontext(()) as index:
        views = []
        for number, (x, rows, columns) in enumerate(zip(operands, (m, k, m), (k, n, n))):
            view = x.buffer
            if dimension_sizes:
                offset: IndexLike = 0
                for i, steps in zip(index, strides):
                    offset = offset + i * steps[number]
                # a view ends with its last element, whatever it starts with
                span = (count - 1) * own[number] + (rows - 1) * x.row + (columns - 1) * x.column + 1
                view = emit.reshaped(x.buffer, Shape(x.buffer.shape.dtype, (span,)), offset)
            views.append((view, own[number], x.row, x.column))
        emit.gemm((count, m, n, k), views[0], views[1], views[2], terms)


def _with_collapsible_batch(emit: KernelEmitter, batch: Sequence[int], x: Matrices, dims: tuple[int, int]) -> Matrices:
    """The matrices such that their batch dimensions become one: themselves, or a copy."""
    if collapsed_stride(batch, x.batch, range(len(batch))) is not None:
        return x
    copy = emit.scratch(Shape(x.buffer.shape.dtype, (*batch, *dims)))
    flat = emit.reshaped(x.buffer, Shape(x.buffer.shape.dtype, (x.buffer.shape.size,)), 0)
    with emit.loops(copy.shape.dims, parallel=True) as index:
        position: IndexLike = 0
        for i, step in zip(index, (*x.batch, x.row, x.column), strict=True):
            position = position + i * step
        copy.store(index, flat.load((position,)))
    return Matrices(copy, row_major_strides(copy.shape.dims)[: len(batch)], dims[1], 1)


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
    """Where to compute a result with elements of `element_type` and dimension sizes `dims`: scratch or the result
    itself."""
    if result.shape.dtype is element_type and tuple(dims) == result.shape.dims:
        return result
    return emit.scratch(Shape(element_type, tuple(dims)))


def store_result(emit: KernelEmitter, result: Buffer, computed: Buffer, order: Sequence[int]) -> None:
    """Copy and convert the result of `result_in`; order: the result's dimension for each of its dimensions."""
    if computed is result:
        return
    with emit.loops(computed.shape.dims, parallel=True) as index:
        at: list[IndexLike] = [0] * len(order)
        for d, i in zip(order, index):
            at[d] = i
        result.store(at, convert_to(emit, computed.load(index), result.shape.dtype))
