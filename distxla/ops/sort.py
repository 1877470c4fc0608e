"""HLO `sort` and `topk`: order along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.computation import Computation
from distxla.ir.dynamic_shape import Agreement, same_positions
from distxla.ir.element_type import PRED, S32, ElementType
from distxla.ir.mixed_precision import Computed, float_types, narrowest, with_float
from distxla.ir.op import Lowering
from distxla.ir.op_traits import ElementRules, OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.sorting.comparator import SortKey, sort_keys
from distxla.ops.sorting.grid_sort import emit_grid_key_sort, emit_grid_merge_sort
from distxla.ops.sorting.key_sort import LONGEST_LINE, emit_key_sort, key_words
from distxla.ops.sorting.merge_sort import Before, emit_merge_sort, merge_sorted
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.reducer import check_scalar_computation
from distxla.ops.support.registry import register
from distxla.ops.support.total_order import total_order_key


@register
class Sort(ExecutableOp):
    """Sort arrays together along a dimension by a comparator.

    Shapes:      N arrays T_i[d0,..] -> themselves reordered; a tuple of them for N > 1.
    Comparator:  (a_0, b_0, a_1, b_1, ..) -> pred[]: whether the a's come before the b's.
    Order:       equal elements keep their order, whatever is_stable says. NaNs that FLOAT compares, which are before
                 nothing and after nothing, come last where the order is that of keys (ops/sorting/comparator.py). Of
                 any other comparator that contradicts itself the result is some permutation, the same in both
                 executors.
    Errors:      C3 arrays of different dimension sizes; C4 not one dimension of them; C5 the comparator's signature.
    Precision:   a comparator may take wider floats, which hold all that is sorted.
    Source:      StableHLO spec, "sort"; Operation Semantics, "Sort"; XLA, ShapeVerifier::HandleSort.
    """

    opcode: ClassVar[str] = "sort"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    elements: ClassVar[ElementRules] = ElementRules(only_moves=True)
    dimensions: tuple[int, ...] = attribute("int_list")
    is_stable: bool = attribute("bool", default=False)
    to_apply: str = attribute("computation")
    # The comparator of the program's text has no keys, whatever came of it (compiler/passes/sorts_as_written.py).
    has_no_keys: bool = False

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        for operand in operands:
            self.require(operand.is_array, "C3", f"sorts arrays, not {operand}", at="operands")
            self.require(
                operand.dims == operands[0].dims,
                "C3",
                f"{operand} and {operands[0]} differ in dimension sizes",
                at="operands",
            )
        rank = operands[0].rank
        self.require(
            len(self.dimensions) == 1 and 0 <= self.dimensions[0] < max(rank, 1),
            "C4",
            f"dimensions={list(self.dimensions)} is not one of the {rank} dimensions",
            at="dimensions",
        )
        pairs = [t for operand in operands for t in (operand.dtype, operand.dtype)]
        check_scalar_computation(self, "C5", self.to_apply, called, pairs, [PRED])
        return Shape.one_or_tuple([o.without_layout() for o in operands])

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        """In the comparator's types. A narrower one would have to be given other values than those that are sorted."""
        taken = called(self.to_apply).parameters[::2]
        if len(taken) != len(operands) or not all(o.is_array and p.is_array for o, p in zip(operands, taken)):
            return None
        wide = [with_float(o, p.dtype) if p.dtype.is_float else o for o, p in zip(operands, taken)]
        if any(narrowest(float_types(pair)) is not pair[1].dtype for pair in zip(operands, wide) if float_types(pair)):
            return None
        return Computed(tuple(wide), Shape.one_or_tuple([w.without_layout() for w in wide]))

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        return same_positions(operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """By keys or by merging, whichever compiled code does, where that makes a difference."""
        if operands[0].size == 0 or operands[0].ndim == 0:
            return operands[0] if len(operands) == 1 else operands
        axis = self.dimensions[0]
        moved = [np.moveaxis(o, axis, -1) for o in operands]
        lines = [m.reshape(-1, m.shape[-1]) for m in moved]
        bound = run.operand_shapes[0].dims[axis]
        keys = self._keys(run.computation(self.to_apply), bound)
        if keys is not None and _may_meet_nans(keys):
            places = self._places_by_keys(run, keys, lines)
        else:
            places = self._places_by_merging(run, lines, bound)
        sorted_lines = [np.take_along_axis(line, places, axis=1) for line in lines]
        results = [np.moveaxis(line.reshape(m.shape), -1, axis) for line, m in zip(sorted_lines, moved)]
        return results[0] if len(results) == 1 else tuple(results)

    def _keys(self, comparator: Computation, dimension_size: int) -> tuple[SortKey, ...] | None:
        """The keys by which lines of `size` elements are sorted; None where they are merged."""
        keys = None if dimension_size >= LONGEST_LINE else sort_keys(comparator)
        return None if keys is not None and self.has_no_keys and _may_meet_nans(keys) else keys

    def _places_by_keys(self, run: Evaluation, keys: Sequence[SortKey], lines: Sequence[Any]) -> Any:
        count, dimension_size = lines[0].shape
        order = np.broadcast_to(np.arange(dimension_size), (count, dimension_size))
        both = [element.ravel() for line in lines for element in (line, line)]
        for key in reversed(keys):
            values = run.map(self.to_apply, *both, result=key.value)[0].reshape(count, dimension_size)
            element = run.computation(self.to_apply)[key.value].shape.dtype
            ranks = _ascending(values, element, key.comparison, largest_first=key.descending)
            order = np.take_along_axis(
                order, np.argsort(np.take_along_axis(ranks, order, axis=1), axis=1, kind="stable"), axis=1
            )
        return order

    def _places_by_merging(self, run: Evaluation, lines: Sequence[Any], bound: int) -> Any:
        """bound: elements of a line in compiled code; the padding of a dynamic dimension is behind the others."""
        count, dimension_size = lines[0].shape

        def before(rows: Any, ours: Any, theirs: Any) -> Any:
            there = [np.minimum(places, dimension_size - 1) for places in (ours, theirs)]
            found = run.map(self.to_apply, *(line[rows, places] for line in lines for places in there))[0]
            return np.where((ours < dimension_size) == (theirs < dimension_size), found, ours < dimension_size)

        return merge_sorted(count, bound, before)[:, :dimension_size]

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """By keys where the comparator has some, otherwise by merging."""
        dims = operands[0].shape.dims
        if not dims or operands[0].shape.size == 0:
            for result, operand in zip(results, operands):
                emit.copy(result, operand)
            return
        axis = self.dimensions[0]
        keys = self._keys(emit.computation(self.to_apply), dims[axis])
        if keys is None:
            self._emit_merging(emit, results, operands)
            return

        def key(of: SortKey) -> Callable[[Index], Value]:
            def value(index: Index) -> Value:
                elements = [o.load(index) for o in operands]
                both = [e for element in elements for e in (element, element)]
                return emit.apply(self.to_apply, *both, result=of.value)[0]

            return value

        def store(target: Index, source: Index) -> None:
            for result, operand in zip(results, operands):
                result.store(target, operand.load(source))

        kinds = emit.computation(self.to_apply)
        words = [
            word
            for k in keys
            for word in key_words(emit, key(k), kinds[k.value].shape.dtype, k.comparison, k.descending)
        ]
        sort_lines = emit_grid_key_sort if emit.tuning.on_grid else emit_key_sort
        sort_lines(emit, dims, axis, words, store)

    def _emit_merging(self, emit: KernelEmitter, results: tuple[Buffer, ...], operands: Sequence[Buffer]) -> None:
        """Each line is copied into scratch, merged there in runs of doubling length, and stored."""
        dims, axis = operands[0].shape.dims, self.dimensions[0]

        def before(ours: Sequence[Value], theirs: Sequence[Value]) -> Value:
            return emit.apply(self.to_apply, *(v for pair in zip(ours, theirs) for v in pair))[0]

        if emit.tuning.on_grid:
            emit_grid_merge_sort(emit, axis, results, operands, before)
            return
        dimension_size = dims[axis]
        source, target = ([emit.scratch(Shape(o.shape.dtype, (dimension_size,))) for o in operands] for _ in range(2))
        with emit.loops((*dims[:axis], *dims[axis + 1 :])) as line:

            def place(i: IndexLike) -> list[IndexLike]:
                return [*line[:axis], i, *line[axis:]]

            with emit.loops((dimension_size,)) as (i,):
                for buffer, operand in zip(source, operands):
                    buffer.store((i,), operand.load(place(i)))
            merged = emit_merge_sort(emit, source, target, before)
            with emit.loops((dimension_size,)) as (i,):
                for result, buffer in zip(results, merged):
                    result.store(place(i), buffer.load((i,)))


@register
class TopK(ExecutableOp):
    """The k largest (or smallest) elements of the last dimension and their indices, best first.

    Floats are compared in their total order; of equal elements that of the lower index comes first.

    Shapes:  T[.., n] -> (T[.., k], s32[.., k]).
    Errors:  C1 a scalar; C2 k is not in 0..n.
    Source:  CHLO "top_k"; Operation Semantics, "TopK".
    """

    opcode: ClassVar[str] = "topk"
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(1)
    k: int = attribute("int")
    largest: bool = attribute("bool", default=True)
    is_stable: bool = attribute("bool", default=True)  # false leaves the order of equal elements open: it is this one

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand = operands[0]
        self.require(
            operand.is_array and operand.rank >= 1, "C1", f"works on lines of arrays, not {operand}", at="operands"
        )
        self.require(0 <= self.k <= operand.dims[-1], "C2", f"k={self.k} of {operand.dims[-1]}", at="k")
        dims = (*operand.dims[:-1], self.k)
        return Shape.tuple((operand.with_dims(dims), Shape(S32, dims)))

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        if operands[0].dtype.is_complex:
            return f"{operands[0].dtype} has no order"
        return super().obstacle(shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        element = run.operand_shapes[0].dtype
        ranks = _ascending(operands[0], element, "TOTALORDER", largest_first=self.largest)
        order = np.argsort(ranks, axis=-1, kind="stable")
        best = order[..., : self.k]
        return np.take_along_axis(operands[0], best, -1), best.astype(np.int32)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """Each line is sorted in scratch together with its indices; where k is small, only its first k elements are,
        and the others that are better than the worst of the best are inserted."""
        (operand,) = operands
        *lines, dimension_size = operand.shape.dims
        element = operand.shape.dtype
        direction = "GT" if self.largest else "LT"
        comparison = "TOTALORDER" if element.is_float else "SIGNED" if element.is_signed else "UNSIGNED"
        if emit.tuning.on_grid:
            self._emit_by_many_threads(emit, results, operand, comparison)
            return
        sorted_first = self.k if 0 < self.k * 8 <= dimension_size else dimension_size
        source, target = ([emit.scratch(Shape(t, (sorted_first,))) for t in (element, S32)] for _ in range(2))

        def before(ours: Sequence[Value], theirs: Sequence[Value]) -> Value:
            return emit.compare(direction, comparison, ours[0], theirs[0])

        with emit.loops(lines) as line:
            with emit.loops((sorted_first,)) as (i,):
                source[0].store((i,), operand.load((*line, i)))
                source[1].store((i,), emit.value_of(i, S32))
            merged = emit_merge_sort(emit, source, target, before)
            with emit.loops((dimension_size - sorted_first,)) as (i,):
                candidate = operand.load((*line, i + sorted_first))
                with emit.when(before([candidate], [merged[0].load((sorted_first - 1,))])):
                    _emit_insert(emit, merged, (candidate, emit.value_of(i + sorted_first, S32)), before)
            with emit.loops((self.k,)) as (i,):
                for result, buffer in zip(results, merged):
                    result.store((*line, i), buffer.load((i,)))

    def _emit_by_many_threads(
        self, emit: KernelEmitter, results: tuple[Buffer, ...], operand: Buffer, comparison: str
    ) -> None:
        """By keys, as `sort`."""
        if not results[0].shape.size:
            return

        def store(target: Index, source: Index) -> None:
            results[0].store(target, operand.load(source))
            results[1].store(target, emit.value_of(source[-1], S32))

        words = key_words(emit, operand.load, operand.shape.dtype, comparison, self.largest)
        emit_grid_key_sort(emit, operand.shape.dims, operand.shape.rank - 1, words, store, self.k)


def _may_meet_nans(keys: Sequence[SortKey]) -> bool:
    """Whether sorting by the keys and merging may give different orders: the comparator is none where a key is NaN."""
    return any(key.comparison == "FLOAT" for key in keys)


def _ascending(array: Any, element: ElementType, comparison: str, *, largest_first: bool) -> Any:
    """Numbers whose ascending order is that of the elements. comparison: as of `compare`; FLOAT puts NaNs last."""
    if comparison == "FLOAT":
        wide = array.astype(np.float64)
        return -wide if largest_first else wide
    keys = array
    if element.is_float:
        keys = total_order_key(np.ascontiguousarray(array), element)
    elif element.bits <= 8:
        keys = array.astype(np.int16)
    return ~keys if largest_first else keys


def _emit_insert(emit: KernelEmitter, lines: Sequence[Buffer], values: tuple[Value, ...], before: Before) -> None:
    """Put an element behind those that it doesn't come before; the last one drops out."""

    def step(place: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        moved, found = carried[:-1], carried[-1]
        present = tuple(line.load(place) for line in lines)
        found = emit.binary("or", found, before(moved, present))
        for line, ours, theirs in zip(lines, moved, present):
            line.store(place, emit.select(found, ours, theirs))
        return (*(emit.select(found, theirs, ours) for ours, theirs in zip(moved, present)), found)

    emit.fold(lines[0].shape.dims, (*values, emit.constant(False, PRED)), step)
