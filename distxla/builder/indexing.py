"""Operations whose positions are known at run time only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.builder.accepted_values import ShapeLike, as_flag, as_integer, as_integers, as_shape
from distxla.builder.blame import broken_rule
from distxla.builder.recorder import ComputationLike, Recorder
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ir.window import SliceDimension
from distxla.ops.dynamic_dimension import GetDimensionSize, SetDimensionSize
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.dynamic_update_slice import DynamicUpdateSlice
from distxla.ops.gather import Gather
from distxla.ops.reshape import DynamicReshape, Reshape
from distxla.ops.scatter import Scatter
from distxla.ops.slice import Slice


class Indexing(Recorder):
    """Pages DynamicSlice, DynamicUpdateSlice, Gather, Scatter, GetDimensionSize, SetDimensionSize."""

    def dynamic_slice(
        self, operand: OperandLike, start_indices: Sequence[OperandLike] | XlaOp, size_indices: Sequence[int]
    ) -> XlaOp:
        """A box of `size_indices` that starts at `start_indices`, moved so that it fits.

        start_indices: one integer scalar for each dimension, or (the older form) one array of rank 1.
        """
        x, sizes = self._array(operand), as_integers(size_indices, "size_indices")
        return self._add(DynamicSlice(dynamic_slice_sizes=sizes), [x, *self._starts(start_indices)])

    def dynamic_update_slice(
        self, operand: OperandLike, update: OperandLike, start_indices: Sequence[OperandLike] | XlaOp
    ) -> XlaOp:
        """The operand with `update` written at `start_indices`, which are moved so that it fits."""
        x = self._array(operand)
        return self._add(DynamicUpdateSlice(), [x, self._array(update, x.dtype), *self._starts(start_indices)])

    def _starts(self, given: Sequence[OperandLike] | XlaOp) -> list[XlaOp]:
        """Scalars of one type: constants take that of the starts that are computed."""
        if isinstance(given, (tuple, list)):
            like = next((start.dtype for start in given if isinstance(start, XlaOp)), S32)
            return [self._array(start, like) for start in given]
        vector = self._array(given, S32)
        if vector.rank != 1:
            raise broken_rule(f"start_indices: {vector.shape} is not of rank 1", "start_indices")
        parts = []
        for k in range(vector.shape.dims[0]):
            element = self._add(Slice(slice=(SliceDimension(k, k + 1),)), [vector])
            parts.append(self._add(Reshape(), [element], Shape(vector.dtype)))
        return parts

    def gather(
        self,
        operand: OperandLike,
        start_indices: OperandLike,
        offset_dims: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        slice_sizes: Sequence[int],
        start_index_map: Sequence[int],
        index_vector_dim: int | None = None,
        indices_are_sorted: bool = False,
        *,
        operand_batching_dims: Sequence[int] = (),
        start_indices_batching_dims: Sequence[int] = (),
    ) -> XlaOp:
        """Slices of `slice_sizes` out of the operand, at the starts along index_vector_dim of start_indices.

        index_vector_dim: the last dimension if left out; the rank of start_indices where each element is a start.
        """
        starts = self._array(start_indices, S32)
        op = Gather(
            offset_dims=as_integers(offset_dims, "offset_dims"),
            collapsed_slice_dims=as_integers(collapsed_slice_dims, "collapsed_slice_dims"),
            start_index_map=as_integers(start_index_map, "start_index_map"),
            operand_batching_dims=as_integers(operand_batching_dims, "operand_batching_dims"),
            start_indices_batching_dims=as_integers(start_indices_batching_dims, "start_indices_batching_dims"),
            index_vector_dim=_vector_dim(starts, index_vector_dim),
            slice_sizes=as_integers(slice_sizes, "slice_sizes"),
            indices_are_sorted=as_flag(indices_are_sorted, "indices_are_sorted"),
        )
        return self._add(op, [self._array(operand), starts])

    def scatter(
        self,
        operands: OperandLike | Sequence[OperandLike],
        scatter_indices: OperandLike,
        updates: OperandLike | Sequence[OperandLike],
        update_computation: ComputationLike,
        index_vector_dim: int | None = None,
        update_window_dims: Sequence[int] = (),
        inserted_window_dims: Sequence[int] = (),
        scatter_dims_to_operand_dims: Sequence[int] = (),
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        *,
        input_batching_dims: Sequence[int] = (),
        scatter_indices_batching_dims: Sequence[int] = (),
    ) -> XlaOp:
        """The operands with windows combined with `updates`: update_computation(old.., update..).

        operands, updates: an array each, or as many in two lists; the result of several is a tuple.  An update whose
        window is not wholly inside has no effect.
        """
        indices = self._array(scatter_indices, S32)
        arrays = self._one_or_more(operands)
        changes = self._one_or_more(updates, arrays)
        scalars = [Shape(array.dtype) for array in arrays]
        op = Scatter(
            update_window_dims=as_integers(update_window_dims, "update_window_dims"),
            inserted_window_dims=as_integers(inserted_window_dims, "inserted_window_dims"),
            scatter_dims_to_operand_dims=as_integers(scatter_dims_to_operand_dims, "scatter_dims_to_operand_dims"),
            input_batching_dims=as_integers(input_batching_dims, "input_batching_dims"),
            scatter_indices_batching_dims=as_integers(scatter_indices_batching_dims, "scatter_indices_batching_dims"),
            index_vector_dim=_vector_dim(indices, index_vector_dim),
            indices_are_sorted=as_flag(indices_are_sorted, "indices_are_sorted"),
            unique_indices=as_flag(unique_indices, "unique_indices"),
            to_apply=self._computation(update_computation, [*scalars, *scalars], "update_computation"),
        )
        return self._add(op, [*arrays, indices, *changes])

    def _one_or_more(self, values: Any, like: Sequence[XlaOp] = ()) -> list[XlaOp]:
        """Arrays of a list that holds operands; everything else is one array."""
        several = isinstance(values, (tuple, list)) and (
            isinstance(values, tuple) or len(like) > 1 or any(isinstance(v, XlaOp) for v in values)
        )
        if not several:
            return [self._array(values, like[0].dtype if like else None)]
        if not values or (like and len(values) != len(like)):
            raise broken_rule(f"operands: {len(values)} values where {len(like) or 'at least one'} are due")
        return [self._array(value, like[k].dtype if like else None) for k, value in enumerate(values)]

    def get_dimension_size(self, operand: OperandLike, dimension: int) -> XlaOp:
        """The size of a dimension at run time: s32[]."""
        op = GetDimensionSize(dimensions=(as_integer(dimension, "dimension"),))
        return self._add(op, [self._array(operand)])

    def set_dimension_size(self, operand: OperandLike, size: OperandLike, dimension: int) -> XlaOp:
        """The operand with the run-time size `size` (s32[]) of a dimension; elements beyond are ignored."""
        op = SetDimensionSize(dimensions=(as_integer(dimension, "dimension"),))
        return self._add(op, [self._array(operand), self._array(size, S32)])

    def remove_dynamic_dimension(self, operand: OperandLike, dimension: int) -> XlaOp:
        """The operand with its whole size along a dimension."""
        x, d = self._array(operand), as_integer(dimension, "dimension")
        op = SetDimensionSize(dimensions=(d,))
        if not 0 <= d < x.rank:
            raise broken_rule(f"set-dimension-size.C1: {d} is not a dimension of {x.shape}", "dimension")
        dynamic = tuple(flag and k != d for k, flag in enumerate(x.shape.dynamic))
        return self._add(op, [x, self._array(x.shape.dims[d], S32)], Shape(x.dtype, x.shape.dims, dynamic))

    def dynamic_reshape(self, operand: OperandLike, dim_sizes: Sequence[OperandLike], shape: ShapeLike) -> XlaOp:
        """A reshape to dimension sizes that are known at run time (s32[] each); `shape` holds their bounds,
        `s32[<=4,2]`."""
        sizes = [self._array(size, S32) for size in self._operands(dim_sizes, "dim_sizes")]
        return self._add(DynamicReshape(), [self._array(operand), *sizes], as_shape(shape))


def _vector_dim(indices: XlaOp, given: int | None) -> int:
    return max(indices.rank - 1, 0) if given is None else as_integer(given, "index_vector_dim")
