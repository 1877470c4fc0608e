"""HLO `ragged-dot` and `scaled-dot`: products with groups of rows, and of operands with scaled blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.dot_dimensions import DotDimensions, check_precision, product_type
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class RaggedDot(Op):
    """A product in which one dimension of lhs is cut into groups of sizes that an operand gives.

    Shapes:  by the kind of the ragged dimension of lhs: free: rhs has a group dimension, -> [batch, free of lhs, free
             of rhs]; contracting: -> [groups, batch, free, free]; batch: -> [batch, free, free].
    Errors:  C1 to C10 as for dot; C11 operand_precision; C14 not one ragged dimension; C15 the group dimensions; C16
             the group sizes.
    Source:  CHLO "ragged_dot".
    """

    opcode: ClassVar[str] = "ragged-dot"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 3
    max_operands: ClassVar[int | None] = 3
    lhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_ragged_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_group_dims: tuple[int, ...] = attribute("int_list", default=())
    operand_precision: tuple[str, ...] = attribute("precision", default=())

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        lhs, rhs, sizes = operands
        dims = DotDimensions(
            self.lhs_batch_dims, self.lhs_contracting_dims, self.rhs_batch_dims, self.rhs_contracting_dims
        )
        dims.check(self, lhs, rhs)
        check_precision(self, "C11", self.operand_precision)
        ragged = self.lhs_ragged_dims
        self.require(
            len(ragged) == 1 and 0 <= ragged[0] < lhs.rank, "C14", f"{list(ragged)} for {lhs}", at="lhs_ragged_dims"
        )
        is_free = ragged[0] in dims.lhs_free(lhs.rank)
        self.require(
            len(self.rhs_group_dims) == int(is_free) and all(d in dims.rhs_free(rhs.rank) for d in self.rhs_group_dims),
            "C15",
            f"rhs_group_dims={list(self.rhs_group_dims)} for a {'free' if is_free else 'shared'} ragged dimension",
            at="rhs_group_dims",
        )
        self.require(
            sizes.is_array and sizes.dtype.is_integer and sizes.rank >= 1, "C16", f"group sizes {sizes}", at="operands"
        )
        groups = sizes.dims[-1]
        for d in self.rhs_group_dims:
            self.require(rhs.dims[d] == groups, "C16", f"{rhs} has not {groups} groups", at="operands")
        result = [
            *(lhs.dims[d] for d in dims.lhs_batch),
            *(lhs.dims[d] for d in dims.lhs_free(lhs.rank)),
            *(rhs.dims[d] for d in dims.rhs_free(rhs.rank) if d not in self.rhs_group_dims),
        ]
        if ragged[0] in dims.lhs_contracting:
            result.insert(0, groups)
        return Shape(product_type(lhs, rhs), tuple(result))

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        _verify_product(self, shape, self.infer_shape(operands, called))


@register
class ScaledDot(Op):
    """A product of operands whose blocks along the contracting dimension carry a scale each.

    Shapes:  as dot; the scales have the rank of their operand, each extent divides it; a scalar scale stands for none.
    Errors:  C1 to C10 as for dot; C11 operand_precision; C14 a scale that doesn't fit.
    """

    opcode: ClassVar[str] = "scaled-dot"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 4
    max_operands: ClassVar[int | None] = 4
    lhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    operand_precision: tuple[str, ...] = attribute("precision", default=())
    algorithm: str | None = attribute("word", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        lhs, rhs = operands[:2]
        dims = DotDimensions(
            self.lhs_batch_dims, self.lhs_contracting_dims, self.rhs_batch_dims, self.rhs_contracting_dims
        )
        dims.check(self, lhs, rhs)
        check_precision(self, "C11", self.operand_precision)
        for operand, scale in zip((lhs, rhs), operands[2:]):
            fits = scale.is_array and (
                scale.rank == 0
                or (
                    scale.rank == operand.rank
                    and all(s > 0 and extent % s == 0 for s, extent in zip(scale.dims, operand.dims))
                )
            )
            self.require(fits, "C14", f"{scale} does not scale blocks of {operand}", at="operands")
        return Shape(product_type(lhs, rhs), dims.result_dims(lhs, rhs))

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        _verify_product(self, shape, self.infer_shape(operands, called))


def _verify_product(op: Op, shape: Shape, inferred: Shape) -> None:
    """The extents must agree; the result's element type is free."""
    op.require(
        shape.is_array and shape.dims == inferred.dims,
        "C12",
        f"the result is {inferred}, the text says {shape}",
        at="shape",
    )
