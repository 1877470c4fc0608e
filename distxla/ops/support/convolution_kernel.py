"""Code for `convolution`: products of runs of the input with the kernel, or direct loops for narrow groups.

Vocabulary. A group is one of the feature groups or batch groups (one of the two counts is 1). Rows are the output's
batch and spatial indices; columns an output feature's number within its group. The inner index runs over the kernel's
window and input features: places of the window, and at each of them a run of elements that are adjacent in the
input and that are there together or not at all. For each group:
output[row, column] = sum over place and step of input[start(row, place) + step] * kernel[place, step, column].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.ir.window import ConvolutionDimensions, Window
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, RunProducts, Value
from distxla.ops.support.matrix_views import (
    Matrices,
    accumulation_type,
    as_matrices,
    collapsed_stride,
    convert_to,
    emit_products,
    row_major_strides,
    store_result,
)
from distxla.ops.support.window_position import both, emit_axis

# Products of an output element's group below which runs are too short to pay for the code around them.
NARROW = 16
# Elements of a run below which the input is copied with its padding, so that nothing is to be tested.
SHORT_RUN = 32
# Limit of the size of a padded copy of the input, as a multiple of the bytes that the instruction reads and writes.
COPY_FACTOR = 8


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
    narrow = kernel.groups > 1 and kernel.columns * kernel.inputs < NARROW
    if kernel.is_matrix_product():
        kernel.emit_matrix_product()
    elif emit.tuning.on_grid and kernel.groups == 1:
        kernel.emit_products_in_place()
    elif emit.tuning.on_grid:
        kernel.emit_gathered()
    elif kernel.wide.is_complex or narrow or kernel.copy_is_too_long():
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

    # --- as one matrix product ------------------------------------------------------------------------------------

    def is_matrix_product(self) -> bool:
        """Whether every output element meets one place of the input only, with all its features."""
        trivial = all(
            (d.size, d.stride, d.padding_low, d.padding_high, d.base_dilation) == (1, 1, 0, 0, 1)
            for d in self.window.dimensions
        )
        return trivial and self.groups == 1

    def emit_matrix_product(self) -> None:
        """One product for all rows, or one for every batch index where features come before positions."""
        emit, labels, out = self.emit, self.labels, self.result.shape.dims
        dims = dict(zip(labels.output_spatial, labels.input_spatial)) | {labels.output_batch: labels.input_batch}
        apart = labels.output_feature != len(out) - 1 and labels.output_batch == 0
        batch, rows = (self.row_dims[:1], self.row_dims[1:]) if apart else ([], self.row_dims)
        a = as_matrices(
            emit, self.lhs, ([dims[d] for d in batch], [dims[d] for d in rows], [labels.input_feature]), self.wide
        )
        b = as_matrices(emit, self.rhs, ([], [labels.kernel_input_feature], [labels.kernel_output_feature]), self.wide)
        strides = row_major_strides(out)
        row = collapsed_stride(out, strides, rows)
        steps = [strides[d] for d in batch]
        column = strides[labels.output_feature]
        target, order = self.result, list(range(len(out)))
        if self.result.shape.dtype is not self.wide or row is None or 1 not in (row, column):
            order = [*batch, *rows, labels.output_feature]
            target = emit.scratch(Shape(self.wide, tuple(out[d] for d in order)))
            row, column = self.columns, 1
            steps = [self.columns * prod(out[d] for d in rows)] * len(batch)
        emit_products(
            emit,
            [out[d] for d in batch],
            (prod(out[d] for d in rows), self.columns, self.inputs),
            (a, Matrices(b.buffer, (0,) * len(batch), b.row, b.column), Matrices(target, tuple(steps), row, column)),
        )
        store_result(emit, self.result, target, order)

    # --- as products of runs --------------------------------------------------------------------------------------

    def is_tested(self, number: int) -> bool:
        """Whether windows hang over the input along spatial dimension `number`, or skip some of its elements."""
        d = self.window.dimensions[number]
        dimension_size = self.lhs.shape.dims[self.labels.input_spatial[number]]
        last = self._covered(number) - 1 - d.padding_low
        return d.padding_low > 0 or last >= dimension_size or d.base_dilation > 1

    def _covered(self, number: int) -> int:
        """Positions from the first one under a window to the last one, along spatial dimension `number`."""
        windows, d = self.result.shape.dims[self.labels.output_spatial[number]], self.window.dimensions[number]
        return (windows - 1) * d.stride + d.dilated_size

    def needs_copy(self) -> bool:
        """Whether runs of the input can't be used as they are."""
        lhs, feature = self.lhs.shape, self.labels.input_feature
        numbers = range(self.window.rank)
        tested = any(self.is_tested(n) for n in numbers)
        return (
            lhs.dtype is not self.wide
            or (row_major_strides(lhs.dims)[feature] != 1 and lhs.dims[feature] > 1)
            or any(d.base_dilation > 1 for d in self.window.dimensions)
            or (tested and self.inputs < SHORT_RUN)
        )

    def _copy_dims(self) -> tuple[int, ...]:
        """Batch, positions that windows cover, features."""
        lhs, labels = self.lhs.shape.dims, self.labels
        covered = (self._covered(n) for n in range(self.window.rank))
        return (lhs[labels.input_batch], *covered, lhs[labels.input_feature])

    def copy_is_too_long(self) -> bool:
        usual = self.lhs.shape.size + self.rhs.shape.size + self.result.shape.size
        return self.needs_copy() and prod(self._copy_dims()) > COPY_FACTOR * usual

    def _padded_input(self) -> Buffer:
        """The input as [batch, covered positions, features], with its padding and dilation, in the wide type."""
        emit, lhs, labels = self.emit, self.lhs.shape.dims, self.labels
        dims = self._copy_dims()
        copy = emit.scratch(Shape(self.wide, dims))
        firsts, dimension_sizes = [0], [dims[0]]
        for number, d in enumerate(self.window.dimensions):
            dimension_size = lhs[labels.input_spatial[number]]
            first = max(0, -(d.padding_low // d.base_dilation))
            end = min(dimension_size, (dims[1 + number] - 1 - d.padding_low) // d.base_dilation + 1)
            firsts.append(first)
            dimension_sizes.append(max(0, end - first))
        dimension_sizes.append(dims[-1])
        if tuple(dimension_sizes) != dims:
            emit.fill(copy, emit.constant(0, self.wide))
        if 0 in dimension_sizes:
            return copy
        with emit.loops(dimension_sizes, parallel=True) as index:
            at: list[IndexLike] = [0] * len(lhs)
            to: list[IndexLike] = [index[0], *index[1:-1], index[-1]]
            at[labels.input_batch], at[labels.input_feature] = index[0], index[-1]
            for number, d in enumerate(self.window.dimensions):
                position = index[1 + number] + firsts[1 + number]
                at[labels.input_spatial[number]] = position
                to[1 + number] = position * d.base_dilation + d.padding_low
            copy.store(to, convert_to(emit, self.lhs.load(at), self.wide))
        return copy

    def emit_products(self) -> None:
        """Products of runs of the input, or of a padded copy of it, for one group after the other."""
        emit, labels, out = self.emit, self.labels, self.result.shape.dims
        copied = self.needs_copy()
        array = self._padded_input() if copied else self.lhs
        tested = not copied and any(self.is_tested(n) for n in range(self.window.rank))
        window, run_dims = self._split_window(array, copied, tested)
        sizes = [d.size for d in self.window.dimensions]
        target, order = self._target()
        features = out[labels.output_feature]
        rows = [out[d] for d in self.row_dims]
        with emit.loops((self.groups,)) as (group,):

            def source(row: IndexLike, place: IndexLike) -> tuple[IndexLike, Value | None]:
                index = dict(zip(self.row_dims, _taken_apart(row, rows)))
                places = dict(zip(window, _taken_apart(place, [sizes[n] for n in window])))
                if copied:
                    return self._position_in_copy(array, group, index, places), None
                at, inside = self.source(group, index, self._inner(places))
                return _linear(array.shape.dims, at), inside

            def weight(place: IndexLike, step: IndexLike, column: IndexLike) -> Value:
                found = dict(zip(window, _taken_apart(place, [sizes[n] for n in window])))
                *along, feature = _taken_apart(step, [*(sizes[n] for n in run_dims), self.inputs])
                inner = self._inner(found | dict(zip(run_dims, along))) | {labels.kernel_input_feature: feature}
                at = self.kernel_position(inner, group * self.columns + column)
                return convert_to(emit, self.rhs.load(at), self.wide)

            emit.run_products(
                RunProducts(
                    rows=prod(rows),
                    columns=self.columns,
                    places=prod(sizes[n] for n in window),
                    run=prod(sizes[n] for n in run_dims) * self.inputs,
                    lhs=array,
                    weights=self.wide,
                    source=source,
                    weight=weight,
                    weights_in_place=self._weights_in_place(group),
                    result=target,
                    target=lambda row: row * features + group * self.columns,
                )
            )
        store_result(emit, self.result, target, order)

    def emit_products_in_place(self) -> None:
        """Products of single input elements, or of runs of features, with no copy of the input; there is one group."""
        emit, labels, out = self.emit, self.labels, self.result.shape.dims
        feature, features = labels.kernel_input_feature, self.inputs
        has_runs = row_major_strides(self.lhs.shape.dims)[labels.input_feature] == 1
        inner = [d for d in self.inner_dims if not (has_runs and d == feature)]
        inner_sizes = [self.rhs.shape.dims[d] for d in inner]
        target, order = self._target()
        rows = [out[d] for d in self.row_dims]

        def element(place: IndexLike, step: IndexLike) -> dict[int, IndexLike]:
            return dict(zip(inner, _taken_apart(place, inner_sizes))) | ({feature: step} if has_runs else {})

        def source(row: IndexLike, place: IndexLike) -> tuple[IndexLike, Value | None]:
            position, inside = self.source(0, dict(zip(self.row_dims, _taken_apart(row, rows))), element(place, 0))
            return _linear(self.lhs.shape.dims, position), inside

        def weight(place: IndexLike, step: IndexLike, column: IndexLike) -> Value:
            return self.rhs.load(self.kernel_position(element(place, step), column))

        emit.run_products(
            RunProducts(
                rows=prod(rows),
                columns=self.columns,
                places=prod(inner_sizes),
                run=features if has_runs else 1,
                lhs=self.lhs,
                weights=self.rhs.shape.dtype,
                source=source,
                weight=weight,
                weights_in_place=None,
                result=target,
                target=lambda row: row * self.columns,
            )
        )
        store_result(emit, self.result, target, order)

    def _split_window(self, array: Buffer, copied: bool, tested: bool) -> tuple[list[int], list[int]]:
        """The window's dimensions that places run over, and the last ones, which are part of a run."""
        window = list(range(self.window.rank))
        run_dims: list[int] = []
        if tested:
            return window, run_dims
        run, strides = self.inputs, row_major_strides(array.shape.dims)
        while window:
            number = window[-1]
            d = self.window.dimensions[number]
            axis = 1 + number if copied else self.labels.input_spatial[number]
            if d.size > 1 and d.window_dilation * strides[axis] != run:
                break
            run *= d.size
            run_dims.insert(0, window.pop())
        return window, run_dims

    def _inner(self, places: Mapping[int, IndexLike]) -> dict[int, IndexLike]:
        """The kernel's element at a position in the window, given by window dimensions; its first input feature."""
        inner: dict[int, IndexLike] = {self.labels.kernel_input_feature: 0}
        for number, d in enumerate(self.window.dimensions):
            place = places.get(number, 0)
            inner[self.labels.kernel_spatial[number]] = d.size - 1 - place if d.reversal else place
        return inner

    def _position_in_copy(
        self, array: Buffer, group: IndexLike, row: Mapping[int, IndexLike], places: Mapping[int, IndexLike]
    ) -> IndexLike:
        labels = self.labels
        batch, feature = row[labels.output_batch], group * self.inputs if self.feature_groups > 1 else 0
        if self.batch_groups > 1:
            batch = group * self.result.shape.dims[labels.output_batch] + batch
        along = [
            row[labels.output_spatial[number]] * d.stride + places.get(number, 0) * d.window_dilation
            for number, d in enumerate(self.window.dimensions)
        ]
        return _linear(array.shape.dims, [batch, *along, feature])

    def _weights_in_place(self, group: IndexLike) -> tuple[Buffer, IndexLike, int] | None:
        dims, labels = self.rhs.shape.dims, self.labels
        inner = [*labels.kernel_spatial, labels.kernel_input_feature]
        row = collapsed_stride(dims, row_major_strides(dims), inner)
        last = labels.kernel_output_feature == len(dims) - 1
        reversed_ = any(d.reversal and d.size > 1 for d in self.window.dimensions)
        if self.rhs.shape.dtype is not self.wide or row is None or not last or reversed_:
            return None
        return self.rhs, group * self.columns, dims[-1]

    def _target(self) -> tuple[Buffer, list[int]]:
        """Where products go, features last: the result or scratch; its dimensions as the result's."""
        dims, feature = self.result.shape.dims, self.labels.output_feature
        order = [*self.row_dims, feature]
        if self.result.shape.dtype is self.wide and feature == len(dims) - 1:
            return self.result, order
        return self.emit.scratch(Shape(self.wide, tuple(dims[d] for d in order))), order

    # --- element by element ---------------------------------------------------------------------------------------

    def emit_gathered(self) -> None:
        """Each output element by itself, from all its products."""
        emit, out, feature = self.emit, self.result.shape.dims, self.labels.output_feature
        inner_sizes = tuple(self.rhs.shape.dims[d] for d in self.inner_dims)
        zero = emit.constant(0, self.wide)
        with emit.loops(out, independent=True) as index:
            row = {d: index[d] for d in self.row_dims}
            group = index[feature] // self.columns

            def step(place: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
                inner = dict(zip(self.inner_dims, place))
                position, inside = self.source(group, row, inner)
                seen = convert_to(emit, self.lhs.load(position), self.wide)
                weight = convert_to(emit, self.rhs.load(self.kernel_position(inner, index[feature])), self.wide)
                total = emit.binary("add", carried[0], emit.binary("multiply", seen, weight))
                return (total if inside is None else emit.select(inside, total, carried[0]),)

            (total,) = emit.fold(inner_sizes, (zero,), step)
            self.result.store(index, convert_to(emit, total, self.result.shape.dtype))

    # --- direct -------------------------------------------------------------------------------------------------

    def emit_direct(self) -> None:
        """A loop nest that adds one product to every output feature at a time, output features innermost."""
        emit, out, feature = self.emit, self.result.shape.dims, self.labels.output_feature
        order = [*self.row_dims, feature]
        target, target_order = self.result, list(range(len(out)))
        if self.result.shape.dtype is not self.wide or order != target_order:
            target, target_order = emit.scratch(Shape(self.wide, tuple(out[d] for d in order))), order
        emit.fill(target, emit.constant(0, self.wide))
        rows, inner_sizes = [out[d] for d in self.row_dims], [self.rhs.shape.dims[d] for d in self.inner_dims]
        with emit.loops((*rows, *inner_sizes)) as index:
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
        dimension_sizes = (self.groups,) if self.columns == 1 else (self.groups, self.columns)
        with emit.loops(dimension_sizes) as index:
            group = index[0]
            column: IndexLike = group if self.columns == 1 else group * self.columns + index[1]
            position, _ = self.source(group, row, inner)
            seen = convert_to(emit, self.lhs.load(position), self.wide)
            weight = convert_to(emit, self.rhs.load(self.kernel_position(inner, column)), self.wide)
            at = (*row_index, column)
            target.store(at, emit.binary("add", target.load(at), emit.binary("multiply", seen, weight)))


def _taken_apart(position: IndexLike, dimension_sizes: Sequence[int]) -> list[IndexLike]:
    """A row-major position as one index a dimension."""
    index: list[IndexLike] = []
    for dimension_size in reversed(dimension_sizes[1:]):
        index.append(position % dimension_size)
        position = position // dimension_size
    return [position, *reversed(index)] if dimension_sizes else []


def _linear(dims: Sequence[int], index: Sequence[IndexLike]) -> IndexLike:
    """The row-major position of an index."""
    position: IndexLike = 0
    for dimension_size, i in zip(dims, index, strict=True):
        position = position * dimension_size + i
    return position
