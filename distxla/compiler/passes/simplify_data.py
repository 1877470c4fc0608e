"""Rules for operations that move, repeat or group data."""

from __future__ import annotations

from distxla.compiler.passes.simplification_rules import RewriteSite, rule
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.broadcast import Broadcast
from distxla.ops.concatenate import Concatenate
from distxla.ops.constant import Constant
from distxla.ops.convert import BitcastConvert, Convert
from distxla.ops.copy import Copy
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.optimization_barrier import OptimizationBarrier
from distxla.ops.pad import Pad
from distxla.ops.reshape import Reshape
from distxla.ops.reverse import Reverse
from distxla.ops.select import Select
from distxla.ops.slice import Slice
from distxla.ops.transpose import Transpose
from distxla.ops.tuple import GetTupleElement, Tuple

Outcome = Instruction | str | None


@rule(GetTupleElement)
def _element_of_tuple(op: GetTupleElement, site: RewriteSite) -> Outcome:
    source = site.operand()
    return source.operands[op.index] if source.op.role.is_tuple else None


@rule(Tuple)
def _tuple_of_elements(op: Tuple, site: RewriteSite) -> Outcome:
    """tuple(gte(x, 0), .., gte(x, n-1)) is x."""
    if not site.instruction.operands:
        return None
    whole = None
    for number in range(len(site.instruction.operands)):
        element = site.operand(number)
        if element.op.element_index != number:
            return None
        if whole is not None and element.operands[0] != whole:
            return None
        whole = element.operands[0]
    assert whole is not None
    return whole if site.rewriter[whole].shape.compatible(site.shape) else None


@rule(Constant)
def _tuple_constant(op: Constant, site: RewriteSite) -> Outcome:
    """A constant tuple as a tuple of constants, so that every array has one owner."""
    if not site.shape.is_tuple:
        return None
    literals: tuple[Literal, ...] = op.literal.elements or ()
    parts = tuple(
        site.rewriter.add(site.instruction, Constant(literal=literal), shape, ()).name
        for literal, shape in zip(literals, site.shape.elements or (), strict=True)
    )
    return site.instead(Tuple(), *parts)


@rule(Copy)
def _copy(op: Copy, site: RewriteSite) -> Outcome:
    return site.operand().name if site.operand().shape.compatible(site.shape) else None


@rule(Convert, BitcastConvert)
def _same_type(op: Op, site: RewriteSite) -> Outcome:
    return site.operand().name if site.operand().shape.compatible(site.shape) else None


@rule(OptimizationBarrier)
def _barrier(op: OptimizationBarrier, site: RewriteSite) -> Outcome:
    """It holds back XLA's rewriting, which has happened; ours keeps bits and effects anyway."""
    return site.operand().name


@rule(Reshape)
def _reshape(op: Reshape, site: RewriteSite) -> Outcome:
    source = site.operand()
    if site.shape.is_dynamic or source.shape.is_dynamic:
        return None
    if source.shape.dims == site.shape.dims:
        return source.name
    if isinstance(source.op, Reshape):
        return site.instead(Reshape(), source.operands[0])
    if source.op.constant_array is not None:
        return site.instead(Constant(literal=Literal.of(source.op.constant_array, site.shape)))
    if isinstance(source.op, Broadcast) and site.operand_of(source).shape.size == 1:
        return _spread(site, site.operand_of(source))
    if source.shape.size == 1 and source.shape.rank == 0:
        return site.instead(Broadcast(), source.name)
    return None


def _spread(site: RewriteSite, source: Instruction) -> Instruction:
    """Broadcast a one-element array to the site's shape."""
    if source.shape.rank:
        scalar = Shape(source.shape.element_type)
        source = site.rewriter.add(site.instruction, Reshape(), scalar, (source.name,))
    return site.instead(Broadcast(), source.name)


@rule(Transpose)
def _transpose(op: Transpose, site: RewriteSite) -> Outcome:
    source = site.operand()
    if site.shape.is_dynamic:
        return None
    if op.dimensions == tuple(range(source.shape.rank)):
        return source.name
    if isinstance(source.op, Transpose):
        inner = source.op.dimensions
        return site.instead(Transpose(dimensions=tuple(inner[d] for d in op.dimensions)), source.operands[0])
    moved = [d for d in op.dimensions if source.shape.dims[d] != 1]
    if moved == sorted(moved):
        return site.instead(Reshape(), source.name)  # only dimensions of size 1 change places
    if isinstance(source.op, Broadcast):
        where = {d: i for i, d in enumerate(op.dimensions)}
        dimensions = tuple(where[d] for d in source.op.dimensions)
        if dimensions == tuple(sorted(dimensions)):
            return site.instead(Broadcast(dimensions=dimensions), source.operands[0])
    return None


@rule(Broadcast)
def _broadcast(op: Broadcast, site: RewriteSite) -> Outcome:
    source = site.operand()
    if site.shape.is_dynamic or source.shape.is_dynamic:
        return None
    if source.shape.dims == site.shape.dims and op.dimensions == tuple(range(site.shape.rank)):
        return source.name
    if isinstance(source.op, Broadcast):
        dimensions = tuple(op.dimensions[d] for d in source.op.dimensions)
        return site.instead(Broadcast(dimensions=dimensions), source.operands[0])
    if op.dimensions and source.shape.size == 1 and site.shape.size != 1:
        return _spread(site, source)
    return None


@rule(Slice)
def _slice(op: Slice, site: RewriteSite) -> Outcome:
    source = site.operand()
    if source.shape.compatible(site.shape) and all(d.stride == 1 for d in op.slice):
        return source.name
    return None


@rule(DynamicSlice)
def _whole_dynamic_slice(op: DynamicSlice, site: RewriteSite) -> Outcome:
    return site.operand().name if site.operand().shape.compatible(site.shape) else None  # the start is clamped to 0


@rule(Pad)
def _pad(op: Pad, site: RewriteSite) -> Outcome:
    if all(d.low == 0 and d.high == 0 and d.interior == 0 for d in op.padding):
        return site.operand().name
    return None


@rule(Concatenate)
def _concatenate(op: Concatenate, site: RewriteSite) -> Outcome:
    axis = op.dimensions[0]
    names = site.instruction.operands
    filled = tuple(name for k, name in enumerate(names) if site.operand(k).shape.dims[axis])
    if len(filled) == 1:
        return filled[0] if site.rewriter[filled[0]].shape.compatible(site.shape) else None
    return site.instead(op, *filled) if filled and len(filled) < len(names) else None


@rule(Reverse)
def _reverse(op: Reverse, site: RewriteSite) -> Outcome:
    return site.operand().name if all(site.shape.dims[d] == 1 for d in op.dimensions) else None


@rule(Select)
def _select(op: Select, site: RewriteSite) -> Outcome:
    _, on_true, on_false = site.instruction.operands
    if on_true == on_false:
        return on_true
    predicate = site.scalar(0)
    return None if predicate is None else (on_true if predicate else on_false)
