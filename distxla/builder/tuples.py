"""Tuples, tokens and order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.builder.accepted_values import as_integer, as_sequence
from distxla.builder.blame import broken_rule
from distxla.builder.recorder import Recorder
from distxla.builder.xla_op import XlaOp
from distxla.ops.optimization_barrier import OptimizationBarrier
from distxla.ops.token import AddDependency, AfterAll
from distxla.ops.tuple import GetTupleElement, Tuple


class Tuples(Recorder):
    """Pages Tuple, GetTupleElement, AfterAll, OptimizationBarrier."""

    def tuple(self, elements: Sequence[Any] = ()) -> XlaOp:
        """The elements in one value; an element may be a tuple."""
        return self._add(Tuple(), [self._value(element) for element in as_sequence(elements, "elements")])

    def get_tuple_element(self, tuple: XlaOp, index: int) -> XlaOp:
        """Element `index`, from 0."""
        return self._add(GetTupleElement(index=as_integer(index, "index")), [self._value(tuple)])

    def create_token(self) -> XlaOp:
        """A token that comes after nothing."""
        return self._add(AfterAll())

    def after_all(self, operands: Sequence[XlaOp] = ()) -> XlaOp:
        """A token that comes after all the tokens in `operands`. As XLA's builder it takes nothing else; text does."""
        tokens = [self._operand(token) for token in as_sequence(operands, "operands")]
        other = next((token.shape for token in tokens if not token.shape.is_token), None)
        if other is not None:
            raise broken_rule(f"after-all.C1: joins tokens, not {other}", "operands")
        return self._add(AfterAll(), tokens)

    def add_dependency(self, operand: Any, token: XlaOp) -> XlaOp:
        """The operand, but not before the token."""
        return self._add(AddDependency(), [self._value(operand), self._operand(token)])

    def optimization_barrier(self, operand: Any) -> XlaOp:
        """The operand, and no optimisation moves anything across."""
        return self._add(OptimizationBarrier(), [self._value(operand)])
