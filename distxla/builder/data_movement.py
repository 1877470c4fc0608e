"""Operations that move elements without computing: shapes, slices, padding, order."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import Any, overload

import numpy as np

from distxla.builder.accepted_values import (
    ElementTypeLike,
    ShapeLike,
    as_element_type,
    as_integer,
    as_integers,
    as_shape,
)
from distxla.builder.blame import broken_rule
from distxla.builder.broadcasting import Broadcasting
from distxla.builder.xla_op import IndexItem, OperandLike, XlaOp
from distxla.ir.shape import Shape
from distxla.ir.window import PaddingDimension, SliceDimension
from distxla.ops.broadcast import Broadcast
from distxla.ops.concatenate import Concatenate
from distxla.ops.convert import BitcastConvert, Convert, ReducePrecision, StochasticConvert
from distxla.ops.copy import Copy
from distxla.ops.iota import Iota
from distxla.ops.pad import Pad
from distxla.ops.reshape import Reshape
from distxla.ops.reverse import Reverse
from distxla.ops.slice import Slice
from distxla.ops.transpose import Transpose


class DataMovement(Broadcasting):
    """Pages Broadcast, BroadcastInDim, Collapse, Concatenate, ConvertElementType, Iota, Pad, Reshape, Rev, Slice …"""

    # --- shapes -----------------------------------------------------------------------------------------------------

    def broadcast(self, operand: OperandLike, broadcast_sizes: Sequence[int]) -> XlaOp:
        """Copies of the operand along new dimensions of `broadcast_sizes`, inserted on the left."""
        x, sizes = self._array(operand), as_integers(broadcast_sizes, "broadcast_sizes")
        if any(size < 0 for size in sizes):
            raise broken_rule(f"broadcast.sizes: {list(sizes)} has a negative size", "broadcast_sizes")
        dynamic = ((False,) * len(sizes) + x.shape.dynamic) if x.shape.dynamic else ()
        shape = Shape(x.dtype, (*sizes, *x.shape.dims), dynamic)
        return self._add(Broadcast(dimensions=tuple(range(len(sizes), shape.rank))), [x], shape)

    def broadcast_in_dim(
        self, operand: OperandLike, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]
    ) -> XlaOp:
        """To dimension sizes `out_dim_size`: the operand's dimension i becomes dimension broadcast_dimensions[i].

        Its size is that one's, or 1 and then repeated.
        """
        x, sizes = self._array(operand), as_integers(out_dim_size, "out_dim_size")
        mapping = as_integers(broadcast_dimensions, "broadcast_dimensions")
        if any(size < 0 for size in sizes):
            raise broken_rule(f"broadcast-in-dim.sizes: {list(sizes)} has a negative size", "out_dim_size")
        fits = len(mapping) == x.rank and len({*mapping}) == x.rank and all(0 <= d < len(sizes) for d in mapping)
        if not fits:
            raise broken_rule(
                f"broadcast-in-dim.dimensions: {list(mapping)} does not name one of the {len(sizes)} result dimensions "
                f"for each dimension of {x.shape}",
                "broadcast_dimensions",
            )
        for i, d in enumerate(mapping):
            if x.shape.dims[i] not in (1, sizes[d]):
                raise broken_rule(
                    f"broadcast-in-dim.operand-sizes: dimension {i} of {x.shape} is neither 1 nor the {sizes[d]} of "
                    f"result dimension {d}",
                    "out_dim_size",
                )
        return self._spread(x, sizes, mapping)

    # the one implementation takes the second argument for whichever of the two it is
    @overload
    def reshape(self, operand: OperandLike, new_sizes: Sequence[int]) -> XlaOp: ...
    @overload
    def reshape(self, operand: OperandLike, dimensions: Sequence[int], new_sizes: Sequence[int]) -> XlaOp: ...
    def reshape(  # type: ignore[misc]
        self, operand: OperandLike, dimensions: Any = None, new_sizes: Any = None
    ) -> XlaOp:
        """The elements in row-major order with dimension sizes `new_sizes`.

        dimensions: the order, slowest first, in which the operand's dimensions are read; unchanged if left out.
        """
        x = self._array(operand)
        if new_sizes is None:
            dimensions, new_sizes = None, dimensions
        sizes = as_integers(new_sizes, "new_sizes")
        if any(size < 0 for size in sizes):
            raise broken_rule(f"reshape.sizes: {list(sizes)} has a negative size", "new_sizes")
        if dimensions is not None:
            x = self.transpose(x, as_integers(dimensions, "dimensions"))
        return self._add(Reshape(), [x], x.shape.with_dims(sizes))

    def collapse(self, operand: OperandLike, dimensions: Sequence[int]) -> XlaOp:
        """Consecutive dimensions, in order, become one."""
        x, taken = self._array(operand), as_integers(dimensions, "dimensions")
        if not taken:
            return x
        first, last = taken[0], taken[-1]
        if taken != tuple(range(first, last + 1)) or first < 0 or last >= x.rank:
            raise broken_rule(
                f"collapse.dimensions: {list(taken)} are not consecutive dimensions of {x.shape} in order", "dimensions"
            )
        dims = x.shape.dims
        return self.reshape(x, (*dims[:first], prod(dims[first : last + 1]), *dims[last + 1 :]))

    def transpose(self, operand: OperandLike, permutation: Sequence[int]) -> XlaOp:
        """Result dimension i is the operand's dimension permutation[i]."""
        return self._add(Transpose(dimensions=as_integers(permutation, "permutation")), [self._array(operand)])

    def rev(self, operand: OperandLike, dimensions: Sequence[int]) -> XlaOp:
        """The elements in reverse order along `dimensions`."""
        return self._add(Reverse(dimensions=as_integers(dimensions, "dimensions")), [self._array(operand)])

    def concatenate(self, operands: Sequence[OperandLike], dimension: int) -> XlaOp:
        """The operands one after another along `dimension`."""
        found = [self._array(x) for x in self._operands(operands, "operands")]
        return self._add(Concatenate(dimensions=(as_integer(dimension, "dimension"),)), found)

    def concat_in_dim(self, operands: Sequence[OperandLike], dimension: int) -> XlaOp:
        """`concatenate` under the name of the older pages."""
        return self.concatenate(operands, dimension)

    def pad(
        self,
        operand: OperandLike,
        padding_value: OperandLike,
        padding_config: Sequence[Sequence[int] | PaddingDimension],
    ) -> XlaOp:
        """padding_config: (edge_padding_low, edge_padding_high, interior_padding) for each dimension.

        Interior padding is inserted between elements, and first; negative edge padding removes.
        """
        x = self._array(operand)
        if not isinstance(padding_config, (tuple, list)):
            raise broken_rule(f"pad.config: {padding_config!r} is no sequence", "padding_config")
        padding = [p if isinstance(p, PaddingDimension) else self._padding_dimension(p) for p in padding_config]
        return self._add(Pad(padding=tuple(padding)), [x, self._array(padding_value, x.dtype)])

    def _padding_dimension(self, given: Sequence[int]) -> PaddingDimension:
        numbers = as_integers(given, "padding_config")
        if len(numbers) not in (2, 3):
            raise broken_rule(f"pad.config: {list(numbers)} is not (low, high, interior)", "padding_config")
        return PaddingDimension(*numbers)

    def pad_in_dim(self, operand: OperandLike, padding_value: OperandLike, dimno: int, low: int, high: int) -> XlaOp:
        """Padding of one dimension."""
        x, config = self._array(operand), [PaddingDimension(0, 0)] * self._array(operand).rank
        config[self._dimension(x, dimno, "dimno")] = PaddingDimension(as_integer(low, "low"), as_integer(high, "high"))
        return self.pad(x, padding_value, config)

    def _dimension(self, operand: XlaOp, dimension: int, argument: str) -> int:
        found = as_integer(dimension, argument)
        if not 0 <= found < operand.rank:
            raise broken_rule(f"dimension: {found} is not a dimension of {operand.shape}", argument)
        return found

    # --- slices -----------------------------------------------------------------------------------------------------

    def slice(
        self,
        operand: OperandLike,
        start_indices: Sequence[int],
        limit_indices: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> XlaOp:
        """In each dimension start, start + stride, .. below limit; strides of 1 if left out."""
        x = self._array(operand)
        starts, limits = as_integers(start_indices, "start_indices"), as_integers(limit_indices, "limit_indices")
        steps = (1,) * len(starts) if strides is None else as_integers(strides, "strides")
        if not len(starts) == len(limits) == len(steps):
            raise broken_rule(
                f"slice.C2: {len(starts)} starts, {len(limits)} limits and {len(steps)} strides", "start_indices"
            )
        return self._add(Slice(slice=tuple(map(SliceDimension, starts, limits, steps))), [x])

    def slice_in_dim(self, operand: OperandLike, start_index: int, limit_index: int, stride: int, dimno: int) -> XlaOp:
        """A slice of one dimension, the others whole."""
        x = self._array(operand)
        boxes = [SliceDimension(0, dimension_size) for dimension_size in x.shape.dims]
        numbers = (start_index, limit_index, stride)
        boxes[self._dimension(x, dimno, "dimno")] = SliceDimension(*as_integers(numbers, "start_index"))
        return self._add(Slice(slice=tuple(boxes)), [x])

    def basic_index(self, operand: OperandLike, key: Any) -> XlaOp:
        """`x[key]`: integers drop a dimension, slices keep it, `...` means all the others, None is new.

        Raises IndexError as NumPy does; indices that are computed need `dynamic_slice` or `gather`.
        """
        x = self._array(operand)
        items = _expanded(x, key)
        boxes: list[SliceDimension] = []
        reversed_dims: list[int] = []
        sizes: list[int] = []
        for item in items:
            if item is None:
                sizes.append(1)
                continue
            dimension_size, d = x.shape.dims[len(boxes)], len(boxes)
            if isinstance(item, builtins.slice):
                start, stop, step = item.indices(dimension_size)
                picked = range(start, stop, step)
                if step < 0 and len(picked) > 1:
                    reversed_dims.append(d)
                first, last = (min(picked), max(picked) + 1) if picked else (0, 0)
                boxes.append(SliceDimension(first, last, abs(step)))
                sizes.append(len(picked))
            else:
                if not -dimension_size <= item < dimension_size:
                    raise IndexError(f"index {item} is out of bounds for dimension {d} of {x.shape}")
                boxes.append(SliceDimension(int(item) % dimension_size, int(item) % dimension_size + 1))
        if any((b.start, b.limit, b.stride) != (0, e, 1) for b, e in zip(boxes, x.shape.dims, strict=True)):
            x = self._add(Slice(slice=tuple(boxes)), [x])
        if reversed_dims:
            x = self.rev(x, reversed_dims)
        return x if tuple(sizes) == x.shape.dims else self._add(Reshape(), [x], x.shape.with_dims(tuple(sizes)))

    # --- elements ---------------------------------------------------------------------------------------------------

    def convert_element_type(self, operand: OperandLike, new_element_type: ElementTypeLike) -> XlaOp:
        """Every element as another type."""
        x, element_type = self._array(operand), as_element_type(new_element_type)
        return self._add(Convert(), [x], x.shape.without_layout().with_dtype(element_type))

    def bitcast_convert_type(self, operand: OperandLike, new_element_type: ElementTypeLike) -> XlaOp:
        """The same bits as another type; a narrower one adds a last dimension, a wider one takes it away."""
        x, element_type = self._array(operand), as_element_type(new_element_type)
        old, new, dims = x.dtype.bits, element_type.bits, x.shape.dims
        if old > new:
            dims = (*dims, old // new)
        elif old < new:
            if not dims or dims[-1] != new // old:
                raise broken_rule(
                    f"bitcast-convert.C1: the last dimension of {x.shape} must be the {new // old} parts of a "
                    f"{element_type}",
                    "operand",
                )
            dims = dims[:-1]
        return self._add(BitcastConvert(), [x], Shape(element_type, dims))

    def reduce_precision(self, operand: OperandLike, mantissa_bits: int, exponent_bits: int) -> XlaOp:
        """Rounded to the values of a float of so many bits, in the operand's own type.

        The order of the arguments is the page's; XLA's own method has exponent_bits first, so better name them.
        """
        op = ReducePrecision(
            exponent_bits=as_integer(exponent_bits, "exponent_bits"),
            mantissa_bits=as_integer(mantissa_bits, "mantissa_bits"),
        )
        return self._add(op, [self._array(operand)])

    def stochastic_convert_type(
        self, operand: OperandLike, random: OperandLike, new_element_type: ElementTypeLike
    ) -> XlaOp:
        """To an integer type, up or down with the fraction's probability; random: as many bits as the operand has."""
        x, element_type = self._array(operand), as_element_type(new_element_type)
        return self._add(StochasticConvert(), [x, self._array(random)], Shape(element_type, x.shape.dims))

    def copy(self, operand: OperandLike) -> XlaOp:
        """The operand itself."""
        return self._add(Copy(), [self._operand(operand)])

    def iota(self, shape: ShapeLike, iota_dimension: int = 0) -> XlaOp:
        """An array of `shape` that holds each element's index along iota_dimension."""
        op = Iota(iota_dimension=as_integer(iota_dimension, "iota_dimension"))
        return self._add(op, (), as_shape(shape))


def _expanded(x: XlaOp, key: Any) -> list[int | builtins.slice | None]:
    """One item for each dimension of x in order, and None for new ones."""
    items: list[IndexItem] = list(key) if isinstance(key, tuple) else [key]
    for item in items:
        known = item is None or isinstance(item, (int, np.integer, builtins.slice, EllipsisType))
        if not known or isinstance(item, bool):
            raise broken_rule(
                f"index: {item!r} is no integer, slice, ... or None; indices that are computed need dynamic_slice or "
                "gather"
            )
    count = sum(item is not None and item is not ... for item in items)
    if count > x.rank or sum(item is ... for item in items) > 1:
        raise IndexError(f"{len(items)} indices for {x.shape}")
    if not any(item is ... for item in items):
        items.append(...)
    at = next(i for i, item in enumerate(items) if item is ...)
    whole: list[IndexItem] = [builtins.slice(None)] * (x.rank - count)
    return [item for item in (*items[:at], *whole, *items[at + 1 :]) if not isinstance(item, EllipsisType)]
