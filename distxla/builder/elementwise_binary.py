"""Element-wise arithmetic and logic of two operands."""

from __future__ import annotations

from distxla.builder.choices import Choices
from distxla.builder.comparisons import Comparisons
from distxla.builder.elementwise_unary import ElementwiseUnary
from distxla.builder.xla_op import Dimensions, OperandLike, XlaOp
from distxla.ops.support.registry import op_class


class ElementwiseBinary(Comparisons, Choices, ElementwiseUnary):
    """Page "Element-wise binary arithmetic operations".

    The operands have equal ranks, or one is a scalar, or `broadcast_dimensions` says which dimension of the operand of
    higher rank each dimension of the other one is; then dimensions of size 1 are repeated.
    """

    def _binary(self, opcode: str, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions) -> XlaOp:
        return self._add(op_class(opcode)(), self._pair(lhs, rhs, broadcast_dimensions))

    def add(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs + rhs; or of pred."""
        return self._binary("add", lhs, rhs, broadcast_dimensions)

    def sub(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs - rhs."""
        return self._binary("subtract", lhs, rhs, broadcast_dimensions)

    def mul(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs * rhs; and of pred."""
        return self._binary("multiply", lhs, rhs, broadcast_dimensions)

    def div(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs / rhs; integers towards zero."""
        return self._binary("divide", lhs, rhs, broadcast_dimensions)

    def rem(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """The rest of a division towards zero, with the dividend's sign."""
        return self._binary("remainder", lhs, rhs, broadcast_dimensions)

    def pow(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs to the power of rhs."""
        return self._binary("power", lhs, rhs, broadcast_dimensions)

    def max(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """The larger one; NaN if one is."""
        return self._binary("maximum", lhs, rhs, broadcast_dimensions)

    def min(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """The smaller one; NaN if one is."""
        return self._binary("minimum", lhs, rhs, broadcast_dimensions)

    def and_(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """And, bitwise of integers."""
        return self._binary("and", lhs, rhs, broadcast_dimensions)

    def or_(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Or, bitwise of integers."""
        return self._binary("or", lhs, rhs, broadcast_dimensions)

    def xor(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Exclusive or, bitwise of integers."""
        return self._binary("xor", lhs, rhs, broadcast_dimensions)

    def shift_left(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs with its bits moved up by rhs."""
        return self._binary("shift-left", lhs, rhs, broadcast_dimensions)

    def shift_right_arithmetic(
        self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None
    ) -> XlaOp:
        """lhs with its bits moved down by rhs, copies of the sign coming in."""
        return self._binary("shift-right-arithmetic", lhs, rhs, broadcast_dimensions)

    def shift_right_logical(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs with its bits moved down by rhs, zeros coming in."""
        return self._binary("shift-right-logical", lhs, rhs, broadcast_dimensions)

    def atan2(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """The angle of the point (rhs, lhs)."""
        return self._binary("atan2", lhs, rhs, broadcast_dimensions)

    def complex(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs + i rhs."""
        return self._binary("complex", lhs, rhs, broadcast_dimensions)

    def mulhi(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """The upper half of the double-width product of integers."""
        return self._binary("mulhi", lhs, rhs, broadcast_dimensions)

    def logical_and(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """`and_` under the name of the older pages."""
        return self.and_(lhs, rhs, broadcast_dimensions)

    def logical_or(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """`or_` under the name of the older pages."""
        return self.or_(lhs, rhs, broadcast_dimensions)

    def floor_div(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """lhs / rhs rounded down, as Python's `//`; integers by 0 as `div`."""
        left, right = self._pair(lhs, rhs, broadcast_dimensions)
        quotient = self.div(left, right)
        if not left.dtype.is_integer:
            return self.floor(quotient)
        if not left.dtype.is_signed:
            return quotient
        # Division towards zero is one too high where it is inexact and the signs differ.
        inexact = self.ne(self.mul(quotient, right), left)
        opposite = self.ne(self.lt(left, 0), self.lt(right, 0))
        divides = self.ne(right, 0)
        lower = self.and_(divides, self.and_(inexact, opposite))
        return self.select(lower, self.sub(quotient, 1), quotient)
