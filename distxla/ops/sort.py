"""HLO `sort` and `topk`: order along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.element_type import PRED, S32
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.evaluation import Evaluation
from distxla.ops.op import Lowering, Op
from distxla.ops.reducer import check_scalar_computation, result_of
from distxla.ops.registry import register


@register
class Sort(Op):
    """Sort arrays together along a dimension by a comparator.

    Shapes:      N arrays T_i[d0,..] -> themselves reordered; a tuple of them for N > 1.
    Comparator:  (a_0, b_0, a_1, b_1, ..) -> pred[]: whether the a's come before the b's.
    Order:       equal elements keep their order, whatever is_stable says.
    Errors:      C3 arrays of different extents; C4 not one dimension of them; C5 the comparator's signature.
    Source:      StableHLO spec, "sort"; Operation Semantics, "Sort".
    """

    opcode: ClassVar[str] = "sort"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    dimensions: tuple[int, ...] = attribute("int_list")
    is_stable: bool = attribute("bool", default=False)
    to_apply: str = attribute("computation")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        for operand in operands:
            self.require(operand.is_array, "C3", f"sorts arrays, not {operand}", at="operands")
            self.require(
                operand.dims == operands[0].dims, "C3", f"{operand} and {operands[0]} differ in extents", at="operands"
            )
        rank = operands[0].rank
        self.require(
            len(self.dimensions) == 1 and 0 <= self.dimensions[0] < max(rank, 1),
            "C4",
            f"dimensions={list(self.dimensions)} is not one of the {rank} dimensions",
            at="dimensions",
        )
        pairs = [t for operand in operands for t in (operand.dtype, operand.dtype)]
        check_scalar_computation(self, "C5", self.to_apply, called, pairs, [PRED])
        return result_of([o.without_layout() for o in operands])

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """Line by line."""
        if operands[0].ndim == 0:
            return operands[0] if len(operands) == 1 else operands
        axis = self.dimensions[0]
        lines = [np.moveaxis(o, axis, -1).reshape(-1, o.shape[axis]) for o in operands]
        order = np.empty(lines[0].shape, np.int64)
        for number in range(len(order)):
            order[number] = self._order(run, [line[number] for line in lines])
        moved = np.moveaxis(operands[0], axis, -1).shape
        results = []
        for operand, line in zip(operands, lines):
            done = np.take_along_axis(line, order, axis=-1).reshape(moved)
            results.append(np.moveaxis(done, -1, axis).reshape(operand.shape))
        return results[0] if len(results) == 1 else tuple(results)

    def _order(self, run: Evaluation, line: list[Any]) -> Any:
        """How many elements come before each one decides its place; ties go by position."""
        count = len(line[0])
        if count == 0:
            return np.arange(0)
        first, second = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
        pairs = [side for values in line for side in (values[first.ravel()], values[second.ravel()])]
        before = run.map(self.to_apply, *pairs)[0].reshape(count, count)
        tie = ~before & ~before.T & (first < second)
        return np.argsort((before | tie).sum(axis=0), kind="stable")


@register
class TopK(Op):
    """The k largest (or smallest) elements of the last dimension and their indices, best first.

    Shapes:  T[.., n] -> (T[.., k], s32[.., k]).
    Errors:  C1 a scalar; C2 k is not in 0..n.
    Source:  CHLO "top_k"; Operation Semantics, "TopK".
    """

    opcode: ClassVar[str] = "topk"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    k: int = attribute("int")
    largest: bool = attribute("bool", default=True)

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        operand = operands[0]
        self.require(
            operand.is_array and operand.rank >= 1, "C1", f"works on lines of arrays, not {operand}", at="operands"
        )
        self.require(0 <= self.k <= operand.dims[-1], "C2", f"k={self.k} of {operand.dims[-1]}", at="k")
        dims = (*operand.dims[:-1], self.k)
        return Shape.tuple((operand.with_dims(dims), Shape(S32, dims)))
