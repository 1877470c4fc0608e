"""Choices between operands: clamp and select."""

from __future__ import annotations

from typing import Any, overload

from distxla.builder.blame import broken_rule
from distxla.builder.broadcasting import Broadcasting
from distxla.builder.recorder import ComputationLike
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.ir.element_type import PRED
from distxla.ir.shape import Shape
from distxla.ops.clamp import Clamp
from distxla.ops.select import Select


class Choices(Broadcasting):
    """Pages "Clamp" and "Select"."""

    @overload
    def clamp(self, min: OperandLike, operand: OperandLike, max: OperandLike) -> XlaOp: ...
    @overload
    def clamp(
        self, computation: ComputationLike | None, operand: OperandLike, min: OperandLike, max: OperandLike, /
    ) -> XlaOp: ...
    def clamp(self, min: Any, operand: Any, max: Any, older_max: Any = None) -> XlaOp:
        """min(max(operand, min), max); min and max may be scalars.

        The older form has four arguments, `clamp(computation, operand, min, max)`. Its page gives the result without
        the computation, which is None or has the signature (T[], T[], T[]) -> T[].
        """
        if older_max is not None:
            computation, min, max = min, max, older_max
            if computation is not None:
                self._check_clamp(computation, self._array(operand))
        like = next((value.dtype for value in (operand, min, max) if isinstance(value, XlaOp)), None)
        x = self._array(operand, like)
        return self._add(Clamp(), [self._array(min, x.dtype), x, self._array(max, x.dtype)])

    def _check_clamp(self, computation: ComputationLike, operand: XlaOp) -> None:
        scalar = Shape(operand.dtype)
        program = self._called(self._computation(computation, [scalar] * 3, "computation"))
        if len(program.parameters) != 3 or any(not s.compatible(scalar) for s in (*program.parameters, program.result)):
            raise broken_rule(
                f"clamp.computation: it must be ({scalar}, {scalar}, {scalar}) -> {scalar}", culprits=[computation]
            )

    def select(self, pred: OperandLike, on_true: Any, on_false: Any) -> XlaOp:
        """Elements of on_true where pred is true, of on_false elsewhere; a scalar pred chooses one of them as a whole.

        on_true and on_false have one shape (a constant scalar is repeated); tuples are chosen by a scalar pred.
        """
        predicate = self._array(pred, PRED)
        if isinstance(on_true, tuple) or (isinstance(on_true, XlaOp) and on_true.shape.is_tuple):
            return self._select_tuple(predicate, self._value(on_true), self._value(on_false))
        left, right = self._typed_pair(on_true, on_false)
        dims = max((left.shape.dims, right.shape.dims, predicate.shape.dims), key=len)
        if not isinstance(on_true, XlaOp) and not left.rank:
            left = self._spread(left, dims, ())
        if not isinstance(on_false, XlaOp) and not right.rank:
            right = self._spread(right, dims, ())
        return self._add(Select(), [predicate, left, right])

    def _select_tuple(self, predicate: XlaOp, on_true: XlaOp, on_false: XlaOp) -> XlaOp:
        """HLO has no select of tuples: each element is chosen for itself."""
        if predicate.rank or not on_true.shape.compatible(on_false.shape):
            raise broken_rule(
                f"select.C2: tuples of one shape are chosen by a scalar pred, not {on_true.shape} and {on_false.shape} "
                f"by {predicate.shape}"
            )
        return self._value(tuple(self.select(predicate, x, y) for x, y in zip(on_true, on_false, strict=True)))
