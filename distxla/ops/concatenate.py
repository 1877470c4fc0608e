"""HLO `concatenate`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement, same_positions
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount
from distxla.ir.shape import UNBOUNDED, Called, Shape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, IndexLike, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Concatenate(ExecutableOp):
    """Join the operands along the one dimension in `dimensions`, in order.

    Shapes:  T[.., n0, ..], T[.., n1, ..], .. -> T[.., n0 + n1 + .., ..]; any T.
    Errors:  C1 element types differ.  C2 other dimension sizes differ.  C4 `dimensions` is not one dimension of the
             operands.
    """

    opcode = "concatenate"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    dimensions: tuple[int, ...] = attribute("int_list")

    @property
    def dimension(self) -> int:
        return self.dimensions[0]

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        first = operands[0]
        self.require(
            first.is_array and len(self.dimensions) == 1 and 0 <= self.dimension < first.rank,
            "C4",
            f"dimensions={list(self.dimensions)} is not one dimension of {first}",
            at="dimensions",
        )
        d = self.dimension
        for other in operands[1:]:
            self.require(other.element_type is first.element_type, "C1", f"{first} and {other}", at="operands")
            self.require(
                other.rank == first.rank
                and other.dims[:d] == first.dims[:d]
                and other.dims[d + 1 :] == first.dims[d + 1 :],
                "C2",
                f"{first} and {other} differ in more than dimension {d}",
                at="operands",
            )
        dimension_sizes = [operand.dims[d] for operand in operands]
        size = UNBOUNDED if UNBOUNDED in dimension_sizes else sum(dimension_sizes)
        flags = [operand.dynamic or (False,) * first.rank for operand in operands]
        dynamic = tuple(any(flag) for flag in zip(*flags, strict=True))
        return Shape(first.element_type, (*first.dims[:d], size, *first.dims[d + 1 :]), dynamic)

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        return tuple(group for d, group in enumerate(same_positions(operands)) if d != self.dimension)

    def leading_dimensions(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int, ...]:
        return (self.dimension,) * len(operands)

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return len(operands) == 1

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        return np.concatenate(operands, self.dimension)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        d = self.dimension
        parts = [operand for operand in operands if operand.shape.dims[d]] or list(operands[:1])
        limits = list(accumulate(part.shape.dims[d] for part in parts))

        def element(k: int) -> Value:
            def load() -> Value:
                source: list[IndexLike] = list(index)
                source[d] = index[d] - (limits[k - 1] if k else 0)
                return parts[k].load(source)

            if k == len(parts) - 1:
                return load()
            return emit.branch(emit.index_compare("LT", index[d], limits[k]), load, lambda: element(k + 1))

        return element(0)
