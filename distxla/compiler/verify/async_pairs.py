"""Pairs of instructions: a start has one user, its done, and both have equal attributes."""

from __future__ import annotations

from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module

# attributes that an instruction that completes another may repeat, and whether it has to
REPEATED = {"channel_id": True, "is_host_transfer": True, "calls": False, "async_execution_thread": False}


def verify_pairs(module: Module) -> None:
    """Raise VerificationError, located, for rule `<opcode>.pair`.

    A start has one user, which completes it; a completing instruction has a start as its operand, perhaps through
    updates, and repeats its attributes.
    """
    for computation in module.computations:
        for instruction in computation:
            if instruction.op.start_done.starts_pair:
                _has_one_end(module, computation, instruction)
            if instruction.op.start_done.completes:
                _has_its_start(module, computation, instruction)


def _has_one_end(module: Module, computation: Computation, start: Instruction) -> None:
    users = [computation[name] for name in computation.users[start.name]]
    if len(users) == 1 and start.opcode in users[0].op.start_done.completes and start.name != computation.root:
        return
    found = ", ".join(f"{user.name} ({user.opcode})" for user in users) or "none"
    message = f"{start.name} needs exactly one user, which completes it; it has {found}"
    raise VerificationError(f"{start.opcode}.pair: {message}", module.locate(start))


def _has_its_start(module: Module, computation: Computation, end: Instruction) -> None:
    start = computation[end.operands[0]]
    if end.op.start_done.completes_indirectly and start.op.effects is not Effects.CHANNEL:
        return
    if start.opcode not in end.op.start_done.completes:
        wanted = " or ".join(end.op.start_done.completes)
        message = f"the operand of {end.name} must be of {wanted}, {start.name} is of {start.opcode}"
        raise VerificationError(f"{end.opcode}.pair: {message}", module.locate(end, "operands"))
    while start.op.start_done.completes:  # an update says no more than its start
        start = computation[start.operands[0]]
    for attribute, always in REPEATED.items():
        mine, theirs = (getattr(op, attribute, None) for op in (end.op, start.op))
        if hasattr(end.op, attribute) and (always or None not in (mine, theirs)) and mine != theirs:
            message = f"{attribute} is {mine} here and {theirs} in {start.name}"
            raise VerificationError(f"{end.opcode}.pair: {message}", module.locate(end, attribute))
