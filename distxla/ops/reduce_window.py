"""HLO `reduce-window`: combine the elements under every placement of a window."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement, same_positions
from distxla.ir.mixed_precision import Computed, by_reducer
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount
from distxla.ir.shape import Called, Shape
from distxla.ir.window import Window, WindowDimension
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.grid_scan import emit_grid_scan
from distxla.ops.support.reducer import check_inputs, check_reducer, split_inputs
from distxla.ops.support.registry import register
from distxla.ops.support.window_position import array_positions, check_window, emit_position

FEW_PLACES = 16  # of a window: their steps are written out one after the other
TOGETHER = 8  # places of a long window whose steps are written out
WINDOW_BYTES = 16  # of the cache for each window whose results stay in it while place after place is added


@register
class ReduceWindow(ExecutableOp):
    """Combine the elements under every placement of a window.

    Shapes:  N arrays T_i[d0,..] and N initial values T_i[] -> T_i[windows along d0,..]; a tuple of them for N > 1.
    Padding: places outside of the array and holes of the base dilation add nothing to the initial value.
    Order:   compiled, windows that are all prefixes (suffixes) are one scan, each result made of its neighbour's; on a
             grid results are made of parts of their windows.
    Errors:  C1 not as many initial values as arrays; C2 arrays of different dimension sizes; C3 an initial value of
             another type; C4 the window's rank; C5 C7 C9 C11 a size, stride, base or window dilation below 1; C13 the
             computation's signature.
    Source:  StableHLO spec, "reduce_window"; Operation Semantics, "ReduceWindow".
    """

    opcode: ClassVar[str] = "reduce-window"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = OperandCount(least=2)
    window: Window = attribute("window", default=Window())
    to_apply: str = attribute("computation")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        arrays, initial = split_inputs(self, operands, "C1")
        check_inputs(self, arrays, initial, same_dims="C2", same_types="C3")
        dims = check_window(self, self.window, arrays[0], rank="C4", positive=("C5", "C7", "C9", "C11"))
        check_reducer(self, "C13", self.to_apply, called, [a.dtype for a in arrays])
        return Shape.one_or_tuple([a.with_dims(dims) for a in arrays])

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        half = len(operands) // 2
        return by_reducer(called(self.to_apply), shape, operands, lambda k: k % half)

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        return same_positions(operands[: len(operands) // 2])

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """One step for every place in the window, on all windows at once."""
        half = len(operands) // 2
        arrays, initial = operands[:half], operands[half:]
        shapes = run.shape.elements or (run.shape,)
        dims = shapes[0].dims
        results: tuple[Any, ...] = tuple(np.broadcast_to(i, dims) for i in initial)
        for place in np.ndindex(tuple(d.size for d in self.window.dimensions)):
            positions, inside = array_positions(self.window, place, dims, arrays[0].shape)
            if not inside.any():
                continue
            combined = run.map(self.to_apply, *results, *(a[positions] for a in arrays))
            results = tuple(np.where(inside, c, r) for c, r in zip(combined, results))
        return results[0] if half == 1 else results

    def shows_stores(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        """A scan stores each result once; where each waits for its neighbour, to look at them costs more than after."""
        dims = operands[0].dims
        scanned = self._scanned_dimension(dims)
        return scanned is not None and prod(dims[scanned[0] + 1 :]) > 1

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        arrays, initial = operands[: len(results)], operands[len(results) :]
        dims = results[0].shape.dims
        first = tuple(i.load(()) for i in initial)
        if arrays[0].shape.size == 0:
            for result, value in zip(results, first):
                emit.fill(result, value)
            return
        scanned = self._scanned_dimension(arrays[0].shape.dims)
        if scanned is not None:
            self._emit_scan(emit, results, arrays, first, *scanned)
            return
        is_wide = prod(d.size for d in self.window.dimensions) > FEW_PLACES and dims[-1] >= emit.tuning.lanes
        if is_wide and not emit.tuning.on_grid:
            self._emit_swept(emit, results, arrays, first)
            return
        with emit.loops(dims, independent=True) as index:

            def step(place: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
                return self._combined(emit, carried, arrays, place, index, dims)

            values = emit.fold(tuple(d.size for d in self.window.dimensions), first, step)
            for result, value in zip(results, values):
                result.store(index, value)

    def _combined(
        self,
        emit: KernelEmitter,
        values: tuple[Value, ...],
        arrays: Sequence[Buffer],
        place: Index,
        index: Index,
        windows: Sequence[int],
    ) -> tuple[Value, ...]:
        """The values of the window `index` after the element at `place` in it, if there is one."""
        position, inside = emit_position(emit, self.window, place, index, arrays[0].shape.dims, windows)
        combined = emit.apply(self.to_apply, *values, *(a.load(position) for a in arrays))
        return combined if inside is None else tuple(emit.select(inside, c, v) for c, v in zip(combined, values))

    def _emit_swept(
        self, emit: KernelEmitter, results: tuple[Buffer, ...], arrays: Sequence[Buffer], first: tuple[Value, ...]
    ) -> None:
        """Place by place for a range of neighbouring windows, side by side; their results stay in the cache."""
        *outer, last = results[0].shape.dims
        width = min(last, emit.tuning.cached_bytes // WINDOW_BYTES)
        sizes = tuple(d.size for d in self.window.dimensions)
        axis = max(d for d, size in enumerate(sizes) if size > 1)
        left = sizes[axis] - sizes[axis] % TOGETHER

        def sweep(start: Index, width: int) -> None:
            with emit.loops((width,)) as (i,):
                for result, value in zip(results, first):
                    result.store((*start[:-1], start[-1] + i), value)
            # Steps along one dimension of the window are written out together, which saves loads and stores of results.
            for first_place, count, together in ((0, sizes[axis] // TOGETHER, TOGETHER), (left, 1, sizes[axis] - left)):
                if not count or not together:
                    continue
                with emit.loops((*sizes[:axis], count, *sizes[axis + 1 :])) as at, emit.loops((width,)) as (i,):
                    index = (*start[:-1], start[-1] + i)
                    values = tuple(result.load(index) for result in results)
                    for step in range(together):
                        place = (*at[:axis], at[axis] * together + first_place + step, *at[axis + 1 :])
                        values = self._combined(emit, values, arrays, place, index, results[0].shape.dims)
                    for result, value in zip(results, values):
                        result.store(index, value)

        with emit.loops((*outer, last // width)) as block:
            sweep((*block[:-1], block[-1] * width), width)
        if last % width:
            with emit.loops(outer) as block:
                sweep((*block, last - last % width), last % width)

    def _scanned_dimension(self, dims: Sequence[int]) -> tuple[int, bool] | None:
        """(dimension, whether from its end) where the windows are all prefixes or all suffixes of one dimension, as in
        cumulative sums; None for other windows."""
        wide = [d for d, w in enumerate(self.window.dimensions) if w != WindowDimension(size=1)]
        if len(wide) != 1:
            return None
        (axis,) = wide
        window, reach = self.window.dimensions[axis], dims[axis] - 1
        if window.size <= reach:
            return None
        for from_end, (low, high) in enumerate(((window.size - 1, 0), (0, window.size - 1))):
            if window == WindowDimension(size=window.size, padding_low=low, padding_high=high):
                return axis, bool(from_end)
        return None

    def _emit_scan(
        self,
        emit: KernelEmitter,
        results: tuple[Buffer, ...],
        arrays: Sequence[Buffer],
        first: tuple[Value, ...],
        axis: int,
        from_end: bool,
    ) -> None:
        """Each result from the one before: one step an element instead of one for every element of its window.

        From the end this combines in another order than window by window.
        """
        dims = results[0].shape.dims
        outer, dimension_size, inner = dims[:axis], dims[axis], dims[axis + 1 :]

        def at(place: Index, i: IndexLike) -> list[IndexLike]:
            return [*place[:axis], dimension_size - 1 - i if from_end else i, *place[axis:]]

        def combine(carried: Sequence[Value], index: Sequence[IndexLike]) -> tuple[Value, ...]:
            combined = emit.apply(self.to_apply, *carried, *(a.load(index) for a in arrays))
            for result, value in zip(results, combined):
                result.store(index, value)
            return combined

        if emit.tuning.on_grid:

            def take(place: Index, i: IndexLike, values: tuple[Value, ...]) -> None:
                for result, value in zip(results, values):
                    result.store(at(place, i), value)

            emit_grid_scan(
                emit,
                (*outer, *inner),
                dimension_size,
                first,
                lambda place, i: tuple(a.load(at(place, i)) for a in arrays),
                lambda one, other: emit.apply(self.to_apply, *one, *other),
                take,
            )
            return
        if prod(inner) == 1:
            with emit.loops((*outer, *inner), independent=True) as place:
                emit.fold((dimension_size,), first, lambda i, carried: combine(carried, at(place, i[0])))
            return
        # The loop over the inner dimensions is the innermost one: its steps depend on no other.
        with emit.loops((*outer, *inner)) as place:
            combine(first, at(place, 0))
        with emit.loops((*outer, dimension_size - 1, *inner)) as found:
            place = (*found[:axis], *found[axis + 1 :])
            before = at(place, found[axis])
            combine([result.load(before) for result in results], at(place, found[axis] + 1))
