"""Prepare custom-calls for the code generator: those of registered routines, those that only annotate, and those that
are executed as other instructions."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.shape import Shape
from distxla.ops.call import Call
from distxla.ops.copy import Copy
from distxla.ops.custom_calls.annotation import Annotation
from distxla.ops.custom_calls.custom_call import CustomCall, HostCall
from distxla.ops.custom_calls.expanded import ExpandedTarget
from distxla.ops.custom_calls.registry import find_target, require_target
from distxla.ops.custom_calls.target import Call as TargetCall
from distxla.ops.custom_calls.target import CustomCallTarget
from distxla.ops.custom_calls.user import ORIGINAL, NativeTarget, PythonTarget, is_row_major
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.transpose import Transpose
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.rewrites.step import Pass


class BindCustomCalls(Pass):
    """Make calls that the replica makes (of Python routines, of FFI handlers and of functions with a status)
    `HostCall`s, give other C functions their arrays in the layouts they ask for, drop calls that only annotate their
    operand, and call the instructions that a target is executed as.

    Expects: layouts as in the text. Ensures: custom-calls of C functions take and give row-major arrays, their operands
    transposed before, their results after.
    """

    name: ClassVar[str] = "bind-custom-calls"

    def run(self, module: Module) -> Module:
        if not any(i.op.role.is_custom_call for c in module.computations for i in c):
            return module
        new: list[Computation] = []
        names = Names(module.by_name)
        for computation in module.computations:
            rewriter = Rewriter(computation)
            for old in computation:
                instruction = rewriter.current(old)
                target = find_target(old.op.custom_call_target) if isinstance(old.op, CustomCall) else None
                if isinstance(target, PythonTarget) or _is_called(target, old):
                    fields = {f.name: getattr(old.op, f.name) for f in dataclasses.fields(old.op)}
                    rewriter.keep(instruction.replace(op=HostCall(**fields)))
                elif isinstance(target, NativeTarget):
                    _in_stated_layouts(rewriter, instruction, [o.shape for o in computation.operands(old)])
                elif isinstance(target, Annotation):
                    require_target(TargetCall(old, tuple(o.shape for o in computation.operands(old))))
                    if computation[old.operands[0]].shape == old.shape:
                        rewriter.forward(old.name, instruction.operands[0])
                    else:  # bitcasts of the result depend on its layout
                        rewriter.keep(instruction.replace(op=Copy()))
                elif isinstance(target, ExpandedTarget):
                    custom_call = TargetCall(old, tuple(o.shape for o in computation.operands(old)))
                    require_target(custom_call)
                    new += target.expansion(custom_call, names.fresh)
                    # the layouts stay, since bitcasts of the result depend on them
                    op = Call(to_apply=new[-1].name)
                    rewriter.keep(instruction.replace(op=op, backend_config=None, other=()))
                else:
                    rewriter.keep(instruction)
            new.append(rewriter.finish())
        return module.with_computations(new)


def _is_called(target: CustomCallTarget | None, call: Instruction) -> bool:
    """Whether it calls a C function of another interface than the original one, which the replica does."""
    op = call.op
    return isinstance(target, NativeTarget) and isinstance(op, CustomCall) and op.api_version != ORIGINAL


def _in_stated_layouts(rewriter: Rewriter, call: Instruction, operands: list[Shape]) -> None:
    """Add the call with transposes where the routine's arrays are not row-major."""
    op = call.op
    assert isinstance(op, CustomCall)
    taken = op.operand_layout_constraints or tuple(operands)
    names = list(call.operands)
    for k, shape in enumerate(taken):
        if shape.is_array and not is_row_major(shape):
            order = shape.major_to_minor()
            source = operands[k].without_layout()
            physical = source.with_dims(tuple(source.dims[d] for d in order))
            names[k] = rewriter.add(call, Transpose(dimensions=order), physical, (names[k],)).name
    result = _physical(call.shape)
    op = dataclasses.replace(op, operand_layout_constraints=None)
    rewriter.keep(call.replace(op=op, operands=tuple(names), shape=result))
    if result == call.shape.without_layout() and all(map(is_row_major, call.shape.leaves())):
        return
    if call.shape.elements is None:
        rewriter.forward(call.name, _logical(rewriter, call, call.name, call.shape))
        return
    parts = []
    for k, shape in enumerate(call.shape.elements):
        inner = (result.elements or ())[k]
        part = rewriter.add(call, GetTupleElement(index=k), inner, (call.name,)).name
        parts.append(_logical(rewriter, call, part, shape))
    joined = rewriter.add(call, Tuple(), call.shape.without_layout(), tuple(parts))
    rewriter.forward(call.name, joined.name)


def _logical(rewriter: Rewriter, call: Instruction, name: str, shape: Shape) -> str:
    """Add the transpose that gives an array its logical order back, where it has another one."""
    if not shape.is_array or is_row_major(shape):
        return name
    order = shape.major_to_minor()
    back = tuple(order.index(d) for d in range(shape.rank))
    return rewriter.add(call, Transpose(dimensions=back), shape.without_layout(), (name,)).name


def _physical(shape: Shape) -> Shape:
    """The shape with its dimensions in the order of its layout."""
    if shape.elements is not None:
        return Shape.tuple(tuple(map(_physical, shape.elements)))
    if not shape.is_array or is_row_major(shape):
        return shape.without_layout()
    return shape.without_layout().with_dims(tuple(shape.dims[d] for d in shape.major_to_minor()))
