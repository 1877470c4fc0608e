"""CUB's radix sort, as XLA's GPU backend calls it for large arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from distxla.ir.shape import Shape
from distxla.ops.compare import Compare
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import ffi_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.sort import Sort
from distxla.ops.support.expansion import Build


@target(
    "__cub$DeviceRadixSort",
    "__cub$DeviceRadixSortUnassignedScratchSize",
    "xla.gpu.ext.cub_sort_keys",
    "xla.gpu.ext.cub_sort_pairs",
    "xla.gpu.ext.cub_sort_unassigned_scratch_size",
)
class RadixSort(ExpandedTarget):
    """Keys, or keys with values, sorted along the last dimension; equal keys keep their order in either direction.

    Order:    integers by value; floats from NaNs with a sign to NaNs without one, -0 and 0 equal.
    Shapes:   T[..], or T[..] and U[..] -> themselves sorted, and a workspace.
    Options:  descending; batch_size: into how many parts the memory is cut, which are sorted each for itself.
    Source:   XLA, sort_rewriter.cc; CUB's DeviceRadixSort.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = ffi_fields(call)
        fields.only({"descending", "batch_size"})
        descending = fields.flag("descending")
        steps.operands_required(call, [1, 2], "keys, or keys and values")
        shapes = [build.shape(operand) for operand in operands]
        for shape in (*call.operands, *steps.result_shapes(call)):
            if shape.minor_to_major() != tuple(reversed(range(shape.rank))):
                raise ConfigError(f"sorts arrays in row-major layout, not {shape} in another one")
        keys = shapes[0]
        if not (keys.dtype.is_integer or keys.dtype.is_float) or not keys.rank:
            raise ConfigError(f"sorts arrays of integers or floats, not {keys}")
        rows = fields.integer("batch_size", prod(keys.dims[:-1]))
        if "batch_size" in fields:
            fits = rows == 0 == keys.size or (rows > 0 and keys.size % rows == 0)
            fields.require(fits, "batch_size", f"equal parts of {keys.size} elements")
        table = (rows, keys.size // rows if rows else 0)
        sorted_ = build.add(
            Sort(dimensions=(1,), is_stable=True, to_apply=_comparator(build, shapes, descending)),
            *(build.reshape(operand, table) for operand in operands),
        )
        parts = [sorted_] if len(operands) == 1 else [build.element(sorted_, k) for k in range(len(operands))]
        return steps.joined(call, build, [build.reshape(part, keys.dims) for part in parts])


def _comparator(build: Build, shapes: Sequence[Shape], descending: bool) -> str:
    scalars = [Shape(shape.dtype) for shape in shapes for _ in range(2)]

    def body(inner: Build, elements: Sequence[str]) -> str:
        direction = "GT" if descending else "LT"
        if not shapes[0].dtype.is_float:
            return inner.compare(direction, elements[0], elements[1])
        keys = [_without_negative_zero(inner, element) for element in elements[:2]]
        return inner.add(Compare(direction=direction, comparison="TOTALORDER"), *keys)

    return build.computation(scalars, body)


def _without_negative_zero(build: Build, key: str) -> str:
    zero = steps.like(build, 0, key)
    return build.select(build.compare("EQ", key, zero), zero, key)
