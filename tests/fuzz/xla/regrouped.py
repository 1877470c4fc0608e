"""The same program with its instructions in other computations: fusions, calls, asynchronous computations, pairs.

Neighbouring instructions move into a computation of their own, which one of these executes in their place:

    y = fusion(x), calls=group
    y = call(x), to_apply=group
    s = async-start(x), calls=group  ..  y = async-done(s)

Some collectives become a start and a done. A done comes before its first reader, or at once. Results are the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from distxla.ir.computation import Computation
from distxla.ir.element_type import S32
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.asynchronous import AsyncDone, AsyncStart, AsyncUpdate
from distxla.ops.call import Call, Fusion
from distxla.ops.parameter import Parameter
from distxla.ops.support.collective import synchronous
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.registry import op_class
from distxla.ops.tuple import GetTupleElement, Tuple

STAY = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "while", "conditional", "call"})
PAIRS = frozenset({"all-reduce", "all-gather", "collective-permute"})  # that have a start of their own
KINDS = ("kLoop", "kInput", "kOutput")
SIZES = (1, 1, 2, 3, 5)
STAYS, ENDS_AT_ONCE, AS_PAIR, UPDATED = 0.35, 0.2, 0.7, 0.5  # how often
CONTEXT = Shape(S32)


def regrouped(module: Module, seed: int) -> Module:
    """Equal seeds give equal modules."""
    grouping = _Grouping(random.Random(seed), Names(c.name for c in module.computations))
    calls = [i.op for c in module.computations for i in c if i.opcode not in STAY]
    applied = {name for op in calls for name in op.called_computations}
    for computation in module.computations:
        if computation.name in applied:
            grouping.computations.append(computation)
        else:
            grouping.add(computation)
    return module.replace(computations=tuple(grouping.computations))


@dataclass
class _Grouping:
    """computations: of the new module, called ones first."""

    random: random.Random
    names: Names
    computations: list[Computation] = field(default_factory=list)

    def add(self, computation: Computation) -> None:
        writer = _Writer(Names(computation.by_name))
        instructions = computation.instructions
        at = 0
        while at < len(instructions):
            count = self._count(instructions[at:], computation)
            if count:
                self._group(writer, computation, instructions[at : at + count])
            else:
                writer.add(instructions[at])
            at += count or 1
        writer.end(computation.by_name)
        self.computations.append(replace(computation, instructions=tuple(writer.instructions)))

    def _count(self, following: Sequence[Instruction], computation: Computation) -> int:
        """How many instructions become a group; 0: the first stays."""
        if self.random.random() < STAYS:
            return 0
        most, count = self.random.choice(SIZES), 0
        for instruction in following[:most]:
            if instruction.opcode in STAY or instruction.name == computation.root:
                break
            count += 1
        return count

    def _group(self, writer: _Writer, computation: Computation, group: Sequence[Instruction]) -> None:
        (first, *others) = group
        collectives = [i for i in group if isinstance(i.op, CollectiveOp)]
        if not others and first.opcode in PAIRS and len(first.operands) == 1 and self.random.random() < AS_PAIR:
            self._pair(writer, computation, first)
            return
        inside = {i.name for i in group}
        operands = [computation[o] for o in dict.fromkeys(o for i in group for o in i.operands if o not in inside)]
        outs = [i for i in group if any(user not in inside for user in computation.users[i.name])] or [group[-1]]
        name = self._computation(group, operands, outs)
        shape = outs[0].shape if len(outs) == 1 else Shape.tuple(tuple(i.shape for i in outs))
        result = outs[0].name if len(outs) == 1 else writer.names.fresh("grouped")
        given = tuple(i.name for i in operands)
        how = self.random.choice(["call", "async"] if collectives else ["call", "async", "fusion", "fusion"])
        if how == "call":
            writer.add(Instruction(result, shape, Call(to_apply=name), given))
        elif how == "fusion":
            writer.add(Instruction(result, shape, Fusion(kind=self.random.choice(KINDS), calls=name), given))
        else:
            self._asynchronous(writer, Instruction(result, shape, AsyncDone()), operands, name)
        for k, out in enumerate(outs if len(outs) > 1 else ()):
            writer.add(Instruction(out.name, out.shape, GetTupleElement(index=k), (result,)))

    def _computation(
        self, group: Sequence[Instruction], operands: Sequence[Instruction], outs: Sequence[Instruction]
    ) -> str:
        name = self.names.fresh("group")
        instructions = [Instruction(o.name, o.shape, Parameter(number=k), ()) for k, o in enumerate(operands)]
        instructions += group
        root = outs[0].name
        if len(outs) > 1:
            root = Names(i.name for i in instructions).fresh("outs")
            shape = Shape.tuple(tuple(i.shape for i in outs))
            instructions.append(Instruction(root, shape, Tuple(), tuple(i.name for i in outs)))
        self.computations.append(Computation(name, tuple(instructions), root))
        return name

    def _asynchronous(self, writer: _Writer, done: Instruction, operands: Sequence[Instruction], name: str) -> None:
        shape = Shape.tuple((Shape.tuple(tuple(o.shape for o in operands)), done.shape, CONTEXT))
        start = writer.names.fresh("begun")
        writer.add(Instruction(start, shape, AsyncStart(calls=name), tuple(o.name for o in operands)))
        if self.random.random() < UPDATED:
            updated = writer.names.fresh("updated")
            writer.add(Instruction(updated, shape, AsyncUpdate(), (start,)))
            start = updated
        self._end(writer, done.replace(operands=(start,)))

    def _pair(self, writer: _Writer, computation: Computation, collective: Instruction) -> None:
        assert isinstance(collective.op, CollectiveOp)
        begun = op_class(f"{collective.opcode}-start")
        assert issubclass(begun, CollectiveOp)
        (operand,) = computation.operands(collective)
        same = collective.opcode == "all-reduce"
        shape = collective.shape if same else Shape.tuple((operand.shape, collective.shape))
        start = writer.names.fresh("begun")
        writer.add(Instruction(start, shape, synchronous(collective.op, begun), collective.operands))
        done: Op = op_class(f"{collective.opcode}-done")()
        self._end(writer, Instruction(collective.name, collective.shape, done, (start,)))

    def _end(self, writer: _Writer, done: Instruction) -> None:
        if self.random.random() < ENDS_AT_ONCE:
            writer.add(done)
        else:
            writer.later[done.name] = done


@dataclass
class _Writer:
    """later: dones that come before their first reader, by name."""

    names: Names
    instructions: list[Instruction] = field(default_factory=list)
    later: dict[str, Instruction] = field(default_factory=dict)

    def add(self, instruction: Instruction) -> None:
        self.end(instruction.operands)
        self.instructions.append(instruction)

    def end(self, names: Iterable[str]) -> None:
        for name in names:
            if (done := self.later.pop(name, None)) is not None:
                self.instructions.append(done)


__all__ = ["regrouped"]
