"""HLO `collective-permute` and its asynchronous pair: every source sends its operands to its target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.counts import Counts
from distxla.ir.effects import Effects
from distxla.ir.element_type import U32
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, RoundRules, StartDone
from distxla.ir.replica_groups import GroupMode
from distxla.ir.shape import Called, Shape
from distxla.ops.support.collective import synchronous
from distxla.ops.support.collective_start_done import EndOfPair, begin, is_begun
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import nothing_received
from distxla.ops.support.sliced_permute import check_slices, exchanged, expand_slices


@lru_cache(maxsize=16)
def _joined(pairs: tuple[tuple[int, int], ...], size: int) -> tuple[tuple[int, ...], ...]:
    """The ids below `size` that pairs join, directly or through others, ascending.

    Asked for several times in a row.
    """
    above = list(range(size))  # an id of the same component, nearer to the one that represents it

    def standing(i: int) -> int:
        while above[i] != i:
            above[i] = above[above[i]]
            i = above[i]
        return i

    for source, target in pairs:
        one, other = standing(source), standing(target)
        above[max(one, other)] = min(one, other)
    members: dict[int, list[int]] = {}
    for i in range(size):
        members.setdefault(standing(i), []).append(i)
    return tuple(map(tuple, members.values()))


@register
class CollectivePermute(CollectiveOp):
    """Each pair (source, target) sends the source's operands to the target; a device that is no target gets zeros.

    Ids are replicas within one partition, or with a `channel_id` partitions within one replica. The form with
    `slice_sizes` copies slices of operand 0 into operand 1 of the target and leaves the rest of that as it is: operands
    (input, output, input indices, output indices), arrays or tuples of arrays, each index a tuple of scalars or a tuple
    of such tuples, one for each slice. Where an id is in several pairs, equal stretches of the pairs carry the
    slices, one each.

    Shapes:  operands T_i[D_i] -> T[D] for one operand, (T_0[D_0], ..) for several; with slice_sizes: the output's.
    Errors:  C1  an id is the source of two pairs, the target of two pairs, or negative.
             C2  an id is not below the number of replicas (of partitions, with a channel_id).
             C3  no operand, or slice_sizes without four operands.
             C4  an operand that is no array (without slice_sizes).
             C6  with slice_sizes: input and output are no arrays, or tuples of as many, of equal types and ranks.
             C7  indices that are not as many integer scalars as slices and dimensions ask for.
             C8  slice_sizes that do not fit into input and output, or not equally many for each array.
    Source:  XLA Operation Semantics, CollectivePermute; XLA ShapeInference::InferCollectivePermuteShape.
    """

    opcode = "collective-permute"
    round: ClassVar[RoundRules] = RoundRules(combines=True)
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)

    channel_id: int | None = attribute("int", default=None)
    source_target_pairs: tuple[tuple[int, int], ...] = attribute("pairs")
    slice_sizes: tuple[tuple[int, ...], ...] = attribute("int_list_list", default=())

    def __post_init__(self) -> None:
        """The slicing form is made of slices, a permute of them, and updates."""
        if self.slice_sizes:
            object.__setattr__(self, "lowering", Lowering.EXPANSION)

    @property
    def channel(self) -> int | None:
        return self.channel_id

    @property
    def is_sliced(self) -> bool:
        return bool(self.slice_sizes)

    @property
    def group_mode(self) -> GroupMode:
        return GroupMode.CROSS_REPLICA if self.channel_id is None else GroupMode.CROSS_PARTITION

    def device_groups(self, counts: Counts) -> tuple[tuple[int, ...], ...]:
        """Devices that are joined by pairs, directly or through others, in ascending order; others are alone."""
        replicas, partitions = counts.replicas, counts.partitions
        self.check_pairs()
        size = replicas if self.channel_id is None else partitions
        components = self._components(size)
        if self.channel_id is None:
            return tuple(tuple(r * partitions + p for r in ids) for p in range(partitions) for ids in components)
        return tuple(tuple(r * partitions + p for p in ids) for r in range(replicas) for ids in components)

    def device_pairs(self, counts: Counts) -> tuple[tuple[int, int], ...]:
        """(source, target) as flattened device ids, for all replicas and partitions."""
        partitions = counts.partitions
        self.device_groups(counts)
        if self.channel_id is None:
            return tuple(
                (s * partitions + p, t * partitions + p) for p in range(partitions) for s, t in self.source_target_pairs
            )
        return tuple(
            (r * partitions + s, r * partitions + t)
            for r in range(counts.replicas)
            for s, t in self.source_target_pairs
        )

    def check_pairs(self) -> None:
        """C1; of the slicing form as much as can be said without its operands."""
        for side, name in ((0, "source"), (1, "target")):
            ids = [pair[side] for pair in self.source_target_pairs]
            if min(ids, default=0) < 0 or not (self.slice_sizes or len(set(ids)) == len(ids)):
                text = f"a {name} is negative or in two pairs: {ids}"
                self.require(False, "C1", text, at="source_target_pairs")

    def _components(self, size: int) -> tuple[tuple[int, ...], ...]:
        for source, target in self.source_target_pairs:
            if source >= size or target >= size:
                text = f"pair {{{source},{target}}} names an id beyond {size - 1} ({self.group_mode.value} pairs)"
                self.require(False, "C2", text, at="source_target_pairs")
        return _joined(self.source_target_pairs, size)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        self.check_pairs()
        if self.slice_sizes:
            check_slices(self, operands)
            return operands[1].without_layout()
        self.require(operands, "C3", "no operand", at="operands")
        for i, operand in enumerate(operands):
            self.require(operand.is_array, "C4", f"operand {i} is {operand}, not an array", at="operands")
        return Shape.one_or_tuple([operand.without_layout() for operand in operands])

    def _whole(self, pairs: tuple[tuple[int, int], ...]) -> CollectivePermute:
        return CollectivePermute(channel_id=self.channel_id, source_target_pairs=pairs)

    def expand(self, build: Build, instruction: Instruction) -> str:
        return expand_slices(self, build, instruction, self._whole)

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        mine = run.replica if self.channel_id is None else run.partition
        size = 1 + max([mine, *(i for pair in self.source_target_pairs for i in pair)])
        ids = next(component for component in self._components(size) if mine in component)
        if self.slice_sizes:
            return exchanged(self, ids, operands, run.operand_shapes)
        sources = {target: source for source, target in self.source_target_pairs}
        results = []
        for target in ids:
            sent = operands[ids.index(sources[target])] if target in sources else None
            received = sent or tuple(map(nothing_received, operands[0], run.operand_shapes))
            results.append(received[0] if len(received) == 1 else tuple(received))
        return results


@register
class CollectivePermuteStart(CollectivePermute):
    """Begin a collective-permute; its one user `collective-permute-done` ends it. Others may enter it between the two.

    Shapes:  operands -> (operands, results) or (operands, results, u32[], u32[]); each side is a tuple where there are
             several operands. With slice_sizes the four operands give (input, output, u32[], u32[]) or without the
             two, and the permute is carried out at once.
    Errors:  those of `collective-permute`.
             C5  the result is not such a tuple.
    Source:  XLA, HloOpcode::kCollectivePermuteStart.
    """

    opcode = "collective-permute-start"
    round: ClassVar[RoundRules] = RoundRules()
    mixes_precision: ClassVar[bool] = False
    start_done: ClassVar[StartDone] = StartDone(starts_pair=True)
    lowering = Lowering.EXPANSION

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        sent = operands[:1] if self.slice_sizes else operands
        result = super().infer_shape(operands, called)
        return Shape.tuple((Shape.one_or_tuple([o.without_layout() for o in sent]), result))

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        inferred = self.infer_shape(operands, called).elements or ()
        stated = shape.elements or ()
        self.require(
            len(stated) in (2, 4) and all(str(context) == "u32[]" for context in stated[2:]),
            "C5",
            f"the result is (operands, results) or (operands, results, u32[], u32[]), the text says {shape}",
            at="shape",
        )
        for mine, theirs in zip(inferred, stated[:2], strict=True):
            self.require(mine.compatible(theirs), "C5", f"expected {mine}, the text says {theirs}", at="shape")

    @property
    def round_opcode(self) -> str:
        return CollectivePermute.opcode

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        context = (run.shape.elements or ())[2:]
        sent = operands[0] if len(operands) == 1 or self.slice_sizes else operands
        received = run.exchange.begin(operands)
        if self.slice_sizes:
            run.exchange.finish(received)
        return sent, received, *(np.zeros((), np.uint32) for _ in context)

    def expand(self, build: Build, instruction: Instruction) -> str:
        sent = instruction.operands
        _, shape, *context = instruction.shape.without_layout().elements or ()
        received = begin(build, instruction, synchronous(self, CollectivePermute), shape)
        if is_begun(build, received):
            return received
        source = sent[0] if len(sent) == 1 or self.slice_sizes else build.join(*sent)
        return build.join(source, received, *(build.constant(0, U32) for _ in context))


@register
class CollectivePermuteDone(EndOfPair):
    """The values received by the `collective-permute-start` that is its operand.

    Shapes:  (A, B) or (A, B, u32[], u32[]) -> B.
    Errors:  C1 the operand is not such a tuple.
    Source:  XLA, HloOpcode::kCollectivePermuteDone.
    """

    opcode = "collective-permute-done"
    start_done: ClassVar[StartDone] = StartDone(completes=("collective-permute-start",))
    effects = Effects.COLLECTIVE

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        elements = operands[0].elements or ()
        self.require(
            len(elements) in (2, 4), "C1", f"the operand is {operands[0]}, not (operands, results, ..)", at="operands"
        )
        return elements[1].without_layout()
