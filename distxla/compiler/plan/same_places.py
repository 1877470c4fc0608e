"""Results that may be computed where an operand is, since each element is read where it is then written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distxla.compiler.plan.buffers import Kernel
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.ops.support.liveness import Values


def overwrites_as_it_reads(module: Module, computation: Computation, values: Values, result: int, operand: int) -> bool:
    """Whether the kernel that computes the value `result` is the last to read the value `operand`, and reads element i
    for the elements i of its results only, so that both may have one place.

    A kernel's loop loads what all results need at an index before it stores them, and visits each index once. What is
    read at another index (reversed, transposed, broadcast, reduced), or in a loop of its own, is not to be overwritten.
    """
    if values.last_use[operand] != values.defined[result]:
        return False
    instruction, leaf = values.producer[result]
    shapes = [shape for shape in instruction.shape.leaves() if shape.is_array]
    place = instruction.shape.leaf(leaf)
    if any(shape.dims != place.dims or shape.is_dynamic for shape in shapes):
        return False
    numbers = [k for k, name in enumerate(instruction.operands) if operand in values.leaves[name]]
    if not all(_has_form(computation[instruction.operands[k]].shape, place) for k in numbers):
        return False
    op = instruction.op
    if op.lowering is Lowering.ELEMENT:
        return op.elements.is_elementwise
    if op.lowering is not Lowering.CALL:
        return False
    (called,) = op.called_computations
    fused = module[called]
    return _is_read_alike(fused, (fused.parameters[k] for k in numbers))


def leaves_in_one_place(
    values: Values, instruction: Instruction, same_places: Mapping[int, int]
) -> tuple[tuple[int, int], ...]:
    """(leaf of the operands, leaf of the result), of those with data. same_places: result's value -> operand's."""
    operands = [value for value in values.operands(instruction) if value is not None]
    results = [value for value in values.leaves[instruction.name] if value is not None]
    return tuple(
        (place, leaf)
        for leaf, result in enumerate(results)
        for place, operand in enumerate(operands)
        if same_places.get(result) == operand
    )


def positions_in_one_place(step: Kernel, same_places: Iterable[tuple[int, int]] = ()) -> set[int]:
    """The positions, among the leaves with data of the operands and then of the result, of those that may be the same
    memory: results and the operand that the op overwrites, and the leaves of `same_places`, numbered as in `Kernel`."""
    instruction = step.instruction
    operands = [sum(leaf.is_array for leaf in step.computation[o].shape.leaves()) for o in instruction.operands]
    count, results = sum(operands), sum(leaf.is_array for leaf in instruction.shape.leaves())
    pairs = [*same_places]
    if (overwritten := instruction.op.in_place.operand) is not None:
        first = sum(operands[:overwritten])
        pairs += [(first + k, k) for k in range(results)]
    return {position for operand, result in pairs for position in (operand, count + result)}


def _has_form(operand: Shape, place: Shape) -> bool:
    return operand.is_array and operand.dims == place.dims and operand.byte_size == place.byte_size


def _is_read_alike(fused: Computation, parameters: Iterable[Instruction]) -> bool:
    """Whether only element-wise instructions come between the parameters and the results."""
    derived = {parameter.name for parameter in parameters}
    for instruction in fused:
        op = instruction.op
        if op.lowering is Lowering.CALL:
            return False  # stages, each of which has loops of its own
        if derived.isdisjoint(instruction.operands):
            continue
        if instruction.name == fused.root and op.lowering is Lowering.ALIAS and instruction.shape.is_tuple:
            continue
        if op.lowering is not Lowering.ELEMENT or not op.elements.is_elementwise:
            return False
        dims = {fused[name].shape.dims for name in instruction.operands if name in derived}
        if dims != {instruction.shape.dims}:
            return False
        derived.add(instruction.name)
    return True
