"""HLO `all-gather` and its asynchronous pair: concatenate the members' operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, RoundRules, StartDone
from distxla.ir.shape import Called, Shape
from distxla.ops.support.collective import GlobalIdsCollective, ratio_along, require_one_dimension, synchronous
from distxla.ops.support.collective_movement import Movement
from distxla.ops.support.collective_start_done import EndOfPair, begin, is_begun
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import register


@register
class AllGather(GlobalIdsCollective):
    """Concatenate the members' operands in group order along a dimension; every member gets all of it.

    Shapes:  operands T_i[.., d, ..] -> T_i[.., n * d, ..] at dimension `dimensions[0]`, n the group size; a tuple for
             several operands. A scalar among them, as torch_xla writes it to order its collectives, stays a scalar:
             that of the group's first member.
    Errors:  C1 to C5, C7 of the groups and operands.
             C6  no operand.
             C8  `dimensions` is not one dimension of every operand that is no scalar, or all are scalars.
    Source:  XLA Operation Semantics, AllGather; StableHLO spec, "all_gather".
    """

    opcode = "all-gather"
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    round: ClassVar[RoundRules] = RoundRules(has_groups=True, same_for_all=True, combines=True)

    dimensions: tuple[int, ...] = attribute("int_list")
    use_global_device_ids: bool = attribute("bool", default=False)

    @property
    def global_ids(self) -> bool:
        return self.use_global_device_ids

    @property
    def dimension(self) -> int:
        return self.dimensions[0]

    def check_dimension(self, operands: Sequence[Shape]) -> None:
        require_one_dimension(self, "C8", self.dimensions, [o for o in operands if o.rank] or operands)

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        self.check_dimension(operands)
        shapes = []
        for operand in operands:
            dims = list(operand.dims)
            if dims:
                dims[self.dimension] *= size
            shapes.append(operand.with_dims(tuple(dims)))
        return Shape.one_or_tuple(shapes)

    def size_from_result(self, shape: Shape, operands: Sequence[Shape]) -> int | None:
        self.check_dimension(operands)
        results = list(shape.leaves())
        pairs = [(result, operand) for result, operand in zip(results, operands) if operand.rank]
        return ratio_along(*pairs[0], self.dimension) if pairs else None

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        found = []
        for i, operand in enumerate(operands):
            if not operand.rank:
                found.append(Movement(operand=i, result=i, row=1))
                continue
            row = prod(operand.dims[self.dimension :])
            found.append(
                Movement(
                    operand=i,
                    result=i,
                    rows=prod(operand.dims[: self.dimension]),
                    row=row,
                    by_source=True,
                    source_stride=row,
                    target_stride=row * size,
                    target_offset=row,
                )
            )
        return tuple(found)

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        results = tuple(
            np.concatenate(arrays, axis=self.dimension) if arrays[0].ndim else arrays[0]
            for arrays in zip(*operands, strict=True)
        )
        return [results[0] if len(results) == 1 else results] * len(members)


@register
class AllGatherStart(AllGather):
    """Begin an all-gather; its one user `all-gather-done` ends it. Other members may enter it between the two.

    Shapes:  operands -> (operands, results of the all-gather); each side is a tuple where there are several operands.
    Errors:  those of `all-gather`.
    Source:  XLA, HloOpcode::kAllGatherStart.
    """

    opcode = "all-gather-start"
    mixes_precision: ClassVar[bool] = False
    start_done: ClassVar[StartDone] = StartDone(starts_pair=True)
    lowering = Lowering.EXPANSION
    round: ClassVar[RoundRules] = RoundRules(has_groups=True, same_for_all=True)

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        gathered = super().result_shape(operands, size)
        return Shape.tuple((Shape.one_or_tuple([o.without_layout() for o in operands]), gathered))

    def size_from_result(self, shape: Shape, operands: Sequence[Shape]) -> int | None:
        if shape.elements is None or len(shape.elements) != 2:
            return None
        return super().size_from_result(shape.elements[1], operands)

    @property
    def round_opcode(self) -> str:
        return AllGather.opcode

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0] if len(operands) == 1 else operands, run.exchange.begin(operands)

    def expand(self, build: Build, instruction: Instruction) -> str:
        sent = instruction.operands
        _, shape = instruction.shape.without_layout().elements or ()
        gathered = begin(build, instruction, synchronous(self, AllGather), shape)
        if is_begun(build, gathered):
            return gathered
        return build.join(sent[0] if len(sent) == 1 else build.join(*sent), gathered)


@register
class AllGatherDone(EndOfPair):
    """The gathered array of the `all-gather-start` that is its operand.

    Shapes:  (A, B) -> B.
    Errors:  C1 the operand is not a pair.
    Source:  XLA, HloOpcode::kAllGatherDone.
    """

    opcode = "all-gather-done"
    start_done: ClassVar[StartDone] = StartDone(completes=("all-gather-start",))
    effects = Effects.COLLECTIVE

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        elements = operands[0].elements or ()
        self.require(len(elements) == 2, "C1", f"the operand is {operands[0]}, not (operand, result)", at="operands")
        return elements[1].without_layout()
