"""Tuples, calls, branches, loops, and calls of routines by name."""

from __future__ import annotations

from distxla.ir.effects import COMMUNICATING
from distxla.ir.instruction import Instruction
from distxla.ops.asynchronous import AsyncDone, AsyncStart, AsyncUpdate
from distxla.ops.call import Call, Fusion
from distxla.ops.control_flow import Conditional, While
from distxla.ops.copy import CopyDone, CopyStart
from distxla.ops.custom_calls.annotation import ANNOTATIONS
from distxla.ops.custom_calls.custom_call import CustomCall
from distxla.ops.token import AddDependency, AfterAll
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.proofs.relations import indices
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.relation import NoRule, Relation, Unknown, Value
from distxla.proofs.rules.registry import rule


@rule(Tuple, takes_unknown=True)
def tuple_(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return tuple(operands)


@rule(GetTupleElement)
def get_tuple_element(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, GetTupleElement)
    return operands[0][instruction.op.index]


@rule(AfterAll, takes_unknown=True)
def after_all(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return None


@rule(AddDependency, CopyStart, CopyDone, takes_unknown=True)
def first(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return operands[0]


@rule(Call, Fusion, AsyncStart, takes_unknown=True)
def call(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return inference.called(instruction, instruction.op.called_computations[0], operands)


@rule(AsyncUpdate, AsyncDone, takes_unknown=True)
def begun(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return operands[0]


@rule(While, takes_unknown=True)
def while_(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return inference.loops.loop(inference, instruction, operands[0])


@rule(Conditional, takes_unknown=True)
def conditional(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """Leaf by leaf the choice between the values of all branches."""
    op = instruction.op
    assert isinstance(op, Conditional)
    selector, arguments = operands[0], operands[1:]
    if isinstance(selector, Unknown):
        return selector
    known = indices.scalar(inference.space, selector)
    if known is not None and (known == known[0]).all():
        number = op.branch_of(bool(known[0]) if selector.element_type.kind == "pred" else int(known[0]))
        return inference.called(instruction, op.branches[number], [arguments[number]])
    inside = (i.op for c in inference.module.reached(*op.branches) for i in c)
    if not _is_same_everywhere(selector) and any(o.effects in COMMUNICATING for o in inside):
        raise NoRule("devices may take different branches, in which they communicate")
    values = [
        inference.called(instruction, name, [argument]) for name, argument in zip(op.branches, arguments, strict=True)
    ]
    return _chosen(inference, selector, values)


def _is_same_everywhere(relation: Relation) -> bool:
    return relation.parts is None and all(lines.is_uniform for axis in relation.axes for _, lines in axis)


def _chosen(inference: Inference, selector: Relation, values: list[Value]) -> Value:
    if isinstance(values[0], tuple):
        return tuple(_chosen(inference, selector, list(leaf)) for leaf in zip(*values, strict=True))
    unknown = next((v for v in values if isinstance(v, Unknown)), None)
    if unknown is not None or values[0] is None:
        return unknown
    if all(v == values[0] for v in values):
        return values[0]
    return inference.arithmetic.joint("conditional", selector, values, values[0].dims)


@rule(CustomCall)
def custom_call(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """A function of its operands, which every device must have whole."""
    op = instruction.op
    assert isinstance(op, CustomCall)
    if op.custom_call_target in ANNOTATIONS and len(operands) == 1:
        return operands[0]
    if op.custom_call_has_side_effect:
        raise NoRule(f'a custom-call of "{op.custom_call_target}" with side effects')
    if any(not isinstance(o, Relation) for o in operands):
        raise NoRule("a custom-call of tuples or tokens")
    shapes = [(s.dtype, s.dims) for s in instruction.shape.leaves()]
    key = ("custom-call", *op._values(), instruction.backend_config)
    found = inference.opaque(key, operands, shapes)
    return found if instruction.shape.is_tuple else found[0]
