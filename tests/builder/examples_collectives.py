"""Examples: operations of groups of devices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tests.builder.example import Table, f32, s32

EXAMPLES = Table()
B = Any

ON_TWO = [[f32([1.0, 2.5])], [f32([3.0, 5.25])]]
ON_FOUR = [[s32([d, 10 + d])] for d in range(4)]
COLUMNS = [[f32(np.arange(64).reshape(4, 16) + 100 * d)] for d in range(4)]


@EXAMPLES.add("AllGather", ON_TWO, f32([1.0, 2.5, 3.0, 5.25]), replicas=2)
def all_gather_of_two(b: B, x: B) -> B:
    return b.all_gather(x, all_gather_dim=0, shard_count=2)


@EXAMPLES.add("AllGather", ON_FOUR, *[[s32([d % 2, 10 + d % 2, d % 2 + 2, 12 + d % 2])] for d in range(4)], replicas=4)
def all_gather_in_groups(b: B, x: B) -> B:
    return b.all_gather(x, 0, 2, replica_groups=[[0, 2], [1, 3]])


@EXAMPLES.add("AllReduce", ON_TWO, f32([4.0, 7.75]), replicas=2)
def all_reduce_of_two(b: B, x: B) -> B:
    return b.all_reduce(x, operator.add)


@EXAMPLES.add("AllReduce", ON_FOUR, *[[s32([d % 2 + 2, d % 2 + 12])] for d in range(4)], replicas=4)
def all_reduce_in_groups(b: B, x: B) -> B:
    return b.all_reduce(x, computation=lambda p, q: p.builder.max(p, q), replica_groups=[[0, 2], [1, 3]])


@EXAMPLES.add("AllReduce", ON_TWO, f32([4.0, 7.75]), f32([8.0, 15.5]), replicas=2)
def all_reduce_of_a_tuple(b: B, x: B) -> B:
    return b.all_reduce(b.tuple([x, x * 2]), operator.add)


@EXAMPLES.add("CrossReplicaSum", ON_TWO, f32([4.0, 7.75]), replicas=2)
def cross_replica_sum_of_two(b: B, x: B) -> B:
    return b.cross_replica_sum(x)


@EXAMPLES.add(
    "AllToAll",
    COLUMNS,
    *[[np.concatenate([COLUMNS[s][0][:, 4 * d : 4 * d + 4] for s in range(4)])] for d in range(4)],
    replicas=4,
)
def all_to_all_of_columns(b: B, x: B) -> B:
    return b.all_to_all(x, split_dimension=1, concat_dimension=0, split_count=4)


@EXAMPLES.add(
    "AllToAll",
    COLUMNS,
    *[[np.concatenate([COLUMNS[s][0][d : d + 1] for s in range(4)], axis=1)] for d in range(4)],
    replicas=4,
)
def all_to_all_of_rows(b: B, x: B) -> B:
    return b.all_to_all(x, 0, 1, 4)


@EXAMPLES.add(
    "AllToAll",
    [[s32([10 * d + k for k in range(4)])] for d in range(4)],
    *[[s32([10 * s + k + 2 * (d // 2) for s in ((d % 2), (d % 2) + 2) for k in range(2)])] for d in range(4)],
    replicas=4,
)
def all_to_all_along_one_dimension_in_groups(b: B, x: B) -> B:
    return b.all_to_all(x, 0, 0, 2, replica_groups=[[0, 2], [1, 3]])


@EXAMPLES.add("AllToAll", ON_TWO, *[[f32(x), f32(y)] for x, y in ((1.0, 3.0), (2.5, 5.25))], replicas=2)
def all_to_all_of_a_tuple(b: B, x: B) -> B:
    return b.all_to_all_tuple([x[0], x[1]])


@EXAMPLES.add("CollectivePermute", ON_FOUR, [s32([0, 0])], *[[s32([d, 10 + d])] for d in range(3)], replicas=4)
def collective_permute_along_a_line(b: B, x: B) -> B:
    return b.collective_permute(x, source_target_pairs=[(0, 1), (1, 2), (2, 3)])


@EXAMPLES.add("CollectiveBroadcast", ON_FOUR, *[[s32([d, 10 + d])] for d in (1, 1, 2, 2)], replicas=4)
def collective_broadcast_in_groups(b: B, x: B) -> B:
    return b.collective_broadcast(x, [[1, 0], [2, 3]])


@EXAMPLES.add("ReduceScatter", [[f32([1.0, 2.25])], [f32([3.0, 5.25])]], [f32([4.0])], [f32([7.5])], replicas=2)
def reduce_scatter_of_two(b: B, x: B) -> B:
    return b.reduce_scatter(x, operator.add, scatter_dimension=0, shard_count=2)


@EXAMPLES.add("ReplicaId", [[s32(0)] for _ in range(4)], *[[np.uint32(d), np.uint32(0)] for d in range(4)], replicas=4)
def ids(b: B, x: B) -> B:
    return b.tuple([b.replica_id(), b.partition_id()])
