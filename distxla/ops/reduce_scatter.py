"""HLO `reduce-scatter`: reduce the members' operands, and give each member its part of the result."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.op_traits import OperandCount, RoundRules
from distxla.ir.shape import Shape
from distxla.ops.support.collective import (
    RANK,
    ReducingCollective,
    ratio_along,
    reduce_in_order,
    require_one_dimension,
)
from distxla.ops.support.collective_movement import Movement
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.registry import register


@register
class ReduceScatter(ReducingCollective):
    """Reduce like `all-reduce`, in group order, and give the i-th member the i-th part along a dimension.

    Shapes:  operands T_i[.., n * d, ..] -> T_i[.., d, ..] at dimension `dimensions[0]`, n the group size; a tuple for
             several operands.
    Errors:  C1 to C5, C7 of the groups and operands.
             C6  no operand.
             C8  `to_apply`: as for all-reduce.
             C9  `dimensions` is not one dimension of every operand.
             C10 the dimension is not a multiple of the group size.
             C11 `reduction_order`: as for all-reduce. A ring's chunks are the members' parts.
             C12 `mode` contradicts channel_id and use_global_device_ids.
    Source:  XLA Operation Semantics, ReduceScatter; StableHLO spec, "reduce_scatter".
    """

    opcode = "reduce-scatter"
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    round: ClassVar[RoundRules] = RoundRules(has_groups=True, combines=True)

    dimensions: tuple[int, ...] = attribute("int_list")
    to_apply: str = attribute("computation")
    reduction_order: str = attribute("word", default=RANK)

    @property
    def reduction(self) -> str:
        return self.to_apply

    @property
    def order(self) -> str:
        return self.reduction_order

    @property
    def dimension(self) -> int:
        return self.dimensions[0]

    def check_dimension(self, operands: Sequence[Shape]) -> None:
        require_one_dimension(self, "C9", self.dimensions, operands)

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        self.check_dimension(operands)
        shapes = []
        for operand in operands:
            dims = list(operand.dims)
            self.require(
                dims[self.dimension] % size == 0,
                "C10",
                f"dimension {self.dimension} of {operand} does not divide into {size} parts",
                at="dimensions",
            )
            dims[self.dimension] //= size
            shapes.append(operand.with_dims(tuple(dims)))
        return Shape.one_or_tuple(shapes)

    def size_from_result(self, shape: Shape, operands: Sequence[Shape]) -> int | None:
        self.check_dimension(operands)
        return ratio_along(operands[0], next(shape.leaves(), shape), self.dimension)

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        found = []
        for i, operand in enumerate(operands):
            row = prod(operand.dims[self.dimension :]) // size
            found.append(
                Movement(
                    operand=i,
                    result=i,
                    rows=prod(operand.dims[: self.dimension]),
                    row=row,
                    reduces=True,
                    by_target=True,
                    source_stride=row * size,
                    source_offset=row,
                    target_stride=row,
                )
            )
        return tuple(found)

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        reduced = []
        for arrays in zip(*operands, strict=True):
            dims = arrays[0].shape
            part = max(1, dims[self.dimension] // len(members))
            chunks = np.indices(dims, sparse=True)[self.dimension] // part
            reduced.append(reduce_in_order(run, self.to_apply, arrays, self.order, np.broadcast_to(chunks, dims)))
        parts = [np.split(array, len(members), axis=self.dimension) for array in reduced]
        return [mine[0] if len(mine) == 1 else mine for mine in zip(*parts, strict=True)]
