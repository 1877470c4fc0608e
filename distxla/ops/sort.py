"""HLO `sort` and `topk`: order along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from distxla.ir.element_type import PRED, S32, S64, ElementType
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.comparator import SortKey, sort_keys
from distxla.ops.evaluation import Evaluation
from distxla.ops.key_sort import LONGEST_LINE, emit_key_sort, key_words
from distxla.ops.op import Lowering, Op
from distxla.ops.reducer import check_scalar_computation, result_of
from distxla.ops.registry import register
from distxla.ops.run_time_extents import Agreement, same_positions

if TYPE_CHECKING:
    from distxla.ops.emit import Buffer, Index, IndexLike, KernelEmitter, Value


@register
class Sort(Op):
    """Sort arrays together along a dimension by a comparator.

    Shapes:      N arrays T_i[d0,..] -> themselves reordered; a tuple of them for N > 1.
    Comparator:  (a_0, b_0, a_1, b_1, ..) -> pred[]: whether the a's come before the b's.
    Order:       equal elements keep their order, whatever is_stable says. NaNs that FLOAT compares, which are before
                 nothing and after nothing, come last in compiled code where the order is that of keys.
    Errors:      C3 arrays of different extents; C4 not one dimension of them; C5 the comparator's signature.
    Source:      StableHLO spec, "sort"; Operation Semantics, "Sort".
    """

    opcode: ClassVar[str] = "sort"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    min_operands: ClassVar[int] = 1
    dimensions: tuple[int, ...] = attribute("int_list")
    is_stable: bool = attribute("bool", default=False)
    to_apply: str = attribute("computation")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        for operand in operands:
            self.require(operand.is_array, "C3", f"sorts arrays, not {operand}", at="operands")
            self.require(
                operand.dims == operands[0].dims, "C3", f"{operand} and {operands[0]} differ in extents", at="operands"
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
        return result_of([o.without_layout() for o in operands])

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        return same_positions(operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """Runs of doubling length are merged, in all lines at once."""
        if operands[0].size == 0 or operands[0].ndim == 0:
            return operands[0] if len(operands) == 1 else operands
        axis = self.dimensions[0]
        moved = [np.moveaxis(o, axis, -1) for o in operands]
        lines = [m.reshape(-1, m.shape[-1]) for m in moved]
        width = 1
        while width < lines[0].shape[1]:
            places = self._merged_places(run, lines, width)
            merged = [np.empty_like(line) for line in lines]
            for to, line in zip(merged, lines):
                np.put_along_axis(to, places, line, axis=1)
            lines, width = merged, 2 * width
        results = [np.moveaxis(line.reshape(m.shape), -1, axis) for line, m in zip(lines, moved)]
        return results[0] if len(results) == 1 else tuple(results)

    def _merged_places(self, run: Evaluation, lines: Sequence[Any], width: int) -> Any:
        """Where each element goes when neighbouring sorted runs of `width` elements are merged.

        It passes by those elements of the neighbour that come before it, found by halving; of equal elements those of
        the first run come first.
        """
        count, extent = lines[0].shape
        number = np.broadcast_to(np.arange(extent), (count, extent))
        mine = number // width
        in_first = mine % 2 == 0
        neighbour = (mine ^ 1) * width
        low, high = np.minimum(neighbour, extent), np.minimum(neighbour + width, extent)
        while (low < high).any():
            middle = np.minimum((low + high) // 2, extent - 1)
            theirs = [np.take_along_axis(line, middle, axis=1) for line in lines]
            # The first run's elements let pass what precedes them; the second run's, what they don't precede.
            pairs = [(np.where(in_first, t, o), np.where(in_first, o, t)) for o, t in zip(lines, theirs)]
            precedes = run.map(self.to_apply, *(v.ravel() for pair in pairs for v in pair))[0]
            passes = precedes.reshape(count, extent) == in_first
            searching = low < high
            low, high = np.where(searching & passes, middle + 1, low), np.where(searching & ~passes, middle, high)
        passed = low - np.minimum(neighbour, extent)
        return mine // 2 * 2 * width + number % width + passed

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """By keys where the comparator has some, otherwise by merging."""
        dims = operands[0].shape.dims
        if not dims or operands[0].shape.size == 0:
            for result, operand in zip(results, operands):
                emit.copy(result, operand)
            return
        axis = self.dimensions[0]
        keys = sort_keys(emit.computation(self.to_apply))
        if keys is None or dims[axis] >= LONGEST_LINE:
            self._emit_merge_sort(emit, results, operands)
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
        emit_key_sort(emit, dims, axis, words, store)

    def _emit_merge_sort(self, emit: KernelEmitter, results: tuple[Buffer, ...], operands: Sequence[Buffer]) -> None:
        """Each line is copied into scratch, merged there in runs of doubling length, and stored."""
        dims, axis = operands[0].shape.dims, self.dimensions[0]
        extent = dims[axis]
        source, target = ([emit.scratch(Shape(o.shape.dtype, (extent,))) for o in operands] for _ in range(2))
        with emit.loops((*dims[:axis], *dims[axis + 1 :])) as line:

            def place(i: IndexLike) -> list[IndexLike]:
                return [*line[:axis], i, *line[axis:]]

            def before(ours: Sequence[Value], theirs: Sequence[Value]) -> Value:
                return emit.apply(self.to_apply, *(v for pair in zip(ours, theirs) for v in pair))[0]

            with emit.loops((extent,)) as (i,):
                for buffer, operand in zip(source, operands):
                    buffer.store((i,), operand.load(place(i)))
            merged = _emit_sorted(emit, source, target, before)
            with emit.loops((extent,)) as (i,):
                for result, buffer in zip(results, merged):
                    result.store(place(i), buffer.load((i,)))


@register
class TopK(Op):
    """The k largest (or smallest) elements of the last dimension and their indices, best first.

    Floats are compared in their total order; of equal elements that of the lower index comes first.

    Shapes:  T[.., n] -> (T[.., k], s32[.., k]).
    Errors:  C1 a scalar; C2 k is not in 0..n.
    Source:  CHLO "top_k"; Operation Semantics, "TopK".
    """

    opcode: ClassVar[str] = "topk"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    k: int = attribute("int")
    largest: bool = attribute("bool", default=True)
    is_stable: bool = attribute("bool", default=True)  # false leaves the order of equal elements open: it is this one

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
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
        order = np.argsort(_descending(operands[0], run.operand_shapes[0].dtype, self.largest), axis=-1, kind="stable")
        best = order[..., : self.k]
        return np.take_along_axis(operands[0], best, -1), best.astype(np.int32)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """Each line is sorted in scratch together with its indices; where k is small, only its first k elements are,
        and the others that are better than the worst of the best are inserted."""
        (operand,) = operands
        *lines, extent = operand.shape.dims
        element = operand.shape.dtype
        direction = "GT" if self.largest else "LT"
        comparison = "TOTALORDER" if element.is_float else "SIGNED" if element.is_signed else "UNSIGNED"
        sorted_first = self.k if 0 < self.k * 8 <= extent else extent
        source, target = ([emit.scratch(Shape(t, (sorted_first,))) for t in (element, S32)] for _ in range(2))

        def before(ours: Sequence[Value], theirs: Sequence[Value]) -> Value:
            return emit.compare(direction, comparison, ours[0], theirs[0])

        with emit.loops(lines) as line:
            with emit.loops((sorted_first,)) as (i,):
                source[0].store((i,), operand.load((*line, i)))
                source[1].store((i,), emit.value_of(i, S32))
            merged = _emit_sorted(emit, source, target, before)
            with emit.loops((extent - sorted_first,)) as (i,):
                candidate = operand.load((*line, i + sorted_first))
                with emit.when(before([candidate], [merged[0].load((sorted_first - 1,))])):
                    _emit_insert(emit, merged, (candidate, emit.value_of(i + sorted_first, S32)), before)
            with emit.loops((self.k,)) as (i,):
                for result, buffer in zip(results, merged):
                    result.store((*line, i), buffer.load((i,)))


def _descending(array: Any, element: ElementType, largest: bool) -> Any:
    """Integers that ascend where the elements get worse."""
    keys = array
    if element.is_float:
        # The lower bits of negative floats count away from zero.
        bits = np.ascontiguousarray(array).view(f"int{8 * array.dtype.itemsize}")
        if element.bits < 8:
            bits = bits << (8 - element.bits)
        keys = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    elif element.bits <= 8:
        keys = array.astype(np.int16)
    return ~keys if largest else keys


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


Before = Callable[[Sequence[Any], Sequence[Any]], Any]
BOTH_ENDS = 32  # elements of a run from which on merging from both ends pays for its code


def _emit_sorted(
    emit: KernelEmitter, source: Sequence[Buffer], target: Sequence[Buffer], before: Before
) -> Sequence[Buffer]:
    """Sort the lines in `source` together, `target` being room for them; returns which of the two holds the result.

    before: whether the first argument's elements, one of each line, come before the second's.
    """
    extent = source[0].shape.dims[0]
    width = 1
    while width < extent:
        pairs, rest = divmod(extent, 2 * width)
        with emit.loops((pairs,)) as (pair,):
            merge = _emit_merge_from_both_ends if width >= BOTH_ENDS else _emit_merge
            merge(emit, source, target, pair * (2 * width), (width, width), before)
        start = pairs * 2 * width
        if rest > width:
            _emit_merge(emit, source, target, start, (width, rest - width), before)
        elif rest:
            with emit.loops((rest,)) as (i,):
                for to, of in zip(target, source):
                    to.store((i + start,), of.load((i + start,)))
        source, target = target, source
        width *= 2
    return source


def _emit_merge_from_both_ends(
    emit: KernelEmitter,
    source: Sequence[Buffer],
    target: Sequence[Buffer],
    start: IndexLike,
    lengths: tuple[int, int],
    before: Before,
) -> None:
    """Merge two neighbouring sorted runs of equal lengths: the front half from the front, the other from the back.

    Neither half can run out of elements, and the two don't wait for each other. They meet unless the comparator
    contradicts itself: then elements would be lost, and the runs are merged from the front alone.
    """
    width, zero = lengths[0], emit.constant(0, S64)

    def step(index: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        front, back = (emit.index_of(c) for c in carried)
        ours, theirs = (
            [s.load((start + at,)) for s in source] for at in (front, index[0] - front + width)
        )  # fmt: skip
        right = before(theirs, ours)
        for to, our, their in zip(target, ours, theirs):
            to.store((start + index[0],), emit.select(right, their, our))
        # From the back: the first run's elements are taken where the second run's come before them.
        last, end = width - 1 - (index[0] - back), 2 * width - 1
        ours, theirs = ([s.load((start + at,)) for s in source] for at in (last, end - back))
        left = before(theirs, ours)
        for to, our, their in zip(target, ours, theirs):
            to.store((start + end - index[0],), emit.select(left, our, their))
        return (
            emit.value_of(emit.index_select(right, front, front + 1), S64),
            emit.value_of(emit.index_select(left, back, back + 1), S64),
        )

    taken, from_back = emit.fold((width,), (zero, zero), step)
    with emit.when(emit.index_compare("NE", emit.index_of(taken), emit.index_of(from_back))):
        _emit_merge(emit, source, target, start, lengths, before)


def _emit_merge(
    emit: KernelEmitter,
    source: Sequence[Buffer],
    target: Sequence[Buffer],
    start: IndexLike,
    lengths: tuple[int, int],
    before: Before,
) -> None:
    """Merge two neighbouring sorted runs; of equal elements those of the first run come first."""
    first, second = lengths

    def step(index: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        taken = emit.index_of(carried[0])
        left, right = emit.index_clamp(0, taken, first - 1), emit.index_clamp(0, index[0] - taken, second - 1)
        ours = [s.load((start + left,)) for s in source]
        theirs = [s.load((start + first + right,)) for s in source]
        # The second run's element is next where it comes before the first run's, or that run is at its end.
        left_over = emit.index_compare("LT", index[0] - taken, second)
        at_end = emit.index_compare("GE", taken, first)
        next_right = emit.binary("or", at_end, emit.binary("and", left_over, before(theirs, ours)))
        for to, our, their in zip(target, ours, theirs):
            to.store((start + index[0],), emit.select(next_right, their, our))
        return (emit.value_of(emit.index_select(next_right, taken, taken + 1), S64),)

    emit.fold((first + second,), (emit.constant(0, S64),), step)
