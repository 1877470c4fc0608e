"""HLO `ragged-all-to-all`: everything the project knows about the op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.ir.shape import Shape
from distxla.ops.attribute import attribute
from distxla.ops.collective import GroupedCollective
from distxla.ops.evaluation import Evaluation
from distxla.ops.movement import Movement
from distxla.ops.op import Lowering
from distxla.ops.registry import register


@register
class RaggedAllToAll(GroupedCollective):
    """Send the i-th stretch of rows of `input` to the i-th member, who finds it in its own `output`.

    Operands: input T[a, D], output T[b, D], input_offsets, send_sizes, output_offsets, recv_sizes: integers [n] or
    [n, k] of one type (k stretches a member), n the group size. Member s writes rows
    input_offsets[i] .. + send_sizes[i] of its input at row output_offsets[i] of member i's result. Rows that nobody
    writes keep the value of `output`.

    Shapes:  -> T[b, D], the shape of `output`.
    Errors:  C1, C2, C5, C7 of the groups and operands.
             C6  not six operands.
             C8  input and output differ in element type or in a dimension other than the first, or have rank 0.
             C9  offsets and sizes are not integers of one type and one shape [n] or [n, k], n the group size.
    Source:  XLA Operation Semantics, RaggedAllToAll.
    """

    opcode = "ragged-all-to-all"
    lowering = Lowering.NONE
    min_operands = 6
    max_operands = 6

    dimensions: tuple[int, ...] = attribute("int_list", default=())

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        self.require(len(operands) == 6, "C6", f"{len(operands)} operands instead of 6", at="operands")
        sent, output, *tables = operands
        self.require(
            sent.dtype == output.dtype and sent.rank == output.rank > 0 and sent.dims[1:] == output.dims[1:],
            "C8",
            f"input {sent} and output {output} may differ in the first dimension only",
            at="operands",
        )
        first = tables[0]
        self.require(
            first.dtype.is_integer
            and first.rank in (1, 2)
            and first.dims[0] == size
            and all(t.compatible(first) for t in tables),
            "C9",
            f"offsets and sizes must be integers of one shape [{size}] or [{size},k], "
            f"they are {', '.join(map(str, tables))}",
            at="operands",
        )
        return output.without_layout()

    def size_from_result(self, shape: Shape, operands: Sequence[Shape]) -> int | None:
        return operands[2].dims[0] if len(operands) == 6 and operands[2].rank else None

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        raise self.unsupported()

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        results = [output.copy() for _, output, *_ in operands]
        for sent, _, *tables in operands:
            starts, sizes, targets, _ = (table.reshape(len(members), -1) for table in tables)
            for receiver in range(len(members)):
                for start, size, target in zip(starts[receiver], sizes[receiver], targets[receiver], strict=True):
                    results[receiver][int(target) : int(target) + int(size)] = sent[int(start) : int(start) + int(size)]
        return results
