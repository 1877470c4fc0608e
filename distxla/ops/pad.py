"""HLO `pad`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.window import PaddingDimension
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, IndexLike, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Pad(ExecutableOp):
    """pad(x, value): put `value` before, after and between the elements of each dimension; text `low_high_interior`.

    A negative low or high removes elements from the array that has its interior padding.

    Shapes:  T[dims], T[] -> T[low + size + (size - 1) * interior + high, ..], no interior where the size is 0.
    Errors:  C1 the second operand is not a scalar of T.  C2 not one `low_high_interior` a dimension.  C3 interior
             is negative.  C4 a result size below 0.
    """

    opcode = "pad"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(2)
    padding: tuple[PaddingDimension, ...] = attribute("padding", default=())

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, value = operands
        self.require(
            operand.is_array and value.is_array and value.dims == () and value.dtype is operand.dtype,
            "C1",
            f"{value} cannot pad {operand}",
            at="operands",
        )
        self.require(
            len(self.padding) == operand.rank,
            "C2",
            f"padding for {len(self.padding)} dimensions of {operand}",
            at="padding",
        )
        dimension_sizes = []
        for d, (dimension_size, p) in enumerate(zip(operand.dims, self.padding, strict=True)):
            self.require(p.interior >= 0, "C3", f"interior padding {p.interior} of dimension {d}", at="padding")
            dimension_sizes.append(p.low + dimension_size + max(dimension_size - 1, 0) * p.interior + p.high)
            self.require(
                dimension_sizes[d] >= 0,
                "C4",
                f"dimension {d} of the result would be {dimension_sizes[d]}",
                at="padding",
            )
        return Shape(operand.element_type, tuple(dimension_sizes), operand.dynamic)

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        """Negative padding takes away no more than there is."""
        spread = (n + max(n - 1, 0) * p.interior for n, p in zip(actual[0].dims, self.padding, strict=True))
        return shape.with_dims(tuple(max(n + p.low + p.high, 0) for n, p in zip(spread, self.padding, strict=True)))

    def leading_dimensions(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int, ...]:
        same = [p == PaddingDimension(0, 0, 0) for p in self.padding]
        return (same.index(False) if False in same else len(same), 0)

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return all(p == PaddingDimension(0, 0, 0) for p in self.padding)

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        operand, value = operands
        result = np.full(run.shape.dims, value, operand.dtype)
        if result.size == 0:
            return result
        source, target = [], []
        for dimension_size, size, p in zip(operand.shape, run.shape.dims, self.padding, strict=True):
            positions = p.low + np.arange(dimension_size) * (p.interior + 1)
            inside = (positions >= 0) & (positions < size)
            source.append(np.flatnonzero(inside))
            target.append(positions[inside])
        if source:
            result[np.ix_(*target)] = operand[np.ix_(*source)]
            return result
        return np.array(operand)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        operand, value = operands
        # Each test that can fail, as (direction, index, bound), on the plain result index where there is no interior:
        # the generator then splits its loops at the border instead of testing every element.
        tests: list[tuple[str, IndexLike, IndexLike]] = []
        source: list[IndexLike] = []
        for i, dimension_size, size, p in zip(index, operand.shape.dims, shape.dims, self.padding, strict=True):
            spread = dimension_size + max(dimension_size - 1, 0) * p.interior
            if p.low > 0:
                tests.append(("GE", i, p.low))
            if p.low + spread < size:
                tests.append(("LT", i, p.low + spread))
            if p.interior == 0:
                source.append(i - p.low)
                continue
            # // and % need a dividend that is not negative, also for elements whose result is not used.
            step = p.interior + 1
            periods = max(0, -(-p.low // step))
            shifted = i + (periods * step - p.low)
            tests.append(("EQ", shifted % step, 0))
            source.append(shifted // step - periods)

        def element(k: int) -> Value:
            if k == len(tests):
                return operand.load(source)
            return emit.branch(emit.index_compare(*tests[k]), lambda: element(k + 1), lambda: value.load(()))

        return element(0)
