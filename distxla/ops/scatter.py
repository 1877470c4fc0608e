"""HLO `scatter`: combine updates into windows of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement, same_positions
from distxla.ir.mixed_precision import Computed, by_reducer
from distxla.ir.op import Lowering
from distxla.ir.op_traits import InPlaceKernel, OperandCount
from distxla.ir.shape import Called, Shape
from distxla.ops.sorting.grid_scatter import emit_sorted_scatter, is_sorted_on_grid
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.reducer import check_reducer
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import cut, widened


@register
class Scatter(ExecutableOp):
    """Combine updates into windows of arrays; an index array says where the windows start.

    Shapes:  N arrays, one array of integer indices, N arrays of updates -> N arrays like the first ones.
    Order:   updates are applied in row-major order of the scatter dimensions: `to_apply(old..., update...)`.
    Bounds:  an update whose window is not wholly inside the array is dropped.
    Errors:  C1 C3 arrays or updates of different dimension sizes; C2 the number of window dimensions; C4 the updates'
             dimension sizes; C5 the number of operands; C6 types; C7 C8 update_window_dims; C9 C10 C11
             inserted_window_dims; C12 C13 C18 input_batching_dims; C14 C15 C16 C17 scatter_indices_batching_dims; C19
             C20 C21 scatter_dims_to_operand_dims; C22 index_vector_dim; C23 the computation's signature.
    Source:  StableHLO spec, "scatter"; XLA's evaluator for windows that are partly outside.
    """

    opcode: ClassVar[str] = "scatter"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = OperandCount(least=3)
    in_place: ClassVar[InPlaceKernel] = InPlaceKernel(operand=0, writes_only_a_part=True)
    update_window_dims: tuple[int, ...] = attribute("int_list")
    inserted_window_dims: tuple[int, ...] = attribute("int_list")
    scatter_dims_to_operand_dims: tuple[int, ...] = attribute("int_list")
    input_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    scatter_indices_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    index_vector_dim: int = attribute("int")
    indices_are_sorted: bool = attribute("bool", default=False)
    unique_indices: bool = attribute("bool", default=False)
    to_apply: str = attribute("computation")

    # --- shapes -------------------------------------------------------------------------------------------------

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        count = len(operands) // 2
        self.require(len(operands) % 2 == 1, "C5", "needs as many updates as arrays, and the indices", at="operands")
        inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
        for shape in operands:
            self.require(shape.is_array, "C5", f"works on arrays, not {shape}", at="operands")
        self.require(indices.dtype.is_integer, "C5", f"the indices are {indices}", at="operands")
        for shape in inputs:
            self.require(shape.dims == inputs[0].dims, "C1", f"{shape} differs from {inputs[0]}", at="operands")
        for shape in updates:
            self.require(shape.dims == updates[0].dims, "C3", f"{shape} differs from {updates[0]}", at="operands")
        for array, update in zip(inputs, updates):
            self.require(array.dtype is update.dtype, "C6", f"{update} updates {array}", at="operands")
        self._check_window_dims(inputs[0], updates[0])
        self._check_batching_dims(inputs[0], indices)
        self._check_index_dims(inputs[0], indices)
        self._check_update_dims(inputs[0], indices, updates[0])
        check_reducer(self, "C23", self.to_apply, called, [a.dtype for a in inputs])
        return Shape.one_or_tuple([Shape(a.dtype, a.dims, a.dynamic) for a in inputs])

    def _check_window_dims(self, array: Shape, update: Shape) -> None:
        window, inserted = self.update_window_dims, self.inserted_window_dims
        at = "update_window_dims"
        self.require(
            array.rank == len(window) + len(inserted) + len(self.input_batching_dims),
            "C2",
            f"{array} has {array.rank} dimensions; the updates' windows have {len(window)}, inserted are "
            f"{len(inserted)}, batching {len(self.input_batching_dims)}",
            at=at,
        )
        self.require(_strictly_sorted(window), "C7", f"{list(window)} is not sorted without repetition", at=at)
        self.require(_in_range(window, update.rank), "C8", f"{list(window)} for {update}", at=at)
        at = "inserted_window_dims"
        both = inserted + self.input_batching_dims
        self.require(len(set(both)) == len(both), "C9", f"{list(both)} names a dimension twice", at=at)
        self.require(_strictly_sorted(inserted), "C10", f"{list(inserted)} is not sorted", at=at)
        self.require(_in_range(inserted, array.rank), "C11", f"{list(inserted)} for {array}", at=at)

    def _check_batching_dims(self, array: Shape, indices: Shape) -> None:
        batching, of_indices = self.input_batching_dims, self.scatter_indices_batching_dims
        at = "input_batching_dims"
        self.require(_strictly_sorted(batching), "C12", f"{list(batching)} is not sorted", at=at)
        self.require(_in_range(batching, array.rank), "C13", f"{list(batching)} for {array}", at=at)
        at = "scatter_indices_batching_dims"
        self.require(len(set(of_indices)) == len(of_indices), "C14", f"{list(of_indices)} has a dimension twice", at=at)
        self.require(_in_range(of_indices, indices.rank), "C15", f"{list(of_indices)} for {indices}", at=at)
        self.require(self.index_vector_dim not in of_indices, "C16", "contains index_vector_dim", at=at)
        self.require(len(batching) == len(of_indices), "C17", f"{len(of_indices)} of {len(batching)} dimensions", at=at)
        for a, b in zip(batching, of_indices):
            self.require(
                array.dims[a] == indices.dims[b],
                "C18",
                f"dimension {a} of {array} goes with dimension {b} of {indices}",
                at="input_batching_dims",
            )

    def _check_index_dims(self, array: Shape, indices: Shape) -> None:
        mapped, vector = self.scatter_dims_to_operand_dims, self.index_vector_dim
        self.require(
            0 <= vector <= indices.rank, "C22", f"index_vector_dim={vector} for {indices}", at="index_vector_dim"
        )
        at = "scatter_dims_to_operand_dims"
        length = indices.dims[vector] if vector < indices.rank else 1
        self.require(
            len(mapped) == length, "C19", f"{len(mapped)} dimensions for index vectors of length {length}", at=at
        )
        both = mapped + self.input_batching_dims
        self.require(len(set(both)) == len(both), "C20", f"{list(both)} names a dimension twice", at=at)
        self.require(_in_range(mapped, array.rank), "C21", f"{list(mapped)} for {array}", at=at)

    def _check_update_dims(self, array: Shape, indices: Shape, update: Shape) -> None:
        scatter = self._scatter_dims(indices.dims)
        at = "operands"
        self.require(
            update.rank == len(scatter) + len(self.update_window_dims),
            "C4",
            f"{update} has not {len(scatter)} scatter and {len(self.update_window_dims)} window dimensions",
            at=at,
        )
        have = tuple(update.dims[d] for d in range(update.rank) if d not in self.update_window_dims)
        self.require(have == scatter, "C4", f"scatter dimensions of {update} must be {list(scatter)}", at=at)
        for window_dim, array_dim in zip(self.update_window_dims, self._window_array_dims(array.rank)):
            self.require(
                update.dims[window_dim] <= array.dims[array_dim],
                "C4",
                f"dimension {window_dim} of {update} does not fit dimension {array_dim} of {array}",
                at=at,
            )

    def _scatter_dims(self, index_dims: Sequence[int]) -> tuple[int, ...]:
        """Dimension sizes of the index array without the index vectors."""
        return tuple(size for d, size in enumerate(index_dims) if d != self.index_vector_dim)

    def _window_array_dims(self, rank: int) -> tuple[int, ...]:
        """The array's dimension for each of update_window_dims."""
        skipped = {*self.inserted_window_dims, *self.input_batching_dims}
        return tuple(d for d in range(rank) if d not in skipped)

    def _window(self, array_dims: Sequence[int], update_dims: Sequence[int]) -> tuple[int, ...]:
        """Size of an update's window along every dimension of the array."""
        dimension_sizes = [1] * len(array_dims)
        for window_dim, array_dim in zip(self.update_window_dims, self._window_array_dims(len(array_dims))):
            dimension_sizes[array_dim] = update_dims[window_dim]
        return tuple(dimension_sizes)

    def _batching_position(self, array_dim: int) -> int:
        """Which of the scatter dimensions numbers the elements of an input batching dimension."""
        dim = self.scatter_indices_batching_dims[self.input_batching_dims.index(array_dim)]
        return dim - (dim > self.index_vector_dim)

    # --- execution ----------------------------------------------------------------------------------------------

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        count = len(operands) // 2
        number = [*range(count), None, *range(count)]
        return by_reducer(called(self.to_apply), shape, operands, number.__getitem__)

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        return Shape.one_or_tuple(list(actual[: len(actual) // 2]))

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        count = len(operands) // 2
        rank, batch = operands[count].rank, operands[count + 1].rank
        index_dims = [d for d in range(rank) if d != self.index_vector_dim]
        update_dims = [d for d in range(batch) if d not in self.update_window_dims]
        pairs = zip(index_dims, update_dims, strict=True)
        places = (((count, i), *((k, u) for k in range(count + 1, len(operands)))) for i, u in pairs)
        return (*same_positions(operands[:count]), *places)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        count = len(operands) // 2
        # Windows must be within the bounds; elements that they write beyond a run-time size are lost.
        bounds = [s.dims for s in run.operand_shapes]
        results = [np.array(widened(a, bounds[0])) for a in operands[:count]]
        indices, updates = operands[count], operands[count + 1 :]
        dims, rank = results[0].shape, results[0].ndim
        if self.index_vector_dim == indices.ndim:
            indices = indices[..., None]
        vectors = np.moveaxis(indices, self.index_vector_dim, -1)
        scatter_axes = [d for d in range(updates[0].ndim) if d not in self.update_window_dims]
        window, widest = self._window(dims, updates[0].shape), self._window(dims, bounds[-1])
        for place in np.ndindex(vectors.shape[:-1]):
            start = [0] * rank
            for value, array_dim in zip(vectors[place], self.scatter_dims_to_operand_dims):
                start[array_dim] = int(value)
            for array_dim in self.input_batching_dims:
                start[array_dim] = place[self._batching_position(array_dim)]
            if any(not 0 <= s <= size - w for s, w, size in zip(start, widest, dims)):
                continue
            at: list[Any] = [slice(None)] * updates[0].ndim
            for axis, number in zip(scatter_axes, place):
                at[axis] = number
            target = tuple(slice(s, s + w) for s, w in zip(start, window))
            combined = run.map(
                self.to_apply, *(r[target] for r in results), *(u[tuple(at)].reshape(window) for u in updates)
            )
            for result, values in zip(results, combined):
                result[target] = values
        results = [cut(r, a.shape) for r, a in zip(results, operands)]
        return results[0] if count == 1 else tuple(results)

    def shows_stores(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        """Windows of one element are stored one by one: of many of them, to look through the array costs less."""
        update = operands[-1]
        is_scalar = all(update.dims[d] == 1 for d in self.update_window_dims)
        return not (is_scalar and 4 * update.size >= operands[0].size)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        count = len(results)
        indices, updates = operands[count], operands[count + 1 :]
        for result, operand in zip(results, operands):
            emit.copy(result, operand)
        dims, update_dims = results[0].shape.dims, updates[0].shape.dims
        window = self._window(dims, update_dims)
        if any(w > size for w, size in zip(window, dims)):
            return
        scatter_dims = self._scatter_dims(indices.shape.dims)
        array_dims = self._window_array_dims(len(dims))

        def start(place: Index) -> tuple[list[IndexLike], Value | None]:
            """Where the window of an update begins, and whether it is inside; None: it always is."""
            first: list[IndexLike] = [0] * len(dims)
            inside: Value | None = None
            for number, array_dim in enumerate(self.scatter_dims_to_operand_dims):
                at: list[IndexLike] = list(place)
                if self.index_vector_dim < indices.shape.rank:
                    at.insert(self.index_vector_dim, number)
                first[array_dim] = emit.index_of(indices.load(at))
                for direction, bound in (("GE", 0), ("LE", dims[array_dim] - window[array_dim])):
                    holds = emit.index_compare(direction, first[array_dim], bound)
                    inside = holds if inside is None else emit.binary("and", inside, holds)
            for array_dim in self.input_batching_dims:
                first[array_dim] = place[self._batching_position(array_dim)]
            return first, inside

        def updated(place: Index, within: Sequence[IndexLike], old: Sequence[Value]) -> tuple[Value, ...]:
            """An element's new values. within: its place in the window, along update_window_dims."""
            source: list[IndexLike] = list(place)
            for update_dim, w in zip(self.update_window_dims, within):
                source.insert(update_dim, w)
            return emit.apply(self.to_apply, *old, *(u.load(source) for u in updates))

        # Along dimensions that windows cover whole no two places of a window are the same element, whatever the window.
        whole = [d for d, w in enumerate(window) if emit.tuning.on_grid and w == dims[d] and w > 1]
        if is_sorted_on_grid(emit, scatter_dims, dims, window):

            def of_column(place: Index, column: Index, old: Sequence[Value]) -> tuple[Value, ...]:
                along = dict(zip(whole, column))
                return updated(place, [along.get(d, 0) for d in array_dims], old)

            emit_sorted_scatter(emit, results, scatter_dims, whole, start, of_column)
            return
        # Loops over the updates keep their order; those over whole dimensions may be around them.
        spread = emit.loops(tuple(dims[d] for d in whole), independent=True) if whole else nullcontext(())
        with spread as columns, emit.loops(scatter_dims) as place:
            along = dict(zip(whole, columns))
            first, inside = start(place)
            with emit.when(inside) if inside is not None else nullcontext():
                pairs = zip(self.update_window_dims, array_dims, strict=True)
                with emit.loops(tuple(1 if d in along else update_dims[u] for u, d in pairs)) as steps:
                    within = [along.get(d, step) for d, step in zip(array_dims, steps)]
                    element = list(first)
                    for array_dim, w in zip(array_dims, within):
                        element[array_dim] = first[array_dim] + w
                    values = updated(place, within, [r.load(element) for r in results])
                    for result, value in zip(results, values):
                        result.store(element, value)


def _strictly_sorted(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _in_range(numbers: Sequence[int], rank: int) -> bool:
    return all(0 <= n < rank for n in numbers)
