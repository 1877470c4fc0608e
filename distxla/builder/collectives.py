"""Operations of groups of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from distxla.builder.accepted_values import as_flag, as_integer, as_integers, as_sequence
from distxla.builder.blame import broken_rule
from distxla.builder.recorder import ComputationLike
from distxla.builder.tuples import Tuples
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.errors import HloSyntaxError
from distxla.ir.op import Op
from distxla.ir.replica_groups import ReplicaGroups
from distxla.ir.shape import Shape
from distxla.ops.all_gather import AllGather
from distxla.ops.all_reduce import AllReduce
from distxla.ops.all_to_all import AllToAll
from distxla.ops.collective_broadcast import CollectiveBroadcast
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.device_id import PartitionId, ReplicaId
from distxla.ops.ragged_all_to_all import RaggedAllToAll
from distxla.ops.reduce_scatter import ReduceScatter
from distxla.ops.reshape import Reshape
from distxla.ops.transpose import Transpose
from distxla.text.groups import read_replica_groups
from distxla.text.lexer import Lexer

# [[0, 2], [1, 3]], empty for all devices; or HLO text: "[2,2]<=[4]"
GroupsLike: TypeAlias = "Sequence[Sequence[int]] | str | ReplicaGroups"


class Collectives(Tuples):
    """Pages AllGather, AllReduce, AllToAll, CollectivePermute, CrossReplicaSum, ReduceScatter, ReplicaId.

    replica_groups: the members of each group in order; empty for all.  channel_id: without one the ids are
    replicas, within one partition. With one they are partitions within one replica (all_to_all, collective_broadcast,
    collective_permute), or replicas of which all partitions join, or (use_global_device_ids) flattened ids
    `replica * partitions + partition` (all_gather, all_reduce, reduce_scatter).
    A tuple as the operand is handled element by element, and the result is a tuple.
    """

    def replica_id(self) -> XlaOp:
        """The number of the replica that runs the program: u32[]."""
        return self._add(ReplicaId())

    def partition_id(self) -> XlaOp:
        """The number of the partition that runs the program: u32[]."""
        return self._add(PartitionId())

    def all_gather(
        self,
        operand: Any,
        all_gather_dim: int,
        shard_count: int,
        replica_groups: GroupsLike = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> XlaOp:
        """The members' operands one after another along all_gather_dim.  shard_count: members of a group."""
        d, count = as_integer(all_gather_dim, "all_gather_dim"), self._count(shard_count, "shard_count")
        op = AllGather(
            dimensions=(d,),
            replica_groups=self._groups(replica_groups),
            channel_id=self._channel(channel_id),
            use_global_device_ids=as_flag(use_global_device_ids, "use_global_device_ids"),
        )
        return self._each(op, operand, lambda shape: _scaled(shape, d, lambda dimension_size: dimension_size * count))

    def all_reduce(
        self,
        operand: Any,
        computation: ComputationLike,
        replica_groups: GroupsLike = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> XlaOp:
        """The members' operands combined element by element; every member gets the result."""
        value = self._value(operand)
        op = AllReduce(
            to_apply=self._computation(computation, [self._scalar(value)] * 2, "computation"),
            replica_groups=self._groups(replica_groups),
            channel_id=self._channel(channel_id),
            use_global_device_ids=as_flag(use_global_device_ids, "use_global_device_ids"),
        )
        return self._each(op, value, lambda shape: shape)

    def cross_replica_sum(self, operand: Any, replica_groups: GroupsLike = ()) -> XlaOp:
        """`all_reduce` by addition, of pred by or."""
        return self.all_reduce(operand, lambda x, y: x + y, replica_groups)

    def reduce_scatter(
        self,
        operand: Any,
        computation: ComputationLike,
        scatter_dimension: int,
        shard_count: int,
        replica_groups: GroupsLike = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> XlaOp:
        """An all_reduce of which the i-th member gets the i-th of `shard_count` parts along scatter_dimension."""
        value = self._value(operand)
        d, count = as_integer(scatter_dimension, "scatter_dimension"), self._count(shard_count, "shard_count")
        op = ReduceScatter(
            dimensions=(d,),
            to_apply=self._computation(computation, [self._scalar(value)] * 2, "computation"),
            replica_groups=self._groups(replica_groups),
            channel_id=self._channel(channel_id),
            use_global_device_ids=as_flag(use_global_device_ids, "use_global_device_ids"),
        )
        return self._each(op, value, lambda shape: _scaled(shape, d, lambda dimension_size: dimension_size // count))

    def all_to_all(
        self,
        operand: OperandLike,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: GroupsLike = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """The operand is cut into split_count parts along split_dimension; the i-th goes to the i-th member.

        The parts that a member gets are joined, in group order, along concat_dimension.
        """
        x, count = self._array(operand), self._count(split_count, "split_count")
        split, concat = as_integer(split_dimension, "split_dimension"), as_integer(concat_dimension, "concat_dimension")
        for d, argument in ((split, "split_dimension"), (concat, "concat_dimension")):
            if not 0 <= d < x.rank:
                raise broken_rule(f"all-to-all.C8: {d} is not a dimension of {x.shape}", argument)
        dims = x.shape.dims
        if dims[split] % count:
            raise broken_rule(
                f"all-to-all.C9: dimension {split} of {x.shape} does not divide into {count} parts", "split_count"
            )
        op = AllToAll(
            dimensions=(split,),
            replica_groups=self._groups(replica_groups),
            channel_id=self._channel(channel_id),
        )
        self._check_size(op, count, "split_count")
        if split == concat:
            return self._add(op, [x], x.shape.without_layout())
        # The parts get a dimension of their own, which moves to where they are put together.
        part = (*dims[:split], count, dims[split] // count, *dims[split + 1 :])
        parts = self._add(op, [self._add(Reshape(), [x], x.shape.with_dims(part))], x.shape.with_dims(part))
        order = [d for d in range(len(part)) if d != split]
        order.insert(concat, split)
        moved = self._add(Transpose(dimensions=tuple(order)), [parts])
        result = list(dims)
        result[split] //= count
        result[concat] *= count
        return self._add(Reshape(), [moved], x.shape.with_dims(tuple(result)))

    def all_to_all_tuple(
        self, operands: Sequence[OperandLike], replica_groups: GroupsLike = (), channel_id: int | None = None
    ) -> XlaOp:
        """One operand for each member of a group; the result is the tuple of the received values, in group order."""
        found = self._operands(operands, "operands")
        op = AllToAll(replica_groups=self._groups(replica_groups), channel_id=self._channel(channel_id))
        return self._add(op, found, Shape.tuple([x.shape.without_layout() for x in found]))

    def collective_permute(
        self,
        operand: Any,
        source_target_pairs: Sequence[Sequence[int]],
        channel_id: int | None = None,
    ) -> XlaOp:
        """Each pair (source, target) sends the source's operand; a device that is no target gets zeros."""
        pairs = [
            as_integers(pair, "source_target_pairs") for pair in as_sequence(source_target_pairs, "source_target_pairs")
        ]
        if any(len(pair) != 2 for pair in pairs):
            raise broken_rule(f"collective-permute.pairs: {pairs} are not pairs", "source_target_pairs")
        op = CollectivePermute(
            source_target_pairs=tuple((source, target) for source, target in pairs),
            channel_id=self._channel(channel_id),
        )
        return self._each(op, operand, lambda shape: shape)

    def collective_broadcast(
        self, operand: Any, replica_groups: GroupsLike = (), channel_id: int | None = None
    ) -> XlaOp:
        """Every member gets the operand of its group's first member."""
        op = CollectiveBroadcast(replica_groups=self._groups(replica_groups), channel_id=self._channel(channel_id))
        return self._each(op, operand, lambda shape: shape)

    def ragged_all_to_all(
        self,
        input: OperandLike,
        input_offsets: OperandLike,
        send_sizes: OperandLike,
        output: OperandLike,
        output_offsets: OperandLike,
        recv_sizes: OperandLike,
        replica_groups: GroupsLike = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """Rows input_offsets[i] .. + send_sizes[i] go to member i's output, from its row output_offsets[i] on."""
        sent, result = self._array(input), self._array(output)
        tables = (input_offsets, send_sizes, output_offsets, recv_sizes)
        op = RaggedAllToAll(replica_groups=self._groups(replica_groups), channel_id=self._channel(channel_id))
        return self._add(op, [sent, result, *map(self._array, tables)], result.shape.without_layout())

    # --- shared parts -----------------------------------------------------------------------------------------------

    def _each(self, op: Op, operand: Any, result: Callable[[Shape], Shape]) -> XlaOp:
        """An array, or each element of a tuple in one instruction; `result` tells an element's shape."""
        value = self._value(operand)
        if not value.shape.is_tuple:
            return self._add(op, [value], result(value.shape.without_layout()))
        elements = list(value)
        if len(elements) == 1:  # HLO's collectives give a tuple for several operands only
            return self._value((self._add(op, elements, result(elements[0].shape)),))
        return self._add(op, elements, Shape.tuple([result(x.shape) for x in elements]))

    def _scalar(self, value: XlaOp) -> Shape:
        """The scalar that a reduction of the value combines."""
        leaf = next(value.shape.leaves(), None)
        if leaf is None or not leaf.is_array:
            raise broken_rule(f"operand: {value.shape} is neither an array nor a tuple of arrays", "operand")
        return Shape(leaf.dtype)

    def _groups(self, given: GroupsLike) -> ReplicaGroups:
        if isinstance(given, ReplicaGroups):
            return given
        if isinstance(given, str):
            lexer = Lexer(given)
            try:
                groups = read_replica_groups(lexer)
                if not lexer.at_end():
                    raise lexer.expected("the end of the groups")
            except HloSyntaxError as error:
                raise broken_rule(f"replica_groups: {given!r}: {error.message}", "replica_groups") from None
            return groups
        return ReplicaGroups(
            tuple(as_integers(group, "replica_groups") for group in as_sequence(given, "replica_groups"))
        )

    def _channel(self, given: int | None) -> int | None:
        if given is not None and as_integer(given, "channel_id") < 0:
            raise broken_rule(f"channel.id: channel_id={given} is negative", "channel_id")
        return given

    def _count(self, given: int, argument: str) -> int:
        count = as_integer(given, argument)
        if count < 1:
            raise broken_rule(f"argument: {argument}={count} must be positive", argument)
        return count

    def _check_size(self, op: AllToAll, count: int, argument: str) -> None:
        """Members of a group, as far as the groups tell."""
        size = op.group_size()
        if size is not None and size != count:
            raise broken_rule(f"all-to-all.C6: {argument}={count} in groups of {size}", argument)


def _scaled(shape: Shape, d: int, scale: Callable[[int], int]) -> Shape:
    """The shape with the size of a dimension changed; unchanged where there is no such dimension (the op says so)."""
    if not shape.is_array or not 0 <= d < shape.rank:
        return shape
    return shape.with_dims((*shape.dims[:d], scale(shape.dims[d]), *shape.dims[d + 1 :]))
