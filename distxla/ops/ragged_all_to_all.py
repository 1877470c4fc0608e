"""HLO `ragged-all-to-all`: send rows to the members; operands say which rows and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.errors import ExecutionError
from distxla.ir.attribute import attribute
from distxla.ir.op_traits import InPlaceKernel, OperandCount, exactly
from distxla.ir.shape import Shape
from distxla.ops.support.collective import GroupedCollective
from distxla.ops.support.collective_movement import Movement, RaggedMovement
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.registry import register


@register
class RaggedAllToAll(GroupedCollective):
    """Send stretches of rows of `input` to the members, which receive them in their own `output`.

    Operands: input T[a, D], output T[b, D], input_offsets, send_sizes, output_offsets, recv_sizes: integers [n * k] or
    [n, k] of one type, k stretches a member, n the group size. Of entry i of the tables, for member i / k, the rows
    input_offsets[i] .. + send_sizes[i] of the own input become the rows from output_offsets[i] on of that member's
    result. Rows that no member writes keep the value of `output`; of those that several write, the last sender's stay.
    An entry of size 0 may have any offsets; another one that reaches beyond its arrays is an ExecutionError, and
    nothing is sent. recv_sizes is not read: it repeats the senders' sizes.

    Shapes:  -> T[b, D], the shape of `output`.
    Errors:  C1, C2, C5, C7 of the groups and operands.
             C6  not six operands.
             C8  input and output differ in element type or in a dimension other than the first, or have rank 0.
             C9  offsets and sizes are not integers of one type and one shape [n * k] or [n, k], n the group size.
    Source:  XLA Operation Semantics, RaggedAllToAll; the documentation of jax.lax.ragged_all_to_all.
    """

    opcode = "ragged-all-to-all"
    operand_count: ClassVar[OperandCount] = exactly(6)
    in_place: ClassVar[InPlaceKernel] = InPlaceKernel(operand=1)

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
            and (first.dims[0] == size if first.rank == 2 else first.dims[0] % size == 0)
            and all(t.compatible(first) for t in tables),
            "C9",
            f"offsets and sizes must be integers of one shape [{size} * k] or [{size}, k], "
            f"they are {', '.join(map(str, tables))}",
            at="operands",
        )
        return output.without_layout()

    def size_from_result(self, shape: Shape, operands: Sequence[Shape]) -> int | None:
        return operands[2].dims[0] if len(operands) == 6 and operands[2].rank else None

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        """The moved elements are known at run time only: see `ragged_movement`."""
        return ()

    def ragged_movement(self, operands: Sequence[Shape], size: int) -> RaggedMovement:
        sent, output, starts = operands[:3]
        return RaggedMovement(
            row=prod(sent.dims[1:]),
            operand_rows=sent.dims[0],
            result_rows=output.dims[0],
            stretches=starts.size // size,
        )

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        sent, output, *tables = operands
        for i, (start, size, target, _) in enumerate(zip(*(np.ravel(t).tolist() for t in tables), strict=True)):
            inside = 0 <= start <= len(sent) - size and 0 <= target <= len(output) - size
            if size and (size < 0 or not inside):
                where = f"replica {run.replica}, partition {run.partition}"
                raise ExecutionError(f"{run.instruction.name} on {where}: {out_of_range(i)}")
        return super().evaluate(run, *operands)

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


def out_of_range(entry: int) -> str:
    """The error of an entry of the tables."""
    return f"entry {entry} of its offsets and sizes reaches beyond the input or the output"
