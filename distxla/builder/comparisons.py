"""Element-wise comparisons."""

from __future__ import annotations

from distxla.builder.accepted_values import as_word
from distxla.builder.broadcasting import Broadcasting
from distxla.builder.xla_op import Dimensions, OperandLike, XlaOp
from distxla.ops.compare import Compare


class Comparisons(Broadcasting):
    """Page "Element-wise comparison operations": pred arrays.

    Floats compare by IEEE 754. The `_total_order` forms also order NaNs and zeros:
    -NaN < -inf < finite < -0 < +0 < finite < +inf < +NaN; of integers they are the plain ones.
    """

    def compare(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        direction: str,
        comparison_type: str | None = None,
        broadcast_dimensions: Dimensions = None,
    ) -> XlaOp:
        """direction: EQ NE LT LE GT GE.  comparison_type: FLOAT, TOTALORDER, SIGNED, UNSIGNED; None by element type."""
        kind = None if comparison_type is None else as_word(comparison_type, "comparison_type").upper()
        op = Compare(direction=as_word(direction, "direction").upper(), comparison=kind)
        return self._add(op, self._pair(lhs, rhs, broadcast_dimensions))

    def _total_order(
        self, direction: str, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions
    ) -> XlaOp:
        pair = self._pair(lhs, rhs, broadcast_dimensions)
        return self._add(
            Compare(direction=direction, comparison="TOTALORDER" if pair[0].dtype.is_float else None), pair
        )

    def eq(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Equal."""
        return self.compare(lhs, rhs, "EQ", None, broadcast_dimensions)

    def ne(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Unequal."""
        return self.compare(lhs, rhs, "NE", None, broadcast_dimensions)

    def ge(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Greater or equal."""
        return self.compare(lhs, rhs, "GE", None, broadcast_dimensions)

    def gt(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Greater."""
        return self.compare(lhs, rhs, "GT", None, broadcast_dimensions)

    def le(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Less or equal."""
        return self.compare(lhs, rhs, "LE", None, broadcast_dimensions)

    def lt(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Less."""
        return self.compare(lhs, rhs, "LT", None, broadcast_dimensions)

    def eq_total_order(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Equal in the total order of floats."""
        return self._total_order("EQ", lhs, rhs, broadcast_dimensions)

    def ne_total_order(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Unequal in the total order of floats."""
        return self._total_order("NE", lhs, rhs, broadcast_dimensions)

    def ge_total_order(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Greater or equal in the total order of floats."""
        return self._total_order("GE", lhs, rhs, broadcast_dimensions)

    def gt_total_order(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Greater in the total order of floats."""
        return self._total_order("GT", lhs, rhs, broadcast_dimensions)

    def le_total_order(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Less or equal in the total order of floats."""
        return self._total_order("LE", lhs, rhs, broadcast_dimensions)

    def lt_total_order(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions = None) -> XlaOp:
        """Less in the total order of floats."""
        return self._total_order("LT", lhs, rhs, broadcast_dimensions)
