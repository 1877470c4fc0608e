"""Collectives that XLA's TPU compiler spreads over several fusions, as pairs that begin and end.

    start fusion:  c = U all-gather(x), ..        ROOT (T, U, contexts..) custom-call(c), target="AsyncCollectiveStart"
    other fusions: parameters x, u, contexts..    c = U all-gather(x), ..   ROOT (.., x, u, c, contexts..)
    done fusion:   parameters x, u, contexts..    c = U all-gather(x), ..
                                                  ROOT U custom-call(x, u, c, contexts..), target="AsyncCollectiveDone"

The text names the collective once for each fusion that carries on with it, always with the same attributes and the
operand that came out of the start. It runs once: it begins at the start, the fusions between compute while it is in
flight, and the done waits for it and gives its result. u is the memory of the result; nothing reads it before the done.

Source: schedules that libtpu writes; their output_to_operand_aliasing says which parts are one memory.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.effects_order import effectful_computations
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.broadcast import Broadcast
from distxla.ops.call import Fusion
from distxla.ops.constant import Constant
from distxla.ops.support.collective_start_done import AsyncPart, async_part, start_shape
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.inlining import inlined
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.ops.tuple import Tuple
from distxla.rewrites.step import Pass

START: Final = "AsyncCollectiveStart"
DONE: Final = "AsyncCollectiveDone"


class JoinSpreadCollectives(Pass):
    """Let a collective of which several fusions hold a part begin in the first of them and end in the last.

    One whose start and done are in different computations stays as it is: its custom-calls can't be executed.
    Expects: a verified module.  Ensures: between start and done are only other instructions.
    """

    name: ClassVar[str] = "join-spread-collectives"

    def run(self, module: Module) -> Module:
        starts = {c.name for c in module.computations for i in c if i.op.called_target == START}
        if not starts or has_dynamic_dimensions(module):
            return module
        effectful = effectful_computations(module)
        done: dict[str, Computation] = {}
        for computation in module.computations:
            done[computation.name] = computation
            called = {name for i in computation for name in i.op.called_computations}
            if computation.name in starts or not starts.isdisjoint(called):
                flat = inlined(computation, done, effectful, lambda i: _holds_collective(module, i))
                done[computation.name] = _joined(flat) or computation
        if all(done[c.name] is c for c in module.computations):
            return module
        new = module.replace(computations=tuple(done.values()))
        return new.replace(computations=new.reached())


def _holds_collective(module: Module, instruction: Instruction) -> bool:
    """Whether it is a fusion with a collective in it."""
    return isinstance(instruction.op, Fusion) and any(
        inner.op.effects is Effects.COLLECTIVE or inner.op.called_target in (START, DONE)
        for inner in module[instruction.op.calls]
    )


@dataclass
class _Spread:
    """One spread collective. parts: the fusions that carry on with it, which the text marks as the collective."""

    start: Instruction
    collective: Instruction
    done: Instruction | None = None
    parts: set[str] = field(default_factory=set)


def _joined(computation: Computation) -> Computation | None:
    """The computation with its spread collectives joined; None where it has none of which start and done are known."""
    spread = _found(computation)
    if not spread or any(one.done is None for one in spread.values()):
        return None
    of_part = {part: one for one in spread.values() for part in one.parts}
    of_done = {one.done.name: one for one in spread.values() if one.done is not None}
    begun = {one.collective.name for one in spread.values()}
    rewriter = Rewriter(computation)
    buffers: dict[str, str] = {}
    for old in computation:
        instruction = rewriter.current(old)
        if old.name in begun:
            operands = [operand.shape for operand in computation.operands(old)]
            assert isinstance(old.op, CollectiveOp)
            op = async_part(old.op, AsyncPart.START)
            rewriter.keep(instruction.replace(op=op, shape=start_shape(operands, old.shape.without_layout())))
        elif old.name in spread:
            one = spread[old.name]
            taken = rewriter.current(one.collective).operands[0]
            rest = [_zeros(rewriter, old, shape) for shape in (old.shape.elements or ())[1:]]
            buffers[old.name] = rest[0]
            rewriter.keep(instruction.replace(op=Tuple(), operands=(taken, *rest), backend_config=None))
        elif old.name in of_part:
            rewriter.forward(old.name, buffers[of_part[old.name].start.name])
        elif old.name in of_done:
            one = of_done[old.name]
            assert isinstance(one.collective.op, CollectiveOp)
            op = async_part(one.collective.op, AsyncPart.DONE)
            rewriter.keep(instruction.replace(op=op, operands=(one.collective.name,), backend_config=None))
        else:
            rewriter.keep(instruction)
    return rewriter.finish()


def _found(computation: Computation) -> dict[str, _Spread]:
    """By the names of their starts."""
    spread: dict[str, _Spread] = {}

    def origin(name: str) -> tuple[str, int] | None:
        """The start, and which part of its result, that a value is."""
        while (index := computation[name].op.element_index) is not None:
            (whole,) = computation.operands(computation[name])
            if whole.name in spread:
                return whole.name, index
            if not whole.op.role.is_tuple:
                return None
            name = whole.operands[index]
        return None

    for instruction in computation:
        op = instruction.op
        if instruction.op.called_target == START:
            collective = computation[instruction.operands[0]] if len(instruction.operands) == 1 else None
            if collective is not None and _can_begin(computation, instruction, collective):
                spread[instruction.name] = _Spread(instruction, collective)
        elif instruction.op.called_target == DONE and len(instruction.operands) > 2:
            found = origin(instruction.operands[1])
            one = spread.get(found[0]) if found is not None and found[1] == 1 else None
            if one is not None and instruction.shape.compatible(one.collective.shape):
                one.done = instruction
        elif op.is_collective and len(instruction.operands) == 1:
            found = origin(instruction.operands[0])
            if found is not None and found[1] == 0 and op == spread[found[0]].collective.op:
                spread[found[0]].parts.add(instruction.name)
    return spread


def _can_begin(computation: Computation, start: Instruction, collective: Instruction) -> bool:
    parts = start.shape.elements or ()
    return (
        collective.op.is_collective
        and collective.op.lowering is Lowering.COMMUNICATION
        and len(collective.operands) == 1
        and tuple(computation.users[collective.name]) == (start.name,)
        and len(parts) > 1
        and parts[0].compatible(computation[collective.operands[0]].shape)
        and parts[1].compatible(collective.shape)
        and all(part.is_array for part in parts)
    )


def _zeros(rewriter: Rewriter, origin: Instruction, shape: Shape) -> str:
    scalar = Shape(shape.dtype)
    value = np.zeros((), np.int8).astype(shape.dtype.dtype)
    constant = rewriter.add(origin, Constant(literal=Literal.of(value, scalar)), scalar, ())
    return rewriter.add(origin, Broadcast(dimensions=()), shape.without_layout(), (constant.name,)).name
