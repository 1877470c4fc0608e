"""How the code generator asks a transport for the native routine of a communicating instruction.

The generator knows no transport; the caller of the compiler passes one in.
"""

from __future__ import annotations

from typing import Protocol

from llvmlite import ir

from distxla.collectives.protocols.work_table import RoundWork
from distxla.compiler.artifact import CommunicatorSpec, Site
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape

_I32, _POINTER = ir.IntType(32), ir.PointerType()


class LoadedRoutine(ir.instructions.LoadInstr):  # type: ignore[misc]
    """A site's routine, read from memory. llvmlite asks a callee for its type, which a plain pointer doesn't tell."""

    @property
    def function_type(self) -> ir.FunctionType:
        return ir.FunctionType(_I32, (_POINTER, _I32, _POINTER, _POINTER))


class CommunicationEmitter(Protocol):
    """A transport's side of the compiler."""

    def communicator(
        self, instruction: Instruction, operands: tuple[Shape, ...], replicas: int, partitions: int
    ) -> CommunicatorSpec:
        """The groups that act together for this instruction. Equal keys share one communicator within the program."""

    def emit(
        self,
        llvm_module: ir.Module,
        module: Module,
        site: Site,
        spec: CommunicatorSpec,
        instruction: Instruction,
        operands: tuple[Shape, ...],
    ) -> tuple[ir.Function, tuple[RoundWork, ...]]:
        """Add the function abi.COMMUNICATE_SYMBOL of `site` to `llvm_module`; it, and what `Site.rounds` shall be.

        operands: shapes of the operand leaves. Its u64 arrays hold one offset per operand leaf and per result leaf.
        """

    def emit_step_recorder(self, llvm_module: ir.Module) -> ir.Function:
        """Add void (Context*, i32 step, i64 begun, i64 iterations): make a step that has ended an event.

        begun: the target's cycle counter at its begin.  iterations: the record's field that counts the loop around it.
        """
