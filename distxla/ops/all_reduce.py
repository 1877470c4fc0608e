"""HLO `all-reduce` and its asynchronous pair: combine the members' operands element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.op_traits import InPlaceKernel, OperandCount, RoundRules, StartDone, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.collective import (
    RANK,
    RING,
    ReducingCollective,
    reduce_in_order,
    ring_chunks,
    synchronous,
)
from distxla.ops.support.collective_movement import Movement
from distxla.ops.support.collective_start_done import begin, end
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import smallest


@register
class AllReduce(ReducingCollective):
    """Combine the members' operands element by element; every member gets the same bits.

    ElementRules are folded in group order, f(..f(f(x0, x1), x2)..), by `to_apply`, which may be any computation of two
    scalars. No identity takes part: the sum of negative zeros is a negative zero (XLA's CPU, which starts from +0,
    gives a positive one), and a group of one member returns its operand unchanged. `reduction_order`, an attribute that
    only distxla knows, asks for another order: `tree` combines neighbours, then those results, `ring` begins the c-th
    of n chunks of ceil(E / n) elements behind member c and goes round.

    Shapes:  operands T_i[D_i] -> T[D] for one operand, (T_0[D_0], ..) for several.
    Errors:  C1 to C5, C7 of the groups and operands; groups may differ in size.
             C6  no operand.
             C8  `to_apply` is not (T[], T[]) -> T[] with the operands' type T.
             C11 `reduction_order` is none of rank, tree, ring.
             C12 `mode` contradicts channel_id and use_global_device_ids.
    Source:  XLA Operation Semantics, AllReduce and CrossReplicaSum; StableHLO spec, "all_reduce".
    """

    opcode = "all-reduce"
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    uniform_groups: ClassVar[bool] = False
    in_place: ClassVar[InPlaceKernel] = InPlaceKernel(operand=0)
    round: ClassVar[RoundRules] = RoundRules(has_groups=True, same_for_all=True, combines=True)

    to_apply: str = attribute("computation")
    reduction_order: str = attribute("word", default=RANK)

    @property
    def reduction(self) -> str:
        return self.to_apply

    @property
    def order(self) -> str:
        return self.reduction_order

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        return Shape.one_or_tuple([operand.without_layout() for operand in operands])

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        return tuple(
            Movement(operand=i, result=i, row=operand.size, reduces=True) for i, operand in enumerate(operands)
        )

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        # Members whose dimension sizes differ at run time agree on the smallest.
        results = []
        for shape, given in zip(run.operand_shapes, zip(*operands, strict=True), strict=True):
            arrays = smallest(given)
            chunks = ring_chunks(shape.dims, arrays[0].shape, len(members)) if self.order == RING else None
            results.append(reduce_in_order(run, self.to_apply, arrays, self.order, chunks))
        return [results[0] if len(results) == 1 else tuple(results)] * len(members)


@register
class AllReduceStart(AllReduce):
    """Begin an all-reduce; its one user `all-reduce-done` ends it. Other members may enter it between the two.

    The result is already shaped like the all-reduce's.

    Shapes and errors: those of `all-reduce`.
    Source:  XLA, HloOpcode::kAllReduceStart.
    """

    opcode = "all-reduce-start"
    start_done: ClassVar[StartDone] = StartDone(starts_pair=True)
    lowering = Lowering.EXPANSION
    in_place: ClassVar[InPlaceKernel] = InPlaceKernel()
    round: ClassVar[RoundRules] = RoundRules(has_groups=True, same_for_all=True)

    @property
    def round_opcode(self) -> str:
        return AllReduce.opcode

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.exchange.begin(operands)

    def expand(self, build: Build, instruction: Instruction) -> str:
        return begin(build, instruction, synchronous(self, AllReduce), instruction.shape)


@register
class AllReduceDone(ExecutableOp):
    """The result of the `all-reduce-start` that is its operand.

    Shapes:  T -> T, any shape or tuple.
    Source:  XLA, HloOpcode::kAllReduceDone.
    """

    opcode = "all-reduce-done"
    mixes_precision: ClassVar[bool] = False
    start_done: ClassVar[StartDone] = StartDone(completes=("all-reduce-start",))
    lowering = Lowering.EXPANSION
    effects = Effects.COLLECTIVE
    operand_count: ClassVar[OperandCount] = exactly(1)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return operands[0].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.exchange.finish(operands[0])

    def expand(self, build: Build, instruction: Instruction) -> str:
        return end(build, instruction) or instruction.operands[0]
