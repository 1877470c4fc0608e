"""Implicit broadcasting of the operands of element-wise operations."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.builder.accepted_values import as_integers
from distxla.builder.blame import broken_rule
from distxla.builder.recorder import Recorder
from distxla.builder.xla_op import Dimensions, OperandLike, XlaOp
from distxla.ir.shape import Shape
from distxla.ops.broadcast import Broadcast
from distxla.ops.reshape import Reshape


class Broadcasting(Recorder):
    """Two operands of an element-wise operation in one shape: ranks first, then dimensions of size 1."""

    def _pair(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Dimensions) -> Sequence[XlaOp]:
        """Both operands as arrays of equal dimension sizes.

        A scalar goes with everything. Otherwise ranks are equal, or `broadcast_dimensions` says which dimension of the
        operand of higher rank each dimension of the other one is. Where dimension sizes differ, one of them is 1.
        """
        left, right = self._typed_pair(lhs, rhs)
        low, high = (left, right) if left.rank < right.rank else (right, left)
        mapping = self._mapping(low.shape, high.shape, broadcast_dimensions)
        dims = list(high.shape.dims)
        for source, target in enumerate(mapping):
            mine, other = low.shape.dims[source], dims[target]
            if mine != other and 1 not in (mine, other):
                raise broken_rule(
                    f"broadcast: dimension {source} of {low.shape} does not go with dimension {target} of "
                    f"{high.shape}: dimension sizes must be equal, or one of them 1"
                )
            dims[target] = mine if other == 1 else other
        spread = {
            id(low): self._spread(low, dims, mapping),
            id(high): self._spread(high, dims, range(high.rank)),
        }
        return [spread[id(left)], spread[id(right)]]

    def _typed_pair(self, lhs: OperandLike, rhs: OperandLike) -> tuple[XlaOp, XlaOp]:
        """Constants take the element type of the operand beside them."""
        if isinstance(lhs, XlaOp) or not isinstance(rhs, XlaOp):
            left = self._array(lhs)
            return left, self._array(rhs, left.dtype)
        right = self._array(rhs)
        return self._array(lhs, right.dtype), right

    def _mapping(self, low: Shape, high: Shape, broadcast_dimensions: Dimensions) -> Sequence[int]:
        """Which dimension of `high` each dimension of `low` becomes."""
        name = "broadcast_dimensions"
        given = None if broadcast_dimensions is None else as_integers(broadcast_dimensions, name)
        if low.rank == high.rank:
            if given and given != tuple(range(low.rank)):
                raise broken_rule(f"broadcast: {name}={list(given)} of operands of equal rank {low.rank}", name)
            return range(low.rank)
        if not given and low.rank == 0:
            return ()
        if given is None:
            raise broken_rule(f"broadcast: {low} and {high} differ in rank; {name} must say how they go together")
        if len(given) != low.rank:
            raise broken_rule(f"broadcast: {name}={list(given)} for the {low.rank} dimensions of {low}", name)
        if any(not 0 <= d < high.rank for d in given):
            raise broken_rule(f"broadcast: {name}={list(given)} are not all dimensions of {high}", name)
        if list(given) != sorted(set(given)):
            raise broken_rule(f"broadcast: {name}={list(given)} do not ascend", name)
        return given

    def _spread(self, operand: XlaOp, dims: Sequence[int], mapping: Sequence[int]) -> XlaOp:
        """`operand` repeated to dimension sizes `dims`, its dimension i becoming mapping[i]; dimensions of size 1 are
        repeated, too."""
        shape = operand.shape
        if shape.dims == tuple(dims) and tuple(mapping) == tuple(range(shape.rank)):
            return operand
        kept = [i for i, target in enumerate(mapping) if shape.dims[i] == dims[target]]
        if len(kept) < shape.rank:
            operand = self._add(Reshape(), [operand], _parts(shape, kept))
        targets = tuple(mapping[i] for i in kept)
        if targets == tuple(range(len(dims))):
            return operand
        dynamic = [False] * len(dims)
        for i in kept:
            dynamic[mapping[i]] = bool(shape.dynamic) and shape.dynamic[i]
        return self._add(Broadcast(dimensions=targets), [operand], Shape(shape.dtype, tuple(dims), tuple(dynamic)))


def _parts(shape: Shape, kept: Sequence[int]) -> Shape:
    dynamic = tuple(shape.dynamic[i] for i in kept) if shape.dynamic else ()
    return Shape(shape.dtype, tuple(shape.dims[i] for i in kept), dynamic)
