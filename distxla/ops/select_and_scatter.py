"""HLO `select-and-scatter`: combine every source element into the element that its window selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import PRED, S64
from distxla.ir.mixed_precision import Computed, in_type_of
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.window import Window
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.reducer import check_scalar_computation
from distxla.ops.support.registry import register
from distxla.ops.support.window_position import array_positions, check_window, emit_position


@register
class SelectAndScatter(ExecutableOp):
    """Combine every source element into the operand's element which its window selected.

    Shapes:   operand T[d0,..], source T[windows along d0,..], initial value T[] -> T[d0,..].
    Select:   goes through a window's elements in row-major order; where `select(chosen, element)` is false, the element
              becomes the chosen one. Places outside of the operand take no part.
    Scatter:  a result element starts as the initial value; source elements are combined in row-major order.
    Errors:   C1 source and C3 initial value of another type; C2 the source's dimension sizes; C4 the window's rank; C5
              C7 a size or stride below 1; C9 C10 the signatures of select and scatter.
    Source:   StableHLO spec, "select_and_scatter"; Operation Semantics, "SelectAndScatter".
    """

    opcode: ClassVar[str] = "select-and-scatter"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(3)
    window: Window = attribute("window", default=Window())
    select: str = attribute("computation")
    scatter: str = attribute("computation")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, source, initial = operands
        for shape in operands:
            self.require(shape.is_array, "C1", f"works on arrays, not {shape}", at="operands")
        self.require(operand.dtype is source.dtype, "C1", f"{operand} and {source} differ in type", at="operands")
        dims = check_window(self, self.window, operand, rank="C4", positive=("C5", "C7", "dilation", "dilation"))
        self.require(source.dims == dims, "C2", f"the source is {source}, the windows are {list(dims)}", at="operands")
        self.require(
            initial.rank == 0 and initial.dtype is operand.dtype,
            "C3",
            f"the initial value of {operand} is {initial}, not {operand.dtype}[]",
            at="operands",
        )
        element = operand.dtype
        check_scalar_computation(self, "C9", self.select, called, [element] * 2, [PRED], at="select")
        check_scalar_computation(self, "C10", self.scatter, called, [element] * 2, [element], at="scatter")
        return Shape(element, operand.dims, operand.dynamic)

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        return in_type_of(called(self.scatter).result, shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """Two sweeps over the places in the window, each on all windows at once."""
        operand, source, initial = operands
        places = list(np.ndindex(tuple(d.size for d in self.window.dimensions)))
        chosen = np.full(source.shape, -1)
        value = np.zeros(source.shape, operand.dtype)
        for number, place in enumerate(places):
            positions, inside = array_positions(self.window, place, source.shape, operand.shape)
            if not inside.any():
                continue
            candidate = np.broadcast_to(operand[positions], source.shape)
            keeps = run.map(self.select, value, candidate)[0] & (chosen >= 0)
            takes = inside & ~keeps
            chosen, value = np.where(takes, number, chosen), np.where(takes, candidate, value)
        result = np.full(operand.shape, initial)
        for number, place in enumerate(places):
            # Two windows never choose the same element at the same place, so no update is lost.
            windows = chosen == number
            if not windows.any():
                continue
            positions, _ = array_positions(self.window, place, source.shape, operand.shape)
            targets = tuple(np.broadcast_to(p, source.shape)[windows] for p in positions) or windows
            result[targets] = run.map(self.scatter, result[targets], source[windows])[0]
        return result

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        operand, source, initial = operands
        if operand.shape.size and emit.tuning.on_grid:
            self._emit_gathered(emit, results[0], operand, source, initial)
            return
        emit.fill(results[0], initial.load(()))
        if operand.shape.size == 0:
            return
        flat = emit.reshaped(results[0], Shape(operand.shape.dtype, (operand.shape.size,)))
        with emit.loops(source.shape.dims) as index:
            at, found = self._selected(emit, operand, source.shape.dims, index)
            with emit.when(found):
                target = (emit.index_of(at),)
                flat.store(target, emit.apply(self.scatter, flat.load(target), source.load(index))[0])

    def _selected(
        self, emit: KernelEmitter, operand: Buffer, windows: Sequence[int], index: Index
    ) -> tuple[Value, Value]:
        """The number of the element that the window `index` selects, and whether there is any."""
        dims = operand.shape.dims
        never, always = emit.constant(False, PRED), emit.constant(True, PRED)
        first = (emit.constant(0, operand.shape.dtype), emit.constant(0, S64), never)

        def step(place: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
            chosen, at, found = carried
            position, inside = emit_position(emit, self.window, place, index, dims, windows)
            candidate = operand.load(position)
            keeps = emit.binary("and", found, emit.apply(self.select, chosen, candidate)[0])
            takes = emit.unary("not", keeps)
            if inside is not None:
                takes = emit.binary("and", takes, inside)
            return (
                emit.select(takes, candidate, chosen),
                emit.select(takes, emit.value_of(_linear(position, dims), S64), at),
                emit.binary("or", found, always if inside is None else inside),
            )

        _, at, found = emit.fold(tuple(d.size for d in self.window.dimensions), first, step)
        return at, found

    def _emit_gathered(
        self, emit: KernelEmitter, result: Buffer, operand: Buffer, source: Buffer, initial: Buffer
    ) -> None:
        """All selections first; then each element takes the values of windows that have selected it, in their order."""
        dims, windows = operand.shape.dims, source.shape.dims
        selections = emit.scratch(Shape(S64, windows))
        with emit.loops(windows, independent=True) as index:
            at, found = self._selected(emit, operand, windows, index)
            selections.store(index, emit.select(found, at, emit.constant(-1, S64)))
        # at most so many windows have an element, along each dimension; the first of them depends on the element
        reach = [min(n, -(-d.dilated_size // d.stride)) for d, n in zip(self.window.dimensions, windows)]
        with emit.loops(dims, independent=True) as index:
            own = emit.value_of(_linear(index, dims), S64)
            firsts: list[IndexLike] = []
            for i, d, size, n, most in zip(index, self.window.dimensions, dims, windows, reach):
                # from the last window that begins at or before the element
                farthest = max(0, (size - 1) * d.base_dilation + d.padding_low)
                last = emit.index_clamp(0, i * d.base_dilation + d.padding_low, farthest) // d.stride
                firsts.append(emit.index_clamp(0, last - (most - 1), n - most))

            def step(place: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
                window = [first + p for first, p in zip(firsts, place)]
                is_own = emit.compare("EQ", "SIGNED", selections.load(window), own)
                return (emit.select(is_own, emit.apply(self.scatter, carried[0], source.load(window))[0], carried[0]),)

            (total,) = emit.fold(tuple(reach), (initial.load(()),), step)
            result.store(index, total)


def _linear(position: Sequence[IndexLike], dims: Sequence[int]) -> IndexLike:
    """The row-major number of an element."""
    number: IndexLike = 0
    for p, dimension_size in zip(position, dims):
        number = number * dimension_size + p
    return number
