"""HLO `reduce`: combine the elements along dimensions by a computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement, same_positions
from distxla.ir.mixed_precision import Computed, by_reducer
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount
from distxla.ir.shape import Called, Shape
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.reducer import check_inputs, check_reducer, split_inputs
from distxla.ops.support.registry import register


@register
class Reduce(ExecutableOp):
    """Combine the elements along `dimensions` by a computation, starting from an initial value.

    Shapes:  N arrays T_i[d0,..] and N initial values T_i[] -> T_i[the other dimensions]; a tuple of them for N > 1.
    Order:   any grouping of the elements is allowed; the computation is taken as associative, the initial value as its
             identity. Compiled, it depends on shapes alone: every run gives the same bits.
    Errors:  C1 arrays of different dimension sizes; C2 an initial value of another type; C3 not as many initial values
             as arrays; C4 a dimension out of range; C5 a dimension twice; C6 the computation's signature.
    Source:  StableHLO spec, "reduce"; Operation Semantics, "Reduce".
    """

    opcode: ClassVar[str] = "reduce"
    lowering: ClassVar[Lowering] = Lowering.REDUCTION
    operand_count: ClassVar[OperandCount] = OperandCount(least=2)
    dimensions: tuple[int, ...] = attribute("int_list")
    to_apply: str = attribute("computation")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        arrays, initial = split_inputs(self, operands, "C3")
        check_inputs(self, arrays, initial, same_dims="C1", same_types="C2")
        rank = arrays[0].rank
        for d in self.dimensions:
            self.require(0 <= d < rank, "C4", f"dimension {d} is not one of the {rank} of {arrays[0]}", at="dimensions")
        self.require(
            len(set(self.dimensions)) == len(self.dimensions),
            "C5",
            f"dimensions={list(self.dimensions)} names a dimension twice",
            at="dimensions",
        )
        check_reducer(self, "C6", self.to_apply, called, [a.dtype for a in arrays])
        return Shape.one_or_tuple([_without(a, self.dimensions) for a in arrays])

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        half = len(operands) // 2
        return by_reducer(called(self.to_apply), shape, operands, lambda k: k % half)

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        return same_positions(operands[: len(operands) // 2])

    def leading_dimensions(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int, ...]:
        half = len(operands) // 2
        return (min(self.dimensions, default=operands[0].rank),) * half + (0,) * half

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """Neighbours are combined pairwise until one is left, then with the initial value."""
        half = len(operands) // 2
        arrays, initial = operands[:half], operands[half:]
        kept = [d for d in range(arrays[0].ndim) if d not in self.dimensions]
        dims = tuple(arrays[0].shape[d] for d in kept)
        count = int(np.prod([arrays[0].shape[d] for d in self.dimensions], dtype=np.int64))
        rows = [a.transpose([*sorted(self.dimensions), *kept]).reshape((count, *dims)) for a in arrays]
        while count > 1:
            pairs = count // 2
            combined = run.map(self.to_apply, *(r[0 : 2 * pairs : 2] for r in rows), *(r[1::2][:pairs] for r in rows))
            rows = [np.concatenate([c, r[2 * pairs :]]) for c, r in zip(combined, rows)]
            count -= pairs
        results: tuple[Any, ...] = tuple(np.broadcast_to(i, dims) for i in initial)
        if count:
            results = run.map(self.to_apply, *results, *(r[0] for r in rows))
        return results[0] if half == 1 else results


def _without(shape: Shape, dimensions: Sequence[int]) -> Shape:
    """The shape without some dimensions; dynamic dimensions stay dynamic."""
    kept = [d for d in range(shape.rank) if d not in dimensions]
    dynamic = tuple(shape.dynamic[d] for d in kept) if shape.dynamic else ()
    return Shape(shape.element_type, tuple(shape.dims[d] for d in kept), dynamic)
