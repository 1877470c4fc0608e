"""Rules that let contractions read and write transposed matrices, so that nothing has to transpose them."""

from __future__ import annotations

import dataclasses

from distxla.compiler.passes.simplification_rules import RewriteSite, rule
from distxla.ir.instruction import Instruction
from distxla.ops.dot import Dot
from distxla.ops.transpose import Transpose


@rule(Transpose)
def _transposed_result(op: Transpose, site: RewriteSite) -> Instruction | None:
    """The transpose of a . b is b . a with the free dimensions in the other order; the sums are the same."""
    source = site.operand()
    dot = source.op
    if not isinstance(dot, Dot) or dot.lhs_batch_dims or len(site.rewriter.computation.users[source.name]) > 1:
        return None
    lhs_free = site.operand_of(source, 0).shape.rank - len(dot.lhs_contracting_dims)
    rank = source.shape.rank
    if op.dimensions != (*range(lhs_free, rank), *range(lhs_free)):
        return None
    swapped = dataclasses.replace(
        dot,
        lhs_contracting_dims=dot.rhs_contracting_dims,
        rhs_contracting_dims=dot.lhs_contracting_dims,
        operand_precision=tuple(reversed(dot.operand_precision)),
    )
    return site.instead(swapped, source.operands[1], source.operands[0])


@rule(Dot)
def _transposed_operand(op: Dot, site: RewriteSite) -> Instruction | None:
    """A dot of a transposed matrix reads the matrix itself along its other dimension."""
    if op.lhs_batch_dims or op.rhs_batch_dims:
        return None
    for number, field in ((0, "lhs_contracting_dims"), (1, "rhs_contracting_dims")):
        source = site.operand(number)
        if isinstance(source.op, Transpose) and source.shape.rank == 2:
            dimensions = tuple(source.op.dimensions[d] for d in getattr(op, field))
            operands = list(site.instruction.operands)
            operands[number] = source.operands[0]
            changed: Dot = dataclasses.replace(op, **{field: dimensions})  # type: ignore[arg-type]
            return site.instead(changed, *operands)
    return None
