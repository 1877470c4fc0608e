"""A group routine's description of the work of its rounds: a table of movements, and the arguments of a round.

Both are read by the native code that does the work, and by proxies, which do it for members on several hosts.
"""

from __future__ import annotations

# a row of u64 for each movement (ops/support/collective_movement.py), all in bytes; work_items.py of the
# transports cuts it into items: number = items_end of the row before + (source * targets + target) * pieces + piece
COLUMNS = (
    "items_end",
    "operand",
    "operand_step",
    "result",
    "result_step",
    "common",
    "targets",
    "pieces",
    "piece_rows",
    "rows",
    "piece_bytes",
    "row_bytes",
    "source_offset",
    "source_stride",
    "target_offset",
    "target_stride",
    "streamed",
    "begin",  # where the movement's part begins in operands and results: 0 but for a ring's chunks
    "first",  # of a ring: the member, behind the target, at which the reduction begins
)
ROW_BYTES = 8 * len(COLUMNS)

# in the place of `element`: the items are not of movements. Their one row is RAGGED_COLUMNS, then the bytes of each
# operand leaf that the items read, 0 for others; number = target * pieces + piece
RAGGED = (1 << 64) - 1
RAGGED_COLUMNS = ("stretches", "row_bytes", "pieces", "piece_rows", "rows")

# the arguments of `distxla_group_round`, in this order, as u64
DESCRIBED = (
    "context",
    "site",
    "operands",
    "results",
    "operand_count",
    "result_count",
    "signature",
    "state",
    "position",
    "size",
    "members",
    "table",
    "items",
    "shared",
    "do_items",
    "common",
    "reduction",
    "element",
)
