"""How many replicas and partitions the text of programs implies, for headers that don't say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from distxla.collectives.channels import is_end, read_end
from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.mixed_precision import float_types, in_one_type
from distxla.ir.module import Module
from distxla.ir.op import RuleViolation
from distxla.ir.replica_groups import GroupMode
from distxla.ir.shape import Shape
from distxla.ir.sharding import Sharding
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.support.collective import GroupedCollective
from distxla.ops.support.executable import CollectiveOp


def implied_counts(
    modules: Iterable[Module], replicas: int | None = None, partitions: int | None = None
) -> tuple[int, int] | None:
    """The counts with the fewest devices for which every group, pair and sharding of the modules is possible.

    replicas, partitions: counts that are known already.  Where only flattened device ids say how many there are,
    partitions are meant. None where nothing implies a count, or no counts suit everything.
    """
    needs = _Needs()
    for module in modules:
        for computation in module.computations:
            for instruction in computation:
                needs.add(computation, instruction)
    if not (needs.checked or needs.pairs or needs.partitions):
        return None
    some = {replicas} if replicas else {1, *needs.replicas}
    other = {partitions} if partitions else {1, *needs.partitions}
    for devices in needs.devices:
        some |= set() if replicas else {devices // p for p in other if devices % p == 0}
        other |= set() if partitions else {devices // r for r in some if devices % r == 0}
    for r, p in sorted(product(some, other), key=lambda counts: (counts[0] * counts[1], counts)):
        if needs.fit(Counts(r, p)):
            return r, p
    return None


@dataclass
class _Needs:
    """Counts worth a try, and the conditions that the right ones fulfil.

    checked: one collective for each combination of class, groups and shapes, with its shapes.  pairs: (channel, the
    number of ids that a transfer's pairs name).  least_partitions: by the device ids of shardings.
    """

    replicas: set[int] = field(default_factory=set)
    partitions: set[int] = field(default_factory=set)
    devices: set[int] = field(default_factory=set)
    checked: dict[object, tuple[CollectiveOp, Shape, tuple[Shape, ...]]] = field(default_factory=dict)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    least_partitions: int = 1

    def add(self, computation: Computation, instruction: Instruction) -> None:
        op = instruction.op
        if instruction.sharding is not None:
            self.least_partitions = max(self.least_partitions, _ids(instruction.sharding))
            self.partitions.add(self.least_partitions)
        if isinstance(op, CollectivePermute):
            self._ids(op.group_mode, (i for pair in op.source_target_pairs for i in pair))
        elif isinstance(op, GroupedCollective):
            self._ids(op.group_mode, op.replica_groups.ids)
            self._size(op, instruction.shape, tuple(o.shape for o in computation.operands(instruction)))
        elif is_end(instruction):
            self._transfer(instruction)
            return
        if isinstance(op, CollectiveOp):
            shapes = tuple(o.shape for o in computation.operands(instruction))
            shape = instruction.shape
            if len(float_types((shape, *shapes))) > 1:  # which are converted; here only sizes are compared
                found = in_one_type(shape, shapes)
                shape, shapes = found.shape, found.operands
            self.checked.setdefault((op, shape, shapes), (op, shape, shapes))

    def _ids(self, mode: GroupMode, ids: Iterable[int]) -> None:
        count = max(ids, default=0) + 1
        if mode is GroupMode.FLATTENED_ID:
            self.devices.add(count)
        elif mode is GroupMode.CROSS_PARTITION:
            self.partitions.add(count)
        else:
            self.replicas.add(count)

    def _size(self, op: GroupedCollective, shape: Shape, operands: Sequence[Shape]) -> None:
        """A group's size that the result's shape tells, where the groups don't."""
        try:
            size = op.size_from_result(shape, operands) or 1
        except RuleViolation:
            return
        if op.group_mode is GroupMode.CROSS_REPLICA_AND_PARTITION:
            sizes = {len(group) for group in op.replica_groups.groups} or {1}
            self.partitions |= {size // listed for listed in sizes if listed and size % listed == 0}
            self.devices.add(size)
        elif op.replica_groups.is_empty:
            (self.partitions if op.group_mode is GroupMode.CROSS_PARTITION else self.replicas).add(size)

    def _transfer(self, instruction: Instruction) -> None:
        try:
            end = read_end(instruction)
        except VerificationError:
            return
        count = max((i for pair in end.pairs or () for i in pair), default=0) + 1
        (self.partitions if end.channel else self.replicas).add(count)
        if end.pairs:
            self.pairs.add((end.channel, count))

    def fit(self, counts: Counts) -> bool:
        if counts.partitions < self.least_partitions:
            return False
        if any(count > _named(channel, counts) for channel, count in self.pairs):
            return False
        try:
            for op, shape, operands in self.checked.values():
                sizes = {len(group) for group in op.device_groups(counts)}
                for size in sizes:
                    op.check_size(shape, operands, size)
        except RuleViolation:
            return False
        return True


def _named(channel: int, counts: Counts) -> int:
    """How many ids there are for the pairs of a channel's transfers."""
    if 1 in (counts.replicas, counts.partitions):
        return counts.devices
    return counts.partitions if channel else counts.replicas


def _ids(sharding: Sharding) -> int:
    """How many partitions a sharding names."""
    own = max((*sharding.devices, sharding.device or 0)) + 1
    return max((own, *map(_ids, sharding.elements)))
