"""Where contexts of sends and recvs go: through tuples, loops, branches and calls, to their dones and nowhere else.

A context is the result of a send or recv. It may change its place as a whole; only the instruction that ends the
transfer takes it apart. So the compiler may leave the memory of its first part alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.channel import ChannelOp, Recv, RecvDone, Send, SendDone, is_context
from distxla.ops.control_flow import Conditional, While
from distxla.ops.op import Lowering
from distxla.ops.tuple import GetTupleElement

Leaf = frozenset[Instruction | None]  # starts whose context a leaf may belong to; None: nobody knows
NOTHING: Leaf = frozenset()
UNKNOWN: Leaf = frozenset((None,))
TOKEN = 2  # place of a context's token


def verify_contexts(module: Module) -> None:
    """Raise VerificationError (rules `send-done.pair`, `recv-done.pair`, `channel.context`), located.

    A done ends transfers of its own kind and channel; a context has no other users, and the entry doesn't return one.
    """
    starts = [i for c in module.computations for i in c if isinstance(i.op, Send | Recv)]
    dones = [i for c in module.computations for i in c if isinstance(i.op, SendDone | RecvDone)]
    if starts or dones:
        flow = _Flow(module)
        flow.settle()
        _Checks(module, flow).run()


class _Flow:
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
        if op.is_parameter:
            return self._parameters[computation.name][op.number]  # type: ignore[attr-defined]
        if isinstance(op, Send | Recv):
            return tuple(frozenset((instruction,)) if leaf.is_array else NOTHING for leaf in instruction.shape.leaves())
        if isinstance(op, While):
            turns = self._call(op.body, [_union(operands[0], self._root(op.body, nothing))], nothing)
            self._call(op.condition, [_union(operands[0], turns)], ())
            return _union(operands[0], turns)
        if isinstance(op, Conditional):
            found = nothing
            for name, operand in zip(op.branches, operands[1:], strict=True):
                found = _union(found, self._call(name, [operand], nothing))
            return found
        if op.lowering is Lowering.CALL:
            return self._call(op.called_computations[0], operands, nothing)
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
        """Give a computation arguments; what its root has so far."""
        parameters = self._parameters[name]
        for number, argument in enumerate(arguments[: len(parameters)]):
            joined = _union(parameters[number], argument)
            if joined != parameters[number]:
                parameters[number], self._changed = joined, True
        return self._root(name, nothing)

    def _root(self, name: str, nothing: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
        return self.leaves.get((name, self.module[name].root), nothing)


class _Checks:
    def __init__(self, module: Module, flow: _Flow) -> None:
        self.module, self.flow = module, flow

    def run(self) -> None:
        for computation in self.module.computations:
            for instruction in computation:
                operands = self.flow.operands(computation, instruction)
                if isinstance(instruction.op, SendDone | RecvDone):
                    self._done(instruction, operands[0])
                else:
                    self._other(computation, instruction, operands)
        entry = self.module.entry_computation
        returned = self._first(self.flow.leaves[entry.name, entry.root])
        if returned is not None:
            root = entry.root_instruction
            raise self._error("channel.context", root, f"the program's result holds the context of {returned.name}")

    def _done(self, done: Instruction, operand: Sequence[Leaf]) -> None:
        starts = [start for leaf in operand for start in leaf]
        if None in starts:
            return
        kind, start_class = ("send", Send) if isinstance(done.op, SendDone) else ("recv", Recv)
        if not starts:
            raise self._error(f"{kind}-done.pair", done, f"the operand of {done.name} comes from no {kind}", "operands")
        for start in dict.fromkeys(s for s in starts if s is not None):
            assert isinstance(start.op, ChannelOp)
            assert isinstance(done.op, ChannelOp)
            if not isinstance(start.op, start_class):
                message = f"{done.name} gets the context of {start.name}, which is a {start.opcode}"
                raise self._error(f"{kind}-done.pair", done, message, "operands")
            for attribute in ("channel_id", "is_host_transfer"):
                mine, theirs = getattr(done.op, attribute), getattr(start.op, attribute)
                if mine != theirs:
                    message = f"{attribute} is {mine} here and {theirs} in {start.name}"
                    raise self._error(f"{kind}-done.pair", done, message, attribute)

    def _other(self, computation: Computation, instruction: Instruction, operands: Sequence[Sequence[Leaf]]) -> None:
        """Nobody else looks into a context, or passes on a part of one."""
        op = instruction.op
        if op.lowering in (Lowering.ALIAS, Lowering.CALL, Lowering.CONTROL) or op.called_computations:
            if not isinstance(op, GetTupleElement) or op.index == TOKEN:
                return
            whole = is_context(computation[instruction.operands[0]].shape)
            if not (whole and operands[0][-2]):  # its number is one of a transfer's
                return
        for operand in operands:
            start = self._first(operand)
            if start is not None:
                message = f"{instruction.name} uses the context of {start.name}, which only its done may do"
                raise self._error("channel.context", instruction, message, "operands")

    def _first(self, leaves: Sequence[Leaf]) -> Instruction | None:
        return next((start for leaf in leaves for start in leaf if start is not None), None)

    def _error(self, rule: str, at: Instruction, message: str, part: str | None = None) -> VerificationError:
        return VerificationError(f"{rule}: {message}", self.module.locate(at, part))


def _union(a: Sequence[Leaf], b: Sequence[Leaf]) -> tuple[Leaf, ...]:
    return tuple(x | y for x, y in zip(a, b, strict=True))


def _count(instruction: Instruction) -> int:
    return sum(1 for _ in instruction.shape.leaves())
