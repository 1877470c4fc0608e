"""The movements of a collective's elements, apart from how they are executed."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Movement:
    """`rows` rows of `row` elements that go from operand buffers to result buffers within one group.

    reduces: each row is reduced over the operands of all members, in group order; otherwise it comes from one source.
    by_source: a copy from every member s (otherwise, if it does not reduce, from member 0 alone).
    by_target: member t gets rows of its own; otherwise every member gets the same.
    Row k of source s for target t (0 where not by_source, by_target) is found, counted in elements,

        in operand leaf  `operand + t * operand_step`  of s  at  t * source_offset + k * source_stride
        in result leaf   `result + s * result_step`    of t  at  s * target_offset + k * target_stride

    Result rows of different k, s and t do not overlap. A movement that reduces and is not by_target reads and
    writes the same places, so that operand and result may be one buffer.
    """

    operand: int
    result: int
    row: int
    rows: int = 1
    operand_step: int = 0
    result_step: int = 0
    reduces: bool = False
    by_source: bool = False
    by_target: bool = False
    source_offset: int = 0
    source_stride: int = 0
    target_offset: int = 0
    target_stride: int = 0

    @property
    def is_contiguous(self) -> bool:
        """Whether the rows are contiguous on both sides."""
        return self.rows <= 1 or self.source_stride == self.target_stride == self.row


@dataclass(frozen=True, kw_only=True)
class RaggedMovement:
    """Stretches of rows whose places are known at run time only, from every member to every member of one group.

    Entry i = t * stretches + j of a member's tables describes the j-th stretch that it sends to member t: row
    starts[i] and the following, sizes[i] of them, of its operand leaf `operand` become the rows from targets[i] on of
    t's result leaf 0. starts, sizes, targets: operand leaves, one-dimensional or not, of integers.
    Stretches are written in the order of senders, then of entries; result rows outside all of them are those of operand
    leaf `output`. A member checks its own entries: those of size 0 may say anything, others are within both arrays.
    """

    row: int  # elements
    operand_rows: int
    result_rows: int
    stretches: int
    operand: int = 0
    output: int = 1
    starts: int = 2
    sizes: int = 3
    targets: int = 4
