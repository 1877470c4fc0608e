"""HLO `gather`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, IndexLike, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.run_time_sizes import widened


@register
class Gather(ExecutableOp):
    """gather(x, start_indices): windows of `slice_sizes` out of x, at the starts that the second operand holds.

    Each vector along `index_vector_dim` of start_indices is one start: its component k is the position in operand
    dimension start_index_map[k], clamped so that the window fits. Result dimensions `offset_dims` run over the window
    without collapsed_slice_dims and operand_batching_dims, the others over start_indices without index_vector_dim.
    Operand dimension operand_batching_dims[k] is indexed by start_indices dimension start_indices_batching_dims[k]; a
    component that start_index_map has for it is ignored, as in XLA's HloEvaluator. Windows without elements,
    whose size of 0 is collapsed, give zeros, as in XLA.

    Shapes:  T[dims], integer[batch dims with a vector of starts at index_vector_dim] -> T[batch dims and window dims].
             index_vector_dim equal to the rank of start_indices: each element is a start of its own.
    Errors:  C1 the operand's rank is not that of offset, collapsed and batching dimensions together.  C2
             index_vector_dim.  C3 start_index_map's length.  C4 C5 offset_dims not ascending or out of range.  C6 C7
             C8 C9 collapsed dimensions repeated, not ascending, out of range, with a slice size above 1.  C10 C11
             C12 operand batching dimensions likewise.  C13 C14 C15 batching dimensions of start_indices repeated,
             out of range, or index_vector_dim among them.  C16 C17 the two lists of batching dimensions differ in
             length or dimension sizes.  C18 C19 start_index_map repeated or out of range.  C20 C21 slice_sizes.
             C24 start_indices is no integer array.
    """

    opcode = "gather"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(2)
    offset_dims: tuple[int, ...] = attribute("int_list")
    collapsed_slice_dims: tuple[int, ...] = attribute("int_list")
    start_index_map: tuple[int, ...] = attribute("int_list")
    operand_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    start_indices_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    index_vector_dim: int = attribute("int")
    slice_sizes: tuple[int, ...] = attribute("int_list")
    indices_are_sorted: bool = attribute("bool", default=False)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, starts = operands
        fits = operand.is_array and starts.is_array and starts.dtype.is_integer
        self.require(fits, "C24", f"gather of {operand} at {starts}", at="operands")
        self._require_dimensions(operand, starts)
        batch = iter(n for d, n in enumerate(starts.dims) if d != self.index_vector_dim)
        window = iter(self.slice_sizes[d] for d in self._window_dimensions(operand.rank))
        rank = len(self.offset_dims) + starts.rank - (self.index_vector_dim < starts.rank)
        self._check("C5", "offset_dims", all(0 <= d < rank for d in self.offset_dims), f"of a result of rank {rank}")
        return operand.with_dims(tuple(next(window if d in self.offset_dims else batch) for d in range(rank)))

    def _check(self, rule: str, name: str, condition: bool, reason: str) -> None:
        value = getattr(self, name)
        text = list(value) if isinstance(value, tuple) else value
        self.require(condition, rule, f"{name}={text} {reason}", at=name)

    def _require_dimensions(self, operand: Shape, starts: Shape) -> None:
        check, vector = self._check, self.index_vector_dim
        offset, collapsed, batching = self.offset_dims, self.collapsed_slice_dims, self.operand_batching_dims
        starts_batching, sizes = self.start_indices_batching_dims, self.slice_sizes
        together = len(offset) + len(collapsed) + len(batching)
        check(
            "C1",
            "offset_dims",
            operand.rank == together,
            f"with collapsed and batching ones are not those of {operand}",
        )
        check("C2", "index_vector_dim", 0 <= vector <= starts.rank, f"is not a dimension of {starts} or its rank")
        components = starts.dims[vector] if vector < starts.rank else 1
        check(
            "C3", "start_index_map", len(self.start_index_map) == components, f"for starts of {components} components"
        )
        check("C4", "offset_dims", list(offset) == sorted(set(offset)), "are not ascending")
        check("C20", "slice_sizes", len(sizes) == operand.rank, f"are not one for each dimension of {operand}")
        inside = all(0 <= size <= dimension_size for size, dimension_size in zip(sizes, operand.dims, strict=True))
        check("C21", "slice_sizes", inside, f"do not fit into {operand}")
        check("C6", "collapsed_slice_dims", not set(collapsed) & set(batching), "are batching dimensions, too")
        check("C7", "collapsed_slice_dims", list(collapsed) == sorted(set(collapsed)), "are not ascending")
        check("C8", "collapsed_slice_dims", all(0 <= d < operand.rank for d in collapsed), f"of {operand}")
        check("C9", "collapsed_slice_dims", all(sizes[d] <= 1 for d in collapsed), "have slice sizes above 1")
        check("C10", "operand_batching_dims", list(batching) == sorted(set(batching)), "are not ascending")
        check("C11", "operand_batching_dims", all(0 <= d < operand.rank for d in batching), f"of {operand}")
        check("C12", "operand_batching_dims", all(sizes[d] <= 1 for d in batching), "have slice sizes above 1")
        name = "start_indices_batching_dims"
        check("C13", name, len(set(starts_batching)) == len(starts_batching), "repeat a dimension")
        check("C14", name, all(0 <= d < starts.rank for d in starts_batching), f"of {starts}")
        check("C15", name, vector not in starts_batching, "hold index_vector_dim")
        check("C16", name, len(batching) == len(starts_batching), "are not as many as operand_batching_dims")
        equal = all(operand.dims[a] == starts.dims[b] for a, b in zip(batching, starts_batching, strict=True))
        check("C17", name, equal, "have other dimension sizes than operand_batching_dims")
        mapped = self.start_index_map
        check("C18", "start_index_map", len(set(mapped)) == len(mapped), "repeats a dimension")
        check("C19", "start_index_map", all(0 <= d < operand.rank for d in mapped), f"of {operand}")

    def _window_dimensions(self, rank: int) -> list[int]:
        """Operand dimensions that the result keeps, in order: those of offset_dims."""
        dropped = {*self.collapsed_slice_dims, *self.operand_batching_dims}
        return [d for d in range(rank) if d not in dropped]

    def _batch_position(self, starts_dimension: int) -> int:
        """Which of the result's batch dimensions, counted among themselves, runs over this one of start_indices."""
        return starts_dimension - (starts_dimension > self.index_vector_dim)

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        batching = zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True)
        return tuple(((0, a), (1, b)) for a, b in batching)

    def keeps(self, operand: Shape, dimension: int) -> bool:
        """Whether a dimension's run-time size is the result's: a window takes all of it, or it is a batching one."""
        if dimension in self.operand_batching_dims:
            return True
        whole = self.slice_sizes[dimension] == operand.dims[dimension]
        return whole and dimension in self._window_dimensions(operand.rank)

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        operand, starts = actual
        batch = iter(n for d, n in enumerate(starts.dims) if d != self.index_vector_dim)
        windows = self._window_dimensions(operand.rank)
        dimension_sizes = iter(operand.dims[d] if self.keeps(operands[0], d) else self.slice_sizes[d] for d in windows)
        return shape.with_dims(
            tuple(next(dimension_sizes if d in self.offset_dims else batch) for d in range(shape.rank))
        )

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        operand, starts = operands
        stated, rank = run.operand_shapes[0], len(run.shape.dims)
        dimension_sizes = (n if self.keeps(stated, d) else stated.dims[d] for d, n in enumerate(operand.shape))
        operand = widened(operand, tuple(dimension_sizes))
        if 0 in run.shape.dims or 0 in self.slice_sizes:
            return np.zeros(run.shape.dims, operand.dtype)
        vectors = (
            starts[..., None]
            if self.index_vector_dim == starts.ndim
            else np.moveaxis(starts, self.index_vector_dim, -1)
        )
        batch_dimensions = [d for d in range(rank) if d not in self.offset_dims]
        # Of each operand dimension, the position for every element of the result, as arrays that broadcast to it.
        index = np.indices(run.shape.dims, sparse=True) if rank else ()
        batch_sizes = [run.shape.dims[d] if d in batch_dimensions else 1 for d in range(rank)]
        position: list[Any] = [0] * operand.ndim
        for component, d in enumerate(self.start_index_map):
            highest = stated.dims[d] - self.slice_sizes[d]
            wanted = np.minimum(vectors[..., component].astype(np.uint64), np.uint64(highest)).astype(np.int64)
            clamped = np.where(vectors[..., component] < 0, 0, wanted)
            position[d] = clamped.reshape(batch_sizes)
        for d, s in zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True):
            position[d] = index[batch_dimensions[self._batch_position(s)]]
        for d, result_dimension in zip(self._window_dimensions(operand.ndim), self.offset_dims, strict=True):
            position[d] = position[d] + index[result_dimension]
        return np.array(np.broadcast_to(operand[tuple(position)], run.shape.dims))

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        operand, starts = operands
        if 0 in self.slice_sizes:
            return emit.constant(0, shape.dtype)
        batch = [index[d] for d in range(shape.rank) if d not in self.offset_dims]
        position: list[IndexLike] = [0] * operand.shape.rank
        for component, d in enumerate(self.start_index_map):
            highest = operand.shape.dims[d] - self.slice_sizes[d]
            if highest == 0:
                continue
            where = list(batch)
            if self.index_vector_dim < starts.shape.rank:
                where.insert(self.index_vector_dim, component)
            position[d] = emit.index_clamp(0, emit.index_of(starts.load(where)), highest)
        for d, s in zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True):
            position[d] = batch[self._batch_position(s)]
        for d, result_dimension in zip(self._window_dimensions(operand.shape.rank), self.offset_dims, strict=True):
            position[d] = position[d] + index[result_dimension]
        return operand.load(position)
