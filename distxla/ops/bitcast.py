"""HLO `bitcast`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.errors import InternalError
from distxla.ir.op import Lowering, Op
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.tiles import InMemory, UnknownPlaces, in_memory, moved_by_tiles, rebuilt, target_order
from distxla.ir.window import PaddingDimension, SliceDimension
from distxla.ops.convert import BitcastConvert
from distxla.ops.pad import Pad
from distxla.ops.reshape import Reshape
from distxla.ops.slice import Slice
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, IndexLike, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register
from distxla.ops.support.row_major import reshaped_index
from distxla.ops.support.run_time_sizes import reshaped
from distxla.ops.transpose import Transpose


def _permuted(shape: Shape, order: Sequence[int]) -> Shape:
    """The shape with its dimensions in another order, without layout."""
    dynamic = tuple(shape.dynamic[d] for d in order) if shape.dynamic else ()
    return Shape(shape.element_type, tuple(shape.dims[d] for d in order), dynamic)


def _same_bytes(operand: Shape, shape: Shape) -> bool:
    if operand.byte_size == shape.byte_size:
        return True
    sides = [in_memory(side, tiled=True) for side in (operand, shape) if side.layout is not None and side.layout.tiles]
    sizes = {m.size * side.dtype.byte_size for m, side in zip(sides, (operand, shape)) if m is not None}
    return len(sides) == 2 and None not in sides and len(sizes) == 1


def _reread(operand: Array, shape: Shape, there: InMemory, here: InMemory) -> Array:
    """The bytes of memory as elements of the result, by NumPy."""
    whole = np.zeros(there.padded, operand.dtype)
    whole[tuple(slice(size) for size in (1,) * there.added + operand.shape)] = operand
    memory = np.ascontiguousarray(whole.reshape(there.parts).transpose(there.order)).reshape(-1)
    digits = memory.view(shape.dtype.dtype).reshape(here.stored)
    padded = digits.transpose(here.back).reshape(here.padded)
    return np.array(padded[tuple(slice(size) for size in (1,) * here.added + shape.dims)]).reshape(shape.dims)


def _rebuilding(operand: Shape, shape: Shape, there: InMemory, here: InMemory) -> Iterator[tuple[Op, Shape]]:
    """The operand with its padding, in the order of memory, as elements of the other type, and back again."""
    first = Shape(operand.element_type, (1,) * there.added + operand.dims)
    yield Reshape(), first
    more = tuple(PaddingDimension(0, whole - size) for whole, size in zip(there.padded, first.dims, strict=True))
    yield Pad(padding=more), first.with_dims(there.padded)
    yield Reshape(), first.with_dims(there.parts)
    yield Transpose(dimensions=there.order), first.with_dims(there.stored)
    old, new = operand.dtype, shape.dtype
    if old.bits < new.bits:
        ratio = new.bits // old.bits
        yield Reshape(), first.with_dims((there.size // ratio, ratio))
    else:
        yield Reshape(), first.with_dims((there.size,))
    split = (there.size, old.bits // new.bits) if old.bits > new.bits else (here.size,)
    yield BitcastConvert(), Shape(shape.element_type, split)
    last = Shape(shape.element_type, here.stored)
    yield Reshape(), last
    yield Transpose(dimensions=here.back), last.with_dims(here.parts)
    yield Reshape(), last.with_dims(here.padded)
    kept = (1,) * here.added + shape.dims
    yield Slice(slice=tuple(SliceDimension(0, size) for size in kept)), last.with_dims(kept)
    yield Reshape(), last.with_dims(shape.dims)


@register
class Bitcast(ExecutableOp):
    """The same memory seen with another shape and layout; the only op whose values depend on layouts.

    The result's byte at physical position p is the operand's at p. Where both layouts have tiles, positions are those
    of the tiled bytes; otherwise they follow minor_to_major alone. What padding holds, XLA leaves open: bytes of the
    result that are padding of the operand are zero here, and elements that become padding are gone.

    Shapes:  T[dims]{layout} -> U[other dims]{other layout}, as many bytes, or as many bytes of whole tiles.
    Errors:  C1 not arrays, or the bytes differ.  C2 elements of different widths that are complex or less than a byte.
    Limits:  tiles that join dimensions (`*`), and as many elements in tiles of fewer or more bytes, are not executed.
    """

    opcode = "bitcast"
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        (operand,) = operands
        both = operand.is_array and shape.is_array
        self.require(both and _same_bytes(operand, shape), "C1", f"{operand} has not the bytes of {shape}", at="shape")
        kinds = operand.dtype, shape.dtype
        self.require(
            kinds[0].bits == kinds[1].bits or not any(kind.bits % 8 or kind.is_complex for kind in kinds),
            "C2",
            f"elements of {operand} have not the bits of {shape}",
            at="shape",
        )

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        try:
            rebuilt(operands[0], shape)
        except UnknownPlaces:
            return (
                f"this version cannot execute bitcast from {operands[0]} to {shape}: their tiles do not give each "
                "element a place on the other side"
            )
        return super().obstacle(shape, operands)

    def logical_steps(self, shape: Shape, operand: Shape) -> tuple[tuple[Op, Shape], ...]:
        """The ops, with their result shapes, that do the same with row-major arrays: at most transpose, reshape,
        transpose and bitcast-convert; with padding also pad, whose value is zero, and slice. Empty where nothing
        changes.

        A pass that removes or changes layouts must replace bitcasts by these steps before it does.
        """
        steps: list[tuple[Op, Shape]] = []
        current = operand.without_layout()

        def step(op: Op, result: Shape) -> None:
            nonlocal current
            if result != current or isinstance(op, Transpose):
                steps.append((op, result))
                current = result

        if (sides := rebuilt(operand, shape)) is not None:
            for op, result in _rebuilding(operand, shape, *sides):
                step(op, result)
            return tuple(steps)
        moves = moved_by_tiles(operand, shape)
        if moves is not None:
            parts = [move.size for move in moves]
            order = target_order(moves)
            step(Reshape(), current.with_dims(tuple(parts)))
            step(Transpose(dimensions=order), current.with_dims(tuple(parts[k] for k in order)))
            step(Reshape(), current.with_dims(shape.dims))
            step(BitcastConvert(), current.with_dtype(shape.dtype))
            return tuple(steps)
        physical, target = operand.major_to_minor(), shape.major_to_minor()
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

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
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
        if (sides := rebuilt(stated, shape)) is not None:
            return _reread(operand, shape, *sides)
        moves = moved_by_tiles(stated, shape)
        if moves is not None:
            parts = operand.reshape([move.size for move in moves]).transpose(target_order(moves))
            return np.ascontiguousarray(parts).view(shape.dtype.dtype).reshape(shape.dims)
        source, target = stated.major_to_minor(), shape.major_to_minor()
        physical = np.ascontiguousarray(operand.transpose(source)).view(shape.dtype.dtype)
        there = reshaped(
            physical, _permuted(stated, source), _permuted(shape, target), [run.shape.dims[d] for d in target]
        )
        return there.transpose(np.argsort(target)) if target else there

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        (operand,) = operands
        if rebuilt(operand.shape, shape) is not None:
            raise InternalError(f"bitcast to {shape}: the pass resolve-layouts has not replaced it")
        moves = moved_by_tiles(operand.shape, shape)
        if moves is not None:
            moved: list[IndexLike] = [0] * operand.shape.rank
            for move in moves:
                part = index[move.target] // move.target_weight % move.size
                moved[move.source] = moved[move.source] + part * move.source_weight
            value = operand.load(moved)
            return value if operand.shape.dtype is shape.dtype else emit.bitcast(value, shape.dtype)
        source_order, there_order = operand.shape.major_to_minor(), shape.major_to_minor()
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
