"""Writes async starts and dones as HLO text has them, so that the printed stages of the compiler can be read again."""

from __future__ import annotations

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.shape import Shape
from distxla.ops.asynchronous import AsyncDone, AsyncStart
from distxla.ops.parameter import Parameter
from distxla.ops.support.collective import GroupedCollective, synchronous
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of, whole
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.registry import op_classes


def as_written(module: Module) -> Module:
    """The module with an asynchronous pair of HLO for each start and done, under the same names.

    A collective with a start op of its own gets that; for others async-start calls a computation of just that one.
    """
    if not any(
        async_part_of(i.op) is not AsyncPart.SYNCHRONOUS for computation in module.computations for i in computation
    ):
        return module
    names = Names(module.by_name)
    computations: list[Computation] = []
    for computation in module.computations:
        calls: dict[str, str] = {}
        instructions = []
        for instruction in computation:
            which = async_part_of(instruction.op)
            if which is AsyncPart.START and f"{whole(instruction.op).opcode}-start" not in op_classes():
                called = _called(computation, instruction, names)
                computations.append(called)
                calls[instruction.name] = called.name
            if which is AsyncPart.START:
                instruction = _start(module, computation, instruction, calls.get(instruction.name))
            elif which is AsyncPart.DONE:
                instruction = _done(instruction, calls.get(instruction.operands[0]))
            instructions.append(instruction)
        computations.append(
            Computation(
                computation.name,
                tuple(instructions),
                computation.root,
                computation.execution_thread,
                computation.span,
            )
        )
    return module.replace(computations=tuple(computations))


def _result(begun: Instruction) -> Shape:
    return (begun.shape.elements or ())[-2]


def _start(module: Module, computation: Computation, begun: Instruction, calls: str | None) -> Instruction:
    operands = tuple(operand.shape.without_layout() for operand in computation.operands(begun))
    if calls is not None:
        shape = Shape.tuple((Shape.tuple(operands), _result(begun)))
        return begun.replace(op=AsyncStart(calls=calls), shape=shape)
    collective = whole(begun.op)
    op_class = op_classes()[f"{collective.opcode}-start"]
    assert issubclass(op_class, CollectiveOp)
    op = synchronous(collective, op_class)
    if isinstance(collective, GroupedCollective) and isinstance(op, GroupedCollective):
        size = collective.size_from_result(_result(begun), operands)  # None where the result tells nothing of it
        return begun.replace(op=op, shape=op.result_shape(operands, size or 1))
    return begun.replace(op=op, shape=op.infer_shape(operands, lambda name: module[name].program_shape))


def _done(ended: Instruction, calls: str | None) -> Instruction:
    if calls is not None:
        return ended.replace(op=AsyncDone(calls=calls))
    return ended.replace(op=op_classes()[f"{whole(ended.op).opcode}-done"]())


def _called(computation: Computation, begun: Instruction, names: Names) -> Computation:
    """A computation of one collective."""
    inside = Names((begun.name,))
    parameters = tuple(
        Instruction(inside.fresh(operand.name), operand.shape.without_layout(), Parameter(number=k))
        for k, operand in enumerate(computation.operands(begun))
    )
    collective = Instruction(begun.name, _result(begun), whole(begun.op), tuple(p.name for p in parameters))
    return Computation(names.fresh(f"{begun.name}.async"), (*parameters, collective), begun.name)
