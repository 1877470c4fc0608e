"""The dimension sizes that arrays of dynamic shapes have at run time: `f32[<=8]` has 0 to 8 elements.

Elements beyond the run-time size are no part of a value. Three rules hold for every op and both executors:

* A result dimension that follows a dynamic dimension has the run-time size which the op's static rule gives.
* Dimensions that must agree, and don't at run time, have the smallest of their dynamic dimension sizes; between
  operands of element-wise ops a size of 1 is repeated, as XLA does.
* An op whose result does not follow a dynamic dimension (a slice of a part of it) sees zeros beyond the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from distxla.ir.dynamic_shape import is_dynamic
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]


def has_dynamic_dimensions(module: Module) -> bool:
    """Whether the dimension sizes of some array are known at run time only."""
    return any(
        i.op.sets_dimension_sizes or i.shape.is_dynamic for computation in module.computations for i in computation
    )


def widened(array: Array, dims: Sequence[int]) -> Array:
    """The array with zeros after its elements, up to `dims`."""
    if array.shape == tuple(dims):
        return array
    result = np.zeros(tuple(dims), array.dtype)
    result[tuple(slice(n) for n in array.shape)] = array
    return result


def cut(array: Array, dims: Sequence[int]) -> Array:
    """The first elements of the array, up to `dims`; missing ones are zero."""
    if array.shape == tuple(dims):
        return array
    first = array[tuple(slice(n) for n in dims)]
    return widened(first, dims)


def smallest(arrays: Sequence[Array]) -> list[Array]:
    """Arrays of one rank, each cut to the smallest dimension sizes among them."""
    dims = tuple(map(min, zip(*(a.shape for a in arrays), strict=True)))
    return [cut(a, dims) for a in arrays]


def nothing_received(array: Array, shape: Shape) -> Array:
    """The result on a device that receives nothing: zeros, and no elements along a dynamic dimension."""
    return np.zeros(tuple(0 if is_dynamic(shape, d) else n for d, n in enumerate(array.shape)), array.dtype)


def fitted(op: Op, operands: Sequence[Shape], values: Sequence[Any]) -> list[Any]:
    """The operands' values with equal dimension sizes in the dimensions that must agree.

    operands: their shapes with the dimensions marked whose dimension sizes are known at run time only.
    """
    arrays = list(values)
    for agreement in op.agreeing_dimensions(operands):
        dynamic = [(k, d) for k, d in agreement if is_dynamic(operands[k], d)]
        if not dynamic:
            continue
        dimension_sizes = [arrays[k].shape[d] for k, d in dynamic]
        if op.elements.is_elementwise:
            dimension_sizes = [n for n in dimension_sizes if n != 1] or [1]
        common = min(dimension_sizes)
        for k, d in agreement:
            have = arrays[k].shape[d]
            if have == 1 and common > 1:
                arrays[k] = np.repeat(arrays[k], common, axis=d)
            elif have > common:
                arrays[k] = arrays[k][(slice(None),) * d + (slice(common),)]
    return arrays


def reshaped_dimension_sizes(source: Shape, target: Shape, inferred: int | None = None) -> list[ReshapeGroup]:
    """The independent parts of a reshape between stated shapes, each with the dimension that takes a dynamic size.

    inferred: the target dimension that the text names, if any.
    """
    groups = dimension_groups(source.dims, target.dims)
    return [ReshapeGroup(ours, theirs, _follower(target, theirs, inferred)) for ours, theirs in groups]


@dataclass(frozen=True)
class ReshapeGroup:
    """source and target: dimensions with equal numbers of elements.

    follower: the target dimension whose run-time size is the rest of a dynamic source after the others; None where
    there is none or more than one: the source then counts with its bounds, zeros beyond its dimension sizes.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    follower: int | None


def reshaped(array: Array, stated: Shape, target: Shape, dims: Sequence[int], inferred: int | None = None) -> Array:
    """The array with dimension sizes `dims`: a reshape from `stated` to `target`, as texts have it, of the run-time
    elements. Group by group: a remainder that does not fill a row of a split dimension is dropped."""
    if array.shape != stated.dims:
        groups = reshaped_dimension_sizes(stated, target, inferred)
        dimension_sizes = list(array.shape)
        for group in groups:
            if group.follower is None:
                for d in group.source:
                    dimension_sizes[d] = stated.dims[d]
        flat = widened(array, dimension_sizes).reshape(
            [prod(dimension_sizes[d] for d in group.source) for group in groups]
        )
        array = cut(flat, [prod(dims[d] for d in group.target) for group in groups])
    result: Array = array.reshape(dims)
    return result


def _follower(target: Shape, dimensions: Sequence[int], inferred: int | None) -> int | None:
    if inferred in dimensions:
        return inferred
    stated = [d for d in dimensions if is_dynamic(target, d)]
    several = [d for d in dimensions if target.dims[d] != 1]
    for found in (stated, several, dimensions):
        if len(found) == 1:
            return found[0]
        if found:
            return None
    return None


def dimension_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Split a reshape into independent ones: (source dimensions, target dimensions) with equal numbers of elements.

    As many groups as possible, in order; dimensions of size 1 that are alone join a neighbouring group.  Reshapes
    of empty arrays are one group.
    """
    if 0 in source or 0 in target:
        return [(tuple(range(len(source))), tuple(range(len(target))))]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        left = source[i] if i < len(source) else 1
        right = target[j] if j < len(target) else 1
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while left != right:
            if left < right and i < len(source):
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        groups.append((tuple(range(first_i, i)), tuple(range(first_j, j))))
    return groups
