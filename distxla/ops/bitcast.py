"""HLO `bitcast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.op import Lowering, Op
from distxla.ir.shape import ProgramShape, Shape
from distxla.ir.tiles import UnknownPlaces, moved_by_tiles, target_order
from distxla.ops.convert import BitcastConvert
from distxla.ops.registry import register
from distxla.ops.reshape import Reshape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, IndexLike, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.row_major import reshaped_index
from distxla.ops.support.run_time_sizes import reshaped
from distxla.ops.transpose import Transpose


def _major_to_minor(shape: Shape) -> tuple[int, ...]:
    return tuple(reversed(shape.minor_to_major()))


def _permuted(shape: Shape, order: Sequence[int]) -> Shape:
    """The shape with its dimensions in another order, without layout."""
    dynamic = tuple(shape.dynamic[d] for d in order) if shape.dynamic else ()
    return Shape(shape.element_type, tuple(shape.dims[d] for d in order), dynamic)


@register
class Bitcast(ExecutableOp):
    """The same memory seen with another shape and layout; the only op whose values depend on layouts.

    The result's element at physical position p is the operand's at p. Where both layouts have tiles, positions are
    those of the tiled bytes; otherwise they follow minor_to_major alone. Element types of equal storage reinterpret
    their bits.

    Shapes:  T[dims]{layout} -> U[other dims]{other layout}, as many elements of as many bytes.
    Errors:  C1 not arrays, or the bytes differ.  C2 the bytes of an element differ.
    Limits:  tiles that would make an element of padding, or that join dimensions (`*`), are not executed.
    """

    opcode = "bitcast"
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        (operand,) = operands
        both = operand.is_array and shape.is_array
        self.require(
            both and operand.byte_size == shape.byte_size, "C1", f"{operand} has not the bytes of {shape}", at="shape"
        )
        self.require(
            operand.dtype.bits == shape.dtype.bits,
            "C2",
            f"elements of {operand} have not the bits of {shape}",
            at="shape",
        )

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        try:
            moved_by_tiles(operands[0], shape)
        except UnknownPlaces:
            return (
                f"this version cannot execute bitcast from {operands[0]} to {shape}: their tiles do not give each "
                "element a place on the other side"
            )
        return super().obstacle(shape, operands)

    def logical_steps(self, shape: Shape, operand: Shape) -> tuple[tuple[Op, Shape], ...]:
        """The ops, with their result shapes, that do the same with row-major arrays: at most transpose, reshape,
        transpose and bitcast-convert. Empty where nothing changes.

        A pass that removes or changes layouts must replace bitcasts by these steps before it does.
        """
        steps: list[tuple[Op, Shape]] = []
        current = operand.without_layout()
        moves = moved_by_tiles(operand, shape)

        def step(op: Op, result: Shape) -> None:
            nonlocal current
            if result != current:
                steps.append((op, result))
                current = result

        if moves is not None:
            parts = [move.size for move in moves]
            order = target_order(moves)
            step(Reshape(), current.with_dims(tuple(parts)))
            step(Transpose(dimensions=order), current.with_dims(tuple(parts[k] for k in order)))
            step(Reshape(), current.with_dims(shape.dims))
            step(BitcastConvert(), current.with_dtype(shape.dtype))
            return tuple(steps)
        physical, target = _major_to_minor(operand), _major_to_minor(shape)
        identity = tuple(range(operand.rank))
        if physical != identity:
            current = _permuted(current, physical)
            steps.append((Transpose(dimensions=physical), current))
        there = _permuted(shape, target)
        step(Reshape(), Shape(current.element_type, there.dims, there.dynamic))
        if target != tuple(range(shape.rank)):
            back = tuple(target.index(d) for d in range(shape.rank))
            current = Shape(current.element_type, shape.dims, shape.dynamic)
            steps.append((Transpose(dimensions=back), current))
        step(BitcastConvert(), current.with_dtype(shape.dtype))
        return tuple(steps)

    def run_time_shape(
        self,
        shape: Shape,
        operands: Sequence[Shape],
        actual: Sequence[Shape],
        called: Callable[[str], ProgramShape],
    ) -> Shape:
        """The dimension sizes by the steps' rules."""
        (stated,), (current,) = operands, actual
        for op, result in self.logical_steps(shape, stated):
            current = op.run_time_shape(result, [stated], [current], called)
            stated = result
        return current

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        current = operands[0]
        for op, result in self.logical_steps(shape, current):
            if not op.is_view(result, [current]):
                return False
            current = result
        return True

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        (operand,) = operands
        stated, shape = run.operand_shapes[0], run.instruction.shape
        moves = moved_by_tiles(stated, shape)
        if moves is not None:
            parts = operand.reshape([move.size for move in moves]).transpose(target_order(moves))
            return np.ascontiguousarray(parts).view(shape.dtype.dtype).reshape(shape.dims)
        source, target = _major_to_minor(stated), _major_to_minor(shape)
        physical = np.ascontiguousarray(operand.transpose(source)).view(shape.dtype.dtype)
        there = reshaped(
            physical, _permuted(stated, source), _permuted(shape, target), [run.shape.dims[d] for d in target]
        )
        return there.transpose(np.argsort(target)) if target else there

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        (operand,) = operands
        moves = moved_by_tiles(operand.shape, shape)
        if moves is not None:
            moved: list[IndexLike] = [0] * operand.shape.rank
            for move in moves:
                part = index[move.target] // move.target_weight % move.size
                moved[move.source] = moved[move.source] + part * move.source_weight
            value = operand.load(moved)
            return value if operand.shape.dtype is shape.dtype else emit.bitcast(value, shape.dtype)
        source_order, there_order = _major_to_minor(operand.shape), _major_to_minor(shape)
        physical = reshaped_index(
            [index[d] for d in there_order],
            [shape.dims[d] for d in there_order],
            [operand.shape.dims[d] for d in source_order],
        )
        source: list[IndexLike] = [0] * operand.shape.rank
        for position, dimension in zip(physical, source_order, strict=True):
            source[dimension] = position
        value = operand.load(source)
        return value if operand.shape.dtype is shape.dtype else emit.bitcast(value, shape.dtype)
