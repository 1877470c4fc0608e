"""Computations and the instructions that call them: how many there are, and on which execution thread."""

from __future__ import annotations

from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.custom_calls.host_execute import HOST_EXECUTE

MAIN = "main"


def verify_callers(module: Module) -> None:
    """Raise VerificationError, located, for rules `<opcode>.caller` and `<opcode>.thread`.

    A computation that an instruction owns has no other caller. Computations that an instruction calls belong to the
    execution thread of its own computation; those of an asynchronous start belong to the thread that it names, and
    those that the host executes may belong to any.
    """
    callers: dict[str, Instruction] = {}
    for computation in module.computations:
        for instruction in computation:
            if instruction.op.start_done.completes:  # it only repeats its start's computation
                continue
            for name in instruction.op.called_computations:
                other = callers.setdefault(name, instruction)
                if other is not instruction:
                    _may_share(module, name, instruction, other)
                _same_thread(module, computation, instruction, name)


def _may_share(module: Module, name: str, one: Instruction, other: Instruction) -> None:
    owner = next((i for i in (one, other) if i.op.start_done.owns_computations), None)
    if owner is not None:
        message = f"{name} is called by {other.name} and by {one.name}; it may have one caller only"
        raise VerificationError(f"{owner.opcode}.caller: {message}", module.locate(one))


def _same_thread(module: Module, computation: Computation, caller: Instruction, name: str) -> None:
    if caller.op.called_target == HOST_EXECUTE:
        return
    named: str | None = getattr(caller.op, "async_execution_thread", None)
    wanted, found = named or computation.execution_thread or MAIN, module[name].execution_thread or MAIN
    if wanted != found:
        whose = "" if named is not None else f", that of {computation.name}"
        message = f"{caller.name} calls {name} on execution thread {wanted!r}{whose}; {name} belongs to {found!r}"
        raise VerificationError(f"{caller.opcode}.thread: {message}", module.locate(caller))
