"""Element-wise ops."""

from __future__ import annotations

import numpy as np

from distxla.ir.instruction import Instruction
from distxla.ops.clamp import Clamp
from distxla.ops.compare import Compare
from distxla.ops.convert import Convert, ReducePrecision
from distxla.ops.elementwise_binary import ElementwiseBinary
from distxla.ops.elementwise_unary import ElementwiseUnary
from distxla.ops.map import Map
from distxla.ops.select import Select
from distxla.ops.support.registry import op_class
from distxla.proofs.relations import indices, views
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.lines import NOWHERE
from distxla.proofs.relations.relation import Guarded, NoRule, Relation, Value
from distxla.proofs.rules.registry import rule

_USED = {"compare": "compared", "exponential": "the operand of exponential"}


def compare_key(direction: str, comparison: str | None = None) -> tuple[object, ...]:
    """The key of a comparison's term."""
    return ("compare", direction, comparison if comparison == "TOTALORDER" else None)


@rule(ElementwiseUnary, Compare, Clamp, ReducePrecision)
def function(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """Any function of whole values."""
    known = indices.computed(inference.space, instruction, operands)
    if known is not None:
        return known
    if isinstance(instruction.op, op_class("negate")) and instruction.shape.dtype.is_float:
        return inference.arithmetic.sum([(-1, operands[0])], instruction.shape.dims)
    what = _USED.get(instruction.opcode, f"the operand of {instruction.opcode}")
    key: tuple[object, ...] = (instruction.opcode, *instruction.op._values())
    if isinstance(instruction.op, Compare):
        key = compare_key(instruction.op.direction, instruction.op.comparison)
    if isinstance(instruction.op, ElementwiseUnary):
        key = (instruction.opcode,)  # result_accuracy is a wish
    return inference.arithmetic.of_wholes(key, instruction.shape.dtype, operands, instruction.shape.dims, what)


@rule(ElementwiseBinary)
def binary(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    known = indices.computed(inference.space, instruction, operands)
    if known is not None:
        return known
    left, right = operands
    arithmetic, dims, opcode = inference.arithmetic, instruction.shape.dims, instruction.opcode
    element_type = instruction.shape.dtype
    is_logical = element_type.kind == "pred"
    if opcode in ("and", "or") or (is_logical and opcode in ("add", "multiply", "maximum", "minimum")):
        opcode = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(opcode, opcode)
        return arithmetic.extreme(opcode, left, right, dims)
    if opcode in ("maximum", "minimum"):
        return arithmetic.extreme(opcode, left, right, dims)
    if opcode == "add":
        return _shifted(inference, arithmetic.sum([(1, left), (1, right)], dims), right, left, 1)
    if opcode == "subtract":
        return _shifted(inference, arithmetic.sum([(1, left), (-1, right)], dims), right, left, -1)
    if opcode == "multiply":
        return arithmetic.product(left, right, dims)
    if opcode == "divide":
        return arithmetic.quotient(left, right, dims)
    return arithmetic.of_wholes(opcode, element_type, [left, right], dims, f"an operand of {opcode}")


def _shifted(inference: Inference, found: Relation, by: Relation, base: Relation, sign: int) -> Relation:
    """A sum of integers, with a note of a known one that each device adds."""
    if not found.element_type.is_integer or found.is_index:
        return found
    known = indices.scalar(inference.space, by)
    if known is None and sign > 0:
        known, base = indices.scalar(inference.space, base), by
    if known is None:
        return found
    lines = inference.space.lines((-sign * known).reshape(-1, 1))
    return found.changed(shifted=(base, lines))


@rule(Convert)
def convert(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """Linear between types of floats: rounding aside."""
    known = indices.computed(inference.space, instruction, operands)
    if known is not None:
        return known
    (operand,) = operands
    target = instruction.shape.dtype
    if operand.element_type is target:
        return operand
    arithmetic, dims = inference.arithmetic, instruction.shape.dims
    if not target.is_float or not operand.element_type.is_float:  # integers wrap
        return arithmetic.of_wholes(("convert",), target, [operand], dims, "converted")
    space = inference.space
    if operand.constant is not None:
        term = space.terms.term(operand.term.key, target, ())
        return operand.changed(term=term)
    bare = operand.changed(scale=1, parts=None)
    made = arithmetic.pointwise(("convert",), target, [bare], dims)
    return made.changed(scale=operand.scale * made.scale, parts=operand.parts)


def _unguarded(by: Relation, on_true: Value, on_false: Value) -> Value:
    """The choice between elements at positions inside of a device's part, and zeros for the others."""
    for guarded, zeros, conditions in (
        (on_true, on_false, on_true.inside if isinstance(on_true, Guarded) else ()),
        (on_false, on_true, on_false.outside if isinstance(on_false, Guarded) else ()),
    ):
        if not isinstance(guarded, Guarded) or not isinstance(zeros, Relation) or by.parts is not None:
            continue
        if zeros.is_zero and any(by.term is c.term and by.axes == c.axes for c in conditions):
            return guarded.relation.changed(assumed=guarded.relation.assumed | by.assumed)
    raise NoRule("it takes elements of an array by positions outside of the device's part")


@rule(Select, takes_guarded=True)
def select(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    space = inference.space
    by, on_true, on_false = operands
    if isinstance(on_true, Guarded) or isinstance(on_false, Guarded):
        return _unguarded(by, on_true, on_false)
    known = indices.computed(space, instruction, operands)
    if known is not None:
        return known
    if isinstance(by, Relation) and by.is_index and len(indices.along(by)) <= 1:
        found = _chosen(inference, by, on_true, on_false)
        if found is not None:
            return found
    return inference.arithmetic.joint("select", by, (on_true, on_false), instruction.shape.dims)


def _chosen(inference: Inference, by: Relation, on_true: Relation, on_false: Relation) -> Relation | None:
    """A choice that is known: where all positions of all devices choose one side, or the other side is zero."""
    space = inference.space
    dim = next(iter(indices.along(by)), None)
    mask = indices.values(space, by, dim) != 0
    dims = on_true.dims
    if mask.all() or not mask.any():
        return (on_true if mask.all() else on_false).changed(assumed=on_true.assumed | on_false.assumed)
    if on_true.is_zero and not on_false.is_zero:
        on_true, on_false, mask = on_false, on_true, ~mask
    if not on_false.is_zero or on_true.element_type.kind == "pred":
        return None
    if dim is None or (mask == mask[:, :1]).all():
        if on_true.parts is not None and on_true.parts.kind != "add":
            return None
        there = mask[:, 0]
        columns = frozenset(
            tuple(n if there[d] else 0 for d, n in enumerate(column)) for column in space.columns(on_true)
        )
        return space.with_columns(on_true, "add", columns)
    positions = np.where(mask, np.arange(dims[dim]), NOWHERE)
    if not on_true.axes:
        return None
    return views.taken(space, on_true, dim, positions, ("mask", positions.tobytes()))


@rule(Map)
def map_(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """The computation of scalars, applied to arrays, element by element."""
    return inference.run_elements(instruction.op.called_computations[0], operands, instruction.shape.dims)
