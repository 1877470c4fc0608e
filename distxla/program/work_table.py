"""The work of a group's rounds: tables of movements, and the data from which a proxy plans a round.

Native code reads the tables in the program's image. A proxy, which does the work of members on several hosts, gets
them with the program (program/artifact.py).
"""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass

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

# where items are not of movements (`read`): number = target * pieces + piece
RAGGED_COLUMNS = ("stretches", "row_bytes", "pieces", "piece_rows", "rows")


@dataclass(frozen=True)
class RoundWork:
    """The work of one round of a site, in its groups of `members` devices.

    signature: what members that run it post.  operands, results: how many leaves a member posts of each.
    table: a row of COLUMNS a movement; one row of RAGGED_COLUMNS where there is `read`.  items: of the whole round.
    do_items: symbol of the function that does them.
    shares: whether members post shared places for their results.
    element: bytes of an element that is reduced, 0 where bytes are only moved.
    reduction: symbol of the function that reduces two operands, with which a proxy reduces them in group order as they
    arrive; "" where it needs all of them at once, or where nothing is reduced.
    read: bytes of each operand leaf, 0 for those that items don't read, where the work depends on the values in them
    (ragged-all-to-all); else empty.
    """

    members: int
    signature: int
    operands: int
    results: int
    table: tuple[tuple[int, ...], ...]
    items: int
    do_items: str
    shares: bool = False
    element: int = 0
    reduction: str = ""
    read: tuple[int, ...] = ()
