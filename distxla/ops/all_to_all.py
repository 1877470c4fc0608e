"""HLO `all-to-all`: the i-th member's j-th part becomes the j-th member's i-th part."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.op_traits import OperandCount
from distxla.ir.shape import Shape
from distxla.ops.support.collective import GroupedCollective
from distxla.ops.support.collective_movement import Movement
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.registry import register


@register
class AllToAll(GroupedCollective):
    """The i-th member's j-th part becomes the j-th member's i-th part.

    With `dimensions={d}` the parts are the n equal stretches of one array along d. Without, each part is an operand of
    its own and the result is a tuple of the parts received, in group order.

    Shapes:  array form T[D] -> T[D], D[d] a multiple of the group size n; tuple form n times T[D] -> (T[D], ..).
    Errors:  C1, C2, C5, C7 of the groups and operands.
             C6  array form: not one operand; tuple form: not one operand for each member.
             C8  `dimensions` is not one dimension of the operand.
             C9  that dimension is not a multiple of the group size.
             C10 tuple form: operands of different shapes.
    Source:  XLA Operation Semantics, AllToAll; XLA ShapeInference::InferAllToAllTupleShape.
    """

    opcode = "all-to-all"
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)

    dimensions: tuple[int, ...] = attribute("int_list", default=())

    @property
    def is_tuple_form(self) -> bool:
        return not self.dimensions

    @property
    def dimension(self) -> int:
        """Array form only."""
        return self.dimensions[0]

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        first = operands[0]
        if self.is_tuple_form:
            self.require(len(operands) == size, "C6", f"{len(operands)} operands in groups of {size}", at="operands")
            self.require(
                all(o.compatible(first) for o in operands),
                "C10",
                f"operands of different shapes: {', '.join(map(str, operands))}",
                at="operands",
            )
            return Shape.tuple(tuple(o.without_layout() for o in operands))
        self.require(len(operands) == 1, "C6", f"{len(operands)} operands with dimensions given", at="operands")
        self.require(
            len(self.dimensions) == 1 and 0 <= self.dimension < first.rank,
            "C8",
            f"dimensions={list(self.dimensions)} must be one dimension of {first}",
            at="dimensions",
        )
        self.require(
            first.dims[self.dimension] % size == 0,
            "C9",
            f"dimension {self.dimension} of {first} does not divide into {size} parts",
            at="dimensions",
        )
        return first.without_layout()

    def size_from_result(self, shape: Shape, operands: Sequence[Shape]) -> int | None:
        return len(operands) if self.is_tuple_form else 1

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        first = operands[0]
        if self.is_tuple_form:
            part = Movement(
                operand=0, operand_step=1, result=0, result_step=1, row=first.size, by_source=True, by_target=True
            )
            return (part,)
        row = prod(first.dims[self.dimension :]) // size
        return (
            Movement(
                operand=0,
                result=0,
                rows=prod(first.dims[: self.dimension]),
                row=row,
                by_source=True,
                by_target=True,
                source_stride=row * size,
                source_offset=row,
                target_stride=row * size,
                target_offset=row,
            ),
        )

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        if self.is_tuple_form:
            return [tuple(sent[receiver] for sent in operands) for receiver in range(len(members))]
        parts = [np.split(sent[0], len(members), axis=self.dimension) for sent in operands]
        return [
            np.concatenate([sent[receiver] for sent in parts], axis=self.dimension) for receiver in range(len(members))
        ]
