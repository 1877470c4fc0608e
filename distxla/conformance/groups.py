"""Groups of devices as attributes write them: who is a member of what, in which order."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Groups:
    """name: as cases have it.  attributes: the text.  size: members of each group; 0: groups differ in size."""

    name: str
    replicas: int
    partitions: int
    attributes: str
    size: int

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions


def _listed(*groups: Sequence[int]) -> str:
    return f"replica_groups={{{','.join('{' + ','.join(map(str, group)) + '}' for group in groups)}}}"


_CHANNEL = "channel_id=1, "
_GLOBAL = ", use_global_device_ids=true"

# without channel_id the ids are replicas', and each partition has groups of its own
CROSS_REPLICA = (
    Groups("all", 4, 1, _listed(range(4)), 4),
    Groups("all-implied", 4, 1, "replica_groups={}", 4),
    Groups("reordered", 4, 1, _listed([2, 0, 3, 1]), 4),
    Groups("pairs", 4, 1, _listed([0, 1], [2, 3]), 2),
    Groups("subgroups", 4, 1, _listed([0, 2], [3, 1]), 2),
    Groups("one-device-groups", 4, 1, _listed([0], [1], [2], [3]), 1),
    Groups("one-device", 1, 1, "replica_groups={}", 1),
    Groups("three", 3, 1, _listed(range(3)), 3),
    Groups("eight", 8, 1, _listed(range(8)), 8),
    Groups("iota", 4, 1, "replica_groups=[2,2]<=[4]", 2),
    Groups("iota-transposed", 4, 1, "replica_groups=[2,2]<=[2,2]T(1,0)", 2),
    Groups("cross-replica", 2, 2, _listed([0, 1]), 2),
    Groups("cross-replica-reordered", 4, 2, _listed([3, 0], [1, 2]), 2),
)
# of different sizes, where the result's shape does not depend on the size
UNEVEN = (
    Groups("uneven", 4, 1, _listed([0, 1, 2], [3]), 0),
    Groups("uneven-reordered", 5, 1, _listed([4, 0], [1, 3, 2]), 0),
)
# channel_id, ids of partitions: all-to-all, collective-permute, collective-broadcast, ragged-all-to-all
CROSS_PARTITION = (
    Groups("partitions", 1, 4, _CHANNEL + _listed(range(4)), 4),
    Groups("partition-subgroups", 1, 4, _CHANNEL + _listed([0, 2], [3, 1]), 2),
    Groups("partition-iota", 1, 4, _CHANNEL + "replica_groups=[2,2]<=[2,2]T(1,0)", 2),
    Groups("cross-partition", 2, 2, _CHANNEL + _listed([0, 1]), 2),
    Groups("cross-partition-reordered", 2, 4, _CHANNEL + _listed([3, 0], [1, 2]), 2),
)
# channel_id, ids of replicas, all their partitions are members: all-reduce, all-gather, reduce-scatter
CROSS_BOTH = (
    Groups("both", 2, 2, _CHANNEL + _listed([0, 1]), 4),
    Groups("both-reordered", 2, 2, _CHANNEL + _listed([1, 0]), 4),
    Groups("both-one-replica-groups", 2, 2, _CHANNEL + _listed([0], [1]), 2),
)
# channel_id and use_global_device_ids: ids are replica * partitions + partition
FLATTENED = (
    Groups("flattened", 2, 2, _CHANNEL + _listed(range(4)) + _GLOBAL, 4),
    Groups("flattened-reordered", 2, 2, _CHANNEL + _listed([3, 1, 0, 2]) + _GLOBAL, 4),
    Groups("flattened-subgroups", 2, 2, _CHANNEL + _listed([0, 3], [1, 2]) + _GLOBAL, 2),
    Groups("flattened-one-device-groups", 2, 2, _CHANNEL + _listed([0], [1], [2], [3]) + _GLOBAL, 1),
    Groups("flattened-partitions", 1, 4, _CHANNEL + _listed(range(4)) + _GLOBAL, 4),
    Groups("flattened-iota", 2, 4, _CHANNEL + "replica_groups=[2,4]<=[2,2,2]T(1,0,2)" + _GLOBAL, 4),
)
FLATTENED_UNEVEN = (Groups("flattened-uneven", 2, 2, _CHANNEL + _listed([3, 0, 1], [2]) + _GLOBAL, 0),)

EVEN_FLAT = CROSS_REPLICA + CROSS_BOTH + FLATTENED  # of all-reduce, all-gather, reduce-scatter
ANY_FLAT = EVEN_FLAT + UNEVEN + FLATTENED_UNEVEN
EVEN_AXIS = CROSS_REPLICA + CROSS_PARTITION  # of the others
BY_NAME = {groups.name: groups for groups in (*ANY_FLAT, *CROSS_PARTITION)}
ALL, PAIRS, SUBGROUPS = BY_NAME["all"], BY_NAME["pairs"], BY_NAME["subgroups"]
