"""Asynchronous computations that communicate, as instructions of the computation that begins them.

An async-start begins all transfers and collectives of its computation together and waits for none of them; the
async-done waits for what is under way and does the rest. So a computation is cut in two:

* At the start stands what needs no wait: sends, recvs, the first halves of collectives, and what is computed for them.
* At the done stands every instruction that waits (recv-done, the second half of a collective, a loop that communicates,
  an infeed ..) or needs the result of one that does. Collectives begin in the order of the text, sends and recvs of a
  channel, too; so behind one that has to begin at the done others do.

Of a channel's sends RING begin at the start, since one more would wait for the others' recv-dones. The next ones begin
at the done, RING at a time, when as many values have been received.

A send or recv that has no done of its own ends at the async-done. Its context is then (the value that was sent or
received, 0, token), in the computation itself as behind the async-done.

The reference, `check` and the compiler all execute what this gives. An async-start of a single collective, or of a
computation that doesn't communicate, stays as it is (ops/asynchronous.py). Source: XLA's GPU backend, which executes
these computations as one group of NCCL calls.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from typing import Final

import numpy as np

from distxla.collectives.channel_state import RING
from distxla.collectives.channels import PIPELINE
from distxla.collectives.context_flow import ContextFlow, Start, ended_by_async_done
from distxla.ir.computation import Computation
from distxla.ir.element_type import U32
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.order import stable_order
from distxla.ir.shape import Shape
from distxla.ops.asynchronous import AsyncDone, AsyncStart, AsyncUpdate
from distxla.ops.channel import Recv, RecvDone, Send, SendDone
from distxla.ops.constant import Constant
from distxla.ops.effects import Effects, effectful_computations, has_effects
from distxla.ops.inlining import inlined, is_call
from distxla.ops.op import CollectiveOp, Lowering, Op
from distxla.ops.round_halves import Half, begun_shape, half, single_collective
from distxla.ops.run_time_extents import has_dynamic_dimensions
from distxla.ops.tuple import GetTupleElement, Tuple

ANY: Final = "any"


class Part(Enum):
    """What an instruction means for the place at which it is executed."""

    FREE = "free"
    BEGINS = "begins"  # a round or a transfer, without waiting
    WHOLE = "whole"  # a collective of which both halves can be told apart
    WAITS = "waits"  # for something that another instruction has begun
    BLOCKS = "blocks"  # begins and waits


def with_async_inlined(module: Module) -> Module:
    """The module, verified, without asynchronous computations that communicate in other ways than by one collective;
    the same object where it has none."""
    if not any(isinstance(i.op, AsyncStart) for c in module.computations for i in c):
        return module
    effectful = effectful_computations(module)
    if not any(_is_inlined(module, i, effectful) for c in module.computations for i in c):
        return module
    inlining = _Inlining(module, effectful, ended_by_async_done(module, ContextFlow(module)))
    done = module.replace(computations=tuple(map(inlining.run, module.computations)))
    return done.replace(computations=done.reached())


def _is_inlined(module: Module, instruction: Instruction, effectful: frozenset[str]) -> bool:
    op = instruction.op
    return isinstance(op, AsyncStart) and op.calls in effectful and single_collective(module[op.calls]) is None


class _Inlining:
    """One run over one module, called computations first."""

    def __init__(self, module: Module, effectful: frozenset[str], ended: frozenset[Start]) -> None:
        self.module, self.effectful = module, effectful
        self.ended = {(start.computation, start.instruction.name) for start in ended}
        self.is_static = not has_dynamic_dimensions(module)
        self.done: dict[str, Computation] = {}

    def run(self, computation: Computation) -> Computation:
        computation = self._with_dones(computation)
        if any(_is_inlined(self.module, i, self.effectful) for i in computation):
            computation = _Caller(self, computation).run()
        self.done[computation.name] = computation
        return computation

    def is_inlined(self, instruction: Instruction) -> bool:
        return _is_inlined(self.module, instruction, self.effectful)

    def body(self, name: str) -> Computation:
        """A computation that an async-start calls, without calls of others that communicate, in an order that keeps
        control edges."""
        body = inlined(self.done[name], self.done, self.effectful, self._calls_effects)
        return dataclasses.replace(body, instructions=stable_order(body.instructions))

    def _calls_effects(self, instruction: Instruction) -> bool:
        return is_call(instruction) and instruction.op.called_computations[0] in self.effectful

    def _with_dones(self, computation: Computation) -> Computation:
        """With a done behind each send and recv that async-done ends, whose context is then made of what it gives."""
        names = Names(computation.by_name)
        stands_for: dict[str, str] = {}
        instructions: list[Instruction] = []
        for instruction in computation:
            operands = tuple(stands_for.get(o, o) for o in instruction.operands)
            if operands != instruction.operands:
                instruction = instruction.replace(operands=operands)
            instructions.append(instruction)
            if (computation.name, instruction.name) in self.ended:
                instructions += _ending(instruction, names)
                stands_for[instruction.name] = instructions[-1].name
        if not stands_for:
            return computation
        root = stands_for.get(computation.root, computation.root)
        return dataclasses.replace(computation, instructions=tuple(instructions), root=root)

    def part(self, body: Computation, instruction: Instruction) -> Part:
        op = instruction.op
        if isinstance(op, AsyncDone):
            begun = body[instruction.operands[0]]
            while isinstance(begun.op, AsyncUpdate):
                begun = body[begun.operands[0]]
            return Part.WAITS if has_effects(begun, self.effectful) else Part.FREE
        if not has_effects(instruction, self.effectful):
            return Part.FREE
        if op.completes:
            return Part.WAITS
        if op.effects is Effects.CUSTOM or isinstance(op, Send | Recv):
            return Part.BEGINS
        if not self.is_static:
            return Part.BLOCKS
        if isinstance(op, CollectiveOp) and not op.starts_pair:
            return Part.WHOLE if op.lowering is Lowering.COMMUNICATION else Part.BLOCKS
        if isinstance(op, CollectiveOp):
            return Part.BLOCKS if getattr(op, "slice_sizes", ()) else Part.BEGINS
        return Part.BEGINS if isinstance(op, AsyncStart) else Part.BLOCKS


def _kind(instruction: Instruction) -> Hashable:
    """Instructions of one kind begin in the order of the text; those of kind ANY and others, too."""
    op = instruction.op
    if isinstance(op, Send | Recv):
        return type(op), op.is_host_transfer, op.channel_id, instruction.frontend_attribute(PIPELINE)
    return Effects.COLLECTIVE if isinstance(op, CollectiveOp | AsyncStart) else ANY


def _ending(start: Instruction, names: Names) -> Iterator[Instruction]:
    """The instructions that end a transfer; the last one is its context as a value."""

    def made(suffix: str, shape: Shape, op: Op, *operands: str) -> Instruction:
        return Instruction(
            names.fresh(f"{start.name}{suffix}"), shape, op, operands, metadata=start.metadata, span=start.span
        )

    value_shape, _, token_shape = start.shape.elements or ()
    assert isinstance(start.op, Send | Recv)
    channel, with_host = start.op.channel_id, start.op.is_host_transfer
    if isinstance(start.op, Send):
        done = made("-done", token_shape, SendDone(channel_id=channel, is_host_transfer=with_host), start.name)
        value, token = start.operands[0], done.name
        yield done
    else:
        done = made(
            "-done",
            Shape.tuple((value_shape, token_shape)),
            RecvDone(channel_id=channel, is_host_transfer=with_host),
            start.name,
        )
        parts = [
            made(suffix, shape, GetTupleElement(index=index), done.name)
            for index, (suffix, shape) in enumerate(((".value", value_shape), (".token", token_shape)))
        ]
        value, token = (part.name for part in parts)
        yield from (done, *parts)
    number = made(".number", Shape(U32), Constant(literal=Literal.of(np.array(0), Shape(U32))))
    yield number
    yield made(".ended", start.shape, Tuple(), value, number.name, token)


@dataclasses.dataclass
class _Begun:
    """An asynchronous computation of which the start has been inlined.

    start: its async-start, async-updates and async-done, as far as they have been seen.  names: by name in the
    computation, the name in the caller.  late: what the done executes; of a collective that is cut in two, with the
    name of its first half.
    """

    start: list[Instruction]
    body: Computation
    names: dict[str, str]
    late: list[tuple[Instruction, str | None]]
    waves: dict[str, int] = dataclasses.field(default_factory=dict)  # of sends and recvs: how often RING are before

    def in_order(self) -> Sequence[tuple[Instruction, str | None]]:
        """What the done executes: of a channel's transfers the first RING are ended before more begin."""
        if not any(self.waves.values()):
            return self.late
        first = {inner.name: name for inner, name in self.late}

        def turn(inner: Instruction) -> tuple[int, bool]:
            begun = inner if inner.name in self.waves else self.body.by_name.get((*inner.operands, "")[0], inner)
            return self.waves.get(begun.name, 0), isinstance(inner.op, SendDone)

        found = stable_order(
            [
                inner.replace(
                    operands=tuple(o for o in inner.operands if o in first),
                    control_predecessors=tuple(p for p in inner.control_predecessors if p in first),
                )
                for inner in sorted((inner for inner, _ in self.late), key=turn)
            ]
        )
        return [(self.body[inner.name], first[inner.name]) for inner in found]


class _Caller:
    """One computation with async-starts that are inlined."""

    def __init__(self, inlining: _Inlining, computation: Computation) -> None:
        self.inlining, self.computation = inlining, computation
        self.fresh = Names(computation.by_name).fresh
        self.instructions: list[Instruction] = []
        self.begun: dict[str, _Begun] = {}  # by the name of the async-start, or of an async-update
        self.stands_for: dict[str, str] = {}  # async-done -> its computation's root
        self.waits_for: dict[str, tuple[str, ...]] = {}  # of what is gone: what a control successor waits for

    def run(self) -> Computation:
        for instruction in self.computation:
            operands = tuple(self.stands_for.get(o, o) for o in instruction.operands)
            instruction = instruction.replace(operands=operands)
            if self.inlining.is_inlined(instruction):
                self._begin(instruction)
            elif operands and operands[0] in self.begun:
                begun = self.begun[operands[0]]
                if isinstance(instruction.op, AsyncUpdate):
                    begun.start.append(instruction)
                    self.begun[instruction.name] = begun
                    self.waits_for[instruction.name] = (operands[0], *instruction.control_predecessors)
                else:
                    self._end(begun, instruction)
            else:
                self.instructions.append(instruction)
        instructions = tuple(self._with_predecessors(i) for i in self.instructions)
        root = self.stands_for.get(self.computation.root, self.computation.root)
        return dataclasses.replace(self.computation, instructions=instructions, root=root)

    def _begin(self, start: Instruction) -> None:
        body = self.inlining.body(start.op.called_computations[0])
        parameters = {p.name: operand for p, operand in zip(body.parameters, start.operands, strict=True)}
        begun = self.begun[start.name] = _Begun([start], body, parameters, [])
        late: set[str] = set()
        behind: set[Hashable] = set()  # kinds of which one begins at the done
        begun_of: Counter[Hashable] = Counter()
        acting = []
        for inner in body:
            if inner.op.is_parameter:
                continue
            part = self.inlining.part(body, inner)
            begins = part in (Part.BEGINS, Part.WHOLE, Part.BLOCKS)
            kind = _kind(inner) if begins else None
            if isinstance(inner.op, Send | Recv):
                begun.waves[inner.name] = begun_of[kind] // RING
                begun_of[kind] += 1
            waits = part in (Part.WAITS, Part.BLOCKS) or (begins and not behind.isdisjoint((kind, ANY)))
            waits = waits or (isinstance(inner.op, Send) and begun.waves[inner.name] > 0)
            if waits or not late.isdisjoint((*inner.operands, *inner.control_predecessors)):
                late.add(inner.name)
                if begins:
                    behind.add(kind)
                begun.names[inner.name] = self.fresh(inner.name)
                begun.late.append((inner, None))
                continue
            name = self.fresh(inner.name)
            if part is Part.WHOLE:
                assert isinstance(inner.op, CollectiveOp)
                shape = begun_shape([operand.shape for operand in body.operands(inner)], inner.shape)
                first = inner.replace(op=half(inner.op, Half.BEGUN), shape=shape)
                self._add(begun, first, name)
                begun.names[inner.name] = self.fresh(f"{inner.name}-done")
                late.add(inner.name)
                begun.late.append((inner, name))
            else:
                begun.names[inner.name] = name
                self._add(begun, inner, name)
            if part is not Part.FREE:
                acting.append(name)
        self.waits_for[start.name] = tuple(acting) or start.control_predecessors

    def _end(self, begun: _Begun, done: Instruction) -> None:
        begun.start.append(done)
        acting = []
        for inner, first in begun.in_order():
            name = begun.names[inner.name]
            if first is None:
                self._add(begun, inner, name)
            else:
                assert isinstance(inner.op, CollectiveOp)
                second = half(inner.op, Half.ENDED)
                before = done.control_predecessors
                self.instructions.append(
                    inner.replace(name=name, op=second, operands=(first,), control_predecessors=before)
                )
            if self.inlining.part(begun.body, inner) is not Part.FREE:
                acting.append(name)
        root = begun.names[begun.body.root]
        self.stands_for[done.name] = root
        self.waits_for[done.name] = tuple(dict.fromkeys((*acting, root)))

    def _add(self, begun: _Begun, inner: Instruction, name: str) -> None:
        """An instruction of the asynchronous computation, behind what its async instructions so far stand behind."""
        before = [begun.names[p] for p in inner.control_predecessors]
        before += [p for i in begun.start for p in i.control_predecessors]
        self.instructions.append(
            inner.replace(
                name=name,
                operands=tuple(begun.names[o] for o in inner.operands),
                control_predecessors=tuple(dict.fromkeys(before)),
            )
        )

    def _with_predecessors(self, instruction: Instruction) -> Instruction:
        if not any(p in self.waits_for for p in instruction.control_predecessors):
            return instruction
        found: dict[str, None] = {}
        pending = list(reversed(instruction.control_predecessors))
        while pending:
            name = pending.pop()
            if name in self.waits_for:
                pending.extend(reversed(self.waits_for[name]))
            else:
                found[name] = None
        return instruction.replace(control_predecessors=tuple(found))


__all__ = ["with_async_inlined"]
