"""Where contexts of sends and recvs go: through tuples, loops, branches, calls and asynchronous computations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.ops.control_flow import While


class Start(NamedTuple):
    """A send or recv, and the name of its computation."""

    computation: str
    instruction: Instruction


Leaf = frozenset[Start | None]  # starts whose context a leaf may belong to; None: unknown
NOTHING: Leaf = frozenset()
UNKNOWN: Leaf = frozenset((None,))


class ContextFlow:
    """Which contexts may be in which leaves, over all computations, until nothing changes."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.leaves: dict[tuple[str, str], tuple[Leaf, ...]] = {}  # by computation and instruction
        self._parameters: dict[str, list[tuple[Leaf, ...]]] = {}
        self._changed = True
        for computation in module.computations:
            self._parameters[computation.name] = [
                (NOTHING,) * _count(parameter) for parameter in computation.parameters
            ]

    def settle(self) -> None:
        while self._changed:
            self._changed = False
            for computation in self.module.computations:
                for instruction in computation:
                    self.leaves[computation.name, instruction.name] = self._result(computation, instruction)

    def operands(self, computation: Computation, instruction: Instruction) -> list[tuple[Leaf, ...]]:
        return [self.leaves[computation.name, name] for name in instruction.operands]

    def _result(self, computation: Computation, instruction: Instruction) -> tuple[Leaf, ...]:
        op, operands = instruction.op, self.operands(computation, instruction)
        nothing = (NOTHING,) * _count(instruction)
        if op.role.is_parameter:
            return self._parameters[computation.name][op.number]  # type: ignore[attr-defined]
        if op.transfer.starts:
            own: Leaf = frozenset((Start(computation.name, instruction),))
            return tuple(own if leaf.is_array else NOTHING for leaf in instruction.shape.leaves())
        if isinstance(op, While):
            carried = self._call(op.body, [_union(operands[0], self._root(op.body, nothing))], nothing)
            self._call(op.condition, [_union(operands[0], carried)], ())
            return _union(operands[0], carried)
        if op.role.is_conditional:
            found = nothing
            for name, operand in zip(op.branches, operands[1:], strict=True):
                found = _union(found, self._call(name, [operand], nothing))
            return found
        if op.lowering is Lowering.CALL:
            return self._call(op.called_computations[0], operands, nothing)
        if op.begun_computation is not None:
            outputs = self._call(op.begun_computation, operands, (NOTHING,) * _outputs(instruction.shape))
            taken = tuple(leaf for operand in operands for leaf in operand)
            return (taken + outputs + nothing)[: len(nothing)]
        if op.start_done.updates_async:
            return operands[0]
        if op.start_done.completes_async:
            start = computation[instruction.operands[0]].shape.elements or ()
            first = sum(1 for _ in start[0].leaves())
            return operands[0][first : first + len(nothing)]
        for name in op.called_computations:  # whatever it does with them
            self._call(name, [(UNKNOWN,) * len(p) for p in self._parameters[name]], ())
        if not any(leaf.is_array for leaf in instruction.shape.leaves()):
            return nothing
        if op.lowering is Lowering.ALIAS:
            shapes = [computation[name].shape for name in instruction.operands]
            return op.result_leaves(shapes, operands)
        views = len(operands) == 1 and op.is_view(instruction.shape, [computation[instruction.operands[0]].shape])
        return operands[0] if views and len(operands[0]) == len(nothing) else nothing

    def _call(self, name: str, arguments: Sequence[tuple[Leaf, ...]], nothing: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
        """Add arguments to a computation's parameters; the leaves of its root as known so far."""
        parameters = self._parameters[name]
        for number, argument in enumerate(arguments[: len(parameters)]):
            joined = _union(parameters[number], argument)
            if joined != parameters[number]:
                parameters[number], self._changed = joined, True
        return self._root(name, nothing)

    def _root(self, name: str, nothing: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
        return self.leaves.get((name, self.module[name].root), nothing)


def ended_by_async_done(module: Module, flow: ContextFlow) -> frozenset[Start]:
    """The sends and recvs in asynchronous computations whose contexts reach no done of their own: async-done ends
    them, so that from there on a context is an ordinary value (its first part is the value sent or received)."""
    of_starts = (i.op.begun_computation for c in module.computations for i in c)
    waiting = [name for name in of_starts if name is not None]
    inside: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in inside:
            inside.add(name)
            waiting += [i.op.called_computations[0] for i in module[name] if i.op.lowering is Lowering.CALL]
    begun = {Start(name, i) for name in inside for i in module[name] if i.op.transfer.starts}
    if not begun:
        return frozenset()
    flow.settle()
    ended = {
        start
        for computation in module.computations
        for instruction in computation
        if instruction.op.transfer.completes
        for leaf in flow.operands(computation, instruction)[0]
        for start in leaf
    }
    return frozenset(begun - ended)


def _outputs(shape: Shape) -> int:
    """Of an async-start's result, how many leaves are the computation's result."""
    return sum(1 for _ in (shape.elements or ())[1].leaves())


def _union(a: Sequence[Leaf], b: Sequence[Leaf]) -> tuple[Leaf, ...]:
    return tuple(x | y for x, y in zip(a, b, strict=True))


def _count(instruction: Instruction) -> int:
    return sum(1 for _ in instruction.shape.leaves())
