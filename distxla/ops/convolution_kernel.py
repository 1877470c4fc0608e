"""Code for `convolution`: windows gathered into a matrix and multiplied, or direct loops for narrow groups.

Vocabulary. A group is one of the feature groups or batch groups (one of the two counts is 1). Rows are the output's
batch and spatial indices; columns an output feature's number within its group; the inner index runs over the kernel's
window and input features. For each group:
output[row, column] = sum over inner of patch[row, inner] * kernel[inner, column].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.ir.window import ConvolutionDimensions, Window
from distxla.ops.strided import accumulation_type, collapsed_stride, convert_to, row_major_strides, store_result
from distxla.ops.window_position import both, emit_axis

if TYPE_CHECKING:
    from distxla.ops.emit import Buffer, IndexLike, KernelEmitter, Value

# Bytes of patches that one matrix product takes: they should stay in the second-level cache next to the kernel.
PATCH_BYTES = 512 * 1024
# Products of an output element's group below which a matrix product's packing costs more than it saves.
NARROW = 16


def emit_convolution(
    emit: KernelEmitter,
    window: Window,
    labels: ConvolutionDimensions,
    group_counts: tuple[int, int],
    result: Buffer,
    lhs: Buffer,
    rhs: Buffer,
) -> None:
    """Fill `result`; group_counts: of features and of batches."""
    if result.shape.size == 0:
        return
    if lhs.shape.size == 0 or rhs.shape.size == 0:
        emit.fill(result, emit.constant(0, result.shape.dtype))
        return
    kernel = _Convolution(emit, window, labels, *group_counts, result, lhs, rhs)
    narrow = kernel.columns * kernel.inputs < NARROW
    if kernel.groups > 1 and narrow:
        kernel.emit_direct()
    else:
        kernel.emit_products()


@dataclass
class _Convolution:
    emit: KernelEmitter
    window: Window
    labels: ConvolutionDimensions
    feature_groups: int
    batch_groups: int
    result: Buffer
    lhs: Buffer
    rhs: Buffer

    def __post_init__(self) -> None:
        rhs, labels = self.rhs.shape.dims, self.labels
        self.groups = max(self.feature_groups, self.batch_groups)
        self.columns = rhs[labels.kernel_output_feature] // self.groups
        self.inputs = rhs[labels.kernel_input_feature]
        self.wide: ElementType = accumulation_type(self.result.shape.dtype)
        self.row_dims = [d for d in range(self.result.shape.rank) if d != labels.output_feature]
        self.inner_dims = [d for d in range(self.rhs.shape.rank) if d != labels.kernel_output_feature]

    # --- where things are ---------------------------------------------------------------------------------------

    def source(
        self, group: IndexLike, row: Mapping[int, IndexLike], inner: Mapping[int, IndexLike]
    ) -> tuple[list[IndexLike], Value | None]:
        """The input element that output row `row` meets at kernel element `inner`, both by dimension number.

        Returns a position that is safe to load, and whether the element counts (None: always).
        """
        emit, labels, lhs, out = self.emit, self.labels, self.lhs.shape.dims, self.result.shape.dims
        position: list[IndexLike] = [0] * len(lhs)
        predicate: Value | None = None
        batch: IndexLike = row[labels.output_batch]
        feature: IndexLike = inner[labels.kernel_input_feature]
        if self.batch_groups > 1:
            batch = group * out[labels.output_batch] + batch
        if self.feature_groups > 1:
            feature = group * self.inputs + feature
        position[labels.input_batch], position[labels.input_feature] = batch, feature
        for number, dimension in enumerate(self.window.dimensions):
            place = inner[labels.kernel_spatial[number]]
            if dimension.reversal:
                place = dimension.size - 1 - place
            axis, along = labels.input_spatial[number], labels.output_spatial[number]
            found, inside = emit_axis(emit, dimension, place, row[along], lhs[axis], out[along])
            position[axis] = found
            predicate = both(emit, predicate, inside)
        return position, predicate

    def kernel_position(self, inner: Mapping[int, IndexLike], output_feature: IndexLike) -> list[IndexLike]:
        position: list[IndexLike] = [0] * self.rhs.shape.rank
        for d, i in inner.items():
            position[d] = i
        position[self.labels.kernel_output_feature] = output_feature
        return position

    # --- as matrix products -------------------------------------------------------------------------------------

    def emit_products(self) -> None:
        """One product a group for every block of rows."""
        emit, out = self.emit, self.result.shape.dims
        inner_extents = [self.rhs.shape.dims[d] for d in self.inner_dims]
        inner = prod(inner_extents)
        kernel, kernel_strides = self._kernel_matrices()
        target, (group_stride, row_stride, column_stride), target_order = self._target()
        outer, block = self._blocks(inner)
        rows = prod(out[d] for d in block)
        patches = emit.scratch(Shape(self.wide, (self.groups, *(out[d] for d in block), *inner_extents)))
        with emit.loops(tuple(out[d] for d in outer)) as outer_index:
            self._emit_patches(patches, dict(zip(outer, outer_index)), block)
            first: IndexLike = 0
            for d, i in zip(outer, outer_index):
                first = first * out[d] + i
            # The view ends with the buffer whatever its start, so its extent is that of one block's last element.
            extent = (self.groups - 1) * group_stride + (rows - 1) * row_stride + (self.columns - 1) * column_stride + 1
            view = target
            if outer:
                view = emit.reshaped(target, Shape(self.wide, (extent,)), first * (rows * row_stride))
            emit.gemm(
                (self.groups, rows, self.columns, inner),
                (patches, rows * inner, inner, 1),
                (kernel, *kernel_strides),
                (view, group_stride, row_stride, column_stride),
            )
        store_result(emit, self.result, target, target_order)

    def _blocks(self, inner: int) -> tuple[list[int], list[int]]:
        """The row dimensions to loop over, and those whose patches are gathered at once."""
        out = self.result.shape.dims
        block = list(self.row_dims)
        outer: list[int] = []

        def size() -> int:
            return self.groups * prod(out[d] for d in block) * inner * self.wide.byte_size

        while len(block) > 1 and size() > PATCH_BYTES:
            outer.append(block.pop(0))
        return outer, block

    def _emit_patches(self, patches: Buffer, outer: Mapping[int, IndexLike], block: Sequence[int]) -> None:
        """patches[group, rows of the block, inner] = the input, or zero where the window hangs over."""
        emit, feature = self.emit, self.labels.kernel_input_feature
        *before, last = self.inner_dims
        # Where input features are the kernel's fastest dimension, one test decides for a run of them.
        runs = last == feature
        looped = before if runs else self.inner_dims
        extents = (
            self.groups,
            *(self.result.shape.dims[d] for d in block),
            *(self.rhs.shape.dims[d] for d in looped),
        )
        with emit.loops(extents) as index:
            row = {**outer, **dict(zip(block, index[1:]))}
            inner: dict[int, IndexLike] = dict(zip(looped, index[1 + len(block) :]))
            if not runs:
                position, inside = self.source(index[0], row, inner)
                patches.store(index, self._masked(position, inside))
                return
            with emit.loops((self.inputs,)) as (i,):
                position, inside = self.source(index[0], row, {**inner, feature: i})
                patches.store((*index, i), self._masked(position, inside))

    def _masked(self, position: Sequence[IndexLike], inside: Value | None) -> Value:
        emit = self.emit
        value = convert_to(emit, self.lhs.load(position), self.wide)
        return value if inside is None else emit.select(inside, value, emit.constant(0, self.wide))

    def _kernel_matrices(self) -> tuple[Buffer, tuple[int, int, int]]:
        """The kernel as [group, inner, column]: in place where its strides allow, otherwise a copy."""
        emit, dims, feature = self.emit, self.rhs.shape.dims, self.labels.kernel_output_feature
        strides = row_major_strides(dims)
        row, column = collapsed_stride(dims, strides, self.inner_dims), strides[feature]
        if self.rhs.shape.dtype is self.wide and row is not None and 1 in (row, column):
            return self.rhs, (column * self.columns, row, column)
        extents = tuple(dims[d] for d in self.inner_dims)
        copy = emit.scratch(Shape(self.wide, (*extents, dims[feature])))
        with emit.loops(copy.shape.dims) as index:
            at = self.kernel_position(dict(zip(self.inner_dims, index)), index[-1])
            copy.store(index, convert_to(emit, self.rhs.load(at), self.wide))
        return copy, (self.columns, dims[feature], 1)

    def _target(self) -> tuple[Buffer, tuple[int, int, int], list[int]]:
        """Where products go: a buffer, its strides of group, row and column, its dimensions as the result's."""
        dims, feature = self.result.shape.dims, self.labels.output_feature
        strides = row_major_strides(dims)
        row, column = collapsed_stride(dims, strides, self.row_dims), strides[feature]
        everything = list(range(len(dims)))
        if self.result.shape.dtype is self.wide and row is not None and 1 in (row, column):
            return self.result, (column * self.columns, row, column), everything
        order = [*self.row_dims, feature]
        scratch = self.emit.scratch(Shape(self.wide, tuple(dims[d] for d in order)))
        return scratch, (self.columns, dims[feature], 1), order

    # --- direct -------------------------------------------------------------------------------------------------

    def emit_direct(self) -> None:
        """A loop nest that adds one product to every output feature at a time, output features innermost."""
        emit, out, feature = self.emit, self.result.shape.dims, self.labels.output_feature
        order = [*self.row_dims, feature]
        target, target_order = self.result, list(range(len(out)))
        if self.result.shape.dtype is not self.wide or order != target_order:
            target, target_order = emit.scratch(Shape(self.wide, tuple(out[d] for d in order))), order
        emit.fill(target, emit.constant(0, self.wide))
        rows, inner_extents = [out[d] for d in self.row_dims], [self.rhs.shape.dims[d] for d in self.inner_dims]
        with emit.loops((*rows, *inner_extents)) as index:
            row_index = index[: len(rows)]
            row = dict(zip(self.row_dims, row_index))
            inner: dict[int, IndexLike] = dict(zip(self.inner_dims, index[len(rows) :]))
            _, inside = self.source(0, row, inner)
            if inside is None:
                self._add_products(target, row_index, row, inner)
            else:
                with emit.when(inside):
                    self._add_products(target, row_index, row, inner)
        store_result(emit, self.result, target, target_order)

    def _add_products(
        self,
        target: Buffer,
        row_index: Sequence[IndexLike],
        row: Mapping[int, IndexLike],
        inner: Mapping[int, IndexLike],
    ) -> None:
        """Add input times kernel to all output features of one row."""
        emit = self.emit
        extents = (self.groups,) if self.columns == 1 else (self.groups, self.columns)
        with emit.loops(extents) as index:
            group = index[0]
            column: IndexLike = group if self.columns == 1 else group * self.columns + index[1]
            position, _ = self.source(group, row, inner)
            seen = convert_to(emit, self.lhs.load(position), self.wide)
            weight = convert_to(emit, self.rhs.load(self.kernel_position(inner, column)), self.wide)
            at = (*row_index, column)
            target.store(at, emit.binary("add", target.load(at), emit.binary("multiply", seen, weight)))
