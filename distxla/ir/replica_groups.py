"""Replica groups in their three spellings, and the members of a group in each group mode (SPMD device ids)."""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from math import prod

import numpy as np

from distxla.ir.counts import Counts
from distxla.lazy_dataclass import dataclass


class GroupMode(Enum):
    """The meaning of the ids in replica groups."""

    CROSS_REPLICA = "cross-replica"
    CROSS_PARTITION = "cross-partition"
    CROSS_REPLICA_AND_PARTITION = "cross-replica-and-partition"
    FLATTENED_ID = "flattened-id"


@dataclass(frozen=True)
class ReplicaGroups:
    """Ordered groups of ids; empty `groups` means all devices.

    groups: the ids, whichever way they were written.  iota: (group_count, group_size, dims, permutation) when written
    `[G,S]<=[dims]T(perm)`; mesh: the raw text when written with mesh axes. Both are kept for printing only but count
    for equality, so that print and parse give the same module.
    """

    groups: tuple[tuple[int, ...], ...] = ()
    iota: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    mesh: str | None = None

    @staticmethod
    def from_iota(shape: tuple[int, ...], dims: tuple[int, ...], permutation: tuple[int, ...] = ()) -> ReplicaGroups:
        """shape: (groups, ids a group); dims: reshape of iota; permutation: of dims, () for none."""
        if not permutation:  # without one the reshape says nothing, and XLA takes no text that has it
            dims = (prod(dims),)
        ids = np.arange(prod(dims)).reshape(dims)
        if permutation:
            ids = ids.transpose(permutation)
        table = ids.reshape(shape[0], -1)
        return ReplicaGroups(tuple(tuple(int(i) for i in row) for row in table), (shape, dims, permutation))

    @property
    def is_empty(self) -> bool:
        return not self.groups

    @cached_property
    def ids(self) -> tuple[int, ...]:
        return tuple(i for group in self.groups for i in group)


def device_groups(groups: ReplicaGroups, mode: GroupMode, counts: Counts) -> tuple[tuple[int, ...], ...]:
    """The groups as ordered flattened device ids (replica * partitions + partition); every device in exactly one.

    Order inside a group is the order of concatenation, of shards and chunks. Ids are taken as verified.
    """
    replicas, partitions = counts.replicas, counts.partitions
    all_ids = {
        GroupMode.CROSS_REPLICA: range(replicas),
        GroupMode.CROSS_PARTITION: range(partitions),
        GroupMode.CROSS_REPLICA_AND_PARTITION: range(replicas),
        GroupMode.FLATTENED_ID: range(counts.devices),
    }[mode]
    rows = groups.groups or (tuple(all_ids),)
    if mode is GroupMode.FLATTENED_ID:
        return rows
    if mode is GroupMode.CROSS_REPLICA:
        return tuple(tuple(r * partitions + p for r in row) for p in range(partitions) for row in rows)
    if mode is GroupMode.CROSS_PARTITION:
        return tuple(tuple(r * partitions + p for p in row) for r in range(replicas) for row in rows)
    return tuple(tuple(r * partitions + p for r in row for p in range(partitions)) for row in rows)
