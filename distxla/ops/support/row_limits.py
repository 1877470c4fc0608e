"""Rows: fusions whose results are walked together over leading dimensions, so that each row of all is one unit of work.

A computation of rows holds fusions, elements that are taken out of their results, and views of these. Each row of every
result is made of that same row of the other fusions' results, whatever else is read of the computation's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distxla.ir.computation import Computation
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class RowLimits:
    """How many leading dimensions a fused computation can share with others: by parameter, and for its results."""

    parameters: tuple[int, ...]
    results: int


def row_limits(fused: Computation) -> RowLimits:
    """The limits of a computation of ELEMENT instructions whose root is one, a REDUCTION, or a tuple of such."""
    root = fused.root_instruction
    roots = fused.operands(root) if root.shape.is_tuple and root.op.lowering is Lowering.ALIAS else (root,)
    names = {r.name for r in roots}
    results = min((_walked(r.shape) for r in roots), default=0)
    wanted: dict[str, int] = {}
    for instruction in reversed(fused.instructions):
        if instruction is root and root not in roots:
            continue
        limit = wanted.get(instruction.name)
        if instruction.name in names:
            walked = _walked(instruction.shape)
            limit = walked if limit is None else min(walked, limit)
        if limit is None or instruction.op.role.is_parameter:
            continue
        operands = fused.operands(instruction)
        leading = instruction.op.leading_dimensions(instruction.shape, [o.shape for o in operands])
        if instruction.op.lowering is Lowering.REDUCTION:
            results = min(results, max(leading, default=0))
        for operand, k in zip(operands, leading):
            wanted[operand.name] = min(wanted.get(operand.name, k), k, limit)
    return RowLimits(tuple(wanted.get(p.name, results) for p in fused.parameters), results)


def _walked(shape: Shape) -> int:
    """Dimensions that every array of the shape has."""
    return min((leaf.rank for leaf in shape.leaves()), default=0)


def common_rows(first: Sequence[int], second: Sequence[int], limit: int) -> tuple[int, ...]:
    """The dimension sizes of the leading dimensions, at most `limit`, that two arrays share."""
    count = 0
    while count < min(limit, len(first), len(second)) and first[count] == second[count]:
        count += 1
    return tuple(first[:count])


def row_sizes(rows: Computation, computation: Callable[[str], Computation]) -> tuple[int, ...]:
    """The dimension sizes of the dimensions over which a computation of rows can be walked; () if over none."""
    found: tuple[int, ...] | None = None
    for instruction in rows:
        if instruction.op.role.is_parameter or instruction.op.lowering is Lowering.ALIAS:
            continue
        operands = rows.operands(instruction)
        if instruction.op.lowering is Lowering.CALL:
            (called,) = instruction.op.called_computations
            limits = row_limits(computation(called))
            limit, leading = limits.results, limits.parameters
        else:
            limit = instruction.shape.rank
            leading = instruction.op.leading_dimensions(instruction.shape, [o.shape for o in operands])
        limit = min(limit, *(k for o, k in zip(operands, leading) if not o.op.role.is_parameter), limit)
        for leaf in instruction.shape.leaves():
            found = common_rows(leaf.dims, leaf.dims if found is None else found, limit)
    return found or ()
