"""Asynchronous computations that communicate, as instructions of the computation that begins them.

An async-start begins all transfers and collectives of its computation together and waits for none of them; the
async-done waits for what is in flight and does the rest. So the computation is cut in two:

* At the start: instructions that need no wait (sends, recvs, the starts of collectives) and their operands.
* At the done: every instruction that waits (recv-done, the done of a collective, a loop that communicates,
  an infeed ..) or needs the result of one that does.

Collectives begin in the order of the text, and so do the sends of a channel and its recvs: that order tells which
belong together, also where other devices run other programs. So after one that has to begin at the done the others of
its kind do, too; and where the caller begins any of that kind between start and done, no part of the computation may
begin later than the start, which then waits for its operands. Of a channel's sends and recvs RING begin at the start,
since one more send would wait for the others' recv-done; the next ones begin when as many have ended.

A send or recv that has no done of its own ends at the async-done. Its context is then (the value that was sent or
received, 0, token), in the computation itself as behind the async-done.

The reference, `check` and the compiler all execute the result. An async-start of a single collective, or of a
computation that doesn't communicate, stays as it is (ops/asynchronous.py). Source: XLA's GPU backend, which executes
these computations as one group of NCCL calls.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from enum import Enum
from typing import ClassVar, Final

import numpy as np

from distxla.collectives.channels import PAIRS, PIPELINE, is_end
from distxla.collectives.protocols.channel import RING
from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.element_type import U32
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Lowering, Op
from distxla.ir.order import stable_order
from distxla.ir.shape import Shape
from distxla.ops.channel import Recv, RecvDone, Send, SendDone
from distxla.ops.constant import Constant
from distxla.ops.support.collective_start_done import AsyncPart, async_part, single_collective, start_shape
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.inlining import inlined, is_call
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.rewrites.context_flow import ContextFlow, Start, ended_by_async_done
from distxla.rewrites.step import Pass

ANY: Final = "any"
HOST: Final = "host"


class Part(Enum):
    """Whether an instruction begins or waits: this decides whether the start or the done executes it."""

    FREE = "free"
    BEGINS = "begins"  # a round or a transfer, without waiting
    WHOLE = "whole"  # a collective whose start and done can be apart
    WAITS = "waits"  # for something that another instruction has begun
    BLOCKS = "blocks"  # begins and waits


BEGINNINGS = (Part.BEGINS, Part.WHOLE, Part.BLOCKS)


class InlineAsync(Pass):
    """Replace every async-start, async-update and async-done of a computation that communicates, unless it is a single
    collective, by the instructions of that computation.

    Expects: a verified module.  Ensures: starts of rounds and transfers are at the start and never wait; the rest is at
    the done.
    """

    name: ClassVar[str] = "inline-async"

    def run(self, module: Module) -> Module:
        if not any(i.op.start_done.starts_async for c in module.computations for i in c):
            return module
        effectful = effectful_computations(module)
        if not any(_is_inlined(module, i, effectful) for c in module.computations for i in c):
            return module
        inlining = _Inlining(module, effectful, ended_by_async_done(module, ContextFlow(module)))
        done = module.replace(computations=tuple(map(inlining.run, module.computations)))
        return done.replace(computations=done.reached())


def _is_inlined(module: Module, instruction: Instruction, effectful: frozenset[str]) -> bool:
    begun = instruction.op.begun_computation
    return begun is not None and begun in effectful and single_collective(module[begun]) is None


class _Inlining:
    """One run over one module, called computations first."""

    def __init__(self, module: Module, effectful: frozenset[str], ended: frozenset[Start]) -> None:
        self.module, self.effectful = module, effectful
        self.ended = {(start.computation, start.instruction.name) for start in ended}
        self.is_static = not has_dynamic_dimensions(module)
        self.done: dict[str, Computation] = {}
        self._cuts: dict[str, _Cut] = {}

    def run(self, computation: Computation) -> Computation:
        computation = self._with_dones(computation)
        if any(_is_inlined(self.module, i, self.effectful) for i in computation):
            computation = _Caller(self, computation).run()
        self.done[computation.name] = computation
        return computation

    def is_inlined(self, instruction: Instruction) -> bool:
        return _is_inlined(self.module, instruction, self.effectful)

    def cut(self, start: Instruction) -> _Cut:
        """Of the computation that an async-start calls, in which calls of others that communicate are inlined."""
        (name,) = start.op.called_computations
        if name not in self._cuts:
            body = inlined(self.done[name], self.done, self.effectful, self._calls_effects)
            ordered = dataclasses.replace(body, instructions=stable_order(body.instructions))  # keeps control edges
            self._cuts[name] = _Cut(self, ordered)
        return self._cuts[name]

    def _calls_effects(self, instruction: Instruction) -> bool:
        return is_call(instruction) and instruction.op.called_computations[0] in self.effectful

    def _with_dones(self, computation: Computation) -> Computation:
        """With a done behind each send and recv that async-done ends; the done's results form its context."""
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
        if op.start_done.completes_async:
            begun = body[instruction.operands[0]]
            while begun.op.start_done.updates_async:
                begun = body[begun.operands[0]]
            return Part.WAITS if has_effects(begun, self.effectful) else Part.FREE
        if not has_effects(instruction, self.effectful):
            return Part.FREE
        if op.start_done.completes:
            return Part.WAITS
        if op.effects is Effects.CUSTOM or op.transfer.starts:
            return Part.BEGINS
        if not self.is_static:
            return Part.BLOCKS
        if op.is_collective and not op.start_done.starts_pair:
            return Part.WHOLE if op.lowering is Lowering.COMMUNICATION else Part.BLOCKS
        if op.is_collective:
            return Part.BLOCKS if op.is_sliced else Part.BEGINS
        return Part.BEGINS if op.start_done.starts_async else Part.BLOCKS


def _kinds(instruction: Instruction) -> set[Hashable]:
    """Instructions with a kind in common begin in the order of the text; those of kind ANY and others, too.

    Transfers of one channel have one in common, and those that name the same pairs, since they may belong together
    whatever their channels are (collectives/channels.py).
    """
    op = instruction.op
    if isinstance(op, Send | Recv) and not op.is_host_transfer:
        stream, pairs = (instruction.frontend_attribute(name) for name in (PIPELINE, PAIRS))
        found: set[Hashable] = {(type(op), stream, op.channel_id or 0)}
        return found if pairs is None else {*found, (type(op), stream, pairs)}
    if op.effects in (Effects.FEED, Effects.CUSTOM, Effects.CHANNEL):
        return {HOST}
    return {Effects.COLLECTIVE} if op.is_collective or op.start_done.starts_async else {ANY}


def _meet(some: Collection[Hashable], others: Collection[Hashable]) -> bool:
    """Whether an instruction of one of these kinds stays in order with one of those."""
    return bool(some and others) and (ANY in some or ANY in others or not set(some).isdisjoint(others))


def _ending(start: Instruction, names: Names) -> Iterator[Instruction]:
    """The instructions that end a transfer; the last one is its context as a value."""

    def made(suffix: str, shape: Shape, op: Op, *operands: str) -> Instruction:
        return Instruction(
            names.fresh(f"{start.name}{suffix}"), shape, op, operands, metadata=start.metadata, span=start.span
        )

    value_shape, _, token_shape = start.shape.elements or ()
    assert isinstance(start.op, Send | Recv)
    channel, with_host = start.op.channel_id, start.op.is_host_transfer
    if start.op.transfer.sends:
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


class _Cut:
    """An asynchronous computation divided into the instructions of its start and those of its done.

    early: in order.  late: in order.  split: names of collectives of which the start is early and the done
    late.  kinds: of all that begin; late_kinds: of those that begin at the done.
    """

    def __init__(self, inlining: _Inlining, body: Computation) -> None:
        self.body = body
        self.parts = {i.name: inlining.part(body, i) for i in body if not i.op.role.is_parameter}
        self.early: list[Instruction] = []
        self.late: list[Instruction] = []
        self.split: set[str] = set()
        self.kinds: set[Hashable] = set()
        self.late_kinds: set[Hashable] = set()
        self._waves: dict[str, int] = {}  # of sends and recvs: how often RING of their channel are before
        late: set[str] = set()
        begun: Counter[Hashable] = Counter()
        for instruction in body:
            if instruction.op.role.is_parameter:
                continue
            part = self.parts[instruction.name]
            kinds = _kinds(instruction) if part in BEGINNINGS else set()
            waits = part in (Part.WAITS, Part.BLOCKS) or _meet(kinds, self.late_kinds)
            if is_end(instruction):
                self._waves[instruction.name] = max(begun[kind] for kind in kinds) // RING
                begun.update(kinds)
                waits = waits or self._waves[instruction.name] > 0
            self.kinds |= kinds
            if waits or not late.isdisjoint((*instruction.operands, *instruction.control_predecessors)):
                late.add(instruction.name)
                self.late.append(instruction)
                self.late_kinds |= kinds
                continue
            self.early.append(instruction)
            if part is Part.WHOLE:
                self.split.add(instruction.name)
                late.add(instruction.name)
                self.late.append(instruction)
        if any(self._waves.values()):
            self.late = self._by_waves()

    def _by_waves(self) -> list[Instruction]:
        """The instructions of the done: of a channel's transfers RING are ended before more begin."""
        names = {instruction.name for instruction in self.late}

        def place(instruction: Instruction) -> tuple[int, bool]:
            begun = (*instruction.operands, "")[0]
            wave = self._waves.get(instruction.name, self._waves.get(begun, 0))
            return wave, instruction.op.transfer.completes and instruction.op.transfer.sends

        found = stable_order(
            [
                instruction.replace(
                    operands=tuple(o for o in instruction.operands if o in names),
                    control_predecessors=tuple(p for p in instruction.control_predecessors if p in names),
                )
                for instruction in sorted(self.late, key=place)
            ]
        )
        return [self.body[instruction.name] for instruction in found]

    def before_the_last_beginning(self) -> list[Instruction]:
        """The late instructions that must be executed before the last one begins, and those that end earlier waves."""
        last = max(k for k, i in enumerate(self.late) if self.parts[i.name] in BEGINNINGS and i.name not in self.split)
        by_waves = any(self._waves.values())
        needed: set[str] = set()
        for instruction in reversed(self.late[: last + 1]):
            part, name = self.parts[instruction.name], instruction.name
            begins = part in BEGINNINGS and name not in self.split
            if begins or name in needed or (by_waves and part is Part.WAITS):
                needed.add(name)
                if name not in self.split:
                    needed.update((*instruction.operands, *instruction.control_predecessors))
        return [i for i in self.late[: last + 1] if i.name in needed]


@dataclasses.dataclass
class _Begun:
    """An asynchronous computation of which the start has been inlined.

    start: its async-start, async-updates and async-done, as far as they have been seen.  names: by name in the
    computation, the name in the caller.  starts: of split collectives, the name of the start.
    left: the instructions that the done executes.
    """

    start: list[Instruction]
    cut: _Cut
    names: dict[str, str]
    starts: dict[str, str] = dataclasses.field(default_factory=dict)
    left: list[Instruction] = dataclasses.field(default_factory=list)


class _Caller:
    """One computation with async-starts that are inlined."""

    def __init__(self, inlining: _Inlining, computation: Computation) -> None:
        self.inlining, self.computation = inlining, computation
        self.fresh = Names(computation.by_name).fresh
        self.instructions: list[Instruction] = []
        self.begun: dict[str, _Begun] = {}  # by the name of the async-start, or of an async-update
        self.stands_for: dict[str, str] = {}  # async-done -> its computation's root
        self.waits_for: dict[str, tuple[str, ...]] = {}  # of removed instructions: what a control successor waits for

    def run(self) -> Computation:
        for position, instruction in enumerate(self.computation):
            operands = tuple(self.stands_for.get(o, o) for o in instruction.operands)
            instruction = instruction.replace(operands=operands)
            if self.inlining.is_inlined(instruction):
                self._begin(position, instruction)
            elif operands and operands[0] in self.begun:
                begun = self.begun[operands[0]]
                begun.start.append(instruction)
                if instruction.op.start_done.updates_async:
                    self.begun[instruction.name] = begun
                    self.waits_for[instruction.name] = (operands[0], *instruction.control_predecessors)
                else:
                    self._end(begun, instruction)
            else:
                self.instructions.append(instruction)
        instructions = tuple(self._with_predecessors(i) for i in self.instructions)
        root = self.stands_for.get(self.computation.root, self.computation.root)
        return dataclasses.replace(self.computation, instructions=instructions, root=root)

    def _begin(self, position: int, start: Instruction) -> None:
        cut = self.inlining.cut(start)
        parameters = {p.name: operand for p, operand in zip(cut.body.parameters, start.operands, strict=True)}
        begun = self.begun[start.name] = _Begun([start], cut, parameters)
        acting = []
        for inner in cut.early:
            if inner.name in cut.split:
                assert isinstance(inner.op, CollectiveOp)
                name = begun.starts[inner.name] = self.fresh(inner.name)
                shape = start_shape([operand.shape for operand in cut.body.operands(inner)], inner.shape)
                self._add(begun, inner.replace(op=async_part(inner.op, AsyncPart.START), shape=shape), name)
            else:
                name = begun.names[inner.name] = self.fresh(inner.name)
                self._add(begun, inner, name)
            if cut.parts[inner.name] is not Part.FREE:
                acting.append(name)
        at_once = []
        if cut.late_kinds and _meet(cut.late_kinds, self._begun_until_done(position, start)):
            at_once = cut.before_the_last_beginning()
        here = {inner.name for inner in at_once}
        begun.left = [inner for inner in cut.late if inner.name not in here]
        acting += self._execute(begun, at_once)
        self.waits_for[start.name] = tuple(acting) or start.control_predecessors

    def _begun_until_done(self, position: int, start: Instruction) -> set[Hashable]:
        """The kinds of all instructions that begin between an async-start and its async-done."""
        found: set[Hashable] = set()
        name = start.name
        for instruction in self.computation.instructions[position + 1 :]:
            if instruction.operands[:1] == (name,) and instruction.op.start_done.completes_async:
                break
            if instruction.operands[:1] == (name,):
                name = instruction.name
            elif self.inlining.is_inlined(instruction):
                found |= self.inlining.cut(instruction).kinds
            elif self.inlining.part(self.computation, instruction) in BEGINNINGS:
                found |= _kinds(instruction)
        return found

    def _end(self, begun: _Begun, done: Instruction) -> None:
        acting = self._execute(begun, begun.left)
        root = begun.names[begun.cut.body.root]
        self.stands_for[done.name] = root
        self.waits_for[done.name] = tuple(dict.fromkeys((*acting, root)))

    def _execute(self, begun: _Begun, late: Sequence[Instruction]) -> list[str]:
        """Add instructions that wait, or depend on such; the names of those with effects."""
        acting = []
        for inner in late:
            first = begun.starts.get(inner.name)
            if first is None:
                name = begun.names[inner.name] = self.fresh(inner.name)
                self._add(begun, inner, name)
            else:
                assert isinstance(inner.op, CollectiveOp)
                name = begun.names[inner.name] = self.fresh(f"{inner.name}-done")
                op = async_part(inner.op, AsyncPart.DONE)
                before = begun.start[-1].control_predecessors
                self.instructions.append(
                    inner.replace(name=name, op=op, operands=(first,), control_predecessors=before)
                )
            if begun.cut.parts[inner.name] is not Part.FREE:
                acting.append(name)
        return acting

    def _add(self, begun: _Begun, inner: Instruction, name: str) -> None:
        """Add an instruction of the asynchronous computation, after the predecessors of its async instructions."""
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


__all__ = ["InlineAsync"]
