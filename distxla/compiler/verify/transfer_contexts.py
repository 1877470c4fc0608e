"""Contexts of sends and recvs go to their dones and nowhere else, by whatever way (distxla/rewrites/context_flow.py).

A context is the result of a send or recv. It may change its place as a whole; only the instruction that ends the
transfer takes it apart. So the compiler may leave the memory of its first part alone. Where async-done ends the
transfer the context is a value like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ops.channel import is_context
from distxla.rewrites.context_flow import ContextFlow, Leaf, Start, ended_by_async_done

TOKEN = 2  # place of a context's token


def verify_contexts(module: Module) -> None:
    """Raise VerificationError (rules `send-done.pair`, `recv-done.pair`, `channel.context`), located.

    A done ends transfers of its own kind and channel. A context has no other users, and one of them alone; the entry
    doesn't return one.
    """
    starts = [i for c in module.computations for i in c if i.op.transfer.starts]
    dones = [i for c in module.computations for i in c if i.op.transfer.completes]
    if starts or dones:
        flow = ContextFlow(module)
        flow.settle()
        _Checks(module, flow, ended_by_async_done(module, flow)).run()


class _Checks:
    """values: starts whose contexts are values."""

    def __init__(self, module: Module, flow: ContextFlow, values: frozenset[Start]) -> None:
        self.module, self.flow, self.values = module, flow, values

    def run(self) -> None:
        for computation in self.module.computations:
            for instruction in computation:
                operands = self.flow.operands(computation, instruction)
                if instruction.op.transfer.completes:
                    self._done(instruction, operands[0])
                else:
                    self._other(computation, instruction, operands)
                if is_context(instruction.shape):
                    self._taken_once(computation, instruction)
        entry = self.module.entry_computation
        returned = self._first(self.flow.leaves[entry.name, entry.root])
        if returned is not None:
            root = entry.root_instruction
            raise self._error("channel.context", root, f"the program's result holds the context of {returned.name}")

    def _done(self, done: Instruction, operand: Sequence[Leaf]) -> None:
        starts = [start for leaf in operand for start in leaf]
        if None in starts:
            return
        kind = "send" if done.op.transfer.sends else "recv"
        if not starts:
            raise self._error(f"{kind}-done.pair", done, f"the operand of {done.name} comes from no {kind}", "operands")
        for start in dict.fromkeys(s.instruction for s in starts if s is not None):
            if start.op.transfer.sends is not done.op.transfer.sends:
                message = f"{done.name} gets the context of {start.name}, which is a {start.opcode}"
                raise self._error(f"{kind}-done.pair", done, message, "operands")
            for attribute in ("channel_id", "is_host_transfer"):
                mine, theirs = getattr(done.op, attribute), getattr(start.op, attribute)
                if mine != theirs:
                    message = f"{attribute} is {mine} here and {theirs} in {start.name}"
                    raise self._error(f"{kind}-done.pair", done, message, attribute)

    def _other(self, computation: Computation, instruction: Instruction, operands: Sequence[Sequence[Leaf]]) -> None:
        """No other instruction reads a context, or passes on a part of one."""
        op = instruction.op
        if op.start_done.updates_async or op.start_done.completes_async:
            return
        if op.lowering in (Lowering.ALIAS, Lowering.CALL, Lowering.CONTROL) or op.called_computations:
            if op.element_index is None or op.element_index == TOKEN:
                return
            whole = is_context(computation[instruction.operands[0]].shape)
            if not (whole and operands[0][-2]):  # its number is one of a transfer's
                return
        for operand in operands:
            start = self._first(operand)
            if start is not None:
                message = f"{instruction.name} uses the context of {start.name}, which only its done may do"
                raise self._error("channel.context", instruction, message, "operands")

    def _taken_once(self, computation: Computation, context: Instruction) -> None:
        """A context goes to one done, or into one tuple: nothing ends a transfer twice."""
        start = self._first(self.flow.leaves[computation.name, context.name])
        users = [computation[name] for name in computation.users[context.name]]
        takers = [user for user in users if user.op.transfer.completes or user.op.role.is_tuple]
        if start is not None and len(takers) > 1:
            message = f"{takers[1].name} takes the context of {start.name}, which goes to {takers[0].name} already"
            raise self._error("channel.context", takers[1], message, "operands")

    def _first(self, leaves: Sequence[Leaf]) -> Instruction | None:
        found = (start for leaf in leaves for start in leaf if start is not None and start not in self.values)
        return next((start.instruction for start in found), None)

    def _error(self, rule: str, at: Instruction, message: str, part: str | None = None) -> VerificationError:
        return VerificationError(f"{rule}: {message}", self.module.locate(at, part))
