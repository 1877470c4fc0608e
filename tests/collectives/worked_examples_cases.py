"""What test_worked_examples.py shares with other tests."""

from __future__ import annotations

from typing import Any

ADD = """add {
  a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT r = s64[] add(a, b)
}
"""


def text(result: str, instruction: str, operand: str = "s64[2,2]") -> str:
    return (
        f"HloModule worked\n{ADD}ENTRY main {{\n  p = {operand} parameter(0)\n  ROOT r = {result} {instruction}\n}}\n"
    )


SQUARE = [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[10, 20], [30, 40]], [[50, 60], [70, 80]]]  # by device

ROWS = [[1, 2, 3, 4], [5, 6, 7, 8], [10, 20, 30, 40], [50, 60, 70, 80]]

# what: module, (replicas, partitions), operands by device, results by device
CASES: dict[str, tuple[str, tuple[int, int], Any, Any]] = {
    "all-reduce, replicas": (
        text("s64[2,2]", "all-reduce(p), to_apply=add, replica_groups={{0,1}}"),
        (2, 1),
        SQUARE[:2],
        [[[6, 8], [10, 12]]] * 2,
    ),
    "all-reduce, replicas of each partition": (
        text("s64[2,2]", "all-reduce(p), to_apply=add, replica_groups={{0,1}}"),
        (2, 2),
        SQUARE,
        [[[11, 22], [33, 44]], [[55, 66], [77, 88]]] * 2,
    ),
    "all-reduce, replicas and partitions": (
        text("s64[2,2]", "all-reduce(p), to_apply=add, channel_id=1, replica_groups={{0},{1}}"),
        (2, 2),
        SQUARE,
        [[[6, 8], [10, 12]]] * 2 + [[[60, 80], [100, 120]]] * 2,
    ),
    "all-reduce, flattened ids": (
        text(
            "s64[2,2]",
            "all-reduce(p), to_apply=add, channel_id=1, use_global_device_ids=true, replica_groups={{0,3},{1,2}}",
        ),
        (2, 2),
        SQUARE,
        [[[51, 62], [73, 84]], [[15, 26], [37, 48]], [[15, 26], [37, 48]], [[51, 62], [73, 84]]],
    ),
    "all-gather, in the group's order": (
        text("s64[2,4]", "all-gather(p), dimensions={1}, replica_groups={{1,0}}"),
        (2, 1),
        SQUARE[:2],
        [[[5, 6, 1, 2], [7, 8, 3, 4]]] * 2,
    ),
    "all-gather, replicas and partitions": (
        text("s64[8,2]", "all-gather(p), dimensions={0}, channel_id=1, replica_groups={{1,0}}"),
        (2, 2),
        SQUARE,
        [[[10, 20], [30, 40], [50, 60], [70, 80], [1, 2], [3, 4], [5, 6], [7, 8]]] * 4,
    ),
    "reduce-scatter, replicas": (
        text("s64[2]", "reduce-scatter(p), to_apply=add, dimensions={0}, replica_groups={{0,1}}", "s64[4]"),
        (2, 1),
        ROWS[:2],
        [[6, 8], [10, 12]],
    ),
    "reduce-scatter, the group's order": (
        text("s64[2]", "reduce-scatter(p), to_apply=add, dimensions={0}, replica_groups={{1,0}}", "s64[4]"),
        (2, 1),
        ROWS[:2],
        [[10, 12], [6, 8]],
    ),
    "reduce-scatter, flattened ids": (
        text(
            "s64[2]",
            "reduce-scatter(p), to_apply=add, dimensions={0}, channel_id=1, use_global_device_ids=true, "
            "replica_groups={{0,2},{3,1}}",
            "s64[4]",
        ),
        (2, 2),
        ROWS,
        [[11, 22], [77, 88], [33, 44], [55, 66]],
    ),
    "all-to-all, replicas": (
        text("s64[4]", "all-to-all(p), dimensions={0}, replica_groups={{0,1}}", "s64[4]"),
        (2, 1),
        ROWS[:2],
        [[1, 2, 5, 6], [3, 4, 7, 8]],
    ),
    "all-to-all, partitions in another order": (
        text("s64[4]", "all-to-all(p), dimensions={0}, channel_id=1, replica_groups={{1,0}}", "s64[4]"),
        (2, 2),
        ROWS,
        [[7, 8, 3, 4], [5, 6, 1, 2], [70, 80, 30, 40], [50, 60, 10, 20]],
    ),
    "collective-broadcast, partitions": (
        text("s64[4]", "collective-broadcast(p), channel_id=1, replica_groups={{1,0}}", "s64[4]"),
        (2, 2),
        ROWS,
        [[5, 6, 7, 8]] * 2 + [[50, 60, 70, 80]] * 2,
    ),
    "collective-broadcast, a device in no group": (
        text("s64[4]", "collective-broadcast(p), replica_groups={{2,1}}", "s64[4]"),
        (3, 1),
        ROWS[:3],
        [[0, 0, 0, 0], [10, 20, 30, 40], [10, 20, 30, 40]],
    ),
    "collective-permute, replicas": (
        text("s64[4]", "collective-permute(p), source_target_pairs={{0,1},{1,2}}", "s64[4]"),
        (3, 1),
        ROWS[:3],
        [[0, 0, 0, 0], [1, 2, 3, 4], [5, 6, 7, 8]],
    ),
    "collective-permute, partitions": (
        text("s64[4]", "collective-permute(p), channel_id=1, source_target_pairs={{1,0}}", "s64[4]"),
        (2, 2),
        ROWS,
        [[5, 6, 7, 8], [0, 0, 0, 0], [50, 60, 70, 80], [0, 0, 0, 0]],
    ),
}
